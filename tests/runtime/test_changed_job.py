"""A job that was changed over an old root: refused by name before anything is changed."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.fork import fork
from penstock.runtime.description import KnownSink
from penstock.runtime.loop import EpochLoop
from penstock.runtime.remembered import remembered
from penstock.sinks.table_index import table_refs
from tests.support.in_process import SETTINGS, LocalRun, append

SALES = pa.schema([("user", pa.string()), ("shop", pa.string()), ("n", pa.int64())])


def sale(user: str, shop: str, n: int) -> dict[str, Any]:
    """One sale."""
    return {"user": user, "shop": shop, "n": n}


def summing(emits: str) -> Any:
    """An operator that sums per key, and emits with these columns."""
    note: Any = 2 if "note long" in emits else "two"

    def total(key: str, events: ps.Events, sums: ps.Value[int]) -> Any:
        sums.set(sums.get(0) + sum(event.n for event in events))
        row = {"key": key, "total": sums.get(), "note": note}
        yield {name: row[name] for name in row if name in emits}

    return ps.stateful(emits=emits)(total)


def job(
    log: ps.Log,
    *,
    key: str = "user",
    emits: str = "key string, total long",
    also: str | None = None,
    sinks: tuple[Any, ...] = (ps.Table("totals"),),
) -> ps.Job:
    """Sums of sales by one of their columns, or by two."""
    made = ps.Job("sales", partitions=2)
    stream = made.read(log, name="sales")
    ways_in = [stream.key_by(column) for column in (key, also) if column is not None]
    sums = ps.merge(*ways_in).process(summing(emits))
    for sink in sinks:
        sums.write(sink)
    return made


def sales(folder: Path) -> ps.Log:
    """A topic of sales, with one in it."""
    made = ps.Log.create(str(folder / "sales"), SALES)
    append(made, [sale("ada", "ada", 1)])
    return made


@pytest.fixture
def log(tmp_path: Path) -> ps.Log:
    """A topic of sales."""
    return sales(tmp_path)


def test_an_emitted_column_of_another_type_is_refused_and_the_table_stays_readable(
    tmp_path: Path, log: ps.Log
) -> None:
    """Committed, it would leave a table at HEAD that no reader can read."""
    LocalRun(job(log), tmp_path).run()
    append(log, [sale("ada", "ada", 2)])
    changed = LocalRun(job(log, emits="key string, total double"), tmp_path)

    with pytest.raises(ps.Invalid, match="table 'totals', column 'total'"):
        changed.run()
    assert changed.rows("totals", "key", "total") == [("ada", 1)]


def test_another_key_over_the_same_state_is_refused(tmp_path: Path, log: ps.Log) -> None:
    """The user ada and the shop ada would share one sum."""
    LocalRun(job(log), tmp_path).run()
    append(log, [sale("bob", "ada", 2)])
    changed = LocalRun(job(log, key="shop"), tmp_path)

    with pytest.raises(ps.Invalid, match="operator 'total', key of 'sales'"):
        changed.run()
    assert changed.rows("totals", "key", "total") == [("ada", 1)]


def test_an_added_column_is_null_in_the_rows_of_before(tmp_path: Path, log: ps.Log) -> None:
    """A table grows with its job, and reads as one table by both readers."""
    LocalRun(job(log), tmp_path).run()
    append(log, [sale("bob", "x", 2)])
    wider = LocalRun(job(log, emits="key string, total long, note string"), tmp_path)
    wider.run()

    assert wider.rows("totals", "key", "total", "note") == [("ada", 1, None), ("bob", 2, "two")]
    streamed = ps.table_reader(wider.url, "totals").read_all()
    assert streamed.select(["key", "note"]).to_pylist() == [
        {"key": "ada", "note": None},
        {"key": "bob", "note": "two"},
    ]


def test_a_column_that_was_left_out_comes_back_as_it_was(tmp_path: Path, log: ps.Log) -> None:
    """Its old rows are still in the table: another type would make them unreadable."""
    LocalRun(job(log), tmp_path).run()
    append(log, [sale("bob", "x", 2)])
    LocalRun(job(log, emits="key string"), tmp_path).run()
    append(log, [sale("cyd", "x", 3)])
    with pytest.raises(ps.Invalid, match="table 'totals', column 'total' was int64"):
        LocalRun(job(log, emits="key string, total string"), tmp_path).run()
    back = LocalRun(job(log), tmp_path)
    back.run()

    assert back.rows("totals", "key", "total") == [("ada", 1), ("bob", None), ("cyd", 3)]


def test_going_back_brings_back_what_was_remembered(tmp_path: Path, log: ps.Log) -> None:
    """Of an epoch before a column was added nothing of it is left, and so it is not in the way."""
    first = LocalRun(job(log), tmp_path)
    first.run()
    kept = first.root.head().epoch
    append(log, [sale("bob", "x", 2)])
    LocalRun(job(log, emits="key string, total long, note string"), tmp_path).run()
    other = LocalRun(job(log, emits="key string, total long, note long"), tmp_path)
    with pytest.raises(ps.Invalid, match="table 'totals', column 'note'"):
        other.run()
    first.root.rewind("sales", kept)
    other.run()

    assert other.rows("totals", "key", "note") == [("ada", None), ("bob", 2)]


def test_a_fork_remembers_the_job_too(tmp_path: Path, log: ps.Log) -> None:
    """It is a root like any other, with the same state in it."""
    first = LocalRun(job(log), tmp_path)
    first.run()
    (tmp_path / "forked").mkdir()
    forked = LocalRun(job(log, key="shop"), tmp_path / "forked")
    fork(first.root, None, forked.root, partial(table_refs, first.root))

    with pytest.raises(ps.Invalid, match="operator 'total', key of 'sales'"):
        forked.run()


@pytest.fixture
def old(tmp_path: Path, log: ps.Log, monkeypatch: pytest.MonkeyPatch) -> LocalRun:
    """A root as earlier versions wrote it."""
    run = LocalRun(job(log), tmp_path)
    with monkeypatch.context() as before:
        before.setattr(EpochLoop, "_description", lambda loop, plan: None)
        run.run()
    assert described_by(run) == {None}
    return run


def described_by(run: LocalRun) -> set[str | None]:
    """The descriptions that the manifests of a root name."""
    refs = [manifest.description for manifest in run.root.history()]
    return {None if ref is None else ref.key for ref in refs}


def test_an_old_root_refuses_what_its_newest_file_tells(old: LocalRun, log: ps.Log) -> None:
    """The columns of a table are known without a description."""
    append(log, [sale("ada", "ada", 2)])
    changed = LocalRun(job(log, emits="key string, total double"), old.folder)

    with pytest.raises(ps.Invalid, match="table 'totals', column 'total' was int64"):
        changed.run()


def test_an_old_root_remembers_the_job_from_its_next_epoch_on(old: LocalRun, log: ps.Log) -> None:
    """What it cannot tell is taken as it is declared, once."""
    append(log, [sale("bob", "ada", 2)])
    old.run()
    append(log, [sale("bob", "ada", 2)])

    with pytest.raises(ps.Invalid, match="operator 'total', key of 'sales' was user"):
        LocalRun(job(log, key="shop"), old.folder).run()
    old.run()
    assert old.rows("totals", "key", "total") == [("ada", 1), ("bob", 2), ("bob", 4)]


def test_a_damaged_file_of_a_table_keeps_no_old_job_from_running(
    old: LocalRun, log: ps.Log
) -> None:
    """What it would have told is not known; going on does not need it."""
    (manifest,) = old.root.history()
    for output in manifest.sinks["totals"]:
        (old.folder / "root" / output.ref.key).write_bytes(b"damaged")
    append(log, [sale("bob", "x", 2)])
    old.run()

    assert old.root.head().epoch == 2


def test_a_description_is_stored_once_and_kept_while_it_is_named(
    tmp_path: Path, log: ps.Log
) -> None:
    """Restarts name it again; one that nothing names any more is garbage like anything else."""
    brief = Retention(epochs=1, age_s=0, grace_s=0)
    limits = ps.Limits(records=1)
    settings = replace(SETTINGS, collect_every=1, retention=brief, limits=limits)
    run = LocalRun(job(log, sinks=()), tmp_path)
    append(log, [sale("ada", "x", number) for number in range(3)])
    run.run(settings)
    run.run(settings)
    (first,) = described_by(run)
    assert stored(run) == {first}
    wider = LocalRun(job(log, also="shop", sinks=()), tmp_path)
    append(log, [sale("ada", "x", number) for number in range(5)])
    wider.run(settings)

    assert stored(run) == described_by(run)
    assert first not in stored(run)
    assert run.root.check().clean


def stored(run: LocalRun) -> set[str]:
    """The descriptions that are on the store."""
    return {entry.key for entry in run.root.store.list("descriptions/")}


def test_a_lost_description_is_damage_that_a_check_names(tmp_path: Path, log: ps.Log) -> None:
    """It is part of every epoch that names it."""
    run = LocalRun(job(log), tmp_path)
    run.run()
    (key,) = stored(run)
    (Path(run.url) / key).unlink()

    with pytest.raises(ps.Corrupt, match=key):
        run.run()
    assert [key in wrong for wrong in run.root.check().wrong] == [True]


def test_an_unchanged_job_over_an_old_root_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the newest files of its tables tell is what it declares, in every format and type."""
    log = ps.Log.create(str(tmp_path / "sales"), SALES)
    run = LocalRun(everything(log), tmp_path)
    with monkeypatch.context() as before:
        before.setattr(EpochLoop, "_description", lambda loop, plan: None)
        for number in range(2):
            append(log, [sale("ada", "x", number), sale("bob", "", number)])
            run.run()
    known = remembered(run.root, run.root.newest())
    append(log, [sale("cyd", "y", 2)])
    run.run()

    assert known.sinks["remembering.dead-letters"].columns == {
        "user": "string",
        "shop": "string",
        "n": "int64",
    }
    assert known.sinks["copies"] == KnownSink(
        kind="Table",
        columns={
            "key": "string",
            "at": "timestamp[us, tz=UTC]",
            "price": "decimal128(9, 2)",
            "tags": known.sinks["copies"].columns["tags"],
        },
    )
    told = [manifest.description is not None for manifest in run.root.history()]
    assert told == [True, False, False]


@pytest.mark.parametrize("seed", range(6))
def test_an_unchanged_job_is_never_refused(tmp_path: Path, seed: int) -> None:
    """Over any sequence of restarts, epochs, empty starts, collections, returns and forks."""
    chance, here = Random(seed), tmp_path / "0"
    here.mkdir()
    log = ps.Log.create(str(tmp_path / "sales"), SALES)
    settings = replace(SETTINGS, retention=Retention(epochs=3, age_s=0, grace_s=0))
    for number in range(10):
        run = LocalRun(everything(log), here)
        if number and chance.random() < 0.3:
            run.root.rewind("sales", chance.choice([m.epoch for m in run.root.history()]))
        elif number and chance.random() < 0.3:
            here = tmp_path / str(number)
            here.mkdir()
            forked = LocalRun(everything(log), here)
            fork(run.root, None, forked.root, partial(table_refs, run.root))
            run = forked
        if chance.random() < 0.7 or not number:
            append(log, [sale("ada", "x", number), sale("bob", "", number)])
        run.run(replace(settings, collect_every=chance.choice((1, 100))))

        assert None not in described_by(run)


def everything(log: ps.Log) -> ps.Job:
    """A job with states of every kind, a quarantine, two ways in and three tables."""
    made = ps.Job("sales", partitions=2)
    stream = made.read(log, name="sales")
    both = ps.merge(stream.key_by("user"), stream.key_by("shop"))
    both.process(welcoming).write(ps.Table("welcomed"))
    rows = stream.key_by("shop").process(remembering, on_error="quarantine")
    rows.write(ps.Table("rows")).write(ps.Table("copies", format="parquet"))
    stream.write(ps.Table("sales-as-they-are"))
    return made


@ps.stateful(emits="key string, seen long")
def welcoming(key: str, events: ps.Events, seen: ps.Value[int]) -> Any:
    """Counts whatever comes in, by whichever key."""
    seen.set(seen.get(0) + len(events))
    yield {"key": key, "seen": seen.get()}


@ps.stateful(emits="key string, at timestamp, price decimal(9,2), tags array<string>")
def remembering(
    key: str,
    events: ps.Events,
    seen: ps.Value[int],
    some: ps.List[float],
    named: Annotated[ps.Map[str, int], ps.ttl("1 day")],
    wake: Annotated[ps.Timer, ps.by_clock("processing")],
) -> Any:
    """A little of everything; a sale in no shop is refused."""
    if not key:
        raise ValueError("no shop")
    seen.set(seen.get(0) + len(events))
    yield {"key": key, "at": None, "price": None, "tags": [key]}
