"""Sinks with a cursor of their own are brought up to HEAD by the loop."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.ids import Epoch, Token
from penstock.runtime.cli import app
from penstock.runtime.telling import Silent
from penstock.sinks import Apply, Cursor, Guarantee, Target, Writer
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

SMALL = ps.RunSettings(until="caught-up", read_tasks=2, limits=ps.Limits(records=9))


@dataclass
class Trouble:
    """What comes between a job and its sink."""

    away: int = 0
    """How many more applies fail in passing."""
    wrong: str = ""
    """Why applies fail for good, if they do."""
    strange: list[Exception] = field(default_factory=list)
    """What applies raise that no sink should, one after the other."""
    before: Callable[[], object] = lambda: None
    """Is called before every apply."""
    opened: int = 0
    closed: int = 0


TROUBLES: dict[str, Trouble] = {}


@dataclass(frozen=True)
class Troubled:
    """A sink in memory, behind some trouble."""

    name: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    most: int | None = None
    """Rows with a larger total can never be written."""

    @property
    def trouble(self) -> Trouble:
        return TROUBLES.setdefault(self.name, Trouble())

    @property
    def shelf(self) -> ps.Memory:
        return ps.Memory(f"{self.name}-shelf")

    def shards(self, partitions: int) -> int:
        return partitions

    def check(self, rows: pa.Table) -> None:
        if "total" not in rows.column_names:
            raise Invalid(f"sink {self.name}, column 'total'", "is missing", "emit it")
        if self.most is not None and any(n > self.most for n in rows["total"].to_pylist()):
            raise Invalid(f"sink {self.name}", f"takes no total above {self.most}", "emit less")

    def open(self, target: Target) -> "TroubledWriter":
        self.trouble.opened += 1
        return TroubledWriter(self, self.shelf.open(target))


@dataclass
class TroubledWriter:
    sink: Troubled
    writer: Writer

    def read_cursor(self, shard: int) -> Cursor | None:
        return self.writer.read_cursor(shard)

    def apply(self, asked: Apply) -> None:
        trouble = self.sink.trouble
        if trouble.wrong:
            raise Invalid(f"sink {self.sink.name}", trouble.wrong, "mend it")
        if trouble.strange:
            raise trouble.strange.pop(0)
        trouble.before()
        if trouble.away:
            trouble.away -= 1
            raise Unavailable(f"sink {self.sink.name}", "is away", "wait")
        self.writer.apply(asked)

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        self.writer.accept(shard, cursor, token)

    def close(self) -> None:
        self.sink.trouble.closed += 1


@dataclass
class Told(Silent):
    """Remembers what held the job."""

    holds: list[dict[str, str]] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    heard: threading.Event = field(default_factory=threading.Event)
    """That there is a failure."""

    def held(self, sinks: Mapping[str, str]) -> None:
        self.holds.append(dict(sinks))

    def failed(self, epoch: Epoch, why: str) -> None:
        self.failures.append((epoch, why))
        self.heard.set()


@ps.stateful(emits="user string, total long")
def total(user: str, events: ps.Events, spent: ps.Value[int]) -> Any:
    spent.set(spent.get(0) + sum(events.values("n")))
    yield {"user": user, "total": spent.get()}


@pytest.fixture
def sink(tmp_path: Path) -> Troubled:
    return Troubled(f"shelf-{tmp_path.name}")


def started(folder: Path, *sinks: Any) -> LocalRun:
    job = ps.Job("shop", partitions=2)
    stream = job.read(ps.Log(str(folder / "clicks"))).key_by("user").process(total)
    for each in sinks:
        stream.write(each)
    stream.write(ps.Table("totals"))
    return LocalRun(job, folder)


def on(sink: Troubled) -> list[tuple[str, int]]:
    return sorted((row["user"], row["total"]) for row in sink.shelf.rows())


def test_every_committed_row_is_applied_once(tmp_path: Path, sink: Troubled) -> None:
    """What the chain says is what the sink holds."""
    append(clicks_log(tmp_path), [click(f"user-{n % 5}", n) for n in range(40)])
    run = started(tmp_path, sink)
    run.run(SMALL)

    assert on(sink) == run.rows("totals", "user", "total")
    assert len(on(sink)) > 5
    assert (sink.trouble.opened, sink.trouble.closed) == (1, 1)


def test_a_sink_that_is_away_holds_the_job_and_catches_up(tmp_path: Path, sink: Troubled) -> None:
    """Nothing is lost or given up because a database is restarted; somebody is told why."""
    append(clicks_log(tmp_path), [click(f"user-{n % 5}", n) for n in range(40)])
    run, told = started(tmp_path, sink), Told()
    sink.trouble.away = 100
    run.run(SMALL, listener=told)

    assert told.holds == [{sink.name: f"sink {sink.name} is away: wait."}, {}]
    assert on(sink) == run.rows("totals", "user", "total")


def test_one_sink_that_is_away_does_not_keep_rows_from_another(
    tmp_path: Path, sink: Troubled
) -> None:
    """Each is exactly-once by its own cursor, and by nobody else's."""
    append(clicks_log(tmp_path), [click("ada", 1)])
    other = ps.Memory(f"other-{tmp_path.name}")
    seen: list[Any] = []

    class Looking(Told):
        def held(self, sinks: Mapping[str, str]) -> None:
            seen.append((dict(sinks).keys(), other.rows(), sink.shelf.rows()))

    sink.trouble.away = 100
    started(tmp_path, sink, other).run(SETTINGS, listener=Looking())

    row = {"user": "ada", "total": 1}
    assert seen == [({sink.name: ""}.keys(), [row], []), ({}.keys(), [row], [row])]


def test_whoever_stops_a_job_does_not_wait_for_a_sink(tmp_path: Path, sink: Troubled) -> None:
    """The next start goes on from the same place."""
    append(clicks_log(tmp_path), [click("ada", n) for n in range(4)])
    sink.trouble.away = 10**6
    run, told = started(tmp_path, sink), Told()
    run.run(SETTINGS, listener=told, stopped=lambda: bool(told.holds))
    assert (run.root.head().epoch, on(sink)) == (1, [])

    sink.trouble.away = 0
    run.run(SETTINGS)

    assert (run.root.head().epoch, on(sink)) == (1, [("ada", 6)])


HEARD_S_MAX = 5.0
"""How long a sink is silent at most if nobody is told of a failure."""
ONE_BY_ONE = replace(SMALL, limits=ps.Limits(records=1))
FAILED = "operator 'picky', key 'ada' raised ZeroDivisionError"


@ps.stateful(emits="user string, total long")
def picky(user: str, events: ps.Events, spent: ps.Value[int]) -> Any:
    yield {"user": user, "total": 10 // sum(events.values("n"))}


def failing_run(folder: Path, sink: Troubled) -> LocalRun:
    """A job whose second epoch fails for good."""
    append(clicks_log(folder), [click("ada", 1), click("ada", 0)])
    job = ps.Job("shop", partitions=1)
    job.read(ps.Log(str(folder / "clicks"))).key_by("user").process(picky).write(sink)
    return LocalRun(job, folder)


@pytest.fixture
def failing(tmp_path: Path, sink: Troubled) -> LocalRun:
    return failing_run(tmp_path, sink)


def test_a_failure_is_told_at_once_though_the_epoch_before_waits_for_a_sink(
    failing: LocalRun, sink: Troubled
) -> None:
    """The sink answers when somebody has heard of the failure, and not before."""
    told = Told()
    sink.trouble.before = lambda: told.heard.wait(HEARD_S_MAX)
    with pytest.raises(Invalid, match=FAILED) as caught:
        failing.run(ONE_BY_ONE, listener=told)

    assert told.failures == [(2, str(caught.value))]
    assert (failing.root.head().epoch, on(sink)) == (1, [("ada", 10)])


def test_a_job_that_has_failed_does_not_wait_for_a_sink(failing: LocalRun, sink: Troubled) -> None:
    """The next start applies what the sink lacks; a supervisor can only start what has ended."""
    sink.trouble.away = 10**9
    with pytest.raises(Invalid, match=FAILED):
        failing.run(ONE_BY_ONE)
    assert (failing.root.head().epoch, on(sink)) == (1, [])

    sink.trouble.away = 0
    with pytest.raises(Invalid, match=FAILED):
        failing.run(ONE_BY_ONE)
    assert on(sink) == [("ada", 10)]


def test_the_error_of_the_earlier_epoch_is_raised_when_both_fail(
    failing: LocalRun, sink: Troubled
) -> None:
    """The later one rests on it, and was told when it came."""
    told = Told()

    def refuse() -> None:
        told.heard.wait(HEARD_S_MAX)
        raise Invalid(f"sink {sink.name}", "has no such column", "mend it")

    sink.trouble.before = refuse
    with pytest.raises(Invalid, match="has no such column") as caught:
        failing.run(ONE_BY_ONE, listener=told)

    assert FAILED in str(caught.value.__context__)
    assert [epoch for epoch, _ in told.failures] == [2]


def test_a_sink_that_refuses_stops_the_job_until_it_is_mended(
    tmp_path: Path, sink: Troubled
) -> None:
    """What will not go away by itself is for a person; what was committed waits for it."""
    append(clicks_log(tmp_path), [click("ada", n) for n in range(4)])
    sink.trouble.wrong = "has no such column"
    run = started(tmp_path, sink)
    with pytest.raises(Invalid, match="has no such column"):
        run.run()
    with pytest.raises(Invalid, match="has no such column"):
        run.run()
    assert (run.root.head().epoch, on(sink)) == (1, [])

    sink.trouble.wrong = ""
    run.run()

    assert on(sink) == [("ada", 6)]


def test_rows_that_can_never_be_written_are_not_committed(tmp_path: Path) -> None:
    """After the decision it would be too late: the job could neither go on nor back."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 5)])
    strict = Troubled(f"strict-{tmp_path.name}", most=9)
    run = started(tmp_path, strict)
    run.run()
    append(log, [click("ada", 5)])

    with pytest.raises(PenstockError, match="takes no total above 9"):
        run.run()

    assert (run.root.head().epoch, on(strict)) == (1, [("ada", 5)])


def test_a_value_that_no_sink_can_write_is_refused_before_the_commit(tmp_path: Path) -> None:
    """The job stops with the event named, and goes on once the function leaves such values out;
    committed, it could never go on again."""
    log = ps.Log.create(str(tmp_path / "clicks"), pa.schema([("at", pa.timestamp("us"))]))
    late = pa.array([0, 253_402_300_800_000_000], pa.int64()).view(pa.timestamp("us"))
    with log.producer() as producer:
        producer.append(pa.table({"at": late}), 0)
    job = ps.Job("raw", partitions=1)
    job.read(log).write(ps.Memory(f"late-{tmp_path.name}"))
    run = LocalRun(job, tmp_path)

    with pytest.raises(Invalid) as caught:
        run.run()

    assert str(caught.value) == (
        f"sink late-{tmp_path.name}, column 'at', row 1 is 10000-01-01 00:00:00.000000, which is "
        "outside the years 1 to 9999 (computed from clicks/0, offsets 0 to 1): emit a time that "
        "every reader can spell, or none."
    )
    assert run.root.newest() is None


def test_any_exception_of_a_sink_becomes_an_error_with_a_way_out(
    tmp_path: Path, sink: Troubled
) -> None:
    """A traceback of somebody's client says neither which sink nor what to do."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 1)])
    run = started(tmp_path, sink)
    run.run()
    append(log, [click("ada", 1)])
    sink.trouble.strange = [OverflowError("date value out of range")]

    with pytest.raises(Invalid) as caught:
        run.run()

    assert str(caught.value) == (
        f"sink {sink.name} failed on epoch 2 (OverflowError: date value out of range): its rows "
        "are kept: mend the sink and start the job again, go back with `penstock restore --at 1` "
        "and emit other rows, or leave epoch 2 and all up to HEAD out of this sink with `penstock "
        "sinks accept`."
    )
    run.run()
    assert on(sink) == [("ada", 1), ("ada", 2)]


def test_a_connection_that_a_sink_forgot_to_explain_holds_the_job(
    tmp_path: Path, sink: Troubled
) -> None:
    """It is the one exception that passes by itself, whoever raises it."""
    append(clicks_log(tmp_path), [click("ada", 1)])
    sink.trouble.strange = [ConnectionResetError("by the server"), TimeoutError("in a socket")]
    started(tmp_path, sink).run()

    assert (on(sink), sink.trouble.strange) == ([("ada", 1)], [])


def test_a_sink_that_wants_other_columns_is_refused_when_the_job_is_loaded(
    tmp_path: Path, sink: Troubled
) -> None:
    """Before Spark is started and before anybody is deposed."""
    clicks_log(tmp_path)
    job = ps.Job("raw", partitions=1)
    job.read(ps.Log(str(tmp_path / "clicks"))).write(sink)

    with pytest.raises(Invalid, match=rf"sink {sink.name}, column 'total' is missing: emit it"):
        LocalRun(job, tmp_path).run()


def test_a_sink_that_promises_too_little_is_refused(tmp_path: Path) -> None:
    """A guarantee is never lowered silently."""
    from penstock.runtime.run import check_guarantees
    from tests.support.in_process import no_spark

    clicks_log(tmp_path)
    job = started(tmp_path, Troubled("post", Guarantee.AT_LEAST_ONCE)).job
    topology = job.topology(str(tmp_path / "root"), no_spark)
    check_guarantees(topology, "at-least-once")

    with pytest.raises(ps.Invalid, match="'post' gives at-least-once, and exactly-once is requi"):
        check_guarantees(topology, "exactly-once")


def status(run: LocalRun) -> Any:
    done = CliRunner().invoke(app, ["status", run.url, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["sinks"]


def test_status_shows_where_each_sink_is_and_what_holds_the_job(
    tmp_path: Path, sink: Troubled
) -> None:
    """Whoever is woken at night sees at once which database to look at."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 5)])
    run, told = started(tmp_path, sink), Told()
    run.run()
    assert status(run) == {
        sink.name: {"epoch": 1, "held": None},
        "totals": {"epoch": 1, "held": None},
    }

    append(log, [click("ada", 5)])
    sink.trouble.away = 10**6
    run.run(SETTINGS, listener=told, stopped=lambda: bool(told.holds))

    assert status(run) == {
        sink.name: {"epoch": 1, "held": f"sink {sink.name} is away: wait."},
        "totals": {"epoch": 2, "held": None},
    }
    shown = CliRunner().invoke(app, ["status", run.url]).stdout
    assert f"sink {sink.name}: epoch 1; the job is held: sink {sink.name} is away: wait." in shown


def test_what_a_sink_lacks_is_not_collected(tmp_path: Path, sink: Troubled) -> None:
    """Retention gives up what everybody has, and nothing else."""
    log = clicks_log(tmp_path)
    run, told = started(tmp_path, sink), Told()
    append(log, [click("ada", 1)])
    run.run()
    append(log, [click("ada", 1)])
    sink.trouble.away = 10**6
    run.run(SETTINGS, listener=told, stopped=lambda: bool(told.holds))
    assert needed(run, sink) == 2

    sink.trouble.away = 0
    run.run()

    assert needed(run, sink) == 3


def needed(run: LocalRun, sink: Troubled) -> int:
    """The oldest epoch that the collector is told to keep for a sink."""
    newest = run.root.newest()
    assert newest is not None
    return run.loops[-1]._applier.needed(newest)[sink.name]
