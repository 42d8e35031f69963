"""What `Postgres` finds out about a table before the first row: every reason to refuse it."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.errors import Invalid
from penstock.sinks.postgres import Postgres
from tests.support import databases
from tests.support.postgres_case import Client, new_table, plain_client, rows_in, target, within
from tests.support.sink_cases import PEOPLE, apply, in_order, people

pytestmark = pytest.mark.usefixtures("passwords")


@pytest.fixture(scope="module")
def schema(postgres_server: databases.Postgres) -> Iterator[str]:
    """A schema of this module's own."""
    name = new_table()
    with plain_client(postgres_server) as client:
        client.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        yield name
        client.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture
def client(postgres_server: databases.Postgres, schema: str) -> Iterator[Client]:
    """In that schema, so that statements need not name it."""
    with plain_client(postgres_server, options=f"-c search_path={schema}") as opened:
        yield opened
        opened.execute(f"DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}")


Make = Callable[..., Postgres]


@pytest.fixture
def make(postgres_server: databases.Postgres, schema: str) -> Make:
    """A sink whose table is `people` in that schema."""
    return lambda **given: Postgres("people", postgres_server.dsn(), schema=schema, **given)


def refused(sink: Postgres, columns: pa.Schema = PEOPLE) -> str:
    """What is said of a table that does not do, without the name of its schema."""
    with pytest.raises(Invalid) as caught:
        sink.open(target(columns))
    return str(caught.value).replace(f"{sink.schema}.", "").replace(repr(sink.schema), "SCHEMA")


def opens(sink: Postgres, columns: pa.Schema = PEOPLE) -> None:
    """The table does."""
    sink.open(target(columns)).close()


def cursors_are_made(client: Client) -> bool:
    return client.execute("SELECT to_regclass('penstock_cursors')").fetchone() != (None,)


def test_a_table_that_is_not_there_is_refused_or_made(make: Make, client: Client) -> None:
    """Making one by accident, under a wrong name, would hide the mistake."""
    assert refused(make()) == (
        "sink people, table people is not there: create it, or say create=True."
    )
    assert not cursors_are_made(client)

    opens(make(create=True))
    opens(make())
    assert rows_in(client, "people", ["user", "n"], make().schema) == []


def test_a_schema_that_is_not_there_is_refused(postgres_server: databases.Postgres) -> None:
    """Nobody makes schemas by the way."""
    sink = Postgres("people", postgres_server.dsn(), schema="of_nobody", create=True)

    assert refused(sink) == ("sink people, schema SCHEMA is not there: create it, or name another.")


def test_a_column_that_the_table_lacks_is_refused(make: Make, client: Client) -> None:
    """And nothing is made on the way: the same job starts once the column is there."""
    client.execute('CREATE TABLE people ("user" text)')
    assert refused(make()) == (
        "sink people, table people, column 'n' is in the rows, and not in the table: "
        "add it to the table, or emit rows without it."
    )
    assert not cursors_are_made(client)

    client.execute("ALTER TABLE people ADD n bigint")
    writer = make().open(target())
    writer.apply(apply(1, people(1)))
    writer.close()
    assert in_order(rows_in(client, "people", ["user", "n"], make().schema)) == people(1)


def test_a_column_of_another_type_is_refused(make: Make, client: Client) -> None:
    """The message names both types, so that one knows which to change."""
    client.execute('CREATE TABLE people ("user" text, n text)')
    assert refused(make()) == (
        "sink people, table people, column 'n' is text in the table, and the rows have int64: "
        "cast it, or alter the table."
    )

    client.execute("ALTER TABLE people ALTER n TYPE bigint USING n::bigint")
    opens(make())


FITTING: list[tuple[pa.DataType, list[str]]] = [
    (pa.bool_(), ["boolean"]),
    (pa.int8(), ["smallint", "integer", "bigint", "numeric", "numeric(3, 0)", "real"]),
    (pa.int16(), ["smallint", "bigint", "double precision"]),
    (pa.uint16(), ["integer", "real"]),
    (pa.int32(), ["integer", "bigint", "numeric", "double precision"]),
    (pa.uint32(), ["bigint", "numeric", "double precision"]),
    (pa.int64(), ["bigint", "numeric", "numeric(12, 2)"]),
    (pa.uint64(), ["numeric", "numeric(20)"]),
    (pa.float32(), ["real", "double precision"]),
    (pa.float64(), ["double precision"]),
    (pa.string(), ["text", "varchar", "varchar(3)", "char(3)", "uuid", "jsonb", "json"]),
    (pa.string(), ["public.penstock_mood", "public.penstock_short"]),
    (pa.large_string(), ["text"]),
    (pa.decimal128(10, 2), ["numeric", "numeric(10, 2)", "numeric(5, 4)"]),
    (pa.timestamp("us", "UTC"), ["timestamptz", "timestamptz(6)"]),
    (pa.timestamp("ms"), ["timestamp", "timestamp(3)"]),
    (pa.timestamp("ns", "UTC"), ["timestamptz"]),
    (pa.date32(), ["date"]),
    (pa.time64("us"), ["time"]),
    (pa.binary(), ["bytea"]),
    (pa.binary(16), ["bytea"]),
    (pa.list_(pa.string()), ["jsonb", "json"]),
    (pa.struct([("a", pa.int64())]), ["jsonb"]),
    (pa.map_(pa.string(), pa.int64()), ["jsonb"]),
    (pa.dictionary(pa.int32(), pa.string()), ["text"]),
    (pa.null(), ["text", "bigint", "jsonb"]),
]

UNFIT: list[tuple[pa.DataType, list[str]]] = [
    (pa.bool_(), ["integer", "text"]),
    (pa.int16(), ["boolean", "text"]),
    (pa.int32(), ["smallint", "real"]),
    (pa.uint32(), ["integer"]),
    (pa.int64(), ["integer", "double precision", "numeric(30, -2)", "timestamptz"]),
    (pa.uint64(), ["bigint"]),
    (pa.float64(), ["real", "numeric"]),
    (pa.string(), ["bigint", "bytea", "timestamptz", "text[]"]),
    (pa.decimal128(10, 2), ["numeric(10, 1)", "double precision", "bigint"]),
    (pa.timestamp("us", "UTC"), ["timestamp", "timestamptz(3)", "date"]),
    (pa.timestamp("us"), ["timestamptz", "timestamp(0)"]),
    (pa.date32(), ["timestamp"]),
    (pa.time64("us"), ["time(0)", "timetz"]),
    (pa.binary(), ["text"]),
    (pa.list_(pa.string()), ["text[]", "text"]),
]


@pytest.fixture(scope="module")
def types(postgres_server: databases.Postgres) -> Iterator[None]:
    """An enum, and a text with a rule."""
    with plain_client(postgres_server) as client:
        client.execute("CREATE TYPE penstock_mood AS ENUM ('sad', 'ok')")
        client.execute("CREATE DOMAIN penstock_short AS varchar(9) CHECK (VALUE <> '')")
        yield
        client.execute("DROP TYPE penstock_mood CASCADE; DROP DOMAIN penstock_short CASCADE")


@pytest.mark.parametrize(
    ("kind", "held_by", "fit"),
    [(kind, each, True) for kind, types in FITTING for each in types]
    + [(kind, each, False) for kind, types in UNFIT for each in types],
    ids=str,
)
@pytest.mark.usefixtures("types")
def test_which_types_hold_which_values(
    kind: pa.DataType, held_by: str, fit: bool, make: Make, client: Client
) -> None:
    """What is wider does; what would round, cut or move a value without a word does not."""
    client.execute(f"CREATE TABLE people (x {held_by})")
    columns = pa.schema([("x", kind)])
    if fit:
        opens(make(), columns)
        return
    shown = client.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'people'::regclass AND attname = 'x'"
    ).fetchone()
    assert shown is not None
    assert refused(make(), columns) == (
        f"sink people, table people, column 'x' is {shown[0]} in the table, and the rows have "
        f"{kind}: cast it, or alter the table."
    )


def test_a_column_that_must_be_given_is_refused(make: Make, client: Client) -> None:
    """Every row would be refused later; a default or a null will do."""
    client.execute('CREATE TABLE people ("user" text, n bigint, city text NOT NULL)')
    assert refused(make()) == (
        "sink people, table people, column 'city' takes no null and has no default, and the rows "
        "do not have it: emit it, or give it a default."
    )

    client.execute("ALTER TABLE people ALTER city SET DEFAULT 'Seoul'")
    client.execute("ALTER TABLE people ADD id bigint GENERATED ALWAYS AS IDENTITY")
    opens(make())


@pytest.mark.parametrize("made", ["GENERATED ALWAYS AS IDENTITY", "GENERATED ALWAYS AS (1) STORED"])
def test_a_column_that_the_table_computes_is_refused(made: str, make: Make, client: Client) -> None:
    """Two would say what is in it."""
    client.execute(f'CREATE TABLE people ("user" text, n bigint {made})')

    assert refused(make()) == (
        "sink people, table people, column 'n' is computed by the table, and the rows have it as "
        "well: emit rows without it."
    )


@pytest.mark.parametrize(
    "index",
    [
        "",
        'CREATE INDEX ON people ("user")',
        'CREATE UNIQUE INDEX ON people ("user", n)',
        'CREATE UNIQUE INDEX ON people ("user") WHERE n > 0',
        'CREATE UNIQUE INDEX ON people (lower("user"))',
        'ALTER TABLE people ADD UNIQUE ("user") DEFERRABLE INITIALLY DEFERRED',
    ],
)
def test_a_key_needs_a_unique_index_on_exactly_its_columns(
    index: str, make: Make, client: Client
) -> None:
    """Without one the server could not tell which row to replace."""
    client.execute('CREATE TABLE people ("user" text, n bigint)')
    if index:
        client.execute(index)
    assert refused(make(key="user")) == (
        "sink people, table people has no unique index on exactly the key (user), or one that is "
        "deferred: make these columns its primary key."
    )

    client.execute('CREATE UNIQUE INDEX ON people ("user") INCLUDE (n)')
    opens(make(key="user"))


def test_a_key_of_several_columns_may_be_in_any_order(make: Make, client: Client) -> None:
    """An index has an order, a key has none."""
    client.execute('CREATE TABLE people ("user" text, n bigint, PRIMARY KEY (n, "user"))')

    opens(make(key=("user", "n")))


@pytest.mark.parametrize(
    "kind", ["character(9)", 'text COLLATE "penstock any case"', "jsonb"], ids=str
)
def test_a_key_whose_texts_are_not_plainly_equal_is_refused(
    kind: str, make: Make, client: Client
) -> None:
    """Two keys of an epoch would be one row of the table, and the epoch could never be applied."""
    client.execute(
        'CREATE COLLATION IF NOT EXISTS "penstock any case" '
        "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    client.execute(f'CREATE TABLE people ("user" {kind} PRIMARY KEY, n bigint)')

    assert refused(make(key="user")) == (
        f"sink people, table people, column 'user' is its key, and is {kind.partition(' COLL')[0]}"
        ", in which different texts are equal: make it text with a plain collation."
    )


@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("CREATE VIEW people AS SELECT ''::text AS \"user\", 1::bigint AS n", "is a view"),
        (
            'CREATE UNLOGGED TABLE people ("user" text, n bigint)',
            "is unlogged: a crash of the server empties it, and not the cursors",
        ),
    ],
)
def test_what_is_no_lasting_table_is_refused(
    made: str, what: str, make: Make, client: Client
) -> None:
    """Rows and cursor must live and die together."""
    client.execute(made)

    assert refused(make()).startswith(f"sink people, table people {what}: ")


def test_a_partitioned_table_is_a_table(make: Make, client: Client) -> None:
    """Rows go where the server puts them."""
    client.execute(
        'CREATE TABLE people ("user" text PRIMARY KEY, n bigint) PARTITION BY HASH ("user")'
    )
    for part in range(2):
        client.execute(
            f"CREATE TABLE people_{part} PARTITION OF people "
            f"FOR VALUES WITH (MODULUS 2, REMAINDER {part})"
        )
    writer = make(key="user").open(target())
    writer.apply(apply(1, people(1, 20)))
    writer.close()

    found = rows_in(client, "people", ["user", "n"], make().schema)
    assert in_order(found) == in_order(people(1, 20))


def test_a_table_of_cursors_that_is_somebody_elses_is_left_alone(
    make: Make, client: Client
) -> None:
    """Its name is ours; its rows are not."""
    client.execute('CREATE TABLE people ("user" text, n bigint)')
    client.execute("CREATE TABLE penstock_cursors (job text, sink text)")

    assert refused(make()) == (
        "sink people, table penstock_cursors is not the table of cursors that this version of "
        "Penstock makes: rename it, if it is somebody else's."
    )


@pytest.fixture
def clerk(postgres_server: databases.Postgres, client: Client, schema: str) -> Iterator[str]:
    """A user who may do nothing yet."""
    name = f"clerk_{schema}"
    role = sql.Identifier(name)
    client.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, databases.PASSWORD))
    yield name
    client.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(role, role))


def test_a_user_is_told_what_to_be_granted(
    clerk: str, postgres_server: databases.Postgres, client: Client, schema: str
) -> None:
    """One privilege after the other, each named before an epoch depends on it."""
    dsn = postgres_server.dsn().replace("//etl:", f"//{clerk}:")
    sink = Postgres("people", dsn, schema=schema, key="user", deletes="gone")
    columns = pa.schema([*PEOPLE, ("gone", pa.bool_())])

    def grant(what: str) -> None:
        client.execute(f"GRANT {what} TO {clerk}")

    client.execute('CREATE TABLE people ("user" text PRIMARY KEY, n bigint)')
    assert refused(sink, columns) == (
        "sink people, schema SCHEMA may not be used by this user: "
        "GRANT USAGE ON SCHEMA to this user."
    )
    grant(f"USAGE ON SCHEMA {schema}")
    assert refused(sink, columns) == (
        "sink people, table people may not be written by this user "
        f"(permission denied for schema {schema}): grant it, or use another user."
    )
    grant(f"CREATE ON SCHEMA {schema}")
    assert refused(sink, columns) == (
        "sink people, table people does not let this user SELECT, INSERT, UPDATE, DELETE: "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON it to this user."
    )
    grant("SELECT, INSERT, DELETE ON people")
    grant('UPDATE ("user") ON people')
    assert refused(sink, columns) == (
        "sink people, table people does not let this user UPDATE: GRANT UPDATE ON it to this user."
    )
    grant("UPDATE (n) ON people")
    writer = sink.open(target(columns))
    writer.apply(apply(1, [{**row, "gone": False} for row in people(1)], columns=columns))
    writer.apply(apply(2, [{**people(1)[0], "gone": True}], columns=columns))
    writer.close()
    found = rows_in(client, "people", ["user", "n"], schema)
    assert in_order(found) == people(1)[1:]


def test_a_user_without_temporary_tables_can_append_and_not_upsert(
    clerk: str, postgres_server: databases.Postgres, client: Client, schema: str
) -> None:
    """Only a key needs one."""
    dsn = within(postgres_server, "template1").replace("//etl:", f"//{clerk}:")
    with plain_client(postgres_server, dbname="template1") as other:
        other.execute(f"CREATE SCHEMA AUTHORIZATION {clerk}")
        other.execute("REVOKE TEMPORARY ON DATABASE template1 FROM PUBLIC")
        try:
            sink = Postgres("people", dsn, schema=clerk, key="user", create=True)
            assert refused(sink) == (
                "sink people, table people has a key, and this user may make no temporary tables: "
                "GRANT TEMPORARY ON DATABASE to this user."
            )
            opens(Postgres("people", dsn, schema=clerk, create=True))
        finally:
            other.execute("GRANT TEMPORARY ON DATABASE template1 TO PUBLIC")
            other.execute(f"DROP SCHEMA {clerk} CASCADE")


def test_row_security_is_refused_where_rows_are_copied(
    clerk: str, postgres_server: databases.Postgres, client: Client, schema: str
) -> None:
    """The server does not copy into such a table; it does insert into one."""
    dsn = postgres_server.dsn().replace("//etl:", f"//{clerk}:")
    client.execute(f"GRANT ALL ON SCHEMA {schema} TO {clerk}")
    client.execute(
        'CREATE TABLE people ("user" text PRIMARY KEY, n bigint); '
        "ALTER TABLE people ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY all_of_it ON people USING (true); "
        f"GRANT ALL ON people TO {clerk}"
    )

    assert refused(Postgres("people", dsn, schema=schema)) == (
        "sink people, table people has row security for this user, who cannot copy into it: "
        "use a user with BYPASSRLS, or disable it."
    )
    writer = Postgres("people", dsn, schema=schema, key="user").open(target())
    writer.apply(apply(1, people(1)))
    writer.close()
    assert in_order(rows_in(client, "people", ["user", "n"], schema)) == people(1)


def test_a_made_table_has_fitting_types_and_a_primary_key(make: Make, client: Client) -> None:
    """Readers find what they would have made themselves."""
    kinds: dict[str, tuple[pa.DataType, str]] = {
        "a": (pa.string(), "text"),
        "b": (pa.int16(), "smallint"),
        "c": (pa.decimal128(12, 2), "numeric(12,2)"),
        "d": (pa.timestamp("us", "Asia/Seoul"), "timestamp with time zone"),
        "e": (pa.timestamp("us"), "timestamp without time zone"),
        "f": (pa.float32(), "real"),
        "g": (pa.binary(), "bytea"),
        "h": (pa.map_(pa.string(), pa.int8()), "jsonb"),
        "i": (pa.time32("s"), "time without time zone"),
        "j": (pa.date32(), "date"),
        "k": (pa.bool_(), "boolean"),
        "l": (pa.uint64(), "numeric(20,0)"),
        "m": (pa.decimal128(4, -2), "numeric"),
    }
    opens(make(create=True, key=("a", "b")), pa.schema([(n, k) for n, (k, _) in kinds.items()]))

    found = client.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'people'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    assert found == [(name, shown) for name, (_, shown) in kinds.items()]
    key = client.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'people'::regclass"
    ).fetchall()
    assert key == [("PRIMARY KEY (a, b)",)]


def test_a_column_without_a_type_is_not_made(make: Make) -> None:
    """Nobody knows yet what will be in it."""
    columns = pa.schema([("x", pa.null())])

    assert refused(make(create=True), columns) == (
        "sink people, table people, column 'x' is null, and there is no type to make it with: "
        "cast it, or make the table yourself."
    )


def test_a_server_that_refuses_is_believed(make: Make, client: Client) -> None:
    """A table that changed after the sink was opened is looked at by the server, and named."""
    writer = make(create=True).open(target())
    writer.apply(apply(1, people(1)))
    client.execute("ALTER TABLE people RENAME n TO m")
    with pytest.raises(Invalid) as caught:
        writer.apply(apply(2, people(2)))
    said: Any = str(caught.value).replace(f"{make().schema}.", "")
    assert said == (
        'sink people, table people is not as it was when the sink was opened (column "n" of '
        'relation "people" does not exist): change it back, or start the job again.'
    )
    assert isinstance(caught.value.__cause__, psycopg.errors.UndefinedColumn)

    client.execute("ALTER TABLE people RENAME m TO n")
    writer.apply(apply(2, people(2)))
    writer.close()
    found = rows_in(client, "people", ["user", "n"], make().schema)
    assert in_order(found) == in_order(people(1) + people(2))
