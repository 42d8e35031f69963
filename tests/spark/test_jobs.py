"""Jobs on Spark: every form of function and input, and what is said when it goes wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import penstock as ps
from penstock.checkpoint import Root
from penstock.runtime import frames
from penstock.runtime.cli import app
from penstock.runtime.run import Ran, run_job
from penstock.runtime.session import start_spark
from penstock.sinks.spark_source import register
from penstock.sources import Limits

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that all jobs here share."""
    session = start_spark("tests", "local[2]", {})
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _on_spark(spark: SparkSession) -> None:
    """Every test here needs it."""


def make_log(folder: Path, rows: list[dict[str, Any]], name: str = "log") -> ps.Log:
    log = ps.Log.create(str(folder / name), SCHEMA, partitions=2)
    with log.producer() as producer:
        producer.append(rows)
    return log


def run(job: ps.Job, folder: Path, records: int = 1000) -> Ran:
    settings = ps.RunSettings(
        until="caught-up", limits=Limits(records=records), state_folder=str(folder / "state")
    )
    return run_job(job, str(folder / "root"), settings)


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    found = ps.read_table(str(folder / "root"), table)
    visible = [name for name in found.column_names if not name.startswith("_")]
    return sorted(found.select(visible).to_pylist(), key=str)


@ps.stateful(emits="user string, total long")
def total(user: str, events: ps.Events, spent: ps.Value[int]) -> Any:
    spent.set(spent.get(0) + sum(events.values("amount")))
    yield {"user": user, "total": spent.get()}


def test_a_transform_is_any_spark_code(tmp_path: Path) -> None:
    """Filters, new columns and rows made of rows go through Spark itself."""
    log = make_log(tmp_path, [{"user": u, "amount": n} for n in range(6) for u in ("ada", "bob")])
    job = ps.Job("t", partitions=2)
    changed = job.read(log).transform(
        lambda df: df.where("amount > 1").selectExpr(
            "explode(array(user, upper(user))) as user", "amount * 10 as amount", "_meta"
        )
    )
    changed.key_by("user").process(total).write(ps.Table("totals"))

    ran = run(job, tmp_path)

    assert ran.rows_in == 12
    assert rows_of(tmp_path, "totals") == [
        {"user": user, "total": 140} for user in ("ADA", "BOB", "ada", "bob")
    ]


def test_a_transform_that_drops_meta_is_refused(tmp_path: Path) -> None:
    """Without it nobody knows where a row comes from."""
    job = ps.Job("t")
    log = make_log(tmp_path, [])
    changed = job.read(log, name="clicks").transform(lambda df: df.select("user", "amount"))
    changed.key_by("user").process(total).write(ps.Table("totals"))

    with pytest.raises(ps.Invalid, match="the transform of source 'clicks' drops the column"):
        run(job, tmp_path)


def test_one_event_at_a_time_and_a_class(tmp_path: Path) -> None:
    """Whatever a user finds easiest to write."""

    @ps.stateful(emits="user string, number long, amount long", each=True)
    class Numbered:
        def process(self, user: str, event: ps.Event, seen: ps.Value[int]) -> Any:
            seen.set(seen.get(0) + 1)
            yield {"user": user, "number": seen.get(), "amount": event.amount}

    log = make_log(tmp_path, [{"user": "ada", "amount": n} for n in (5, 6)])
    job = ps.Job("t", partitions=2, order="log")
    job.read(log).key_by("user").process(Numbered).write(ps.Table("numbered"))
    run(job, tmp_path)

    numbers = [(row["number"], row["amount"]) for row in rows_of(tmp_path, "numbered")]
    assert sorted(numbers)[0][0] == 1
    assert {number for number, _ in numbers} == {1, 2}
    assert {amount for _, amount in numbers} == {5, 6}


def test_a_vectorised_function_sees_the_whole_partition(tmp_path: Path) -> None:
    """Columns in, columns out, and state for whole batches."""

    @ps.vectorized(emits="amount long, seen long")
    def seen(batch: ps.Batch, counts: ps.Columns[np.int64, np.int64]) -> Any:
        keys, groups, places = batch.by_key()
        known, _ = counts.get_many(keys, groups)
        now = known + np.bincount(places, minlength=len(keys))
        counts.put_many(keys, now, groups)
        return {"amount": keys, "seen": now}

    log = make_log(tmp_path, [{"user": "x", "amount": n % 7} for n in range(100)])
    job = ps.Job("t", partitions=2)
    job.read(log).key_by("amount").process(seen).write(ps.Table("seen"))
    run(job, tmp_path, records=40)

    latest = ps.read_table(str(tmp_path / "root"), "seen", latest_by="amount")
    found = dict(zip(latest["amount"].to_pylist(), latest["seen"].to_pylist(), strict=True))
    assert found == {n: len(range(n, 100, 7)) for n in range(7)}


def test_several_sources_meet_in_one_function(tmp_path: Path) -> None:
    """Each with its own columns and its own name for the key."""
    payments = make_log(tmp_path, [{"user": "ada", "amount": 5}, {"user": "bob", "amount": 7}])
    schema = pa.schema([("uid", pa.string()), ("city", pa.string())])
    moves = ps.Log.create(str(tmp_path / "moves"), schema)
    with moves.producer() as producer:
        producer.append([{"uid": "ada", "city": "Seoul"}])

    @ps.stateful(emits="user string, cities long, spent long")
    def both(user: str, events: ps.Events) -> Any:
        cities = [each for each in events.values("city") if each is not None]
        spent = sum(each or 0 for each in events.values("amount"))
        yield {"user": user, "cities": len(cities), "spent": spent}

    job = ps.Job("t", partitions=2)
    merged = ps.merge(job.read(payments).key_by("user"), job.read(moves).key_by("uid"))
    merged.process(both).write(ps.Table("both"))
    run(job, tmp_path)

    assert rows_of(tmp_path, "both") == [
        {"user": "ada", "cities": 1, "spent": 5},
        {"user": "bob", "cities": 0, "spent": 7},
    ]


def test_a_source_can_be_written_as_it_is(tmp_path: Path) -> None:
    """Not every job keeps state."""
    log = make_log(tmp_path, [{"user": "ada", "amount": n} for n in range(5)])
    job = ps.Job("t", partitions=2)
    job.read(log).transform(lambda df: df.where("amount >= 3")).write(ps.Table("raw"))
    run(job, tmp_path)

    assert rows_of(tmp_path, "raw") == [{"user": "ada", "amount": n} for n in (3, 4)]


def test_poison_goes_to_the_dead_letters_and_can_be_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same commit as everything else, with the key's state untouched."""

    @ps.stateful(emits="user string, stock long")
    def stock(user: str, events: ps.Events, left: ps.Value[int]) -> Any:
        left.set(left.get(0) + sum(events.values("amount")))
        if left.get() < 0:
            raise ValueError("less than nothing")
        yield {"user": user, "stock": left.get()}

    log = make_log(tmp_path, [{"user": "ada", "amount": -3}, {"user": "bob", "amount": 4}])
    job = ps.Job("t", partitions=2)
    job.read(log, name="moves").key_by("user").process(stock, on_error="quarantine").write(
        ps.Table("stock")
    )
    ran = run(job, tmp_path)
    assert (ran.rows_in, ran.quarantined) == (2, 1)
    assert rows_of(tmp_path, "stock") == [{"user": "bob", "stock": 4}]

    root = str(tmp_path / "root")
    shown = CliRunner().invoke(app, ["dead-letters", "list", root, "--json"])
    assert '"error": "ValueError: less than nothing"' in shown.output
    with log.producer() as producer:
        producer.append({"user": "ada", "amount": 10})
    run(job, tmp_path)
    for count in (1, 0):
        played = CliRunner().invoke(app, ["dead-letters", "replay", root])
        assert played.output.startswith(f"{count} letter")
    run(job, tmp_path)

    latest = ps.read_table(root, "stock", latest_by="user")
    found = dict(zip(latest["user"].to_pylist(), latest["stock"].to_pylist(), strict=True))
    assert found == {"ada": 7, "bob": 4}


def test_a_function_that_raises_stops_the_job_with_the_place(tmp_path: Path) -> None:
    """The user sees their own line, not three processes' stack traces."""

    @ps.stateful(emits="n long")
    def broken(user: str, events: ps.Events) -> Any:
        yield {"n": 1 // (len(events) - 1)}

    job = ps.Job("t")
    job.read(make_log(tmp_path, [{"user": "ada", "amount": 1}])).key_by("user").process(broken)

    with pytest.raises(ps.Invalid) as caught:
        run(job, tmp_path)
    assert str(caught.value).startswith(
        "operator 'broken', key 'ada' raised ZeroDivisionError: integer division or modulo by zero"
    )
    assert "len(events) - 1" in caught.value.trace  # type: ignore[attr-defined]
    assert Root.open(str(tmp_path / "root")).newest() is None


def test_emitted_rows_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """By column and value; nothing is committed."""

    @ps.stateful(emits="user string, n long")
    def wrong(user: str, events: ps.Events) -> Any:
        yield {"user": user, "n": "many"}

    job = ps.Job("t")
    job.read(make_log(tmp_path, [{"user": "ada", "amount": 1}])).key_by("user").process(wrong)

    with pytest.raises(
        ps.Invalid, match=r"operator 'wrong', row 0, column 'n' is 'many', not int64"
    ):
        run(job, tmp_path)


def test_a_null_key_is_named_by_its_offset(tmp_path: Path) -> None:
    """A row without a key belongs to nobody."""
    log = make_log(tmp_path, [{"user": None, "amount": 1}])
    job = ps.Job("t")
    job.read(log, name="clicks").key_by("user").process(total).write(ps.Table("totals"))

    with pytest.raises(ps.Invalid, match=r"was given a null as its key \(user\), at offset 0 of"):
        run(job, tmp_path)


def test_another_state_schema_is_refused(tmp_path: Path) -> None:
    """What is stored must be readable as it is declared."""
    log = make_log(tmp_path, [{"user": "ada", "amount": 1}])
    job = ps.Job("t", partitions=1)
    job.read(log).key_by("user").process(total).write(ps.Table("totals"))
    run(job, tmp_path)
    with log.producer() as producer:
        producer.append({"user": "ada", "amount": 1})

    @ps.stateful(emits="user string, total long", name="total")
    def changed(user: str, events: ps.Events, spent: ps.Value[str]) -> Any:
        yield {"user": user, "total": len(spent.get(""))}

    other = ps.Job("t", partitions=1)
    other.read(log).key_by("user").process(changed).write(ps.Table("totals"))
    with pytest.raises(ps.Invalid, match="state 'spent' of operator 'total' was Value"):
        run(other, tmp_path)


def test_an_unreadable_file_among_many_is_named(tmp_path: Path) -> None:
    """One bad file must not pass for an empty one."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.jsonl").write_text('{"user": "ada", "amount": 1}\n')
    (folder / "b.jsonl").write_text('{"user": "ada", "amount": oops}\n')
    source = ps.Files(
        str(folder), record=str(tmp_path / "record"), schema=SCHEMA, settle_s=0.0, format="jsonl"
    )
    job = ps.Job("t")
    job.read(source).key_by("user").process(total).write(ps.Table("totals"))

    with pytest.raises(ps.Invalid, match=r"b\.jsonl"):
        run(job, tmp_path)


def test_state_ages_and_timers_fire_by_event_time(tmp_path: Path) -> None:
    """Also for keys that have no more events; the last ones as soon as the job has caught up."""
    schema = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    log = ps.Log.create(str(tmp_path / "log"), schema)

    @ps.stateful(emits="user string, fired long, kept boolean")
    def watch(
        user: str,
        events: ps.Events,
        last: Annotated[ps.Value[int], ps.ttl("10 s")],
        wake: ps.Timer,
    ) -> Any:
        if wake.fired is not None:
            yield {"user": user, "fired": wake.fired, "kept": last.get() is not None}
            return
        last.set(len(events))
        for event in events:
            for later_ms in (5_000, 15_000):
                wake.set(int(event.at.timestamp() * 1000) + later_ms)

    moments = pa.array([0, 30_000_000], pa.int64()).cast(schema.field("at").type)
    with log.producer() as producer:
        producer.append(pa.table({"user": ["ada", "bob"], "at": moments}, schema=schema))
    job = ps.Job("t", partitions=2)
    job.read(log, event_time="at").key_by("user").process(watch).write(ps.Table("fired"))
    run(job, tmp_path, records=1)

    assert sorted(rows_of(tmp_path, "fired"), key=lambda row: row["fired"]) == [
        {"user": "ada", "fired": 5_000, "kept": True},
        {"user": "ada", "fired": 15_000, "kept": False},
    ]


def test_tables_are_read_by_duckdb_and_spark(tmp_path: Path, spark: SparkSession) -> None:
    """A result that only Penstock could read would be of little use."""
    log = make_log(tmp_path, [{"user": "ada", "amount": n} for n in range(4)])
    job = ps.Job("t")
    job.read(log).key_by("user").process(total).write(ps.Table("totals"))
    run(job, tmp_path)
    root = str(tmp_path / "root")

    totals = ps.read_table(root, "totals")
    assert duckdb.sql("select user, total from totals").fetchall() == [("ada", 6)]
    assert totals.num_rows == 1
    register(spark)
    frame = spark.read.format("penstock").option("root", root).option("table", "totals").load()
    assert [tuple(row) for row in frame.select("user", "total").collect()] == [("ada", 6)]


@pytest.mark.parametrize("longest", [0, 64 << 10], ids=["described anew", "kept"])
def test_every_epoch_has_a_query_of_its_own(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    """One that found the shuffle of the last would read nothing new; and nothing of a plan stays
    in the session, however it came to the tasks."""
    monkeypatch.setattr(frames, "SETTING_BYTES_MAX", longest)
    log = make_log(tmp_path, [{"user": f"u{n % 5}", "amount": n} for n in range(40)])
    job = ps.Job("t", partitions=2)
    job.read(log).key_by("user").process(total).write(ps.Table("totals"))
    ran = run(job, tmp_path, records=8)

    assert ran.epochs >= 5
    newest = ps.read_table(str(tmp_path / "root"), "totals", latest_by="user").to_pylist()
    wanted = {f"u{k}": sum(n for n in range(40) if n % 5 == k) for k in range(5)}
    assert {row["user"]: row["total"] for row in newest} == wanted
    assert not [name for name in spark.conf.getAll if name.startswith("spark.penstock.plan")]
