"""Keys that cannot be stored: one event's affair and not the job's, whatever way it came."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.runtime.cli import app
from penstock.state.keys import KEY_BYTES_MAX, encode_key
from tests.support.in_process import CLICKS, LocalRun, OnePartition, Sent, append, click
from tests.support.logs import AT_ONCE, new_log

Rows = Iterator[dict[str, Any]]
LONG = "x" * 5000
BEYOND = 1 << 60
"""Microseconds, or days, or seconds: of no year in any of them."""


@ps.stateful(emits="n long")
def total(key: Any, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums per key."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"n": so_far.get()}


@ps.stateful(emits="n long", each=True)
def each(key: Any, event: ps.Event, so_far: ps.Value[int]) -> Rows:
    """The same event by event."""
    so_far.set(so_far.get(0) + event.n)
    yield {"n": so_far.get()}


@ps.vectorized(emits="n long")
def whole(batch: ps.Batch) -> pa.Table:
    """All at once."""
    return batch.table.select(["n"])


@ps.stateful(emits="user string, n long")
def lengthened(user: str, events: ps.Events) -> Rows:
    """Makes a key of its own: as long as the number says."""
    for event in events:
        yield {"user": user * event.n, "n": event.n}


CASES: dict[str, tuple[pa.DataType, Any, Any, str]] = {
    "no number": (
        pa.float64(),
        1.5,
        float("nan"),
        "column 'key': key nan is not equal to itself",
    ),
    "a long text": (
        pa.string(),
        "ada",
        LONG,
        f"column 'key': key '{'x' * 40}'… takes 5002 bytes, and a key may take 4096",
    ),
    "a text that grows": (
        pa.binary(),
        b"ada",
        b"\0" * 3000,
        f"column 'key': key {str(bytes(40))[:40]!r}… takes 6002 bytes, and a key may take 4096",
    ),
    "a time of no year": (
        pa.timestamp("us", "UTC"),
        0,
        BEYOND,
        f"column 'key' holds {BEYOND}, a time outside of the years 1 to 9999",
    ),
    "one without a zone": (
        pa.timestamp("us"),
        0,
        BEYOND,
        f"column 'key' holds {BEYOND}, a time outside of the years 1 to 9999",
    ),
    "one of another zone": (
        pa.timestamp("us", "Asia/Tokyo"),
        0,
        BEYOND,
        f"column 'key' holds {BEYOND}, a time outside of the years 1 to 9999",
    ),
    "one that microseconds cannot tell": (
        pa.timestamp("s"),
        0,
        -BEYOND,
        f"column 'key' holds {-BEYOND}, a time outside of the years 1 to 9999",
    ),
    "a day of no year": (
        pa.date32(),
        0,
        1 << 30,
        f"column 'key' holds {1 << 30}, a time outside of the years 1 to 9999",
    ),
}


def keyed(kind: pa.DataType, good: Any, bad: Any) -> pa.Table:
    """Four rows; the second and the last have a bad key."""
    keys = [good, bad, good, bad]
    numbers = pa.types.is_temporal(kind)
    ints = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array(keys, ints).cast(kind) if numbers else pa.array(keys, kind)
    return pa.table({"key": column, "n": pa.array([1, 2, 4, 8], pa.int64())})


def topic_of(folder: Path, table: pa.Table) -> ps.Log:
    log = ps.Log.create(str(folder / "log"), table.schema)
    with log.producer(batching=AT_ONCE) as producer:
        producer.append(table, 0)
    return log


def run_of(log: ps.Log, folder: Path, function: Any, policy: str) -> LocalRun:
    job = ps.Job("job", partitions=3)
    stream = job.read(log, name="log").key_by("key")
    stream.process(function, name="op", on_error=policy).write(ps.Table("out"))
    return LocalRun(job, folder)


@pytest.mark.parametrize("function", [total, each], ids=["by key", "by event"])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_key_stops_the_job_with_its_place(tmp_path: Path, case: str, function: Any) -> None:
    """Source, partition, offset and column: whoever sent it can be found."""
    kind, good, bad, why = CASES[case]
    run = run_of(topic_of(tmp_path, keyed(kind, good, bad)), tmp_path, function, "fail")
    with pytest.raises(ps.Invalid) as caught:
        run.run()

    assert str(caught.value) == (
        f"operator 'op' was given a key that cannot be stored ({why}), at offset 1 of log, "
        "partition 0: filter such events out in a transform, or use on_error='quarantine'."
    )


@pytest.mark.parametrize("function", [total, each], ids=["by key", "by event"])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_key_is_a_letter_in_the_same_commit(tmp_path: Path, case: str, function: Any) -> None:
    """A producer that can send a long user id cannot stop the job with it."""
    kind, good, bad, why = CASES[case]
    run = run_of(topic_of(tmp_path, keyed(kind, good, bad)), tmp_path, function, "quarantine")
    ran = run.run()

    assert max(run.rows("out", "n")) == (5,)
    assert ran.quarantined == 2
    columns = ("n", "_error", "_source", "_source_partition", "_offset", "_epoch")
    assert run.rows("op.dead-letters", *columns) == [
        (2, why, "log", "0", 1, 1),
        (8, why, "log", "0", 3, 1),
    ]
    assert run.root.check().clean
    shown = CliRunner().invoke(app, ["dead-letters", "list", run.url, "--json"])
    assert [letter["event"] for letter in json.loads(shown.stdout)] == ["log/0@1", "log/0@3"]


def test_a_letter_with_a_bad_key_can_be_replayed(tmp_path: Path) -> None:
    """Its time is what it was, so it is a letter once more."""
    kind, good, bad, _ = CASES["a time of no year"]
    run = run_of(topic_of(tmp_path, keyed(kind, good, bad)), tmp_path, total, "quarantine")
    run.run()
    replayed = CliRunner().invoke(app, ["dead-letters", "replay", run.url])
    run.run()

    assert "2 letters will be processed again" in replayed.stdout
    letters = ps.read_table(run.url, "op.dead-letters")
    assert letters.column("key").cast(pa.int64()).to_pylist() == [BEYOND] * 4
    assert max(run.rows("out", "n")) == (5,)


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_vectorised_function_is_given_no_key_of_no_year(tmp_path: Path, policy: str) -> None:
    """No one event can be blamed for what it raises; for its key it can."""
    kind, good, bad, why = CASES["a time of no year"]
    run = run_of(topic_of(tmp_path, keyed(kind, good, bad)), tmp_path, whole, policy)
    if policy == "fail":
        with pytest.raises(ps.Invalid, match=r"key that cannot be stored .*, at offset 1 of log"):
            run.run()
        return
    run.run()

    assert run.rows("out", "n") == [(1,), (4,)]
    assert run.rows("op.dead-letters", "n", "_error") == [(2, why), (8, why)]


def test_a_vectorised_function_is_not_called_for_nothing(tmp_path: Path) -> None:
    """Where all events of a partition are letters, there is no call, as where none came."""

    @ps.vectorized(emits="n long")
    def strict(batch: ps.Batch) -> pa.Table:
        assert len(batch), "was called for nothing"
        return batch.table.select(["n"])

    kind, _, bad, _ = CASES["a time of no year"]
    run = run_of(topic_of(tmp_path, keyed(kind, bad, bad)), tmp_path, strict, "quarantine")
    run.run()

    assert run.rows("op.dead-letters", "n") == [(1,), (2,), (4,), (8,)]


def test_a_vectorised_function_that_raises_stops_the_job_all_the_same(tmp_path: Path) -> None:
    """It is called once for all events: quarantine has none to put aside."""

    @ps.vectorized(emits="n long")
    def broken(batch: ps.Batch) -> pa.Table:
        raise ValueError("thirteen")

    kind, good, _, _ = CASES["a time of no year"]
    log = topic_of(tmp_path, keyed(kind, good, good))
    with pytest.raises(ps.Invalid, match="raised ValueError: thirteen"):
        run_of(log, tmp_path, broken, "quarantine").run()


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_bad_key_of_an_emitted_row_is_named_too(tmp_path: Path, policy: str) -> None:
    """The next operator knows which task of which operator made the row, and as which it came."""
    job = ps.Job("job", partitions=3)
    log = ps.Log.create(str(tmp_path / "log"), CLICKS)
    made = job.read(log, name="clicks").key_by("user").process(lengthened)
    made.key_by("user").process(total, on_error=policy).write(ps.Table("out"))
    append(log, [click("u", 3), click("u", 4095), click("u", 5)], 0)
    run = LocalRun(job, tmp_path)
    if policy == "fail":
        with pytest.raises(ps.Invalid) as caught:
            run.run()
        where = r"takes 4097 bytes, and a key may take 4096\), at offset 1 of lengthened, partition"
        assert where.replace("\\", "") in str(caught.value)
        return
    run.run()

    assert run.rows("out", "n") == [(3,), (5,)]
    assert run.rows("total.dead-letters", "n", "_source", "_offset") == [(4095, "lengthened", 1)]


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_bad_key_is_found_where_reading_and_the_operator_are_one_task(
    tmp_path: Path, policy: str
) -> None:
    """Nothing of a direct epoch travels, and the topic is parted by the very keys."""
    log = ps.Log.create(str(tmp_path / "log"), CLICKS, key=("user",), partitions=4)
    append(log, [click("ada", 1), click(LONG, 2), click("bob", 4)])
    job = ps.Job("job", partitions=2)
    stream = job.read(log, name="log").key_by("user")
    stream.process(total, on_error=policy).write(ps.Table("out"))
    run = LocalRun(job, tmp_path)
    if policy == "fail":
        with pytest.raises(ps.Invalid, match=r"takes 5002 bytes, and a key may take 4096\), at"):
            run.run()
        assert run.runners[-1].plans[-1].direct
        return
    run.run()

    assert run.rows("out", "n") == [(1,), (4,)]
    assert run.rows("total.dead-letters", "user") == [(LONG,)]


def partition(schema: pa.Schema, keys: list[str], folder: Path) -> OnePartition:
    job = ps.Job("job", partitions=1)
    stream = job.read(new_log(schema), name="log").key_by(*keys)
    stream.process(total, on_error="quarantine").write(ps.Table("out"))
    return OnePartition(job, folder)


def test_a_key_of_several_columns_is_measured_as_a_whole(tmp_path: Path) -> None:
    """Each may be short enough, and all of them together not."""
    schema = pa.schema(
        [("a", pa.string()), ("b", pa.float64()), ("c", pa.string()), ("n", "int64")]
    )
    rows = [
        {"a": "x" * 2000, "b": 1.0, "c": "y" * 2000, "n": 1},
        {"a": "x" * 2050, "b": 1.0, "c": "y" * 2050, "n": 2},
        {"a": "x", "b": float("nan"), "c": "y", "n": 4},
        {"a": None, "b": 1.0, "c": LONG, "n": 8},
    ]
    done = partition(schema, ["a", "b", "c"], tmp_path).run(Sent(rows, source="log"))

    assert done.rows("out", "n") == [(1,)]
    errors = {row["n"]: row["_error"] for row in done.outputs["total.dead-letters"]}
    assert errors[2].startswith("columns a, b, c: key ")
    assert errors[2].endswith(" takes 4115 bytes, and a key may take 4096")
    assert (errors[4], errors[8]) == (
        "column 'b': key nan is not equal to itself",
        "the key is null",
    )


LIMITS = [
    (pa.string(), ["x" * (KEY_BYTES_MAX - 2), "x" * (KEY_BYTES_MAX - 1), "é" * 2047, "é" * 2048]),
    (pa.large_binary(), [b"\1" * 2047, b"\1" * 2048, b"x" * 4094, b"x" * 4095]),
    (pa.float32(), [float("inf"), -0.0, float("nan"), None]),
    (pa.date32(), [date.min, date.max, date(1970, 1, 1), None]),
    (pa.timestamp("us"), [datetime.min, datetime.max, None]),
    (pa.timestamp("ns", "UTC"), [datetime(1970, 1, 1, tzinfo=UTC), None]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), None]),
    (pa.binary(16), [b"x" * 16, b"\0" * 16]),
]


@pytest.mark.parametrize(("kind", "keys"), LIMITS, ids=[str(kind) for kind, _ in LIMITS])
def test_exactly_the_keys_that_can_be_stored_are_kept(
    tmp_path: Path, kind: pa.DataType, keys: list[Any]
) -> None:
    """Neither is a good key put aside, nor does a bad one come through."""
    schema = pa.schema([("key", kind), ("n", pa.int64())])
    one = partition(schema, ["key"], tmp_path)
    rows = [{"key": key, "n": 1 << at} for at, key in enumerate(keys)]
    done = one.run(Sent(rows, source="log"))
    fit = {1 << at for at, key in enumerate(keys) if key is not None and _can_be_stored(key)}

    assert {n for (n,) in done.rows("out", "n")} == fit
    letters = done.rows("total.dead-letters", "n")
    assert {n for (n,) in letters} == {row["n"] for row in rows} - fit


def _can_be_stored(key: Any) -> bool:
    try:
        encode_key(key)
    except ps.Invalid:
        return False
    return True
