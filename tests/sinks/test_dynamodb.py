"""`DynamoDB` as it is described, what it refuses before an epoch is decided, and what is in it."""

import os
import pickle  # noqa: TID251 - Spark pickles descriptions on their way to its workers
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.checkpoint import MemoryStore
from penstock.clock import SystemChance, SystemClock
from penstock.errors import Invalid
from penstock.ids import Generation, Token
from penstock.sinks import AppliedSink, Cursor, Guarantee, Target
from penstock.sinks.dynamodb import DynamoDB
from penstock.sinks.dynamodb_rows import DynamoDBRows
from penstock.sinks.dynamodb_values import item_bytes, items_of
from penstock.sinks.dynamodb_writer import DynamoDBWriter
from penstock.sinks.keyed import Keyed
from penstock.sinks.staged import rows_of
from tests.support.dynamodb_case import items_in, plain_client, rows_in
from tests.support.servers import Endpoint
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, cursor, in_order

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient

FLAGGED = pa.schema([*PEOPLE, ("gone", pa.bool_())])
SINK = DynamoDB("people", key="user")


@pytest.fixture
def client(atomic_moto: Endpoint, use: Callable[[Endpoint], None]) -> "DynamoDBClient":
    use(atomic_moto)
    return plain_client(atomic_moto)


@pytest.fixture
def table() -> str:
    return f"people-{SystemChance().unique()}"


@pytest.fixture
def open_it(client: "DynamoDBClient", table: str) -> Callable[..., DynamoDBWriter]:
    """Open the sink, once more, or as another job or sink."""

    def opened(name: str = "people", job: str = JOB) -> DynamoDBWriter:
        sink = DynamoDB(
            name, key="user", table=table, deletes="gone", create=True, cursors=f"{table}-cursors"
        )
        return sink.open(Target(job=job, columns=FLAGGED, partitions=8, store=MemoryStore()))

    return opened


def row(user: str, n: int | None, *, gone: bool = False) -> Row:
    return {"user": user, "n": n, "gone": gone}


def test_a_description_says_nothing_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens it has the keys; the job does not."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    sink: AppliedSink = DynamoDB("people", key=["user", "n"], deletes="gone", create=True)

    assert repr(sink) == (
        "DynamoDB(name='people', key=('user', 'n'), table=None, deletes='gone', create=True, "
        "cursors='penstock-cursors')"
    )
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert b"hunter2" not in pickle.dumps(sink)
    assert (sink.guarantee, sink.shards(7)) == (Guarantee.CONVERGES, 7)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "a b"}, "sink 'a b' is not a name that every store can hold"),
        (
            {"key": ()},
            "sink people has the key (), and a table has a partition key and perhaps a sort key: "
            "name one column, or two.",
        ),
        (
            {"key": ("a", "b", "c")},
            "sink people has the key ('a', 'b', 'c'), and a table has a partition key and perhaps "
            "a sort key: name one column, or two.",
        ),
        (
            {"cursors": "people"},
            "sink people keeps rows and cursors in one table, people: name two.",
        ),
    ],
    ids=str,
)
def test_a_sink_that_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    """At the line that makes it."""
    with pytest.raises(Invalid) as caught:
        DynamoDB(**{"name": "people", "key": "user", **given})

    assert str(caught.value).startswith(told)


def nested(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        ("_version", pa.int64(), "has the name of an attribute that the sink keeps for itself:"),
        ("_expires", pa.int64(), "has the name of an attribute that the sink keeps for itself:"),
        ("lasted", pa.duration("ns"), "is duration[ns], and there is no one text for its values:"),
        (
            "price",
            pa.decimal256(39, 2),
            "is decimal256(39, 2), and DynamoDB holds 38 digits: cast it, or make it text.",
        ),
        (
            "prices",
            pa.list_(pa.struct([("of", pa.decimal256(76, 0))])),
            "is decimal256(76, 0), and DynamoDB holds 38 digits: cast it, or make it text.",
        ),
        ("deep", nested(32), "is nested more than 32 levels deep: flatten it."),
        (
            "home",
            pa.struct([("", pa.int64())]),
            "is struct<: int64>, and has a field without a name: name it.",
        ),
        (
            "user",
            pa.bool_(),
            "is its key, and is bool, which is neither text nor a whole number nor bytes: "
            "cast it to one of these.",
        ),
        (
            "user",
            pa.float64(),
            "is its key, and is double, which is neither text nor a whole number nor bytes: "
            "cast it to one of these.",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_refused(
    column: str, kind: pa.DataType, told: str
) -> None:
    """When the job is loaded, from the columns alone."""
    columns = pa.schema([field for field in PEOPLE if field.name != column]).append(
        pa.field(column, kind)
    )

    with pytest.raises(Invalid) as caught:
        SINK.check(columns.empty_table())

    assert str(caught.value).startswith(f"sink people, column {column!r} {told}")


def test_the_deepest_type_that_is_let_through() -> None:
    """The limit is DynamoDB's, not less."""
    SINK.check(PEOPLE.append(pa.field("deep", nested(31))).empty_table())


FLOATS = pa.list_(pa.struct([("of", pa.float64())]))
NAMES = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("column", "kind", "value", "told"),
    [
        ("user", pa.string(), None, "is its key, and has no value in the row {'user': None}: emit"),
        (
            "user",
            pa.string(),
            "",
            "is its key, and has an empty value, which DynamoDB does not take for a key: "
            "emit no row with an empty key.",
        ),
        (
            "user",
            pa.binary(),
            b"x" * 2049,
            "is its key, and has a value of 2,049 bytes, of 2,048 at most: "
            "use a shorter key, such as a hash of it.",
        ),
        (
            "share",
            pa.float64(),
            float("nan"),
            "has a value of size nan, and DynamoDB holds no such number: "
            "emit text, or none, beyond 1e-130 and 9.99e+125.",
        ),
        (
            "shares",
            FLOATS,
            [{"of": 1.0}, {"of": float("-inf")}],
            "has a value of size inf, and DynamoDB holds no such number: "
            "emit text, or none, beyond 1e-130 and 9.99e+125.",
        ),
        (
            "shares",
            FLOATS,
            [{"of": 1e-131}],
            "has a value of size 1e-131, and DynamoDB holds no such number: "
            "emit text, or none, beyond 1e-130 and 9.99e+125.",
        ),
        (
            "map",
            pa.map_(pa.float64(), pa.int64()),
            [(1.0, 1), (float("nan"), 2)],
            "has a value of size nan, and DynamoDB holds no such number: "
            "emit text, or none, beyond 1e-130 and 9.99e+125.",
        ),
        (
            "map",
            pa.map_(FLOATS, pa.int64()),
            [([{"of": float("inf")}], 1)],
            "has a value of size inf, and DynamoDB holds no such number: "
            "emit text, or none, beyond 1e-130 and 9.99e+125.",
        ),
        (
            "map",
            pa.map_(NAMES, pa.int64()),
            [([("", 1)], 1)],
            "has an entry whose name is empty or longer than 65,535 bytes: emit no such entry.",
        ),
        (
            "map",
            NAMES,
            [("a", 1), ("", 2)],
            "has an entry whose name is empty or longer than 65,535 bytes: emit no such entry.",
        ),
        (
            "map",
            NAMES,
            [("a" * 65_536, 1)],
            "has an entry whose name is empty or longer than 65,535 bytes: emit no such entry.",
        ),
    ],
)
def test_values_that_cannot_be_written_are_refused(
    column: str, kind: pa.DataType, value: Any, told: str
) -> None:
    """Before they are staged: after the decision nobody could leave them out."""
    columns = pa.schema({"user": pa.string()} | {column: kind})
    rows = pa.Table.from_pylist([{"user": "ada"} | {column: value}], columns)

    with pytest.raises(Invalid) as caught:
        SINK.check(rows)

    assert str(caught.value).startswith(f"sink people, column {column!r} {told}")


def test_only_rows_that_are_there_are_looked_at() -> None:
    """A part of a table shares its memory with rows that are not in it."""
    columns = pa.schema([("user", pa.string()), ("map", NAMES), ("shares", FLOATS)])
    bad = {"user": "", "map": [("", 1)], "shares": [{"of": float("nan")}]}
    good = {"user": "ada", "map": [("a", 1)], "shares": [{"of": 1.0}, None]}
    rows = pa.Table.from_pylist([bad, good, bad], columns)

    SINK.check(rows.slice(1, 1))
    with pytest.raises(Invalid):
        SINK.check(rows.slice(1, 2))


def test_a_sort_key_may_be_half_as_long() -> None:
    """DynamoDB's own limits, each for its key."""
    sink = DynamoDB("people", key=("user", "note"))
    columns = pa.schema([("user", pa.string()), ("note", pa.string())])

    def check(user: int, note: int) -> None:
        sink.check(pa.Table.from_pylist([{"user": "é" * user, "note": "x" * note}], columns))

    check(1024, 1024)
    with pytest.raises(Invalid, match="'note' is its key, and has a value of 1,025 bytes"):
        check(1024, 1025)
    with pytest.raises(Invalid, match="'user' is its key, and has a value of 2,050 bytes"):
        check(1025, 1024)


NOTES = pa.schema([("user", pa.string()), ("note", pa.string())])


def notes(length: int) -> list[Row]:
    return [{"user": "bob", "note": ""}, {"user": "ada", "note": "x" * length}]


def test_an_item_that_is_too_large_is_refused() -> None:
    """To the byte, with room left for what the sink adds."""
    room = 400 * 1024 - 512 - len("user" + "ada" + "note")

    SINK.check(pa.Table.from_pylist(notes(room), NOTES))
    with pytest.raises(Invalid) as caught:
        SINK.check(pa.Table.from_pylist(notes(room + 1), NOTES))
    assert str(caught.value) == (
        "sink people, row {'user': 'ada'} has 409,601 bytes, and DynamoDB takes 409,600: "
        "emit less in one row."
    )


def test_large_items_are_sent_a_few_at_a_time(client: "DynamoDBClient", table: str) -> None:
    """A transaction has a limit of its own. An item has less in moto than in DynamoDB: 405,000."""
    rows = [{"user": str(n), "note": "x" * 400_000} for n in range(20)]
    sink = DynamoDB("people", key="user", table=table, create=True, cursors=f"{table}-cursors")
    target = Target(job=JOB, columns=NOTES, partitions=1, store=MemoryStore())
    sink.open(target).apply(apply(1, rows, columns=NOTES))

    assert in_order(rows_in(client, table, NOTES)) == in_order(rows)


@pytest.mark.parametrize(("length", "sizes"), [(10, [99, 99, 52]), (300_000, [10] * 25)])
def test_a_batch_fits_into_a_transaction(length: int, sizes: list[int]) -> None:
    """A hundred actions, of which one is the cursor's, and 4 MB."""
    rows = [{"user": str(n), "note": "x" * length} for n in range(250)]
    (staged,) = apply(1, rows, columns=NOTES).outputs
    spelt = DynamoDBRows(table="t", keyed=Keyed("sink people", ("user",)), writer="j/people")
    batches = list(spelt.batches(rows_of([staged], NOTES), 1, 0))

    assert [len(batch) for batch in batches] == sizes
    found = [put["Put"]["Item"]["user"]["S"] for batch in batches for put in batch]
    assert found == [row_["user"] for row_ in rows]


def test_a_long_list_of_small_numbers_is_not_refused() -> None:
    """Only what is really too large: a bound that is quick to find is not the size."""
    columns = pa.schema([("user", pa.string()), ("list", pa.list_(pa.int64()))])
    rows = pa.Table.from_pylist([{"user": "ada", "list": list(range(60_000))}], columns)

    SINK.check(rows)
    (item,) = items_of(rows)
    assert 60_000 * 3 < item_bytes(item) < 400 * 1024


def test_a_row_is_an_item(
    open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """What others read: an attribute per column with a value, and which row it is."""
    writer = open_it()
    writer.apply(apply(1, [row("ada", 1), row("bob", None)], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", None)], columns=FLAGGED, token=3))

    assert in_order(items_in(client, table)) == in_order(
        [
            {
                "user": {"S": "ada"},
                "_version": {"S": "000001.000000000002.000000.000000000000"},
                "_writer": {"S": "contract/people"},
            },
            {
                "user": {"S": "bob"},
                "_version": {"S": "000001.000000000001.000000.000000000001"},
                "_writer": {"S": "contract/people"},
            },
        ]
    )
    assert items_in(client, f"{table}-cursors") == [
        {
            "shard": {"S": f"contract/people/0/{table}"},
            "generation": {"N": "1"},
            "epoch": {"N": "2"},
            "mark": {"N": str(cursor(2).mark)},
            "token": {"N": "3"},
            "lift": {"N": "0"},
        }
    ]


def test_values_are_of_dynamodbs_own_types() -> None:
    """Others add to numbers and look into lists; only what it has no type for is text."""
    columns = pa.schema(
        [
            ("whole", pa.int64()),
            ("share", pa.float64()),
            ("price", pa.decimal128(38, 4)),
            ("yes", pa.bool_()),
            ("raw", pa.binary()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("home", pa.struct([("city", pa.string()), ("floor", pa.int64())])),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("pairs", pa.map_(pa.int64(), pa.bool_())),
            ("nothing", pa.string()),
        ]
    )
    row_: Row = {
        "whole": -(2**63),
        "share": 1e-5,
        "price": Decimal("1.5000"),
        "yes": False,
        "raw": b"",
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date(2026, 1, 1),
        "tags": ["", None],
        "home": {"city": None, "floor": 1},
        "map": [("a", 1), ("b", None)],
        "pairs": [(1, True)],
    }

    assert list(items_of(pa.Table.from_pylist([row_], columns))) == [
        {
            "whole": {"N": "-9223372036854775808"},
            "share": {"N": "1e-05"},
            "price": {"N": "1.5000"},
            "yes": {"BOOL": False},
            "raw": {"B": b""},
            "at": {"S": "2026-01-01T00:00:00Z"},
            "day": {"S": "2026-01-01"},
            "tags": {"L": [{"S": ""}, {"NULL": True}]},
            "home": {"M": {"city": {"NULL": True}, "floor": {"N": "1"}}},
            "map": {"M": {"a": {"N": "1"}, "b": {"NULL": True}}},
            "pairs": {"L": [{"L": [{"N": "1"}, {"BOOL": True}]}]},
        }
    ]


@pytest.mark.parametrize(
    ("kinds", "letters"),
    [
        ((pa.string(), pa.int64()), "SN"),
        ((pa.binary(), pa.timestamp("us", tz="UTC")), "BS"),
        ((pa.decimal128(9, 2), pa.date32()), "NS"),
    ],
)
def test_two_columns_are_a_partition_key_and_a_sort_key(
    kinds: tuple[pa.DataType, pa.DataType],
    letters: str,
    client: "DynamoDBClient",
    table: str,
) -> None:
    """Made with the types of the columns, and told apart by both."""
    columns = pa.schema([("a", kinds[0]), ("b", kinds[1]), ("n", pa.int64())])
    sink = DynamoDB("pairs", key=("a", "b"), table=table, create=True, cursors=f"{table}-cursors")
    values: dict[str, list[Any]] = {
        "S": ["x", "y"],
        "N": [Decimal(1), Decimal(2)],
        "B": [b"\x00", b"\xff"],
        "when": [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
    }
    firsts = values[letters[0]]
    seconds = values["N" if letters[1] == "N" else "when"]
    rows = [
        {"a": a, "b": b, "n": n} for n, (a, b) in enumerate((a, b) for a in firsts for b in seconds)
    ]
    target = Target(job=JOB, columns=columns, partitions=1, store=MemoryStore())
    sink.open(target).apply(apply(1, rows, columns=columns))

    told = client.describe_table(TableName=table)["Table"]
    assert [(each["AttributeName"], each["KeyType"]) for each in told["KeySchema"]] == [
        ("a", "HASH"),
        ("b", "RANGE"),
    ]
    kinds_told = {
        each["AttributeName"]: each["AttributeType"] for each in told["AttributeDefinitions"]
    }
    assert kinds_told == {"a": letters[0], "b": letters[1]}
    assert sorted(int(item["n"]["N"]) for item in items_in(client, table)) == [0, 1, 2, 3]


def test_a_late_row_does_not_win(
    open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """A shard that lags applies an older epoch after another has applied a newer one."""
    writer = open_it()
    writer.apply(apply(1, [], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", 2)], columns=FLAGGED))
    late = [row("eve", 1), row("ada", 1), row("bob", 1)]
    writer.apply(apply(1, late, columns=FLAGGED, shard=1))

    assert in_order(rows_in(client, table, PEOPLE)) == in_order(
        [{"user": "ada", "n": 2}, {"user": "bob", "n": 1}, {"user": "eve", "n": 1}]
    )
    assert writer.read_cursor(1) == cursor(1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_one_epoch_the_last_partition_wins(
    order: tuple[int, int],
    open_it: Callable[..., DynamoDBWriter],
    client: "DynamoDBClient",
    table: str,
) -> None:
    """Shards are applied in any order, and the outcome must not depend on it."""
    writer = open_it()
    for shard in order:
        writer.apply(apply(1, [row("ada", shard)], columns=FLAGGED, shard=shard))

    assert rows_in(client, table, PEOPLE) == [{"user": "ada", "n": 1}]


def test_a_late_row_does_not_bring_a_key_back(
    open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """What was taken away is remembered, for a day."""
    writer = open_it()
    writer.apply(apply(1, [], columns=FLAGGED))
    before_s = int(SystemClock().wall())
    writer.apply(apply(2, [row("ada", 7, gone=True)], columns=FLAGGED))
    after_s = int(SystemClock().wall())
    writer.apply(apply(1, [row("ada", 1)], columns=FLAGGED, shard=1))

    (item,) = items_in(client, table)
    expires_s = int(item.pop("_expires")["N"])
    assert before_s <= expires_s - 86_400 <= after_s
    assert item == {
        "user": {"S": "ada"},
        "_version": {"S": "000001.000000000002.000000.000000000000"},
        "_writer": {"S": "contract/people"},
        "_deleted": {"BOOL": True},
    }
    told = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    assert (told["TimeToLiveStatus"], told["AttributeName"]) == ("ENABLED", "_expires")


def test_a_late_tombstone_does_not_win(
    open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """And a row after a tombstone has no end."""
    writer = open_it()
    writer.apply(apply(1, [row("bob", 1, gone=True)], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", 2), row("bob", 2)], columns=FLAGGED))
    writer.apply(apply(1, [row("ada", 0, gone=True)], columns=FLAGGED, shard=1))

    assert in_order(rows_in(client, table, PEOPLE)) == in_order(
        [{"user": "ada", "n": 2}, {"user": "bob", "n": 2}]
    )
    assert [name for item in items_in(client, table) for name in item if name == "_expires"] == []


def test_rows_of_a_later_generation_win(
    open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """After a rewind epochs begin lower, and are newer all the same."""
    writer = open_it()
    for epoch in range(1, 4):
        writer.apply(apply(epoch, [row("ada", epoch)], columns=FLAGGED, token=7))
    new = cursor(1, generation=2, commit="of the new line")
    writer.accept(0, new, Token(3))
    then = cursor(2, generation=2, commit="its next")
    writer.apply(apply(2, [row("ada", 20)], columns=FLAGGED, follows=new, at=then, token=3))

    assert rows_in(client, table, PEOPLE) == [{"user": "ada", "n": 20}]


@pytest.mark.parametrize(
    "back",
    [Cursor.before_all(Generation(1)), cursor(2, commit="of another root")],
    ids=["to the beginning", "to an epoch"],
)
def test_rows_after_a_cursor_was_put_back_win(
    back: Cursor, open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """A new root begins at generation 1 again: its rows must not lose to those it replaces."""
    writer = open_it()
    for epoch in range(1, 6):
        writer.apply(apply(epoch, [row("ada", epoch)], columns=FLAGGED))
    for turn in (100, 200):
        writer.accept(0, back, Token(1))
        writer.accept(0, back, Token(1))  # as after a lost answer
        then = cursor(back.epoch + 1, commit=f"after {turn}")
        given = [row("ada", turn)]
        writer.apply(apply(back.epoch + 1, given, columns=FLAGGED, follows=back, at=then))
        assert rows_in(client, table, PEOPLE) == [{"user": "ada", "n": turn}]
        assert writer.read_cursor(0) == then


@pytest.mark.parametrize("other", [{"job": "renamed"}, {"name": "persons"}], ids=str)
def test_a_row_of_another_job_gives_way(
    other: dict[str, str],
    open_it: Callable[..., DynamoDBWriter],
    client: "DynamoDBClient",
    table: str,
) -> None:
    """Its epochs do not compare with ours: a job that was renamed begins at 1 again."""
    old = open_it()
    for epoch in range(1, 4):
        old.apply(apply(epoch, [row("ada", epoch)], columns=FLAGGED))
    open_it(**other).apply(apply(1, [row("ada", 100)], columns=FLAGGED))

    assert rows_in(client, table, PEOPLE) == [{"user": "ada", "n": 100}]


def test_an_item_of_nobodys_gives_way(
    open_it: Callable[..., DynamoDBWriter], client: "DynamoDBClient", table: str
) -> None:
    """What was there before the job is not mixed into its rows."""
    writer = open_it()
    client.put_item(TableName=table, Item={"user": {"S": "ada"}, "left over": {"S": "x"}})
    writer.apply(apply(1, [row("ada", 1)], columns=FLAGGED))

    (item,) = items_in(client, table)
    assert sorted(item) == ["_version", "_writer", "n", "user"]


def test_the_settings_of_the_environment_are_enough(
    open_it: Callable[..., DynamoDBWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other SDKs call the region AWS_REGION; people set that."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert os.environ["AWS_REGION"] == "us-east-1"

    assert open_it().read_cursor(0) is None
