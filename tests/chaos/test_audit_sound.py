"""No false alarm: whatever a sound job does and goes through, its audit is valid."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.chaos.audit import audit
from penstock.chaos.findings import Verdict
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.fork import fork
from penstock.checkpoint.root import Root
from penstock.ids import Epoch
from penstock.runtime.dead_letters import find_letters, replay_letters
from penstock.sinks.table_index import table_refs
from tests.support import shop_job
from tests.support.audits import Scene, assert_valid, check_of, counting_job, unknown, wrong
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log, no_spark


def assert_sound(local: LocalRun) -> None:
    """With the job's file and without."""
    topology = local.job.topology(local.url, no_spark)
    assert_valid(audit(local.root, topology).audited)
    assert wrong(audit(local.root).audited) == []


def test_timers_side_outputs_and_chained_operators(tmp_path: Path) -> None:
    """A timer's row has no input; a chained operator's comes from rows, not from offsets."""
    shop_job.fill(str(tmp_path / "log"), 10_000)
    local = LocalRun(shop_job.make_job(str(tmp_path / "log"), partitions=3), tmp_path)
    local.run(replace(SETTINGS, limits=ps.Limits(records=1500)))

    assert local.root.head().epoch > 5
    assert_sound(local)
    rows = ps.read_table(local.url, "totals")
    assert "quiet" in rows["country"].to_pylist()
    origins = {each["from"] for row in ps.read_table(local.url, "countries")["_input"].to_pylist()
               for each in row}  # fmt: skip
    assert {origin.partition("/")[0] for origin in origins} == {"totals"}


@ps.stateful(emits="user string, n long")
def touchy(user: str, events: ps.Events) -> Any:
    """Cannot stand the number 13."""
    for event in events:
        if event.n == 13:
            raise ValueError("thirteen")
        yield {"user": user, "n": event.n}


def test_dead_letters_and_their_replays(tmp_path: Path) -> None:
    """A letter is traced to its event; played again, it comes from a source of its own."""
    log = clicks_log(tmp_path, partitions=2)
    job = ps.Job("touchy", partitions=2)
    rows = job.read(log, name="clicks").key_by("user").process(touchy, on_error="quarantine")
    rows.write(ps.Table("rows"))
    local = LocalRun(job, tmp_path)
    for numbers in ([1, 13, 2], [13, 13], [4]):
        append(log, [click(f"u{n}", n) for n in numbers])
        local.run()
    assert_sound(local)
    replay_letters(local.url, "touchy", find_letters(local.url, "touchy"))
    local.run()

    assert_sound(local)
    found = audit(local.root).audited
    assert check_of(found, "table touchy.dead-letters").counted["inputs"] > 0


@ps.vectorized(emits="n long")
def doubled(batch: ps.Batch) -> Any:
    """Rows of a whole partition at once."""
    return batch.table.select(["n"]).set_column(0, "n", pc.multiply(batch.table["n"], 2))


def test_vectorised_functions_merged_sources_and_plain_writes(tmp_path: Path) -> None:
    """Several sources in one operator, and one that is written as it is."""
    logs = [clicks_log(tmp_path, name, partitions=2) for name in ("one", "two")]
    job = ps.Job("several", partitions=2)
    streams = [job.read(log, name=f"log{n}") for n, log in enumerate(logs)]
    streams[0].write(ps.Table("plain"))
    keyed = [stream.key_by("user") for stream in streams]
    ps.merge(*keyed).process(doubled).write(ps.Table("doubled"))
    local = LocalRun(job, tmp_path)
    for round_ in range(3):
        for number, log in enumerate(logs[: 1 + round_ % 2]):
            append(log, [click(f"u{n}", n + number) for n in range(5)])
        local.run()

    assert_sound(local)


def test_an_epoch_that_reads_nothing(tmp_path: Path) -> None:
    """A job that begins at the end of its log commits where that is."""
    log = clicks_log(tmp_path, partitions=2)
    append(log, [click("ada", 1)])
    local = LocalRun(counting_job(log, ps.Table("totals"), start="latest"), tmp_path)
    local.run()
    assert [manifest.rows_in for manifest in local.root.history()] == [0]

    assert_sound(local)


def test_a_source_whose_partitions_grow(tmp_path: Path) -> None:
    """A partition that comes later is read from its beginning."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(2)
    scene.log.change(partitions=3)
    append(scene.log, [click("ada", 1)], 2)
    scene.epochs(2)

    assert_valid(scene.look())
    assert check_of(scene.look(), "sources").counted["partitions"] == 3


def test_history_that_was_gone_back_on(tmp_path: Path) -> None:
    """What is above becomes garbage; epochs of the same number come again."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(4)
    scene.root.pin("before", Epoch(3))
    scene.root.rewind("counts", Epoch(2))
    assert_valid(scene.look())
    scene.epochs(3)
    found = scene.look()

    assert_valid(found)
    assert (found.generation, found.epochs) == (2, (1, 5))
    assert check_of(found, "objects").counted["pins"] == 1


def test_a_fork_begins_in_the_middle(tmp_path: Path) -> None:
    """Nothing below its first epoch is promised, and nothing is missed."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(5)
    (tmp_path / "fork").mkdir()
    other = LocalRun(scene.local.job, tmp_path / "fork")
    fork(scene.root, Epoch(3), Root.open(other.url), lambda m: table_refs(scene.root, m))
    topology = other.job.topology(other.url, no_spark)
    assert_valid(audit(other.root, topology).audited)
    other.run()
    found = audit(other.root, topology).audited

    assert_valid(found)
    assert found.epochs == (3, 4)
    assert found.tables["totals"].rows == 30


def test_pins_and_retention(tmp_path: Path) -> None:
    """What only a pin keeps is looked at, and is no garbage."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(2)
    scene.root.pin("early", Epoch(1))
    keeps = Retention(epochs=2, age_s=0.0, grace_s=0.0)
    limits = ps.Limits(records=2)
    scene.epochs(1, 120, replace(SETTINGS, retention=keeps, collect_every=1, limits=limits))
    found = scene.look()

    assert_valid(found)
    assert found.epochs is not None
    assert found.epochs[0] > 2
    early = scene.root.pins()[0]
    scene.store.delete(early.manifest.key)
    assert [each.subject for each in check_of(scene.look(), "objects").violations] == ["pin early"]


def test_a_sink_that_was_added_later(tmp_path: Path) -> None:
    """It begins with the first epoch that knows it, and owes nothing before."""
    shelf = ps.Memory(f"shelf-{tmp_path.name}")
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(2)
    scene.local = LocalRun(counting_job(scene.log, ps.Table("totals"), shelf), tmp_path)
    scene.epochs(2)
    found = scene.look()

    assert_valid(found)
    assert check_of(found, f"sink {shelf.name}").counted["rows compared"] == 12


def test_a_sink_that_is_ahead_after_going_back_is_no_false_alarm(tmp_path: Path) -> None:
    """It does hold rows of epochs that are no more, and the job refuses to start until then."""
    shelf = ps.Memory(f"shelf-{tmp_path.name}")
    scene = Scene(tmp_path, lambda log: counting_job(log, shelf))
    scene.epochs(4)
    scene.root.rewind("counts", Epoch(2))

    assert "has taken epoch 4 of generation 1, and HEAD is at epoch 2" in wrong(scene.look())[0]


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["epoch", "epoch", "epoch", "empty", "rewind", "pin", "orphan"]),
              st.integers(0, 5)),
    min_size=1, max_size=7,
)  # fmt: skip


def taken(scene: Scene, step: Step, number: int) -> None:
    """One step of a job's life."""
    what, how = step
    head = scene.root.head() if scene.clicks else None
    if what == "epoch":
        scene.epochs(1, rows=1 + how)
    elif what == "empty":
        scene.local.run()
    elif head is None or head.epoch == 0:
        return
    elif what == "rewind":
        scene.root.rewind("counts", Epoch(max(head.floor, head.epoch - how)))
    elif what == "pin":
        scene.root.pin(f"pin{number}", Epoch(max(head.floor, head.epoch - how)))
    else:
        scene.append(2)
        with pytest.raises(RuntimeError):
            scene.local.run(around=dying)


class Dying:
    """Tasks that store what they made, and a leader that never commits it."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def run(self, plan: Any) -> Any:
        self._runner.run(plan)
        raise RuntimeError("killed")

    def is_alive(self) -> bool:
        return True


def dying(runner: Any) -> Any:
    return Dying(runner)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_any_life_of_a_job_is_valid(steps: list[Step], tmp_path_factory: Any) -> None:
    """Epochs, empty ones, leaders that die, going back, pins: in any order."""
    folder = tmp_path_factory.mktemp("life")
    tables = (ps.Table("totals"), ps.Table("again", format="parquet"))
    scene = Scene(folder, lambda log: counting_job(log, *tables))
    scene.epochs(1)
    for number, step in enumerate(steps):
        taken(scene, step, number)
    found = scene.look()

    assert_valid(found)
    assert found.tables["totals"].rows == ps.read_table(scene.local.url, "totals").num_rows


@pytest.mark.parametrize("since", [1, 2, 3])
def test_an_audit_that_begins_later_is_valid_too(tmp_path: Path, since: int) -> None:
    """Wherever it begins."""
    shelf = ps.Memory(f"shelf-{tmp_path.name}")
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals"), shelf))
    scene.epochs(3)
    found = scene.look(since=Epoch(since))

    assert wrong(found) == []
    # Rows of a shelf have no name: of a part of history, a row too many cannot be told.
    assert (found.verdict is Verdict.VALID) == (since == 1), unknown(found)
