"""Which row of a key stays in Redis, whatever comes late, twice, or from somebody else."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
import redis as redis_client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.checkpoint import MemoryStore
from penstock.clock import SystemChance
from penstock.ids import Generation, Token
from penstock.sinks import Cursor, Target
from penstock.sinks.redis import Redis
from penstock.sinks.redis_writer import RedisWriter
from tests.support import databases
from tests.support.redis_case import hashes_in, plain_client, rows_in
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, cursor, in_order

FLAGGED = pa.schema([*PEOPLE, ("gone", pa.bool_())])
DAY_MS = 86_400_000


@pytest.fixture
def client(redis_server: databases.Redis, passwords: None) -> Iterator[redis_client.Redis]:
    with plain_client(redis_server) as made:
        yield made


@pytest.fixture
def prefix() -> str:
    return f"{SystemChance().unique()}:"


@pytest.fixture
def open_it(
    redis_server: databases.Redis, passwords: None, prefix: str
) -> Callable[..., RedisWriter]:
    """Open the sink, once more, or as another job or sink."""

    def opened(name: str = "people", job: str = JOB, **options: str) -> RedisWriter:
        sink = Redis(name, redis_server.url(), key="user", prefix=prefix, deletes="gone", **options)
        return sink.open(Target(job=job, columns=FLAGGED, partitions=8, store=MemoryStore()))

    return opened


def row(user: str, n: int, *, gone: bool = False) -> Row:
    return {"user": user, "n": n, "gone": gone}


def test_a_late_row_does_not_win(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """A shard that lags applies an older epoch after another has applied a newer one."""
    writer = open_it()
    writer.apply(apply(1, [], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", 2)], columns=FLAGGED))
    late = [row("ada", 1), row("bob", 1)]
    writer.apply(apply(1, late, columns=FLAGGED, shard=1))

    assert in_order(rows_in(client, prefix, PEOPLE)) == in_order(
        [{"user": "ada", "n": 2}, {"user": "bob", "n": 1}]
    )
    assert writer.read_cursor(1) == cursor(1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_one_epoch_the_last_partition_wins(
    order: tuple[int, int],
    open_it: Callable[..., RedisWriter],
    client: redis_client.Redis,
    prefix: str,
) -> None:
    """Shards are applied in any order, and the outcome must not depend on it."""
    writer = open_it()
    for shard in order:
        writer.apply(apply(1, [row("ada", shard)], columns=FLAGGED, shard=shard))

    assert rows_in(client, prefix, PEOPLE) == [{"user": "ada", "n": 1}]


def test_a_late_row_does_not_bring_a_key_back(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """What was taken away is remembered, for a while."""
    writer = open_it()
    writer.apply(apply(1, [], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", 0, gone=True)], columns=FLAGGED))
    writer.apply(apply(1, [row("ada", 1)], columns=FLAGGED, shard=1))

    assert hashes_in(client, prefix) == {
        "ada": {
            "_version": "000001.000000000002.000000.000000000000",
            "_writer": "contract/people",
            "_deleted": "1",
        }
    }
    assert DAY_MS - 600_000 < int(client.pttl(f"{prefix}ada")) <= DAY_MS


def test_a_late_tombstone_does_not_win(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """Nor does it give a row that stays an end."""
    writer = open_it()
    writer.apply(apply(1, [], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", 2)], columns=FLAGGED))
    writer.apply(apply(1, [row("ada", 0, gone=True)], columns=FLAGGED, shard=1))

    assert rows_in(client, prefix, PEOPLE) == [{"user": "ada", "n": 2}]
    assert client.pttl(f"{prefix}ada") == -1


def test_a_row_after_a_tombstone_stays(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """It must not end when the tombstone would have."""
    writer = open_it()
    writer.apply(apply(1, [row("ada", 0, gone=True)], columns=FLAGGED))
    writer.apply(apply(2, [row("ada", 2)], columns=FLAGGED))

    assert rows_in(client, prefix, PEOPLE) == [{"user": "ada", "n": 2}]
    assert client.pttl(f"{prefix}ada") == -1


def test_a_tombstone_lives_as_long_as_it_was_told(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """Who knows his shards to be close together need not pay for a day."""
    open_it(tombstones="2 days").apply(apply(1, [row("a", 0, gone=True)], columns=FLAGGED))

    assert DAY_MS < int(client.pttl(f"{prefix}a")) <= 2 * DAY_MS


def test_rows_of_a_later_generation_win(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """After a rewind epochs begin lower, and are newer all the same."""
    writer = open_it()
    for epoch in range(1, 4):
        writer.apply(apply(epoch, [row("ada", epoch)], columns=FLAGGED, token=7))
    new = cursor(1, generation=2, commit="of the new line")
    writer.accept(0, new, Token(3))
    then = cursor(2, generation=2, commit="its next")
    given = [row("ada", 20), row("bob", 20)]
    writer.apply(apply(2, given, columns=FLAGGED, follows=new, at=then, token=3))

    assert {each["user"]: each["n"] for each in rows_in(client, prefix, PEOPLE)} == {
        "ada": 20,
        "bob": 20,
    }


@pytest.mark.parametrize(
    "back",
    [Cursor.before_all(Generation(1)), cursor(2, commit="of another root")],
    ids=["to the beginning", "to an epoch"],
)
def test_rows_after_a_cursor_was_put_back_win(
    back: Cursor, open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """A new root begins at generation 1 again: its rows must not lose to those it replaces."""
    writer = open_it()
    for epoch in range(1, 6):
        writer.apply(apply(epoch, [row("ada", epoch)], columns=FLAGGED))
    for turn in (100, 200):
        writer.accept(0, back, Token(1))
        writer.accept(0, back, Token(1))  # as after a lost answer
        then = cursor(back.epoch + 1, commit=f"after {turn}")
        asked = apply(back.epoch + 1, [row("ada", turn)], columns=FLAGGED, follows=back, at=then)
        writer.apply(asked)
        assert rows_in(client, prefix, PEOPLE) == [{"user": "ada", "n": turn}]
        assert writer.read_cursor(0) == then


@pytest.mark.parametrize("other", [{"job": "renamed"}, {"name": "persons"}], ids=str)
def test_a_row_of_another_job_gives_way(
    other: dict[str, str],
    open_it: Callable[..., RedisWriter],
    client: redis_client.Redis,
    prefix: str,
) -> None:
    """Its epochs do not compare with ours: a job that was renamed begins at 1 again."""
    old = open_it()
    for epoch in range(1, 4):
        old.apply(apply(epoch, [row("ada", epoch)], columns=FLAGGED))
    open_it(**other).apply(apply(1, [row("ada", 100)], columns=FLAGGED))

    assert rows_in(client, prefix, PEOPLE) == [{"user": "ada", "n": 100}]


def test_a_hash_of_nobodys_gives_way(
    open_it: Callable[..., RedisWriter], client: redis_client.Redis, prefix: str
) -> None:
    """What was there before the job is not mixed into its rows."""
    client.hset(f"{prefix}ada", mapping={"n": 7, "left over": "x"})
    open_it().apply(apply(1, [row("ada", 1)], columns=FLAGGED))

    assert hashes_in(client, prefix) == {
        "ada": {
            "user": "ada",
            "n": "1",
            "_version": "000001.000000000001.000000.000000000000",
            "_writer": "contract/people",
        }
    }


EPOCHS, SHARDS = 3, 3
CHANGES = st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.booleans())
SHARES = st.lists(st.lists(CHANGES, max_size=3), min_size=EPOCHS, max_size=EPOCHS)
HISTORIES = st.lists(SHARES, min_size=SHARDS, max_size=SHARDS)
"""For each shard and epoch, what is written: a key, a number, and whether it goes."""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HISTORIES, st.lists(st.integers(0, SHARDS - 1), max_size=20))
def test_in_whatever_order_shards_come_the_keys_are_the_same(
    open_it: Callable[..., RedisWriter],
    client: redis_client.Redis,
    prefix: str,
    history: list[list[list[tuple[str, int, bool]]]],
    turns: list[int],
) -> None:
    """The last row by epoch, partition and sequence stays, as if all had come in that order."""
    for key in client.scan_iter(f"*{prefix}*", count=10_000):
        client.delete(key)
    writer = open_it()
    done = [0] * SHARDS
    for shard in [*turns, *[n for n in range(SHARDS) for _ in range(EPOCHS)]]:
        if done[shard] < EPOCHS:
            done[shard] += 1
            changes = history[shard][done[shard] - 1]
            rows = [row(user, n, gone=gone) for user, n, gone in changes]
            writer.apply(apply(done[shard], rows, columns=FLAGGED, shard=shard))

    expected: dict[str, int] = {}
    for epoch in range(EPOCHS):
        for shard in range(SHARDS):
            for user, n, gone in history[shard][epoch]:
                expected.pop(user, None)
                if not gone:
                    expected[user] = n
    found = {each["user"]: each["n"] for each in rows_in(client, prefix, PEOPLE)}
    assert found == expected
