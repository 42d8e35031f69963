"""`Postgres`: what it is called, whom it lets in, and what hostile names and texts do to it."""

import pickle  # noqa: TID251 - Spark pickles what a job describes
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks import Guarantee
from penstock.sinks.postgres import Postgres
from tests.support import databases
from tests.support.databases import PASSWORD
from tests.support.postgres_case import Client, new_table, plain_client, rows_in, target
from tests.support.servers import free_port
from tests.support.sink_cases import PEOPLE, Row, apply, cursor, in_order, people

pytestmark = pytest.mark.usefixtures("passwords")

NAMES = ("user", "n")


@pytest.fixture
def client(postgres_server: databases.Postgres) -> Iterator[Client]:
    with plain_client(postgres_server) as opened:
        yield opened


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    """A name for a table that is gone after the test."""
    name = new_table()
    yield name
    client.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))


def refusal(sink: Postgres, columns: pa.Schema = PEOPLE) -> PenstockError:
    """Why it cannot be opened."""
    with pytest.raises((Invalid, Unavailable)) as caught:
        sink.open(target(columns))
    assert isinstance(caught.value, PenstockError)
    return caught.value


def test_a_sink_is_a_description() -> None:
    """It travels to every task, and says at once what it promises."""
    sink = Postgres("orders", "postgresql://db/shop", key="id", deletes="gone")

    assert pickle.loads(pickle.dumps(sink)) == sink
    assert repr(sink) == (
        "Postgres(name='orders', table=None, schema='public', key=('id',), deletes='gone', "
        "create=False, provenance=False)"
    )
    assert (sink.guarantee, sink.shards(7)) == (Guarantee.EXACTLY_ONCE, 7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"table": "x" * 64},
            f"sink s, table {'x' * 64!r} has a name that Postgres cannot hold: "
            "use 1 to 63 bytes of UTF-8 without NUL.",
        ),
        (
            {"table": "é" * 32},
            f"sink s, table {'é' * 32!r} has a name that Postgres cannot hold: "
            "use 1 to 63 bytes of UTF-8 without NUL.",
        ),
        (
            {"table": ""},
            "sink s, table '' has a name that Postgres cannot hold: "
            "use 1 to 63 bytes of UTF-8 without NUL.",
        ),
        (
            {"schema": "a\0b"},
            "sink s, schema 'a\\x00b' has a name that Postgres cannot hold: "
            "use 1 to 63 bytes of UTF-8 without NUL.",
        ),
        (
            {"table": "\ud800"},
            "sink s, table '\\ud800' has a name that Postgres cannot hold: "
            "use 1 to 63 bytes of UTF-8 without NUL.",
        ),
        (
            {"table": "penstock_cursors"},
            "sink s, table penstock_cursors is where sinks keep their cursors: name another.",
        ),
        (
            {"key": ("a", "a")},
            "sink s has the key ('a', 'a'), in which a column has two meanings: "
            "name each column of its key once.",
        ),
        (
            {"key": "a", "deletes": "a"},
            "sink s has the key ('a',), in which a column has two meanings: "
            "name each column of its key once.",
        ),
    ],
)
def test_what_can_never_be_is_refused_where_it_is_written(given: dict[str, Any], said: str) -> None:
    """A job that names such a thing does not even load."""
    with pytest.raises(Invalid) as caught:
        Postgres("s", "postgresql://db/shop", **given)

    assert str(caught.value) == said


def test_a_job_can_be_described_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks stage rows in workers that need no client library; the leader is told what it lacks."""
    monkeypatch.delitem(sys.modules, "penstock.sinks.postgres_writer", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    sink = Postgres("people", "postgresql://db/shop")
    sink.check(pa.Table.from_pylist(people(1), PEOPLE))

    assert str(refusal(sink)) == (
        "sink people needs the package psycopg, which is not installed: "
        "pip install 'penstock[postgres]'."
    )


@pytest.mark.parametrize("form", ["url", "settings", "whole"])
def test_a_password_of_any_characters_is_taken_as_it_is(
    form: str,
    postgres_server: databases.Postgres,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    client: Client,
) -> None:
    """Nobody has to know what libpq makes of a space or a percent sign in a URL."""
    hostile = "p%41@ss:w/rd?x=1&y#z '\"\\ ${NOT_A_REFERENCE} 비밀"
    user = f"user_{table}"
    client.execute(
        sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(
            sql.Identifier(user), sql.Literal(hostile)
        )
    )
    port = postgres_server.port
    encoded = "".join(f"%{byte:02X}" for byte in hostile.encode())
    monkeypatch.setenv("HOSTILE", hostile)
    monkeypatch.setenv("WHOLE", f"postgresql://{user}:{encoded}@127.0.0.1:{port}/shop")
    connection = {
        "url": f"postgresql://{user}:${{HOSTILE}}@127.0.0.1:{port}/shop",
        "settings": f"host=127.0.0.1 port={port} user={user} password=${{HOSTILE}} dbname=shop",
        "whole": "${WHOLE}",
    }[form]
    try:
        Postgres("people", connection, table=table, create=True).open(target()).apply(
            apply(1, people(1))
        )
        assert in_order(rows_in(client, table, [*NAMES])) == people(1)
    finally:
        quoted = sql.Identifier(user)
        client.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(quoted, quoted))


def test_a_wrong_password_is_a_mistake(
    postgres_server: databases.Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying it again for ever would lock the account, and never help."""
    sink = Postgres("people", postgres_server.dsn())
    monkeypatch.setenv("PG_PASSWORD", "a guess")

    error = refusal(sink)
    assert isinstance(error, Invalid)
    assert str(error) == (
        "sink people, table public.people cannot be opened (connection to server at "
        f'"127.0.0.1", port {postgres_server.port} failed: FATAL: password authentication '
        'failed for user "etl"): set `connection` right.'
    )


def test_the_same_writer_goes_on_once_the_password_is_right(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Somebody changes the password at night, and changes it back in the morning."""
    role = sql.Identifier(f"user_{table}")

    def let_in(password: str) -> None:
        change = sql.SQL("ALTER ROLE {} PASSWORD {}")
        client.execute(change.format(role, sql.Literal(password)))

    client.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER").format(role))
    let_in(PASSWORD)
    try:
        dsn = postgres_server.dsn().replace("//etl:", f"//user_{table}:")
        writer = Postgres("people", dsn, table=table, create=True).open(target())
        writer.apply(apply(1, people(1)))
        writer.close()
        let_in("another")
        with pytest.raises(Invalid, match="password authentication failed"):
            writer.apply(apply(2, people(2)))
        assert in_order(rows_in(client, table, [*NAMES])) == people(1)

        let_in(PASSWORD)
        writer.apply(apply(2, people(2)))
        writer.close()
        assert in_order(rows_in(client, table, [*NAMES])) == in_order(people(1) + people(2))
    finally:
        client.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(role, role))


def test_a_missing_database_is_a_mistake(postgres_server: databases.Postgres) -> None:
    """Nobody creates a database by waiting."""
    dsn = f"{postgres_server.dsn()}_of_nobody"

    error = refusal(Postgres("people", dsn))
    assert isinstance(error, Invalid)
    assert str(error) == (
        "sink people, table public.people cannot be opened (connection to server at "
        f'"127.0.0.1", port {postgres_server.port} failed: FATAL: database '
        '"shop_of_nobody" does not exist): set `connection` right.'
    )


def test_a_user_whom_nobody_let_in_is_a_mistake(postgres_server: databases.Postgres) -> None:
    """The server does not say whether it is the name or the password; neither do we."""
    dsn = postgres_server.dsn().replace("//etl:", "//nobody:")

    error = refusal(Postgres("people", dsn))
    assert isinstance(error, Invalid)
    assert str(error) == (
        "sink people, table public.people cannot be opened (connection to server at "
        f'"127.0.0.1", port {postgres_server.port} failed: FATAL: password authentication '
        'failed for user "nobody"): set `connection` right.'
    )


def test_a_server_that_is_not_there_is_waited_for() -> None:
    """It may be starting."""
    port = free_port()

    error = refusal(Postgres("people", f"postgresql://etl:${{PG_PASSWORD}}@127.0.0.1:{port}/shop"))
    assert isinstance(error, Unavailable)
    assert str(error) == (
        "sink people, table public.people cannot be reached (connection to server at "
        f'"127.0.0.1", port {port} failed: Connection refused): start its server or wait for it: '
        "the job goes on by itself."
    )


def test_a_host_that_has_no_address_is_waited_for() -> None:
    """Name servers fail as others do; only a person can tell a mistake from an outage."""
    error = refusal(Postgres("people", "host=nowhere.invalid dbname=shop password=${PG_PASSWORD}"))

    assert isinstance(error, Unavailable)
    assert str(error).startswith(
        "sink people, table public.people cannot be reached (failed to resolve host "
        "'nowhere.invalid': "
    )


@pytest.mark.parametrize(
    "connection", ["host", "postgresql://a:b@[/x", "nonsense=1 host=db", "mysql://etl:pw@db/x"]
)
def test_what_libpq_does_not_understand_is_refused_without_quoting_it(connection: str) -> None:
    """libpq would quote the part it stumbles over, and that may be the password."""
    assert str(refusal(Postgres("people", connection))) == (
        "sink people, connection is neither a URL nor a list of settings that libpq understands: "
        "write postgresql://user:${PASSWORD}@host/database."
    )


def test_a_reference_that_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is not the secret."""
    monkeypatch.delenv("PG_PASSWORD")

    assert "refers to ${PG_PASSWORD}, which is not set" in str(
        refusal(Postgres("people", "postgresql://etl:${PG_PASSWORD}@db/shop"))
    )


def test_no_secret_is_ever_shown(
    postgres_server: databases.Postgres, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by what is sent to tasks, not by what is open, not by anything that went wrong."""
    secrets = {"S_USER": "hidden_user", "S_PASSWORD": "hidden password", "S_HOST": "hidden.invalid"}
    for name, value in {**secrets, "S_PORT": "hidden-port"}.items():
        monkeypatch.setenv(name, value)
    port = postgres_server.port
    shown: list[str] = []
    for connection in (
        f"postgresql://${{S_USER}}:${{S_PASSWORD}}@127.0.0.1:{port}/shop",
        "postgresql://etl:${S_PASSWORD}@${S_HOST}/shop",
        "host=127.0.0.1 port=${S_PORT} password=${S_PASSWORD}",
        f"postgresql://etl:hidden-literal@127.0.0.1:{port}/shop",
        "postgresql://etl:hidden-literal@127.0.0.1:port/shop",
        "postgresql://etl:hidden-literal@@@[::/shop",
    ):
        sink = Postgres("people", connection)
        error = refusal(sink)
        shown += [repr(sink), str(error), repr(error), *traceback.format_exception(error)]
        if "literal" not in connection:
            shown.append(repr(pickle.dumps(sink)))
    writer = Postgres("people", postgres_server.dsn(), table=table, create=True).open(target())
    lines: Any = writer.lines
    shown += [repr(writer), repr(lines), repr(lines._settings), repr(vars(lines))]

    assert [text for text in shown if "hidden" in text or PASSWORD in text] == []
    writer.close()


HOSTILE = [
    'quote"d',
    "Robert'); DROP TABLE people;--",
    "semi;colon",
    "new\nline",
    "per%cent %s %(x)s {} {0}",
    "back\\slash",
    "김민수 🚀",
    " ",
    "select",
    "$1",
]


@pytest.mark.parametrize("key", [False, True], ids=["append", "upsert"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_names(
    name: str, key: bool, postgres_server: databases.Postgres, client: Client
) -> None:
    """Tables, columns, keys and jobs may be called anything, and nothing of it is ever run."""
    schema = f"s{new_table()}; {name}"[:40]
    columns = pa.schema([(name, pa.string()), (f"{name}2", pa.string()), ("gone", pa.bool_())])
    client.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    try:
        sink = Postgres(
            "people",
            postgres_server.dsn(),
            table=name,
            schema=schema,
            key=(name, f"{name}2") if key else (),
            deletes="gone" if key else None,
            create=True,
        )
        rows: list[Row] = [{name: text, f"{name}2": text, "gone": False} for text in HOSTILE]
        writer = sink.open(target(columns, job=name))
        writer.apply(apply(1, rows, columns=columns))
        writer.apply(apply(2, [{**rows[0], "gone": True}], columns=columns))
        assert writer.read_cursor(0) == cursor(2)
        writer.close()

        found = rows_in(client, name, [name, f"{name}2"], schema)
        texts = HOSTILE[1:] if key else [*HOSTILE, HOSTILE[0]]
        assert in_order(found) == in_order([{name: text, f"{name}2": text} for text in texts])
    finally:
        client.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@pytest.mark.parametrize("key", [(), "user"], ids=["append", "upsert"])
def test_rows_can_say_where_they_come_from(
    key: Any, postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Anybody can check a row against the log it was computed from."""
    sink = Postgres(
        "people", postgres_server.dsn(), table=table, key=key, create=True, provenance=True
    )
    writer = sink.open(target())
    writer.apply(apply(7, people(7, 2), shard=1, follows=None))
    writer.close()

    columns = ["user", "n", "_epoch", "_partition", "_sequence", "_input"]
    assert in_order(rows_in(client, table, columns)) == [
        {
            "user": f"7-0-{n}",
            "n": n,
            "_epoch": 7,
            "_partition": 1,
            "_sequence": n,
            "_input": [{"from": "log/0", "first": n, "last": n}],
        }
        for n in range(2)
    ]
    kinds = client.execute(
        "SELECT column_name::text, data_type::text FROM information_schema.columns "
        "WHERE table_name = %s AND column_name LIKE '\\_%%' ORDER BY ordinal_position",
        (table,),
    ).fetchall()
    assert kinds == [
        ("_epoch", "bigint"),
        ("_partition", "integer"),
        ("_sequence", "bigint"),
        ("_input", "jsonb"),
    ]


def test_another_table_is_another_target(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """A sink that is pointed elsewhere begins anew; the old table keeps its cursor."""
    sink = Postgres("people", postgres_server.dsn(), table=table, create=True)
    other = Postgres("people", postgres_server.dsn(), table=f"{table}_2", create=True)
    sink.open(target()).apply(apply(1, people(1)))
    writer = other.open(target())
    try:
        assert writer.read_cursor(0) is None
        writer.apply(apply(1, people(1)))
        writer.apply(apply(2, people(2)))

        assert sink.open(target()).read_cursor(0) == cursor(1)
        assert len(rows_in(client, f"{table}_2", [*NAMES])) == 6
    finally:
        writer.close()
        client.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(f"{table}_2")))
