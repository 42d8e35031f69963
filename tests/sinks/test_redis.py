"""`Redis` as it is described, what it refuses before an epoch is decided, and what is in it."""

import logging
import pickle  # noqa: TID251 - Spark pickles descriptions on their way to its workers
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_client

from penstock.checkpoint import MemoryStore
from penstock.errors import Invalid, Unavailable
from penstock.sinks import AppliedSink, Guarantee, Target
from penstock.sinks.redis import Redis
from penstock.sinks.redis_writer import RedisWriter
from tests.support import databases
from tests.support.redis_case import hashes_in, plain_client, rows_in
from tests.support.servers import free_port
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, in_order

ROOT = Path(__file__).parents[2]
URL = "redis://:${REDIS_PASSWORD}@127.0.0.1:6379/0"
PAIRS = pa.schema([("shop", pa.string()), ("user", pa.string()), ("n", pa.int64())])


@pytest.fixture
def server(redis_server: databases.Redis, passwords: None) -> databases.Redis:
    return redis_server


@pytest.fixture
def client(server: databases.Redis) -> Iterator[redis_client.Redis]:
    with plain_client(server) as made:
        yield made


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Nobody else's."""
    return f"{request.node.name}:"


def opened(sink: Redis, columns: pa.Schema = PEOPLE) -> RedisWriter:
    return sink.open(Target(job=JOB, columns=columns, partitions=2, store=MemoryStore()))


def test_a_description_says_nothing_secret() -> None:
    """It is printed, logged and sent to every worker."""
    sink: AppliedSink = Redis("people", "redis://:hunter2@db.example/0", key="user")
    by_reference = Redis("people", URL, key=["user", "n"], deletes="gone")

    assert repr(sink) == (
        "Redis(name='people', key=('user',), prefix=None, deletes=None, tombstones='1 day')"
    )
    assert pickle.loads(pickle.dumps(by_reference)) == by_reference
    assert (sink.guarantee, sink.shards(7)) == (Guarantee.CONVERGES, 7)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "a b"}, "sink 'a b' is not a name that every store can hold"),
        (
            {"key": ()},
            "sink people has the key (), which tells no rows apart: "
            "name the columns of its key, each once.",
        ),
        (
            {"key": ["user", "user"]},
            "sink people has the key ('user', 'user'), which tells no rows apart: "
            "name the columns of its key, each once.",
        ),
        (
            {"url": "http://:hunter2@db.example"},
            "sink people has a URL that starts with http://: use one of redis, rediss, unix.",
        ),
        (
            {"prefix": ""},
            "sink people has the prefix '', and keys that start so may be cursors: "
            "give it another prefix.",
        ),
        (
            {"prefix": "penstock-cursor:x"},
            "sink people has the prefix 'penstock-cursor:x', and keys that start so may be "
            "cursors: give it another prefix.",
        ),
        (
            {"tombstones": "soon"},
            "sink people has tombstones='soon', which is not a length of time: "
            "write '90 s' or '1 day'.",
        ),
    ],
    ids=str,
)
def test_a_sink_that_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    """At the line that makes it."""
    with pytest.raises(Invalid) as caught:
        Redis(**{"name": "people", "url": URL, "key": "user", **given})

    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        ("_version", pa.int64(), "has the name of a field that the sink keeps for itself: rename"),
        ("_writer", pa.int64(), "has the name of a field that the sink keeps for itself: rename"),
        ("_deleted", pa.int64(), "has the name of a field that the sink keeps for itself: rename"),
        ("lasted", pa.duration("ns"), "is duration[ns], and there is no one text for its values:"),
        (
            "user",
            pa.float64(),
            "is its key, and is double, of which equal values may be spelt differently: "
            "cast it to text or to a whole number.",
        ),
        (
            "user",
            pa.list_(pa.string()),
            "is its key, and is list<item: string>, of which equal values may be spelt "
            "differently: cast it to text or to a whole number.",
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
        Redis("people", URL, key="user").check(columns.empty_table())

    assert str(caught.value).startswith(f"sink people, column {column!r} {told}")


def test_a_row_without_a_key_is_refused() -> None:
    """Before it is staged: after the decision nobody could leave it out."""
    rows = pa.Table.from_pylist([{"user": "ada", "n": 1}, {"user": None, "n": 2}], PEOPLE)

    with pytest.raises(Invalid) as caught:
        Redis("people", URL, key="user").check(rows)

    assert str(caught.value) == (
        "sink people, column 'user' is its key, and has no value in the row "
        "{'user': None, 'n': 2}: emit no row without it."
    )


def test_a_row_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte: one that just fits is let through."""
    monkeypatch.setattr("penstock.sinks.redis_rows.ROW_BYTES_MAX", 1_000)
    sink = Redis("people", URL, key="user")
    columns = pa.schema([("user", pa.string()), ("note", pa.string())])
    room = 1_000 - len("people:ada" + "user" + "ada" + "note")

    def rows(length: int) -> pa.Table:
        small = {"user": "bob", "note": ""}
        return pa.Table.from_pylist([small, {"user": "ada", "note": "x" * length}], columns)

    sink.check(rows(room))
    with pytest.raises(Invalid) as caught:
        sink.check(rows(room + 1))
    assert str(caught.value) == (
        "sink people, key 'people:ada' has a row of 1,001 bytes, and Redis takes 1,000: "
        "emit less in one row."
    )


def test_a_row_is_a_hash(server: databases.Redis, client: redis_client.Redis, prefix: str) -> None:
    """What others read: a field per column with a value, and which row it is."""
    sink = Redis("people", server.url(), key="user", prefix=prefix)
    writer = opened(sink)
    writer.apply(apply(1, [{"user": "ada", "n": 1}, {"user": "bob", "n": None}]))
    writer.apply(apply(2, [{"user": "ada", "n": None}]))

    assert hashes_in(client, prefix) == {
        "ada": {
            "user": "ada",
            "_version": "000001.000000000002.000000.000000000000",
            "_writer": "contract/people",
        },
        "bob": {
            "user": "bob",
            "_version": "000001.000000000001.000000.000000000001",
            "_writer": "contract/people",
        },
    }


def test_a_cursor_is_a_hash_beside_them(
    server: databases.Redis, client: redis_client.Redis, prefix: str
) -> None:
    """Whoever looks into Redis sees how far the job is, and no two sinks share it."""
    opened(Redis("people", server.url(), key="user", prefix=prefix)).apply(apply(1, [], token=3))

    assert client.hgetall(f"penstock-cursor:contract:people:0:{prefix}") == {
        b"generation": b"1",
        b"epoch": b"1",
        b"mark": str(cursor(1).mark).encode(),
        b"token": b"3",
    }
    elsewhere = opened(Redis("people", server.url(), key="user", prefix=f"{prefix}x:"))
    assert elsewhere.read_cursor(0) is None


HOSTILE = [
    "",
    " ",
    ":",
    "%",
    "%3A",
    "a:b",
    "a%3Ab",
    "a%253Ab",
    "*",
    "[a]?",
    "\x00",
    "\n",
    "🚀",
    "a",
]


def test_no_two_keys_are_spelt_alike(
    server: databases.Redis, client: redis_client.Redis, prefix: str
) -> None:
    """Whoever chooses a user name must not be able to overwrite another's row."""
    hostile = f"{prefix}[*?] 한 \\:"
    rows = [
        {"shop": shop, "user": user, "n": n}
        for n, (shop, user) in enumerate((a, b) for a in HOSTILE for b in HOSTILE)
    ]
    sink = Redis("people", server.url(), key=("shop", "user"), prefix=hostile)
    opened(sink, PAIRS).apply(apply(1, rows, columns=PAIRS))

    assert in_order(rows_in(client, hostile, PAIRS)) == in_order(rows)


def test_keys_stay_readable(
    server: databases.Redis, client: redis_client.Redis, prefix: str
) -> None:
    """People type them."""
    one = Redis("people", server.url(), key="user", prefix=f"{prefix}one:")
    two = Redis("pairs", server.url(), key=("shop", "n"), prefix=f"{prefix}two:")
    opened(one).apply(apply(1, [{"user": "ada:lovelace@x.org", "n": 1}]))
    opened(two, PAIRS).apply(apply(1, [{"shop": "kr:1", "user": "ada", "n": -7}], columns=PAIRS))

    assert sorted(hashes_in(client, prefix)) == ["one:ada:lovelace@x.org", "two:kr%3A1:-7"]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int64(), -1, 1),
        (pa.bool_(), True, False),
        (pa.decimal128(6, 2), Decimal("1.50"), Decimal("15.00")),
        (pa.timestamp("us", tz="UTC"), datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)),
        (pa.date32(), date(2026, 1, 1), date(2026, 1, 2)),
        (pa.binary(), b"\x00", b"\xff"),
    ],
    ids=str,
)
def test_a_key_of_every_type(
    kind: pa.DataType,
    one: Any,
    other: Any,
    server: databases.Redis,
    client: redis_client.Redis,
    prefix: str,
) -> None:
    """What `check` lets through can be told apart and written."""
    columns = pa.schema([("id", kind), ("n", pa.int64())])
    rows = [{"id": one, "n": 0}, {"id": other, "n": 1}, {"id": one, "n": 2}]
    sink = Redis("people", server.url(), key="id", prefix=prefix)
    sink.check(pa.Table.from_pylist(rows, columns))
    opened(sink, columns).apply(apply(1, rows, columns=columns))

    assert sorted(texts["n"] for texts in hashes_in(client, prefix).values()) == ["1", "2"]


def test_a_row_of_thousands_of_columns(
    server: databases.Redis, client: redis_client.Redis, prefix: str
) -> None:
    """Lua hands over no more than some thousand values at once."""
    names = [f"c{n}" for n in range(5_000)]
    columns = pa.schema([("user", pa.string()), *((name, pa.int64()) for name in names)])
    row = {"user": "ada", **{name: n for n, name in enumerate(names)}}
    sink = Redis("people", server.url(), key="user", prefix=prefix)
    opened(sink, columns).apply(apply(1, [row], columns=columns))

    assert rows_in(client, prefix, columns) == [row]


def test_an_unknown_server_is_unavailable(passwords: None) -> None:
    """It may come back; the job waits for it."""
    port = free_port()
    sink = Redis("people", f"redis://:${{REDIS_PASSWORD}}@127.0.0.1:{port}/0", key="user")

    with pytest.raises(Unavailable) as caught:
        opened(sink)

    assert str(caught.value) == (
        f"sink people at redis://127.0.0.1:{port}/0 could not be reached: "
        "start it, or correct the URL."
    )


def test_a_url_that_is_none_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a password in the wrong variable."""
    monkeypatch.setenv("REDIS_URL", "hunter2")

    with pytest.raises(Invalid) as caught:
        opened(Redis("people", "${REDIS_URL}", key="user"))

    assert str(caught.value) == (
        "sink people at ${REDIS_URL} cannot be reached, because its URL is not one that Redis "
        "has: write redis://:${REDIS_PASSWORD}@host:6379/0."
    )


def test_a_password_may_hold_anything(
    server: databases.Redis, client: redis_client.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put into a URL, where such characters mean something."""
    password = "p@ss/w:rd#%?&${HOME}"
    client.execute_command("ACL", "SETUSER", "odd", "on", f">{password}", "~*", "&*", "+@all")
    monkeypatch.setenv("ODD_PASSWORD", password)
    host = f"127.0.0.1:{server.port}/0"
    monkeypatch.setenv("ODD_URL", f"redis://odd:p%40ss%2Fw%3Ard%23%25%3F&${{HOME}}@{host}")
    for url in (f"redis://odd:${{ODD_PASSWORD}}@{host}", "${ODD_URL}"):
        assert opened(Redis("people", url, key="user")).read_cursor(0) is None


def test_a_reference_that_nobody_knows_is_named() -> None:
    """The person who starts the job sets it."""
    with pytest.raises(Invalid) as caught:
        opened(Redis("people", "redis://:${NO_SUCH_PASSWORD}@127.0.0.1/0", key="user"))

    assert str(caught.value) == (
        "sink people refers to ${NO_SUCH_PASSWORD}, which is not set: set NO_SUCH_PASSWORD in "
        "the environment, or in the file that PENSTOCK_SECRETS names."
    )


def test_without_the_package_it_says_so() -> None:
    """Describing a job needs no client; opening the sink does."""
    code = """if True:
        import sys
        sys.modules["redis"] = None
        from penstock.errors import Invalid
        from penstock.sinks.redis import Redis
        from tests.support.sink_cases import PEOPLE, MemoryStore, Target
        sink = Redis("people", "redis://localhost", key="user")
        sink.check(PEOPLE.empty_table())
        try:
            sink.open(Target(job="j", columns=PEOPLE, partitions=1, store=MemoryStore()))
        except Invalid as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == (
        "sink people needs the package redis, which is not installed: "
        "pip install 'penstock[redis]'.\n"
    )


def test_a_server_that_forgets_is_warned_of(
    passwords: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The job believes what was answered; a crash of Redis would take it back."""
    caplog.set_level(logging.WARNING, "penstock.sinks")
    with databases.redis("--appendonly", "no", "--maxmemory-policy", "allkeys-lru") as server:
        opened(Redis("people", server.url(), key="user")).close()
        place = f"sink people at redis://127.0.0.1:{server.port}/0"

    assert caplog.messages == [
        f"{place} keeps no append-only file: a crash of Redis can lose what the job believes "
        "applied. Set appendonly yes.",
        f"{place} drops keys when its memory is full (allkeys-lru), rows and cursors too. "
        "Set maxmemory-policy noeviction.",
    ]


def test_a_server_that_remembers_is_not_warned_of(
    server: databases.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning that is always there is not read."""
    caplog.set_level(logging.WARNING, "penstock.sinks")
    opened(Redis("people", server.url(), key="user")).close()

    assert caplog.messages == []
