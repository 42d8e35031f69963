"""A chaos run as a page: the verdict, what was done to the job, and how it took it.

What says most stands on top: the first thing that is wrong, else the first that is not known. Then
a timeline, the times of recovery, the checks with what happened around each violation, the faults,
and at the end the history they all rest on.
"""

from collections import Counter
from collections.abc import Iterator
from html import escape

from penstock.chaos.chaos_checks import checks_told
from penstock.chaos.chaos_recovery import recovery_told
from penstock.chaos.chaos_timeline import run_timeline
from penstock.chaos.findings import Verdict
from penstock.chaos.history import ChaosRun, Happening, Led, Missed, Retried, Started, commits
from penstock.chaos.report import (
    facts,
    folded,
    grid,
    legend,
    moment,
    page,
    section,
    tallies,
    wide,
)
from penstock.chaos.telling import clock, lasting, told
from penstock.runtime.answers import counted

__all__ = ["chaos_page"]

HISTORY_MAX = 2000
"""How many lines of a history are shown: the first half of these, and the last."""

LEGEND = (
    ("fault", "fault"),
    ("doubt", "fault that was due and did not come about"),
    ("plain-tint", "driver that leads"),
    ("pale", "driver that waits"),
    ("faint", "driver that was deposed"),
    ("good", "take-over"),
    ("bad", "violation, or a driver that ended badly"),
)


def chaos_page(run: ChaosRun) -> str:
    """The page."""
    parts = [section("What was run", _facts(run))]
    picture = run_timeline(run)
    if picture:
        parts.append(section("What happened", wide(picture) + legend(LEGEND)))
    recovery = recovery_told(run.happenings)
    if recovery:
        parts.append(section("From a fault to the next commit", recovery))
    parts += [
        section("Checks", checks_told(run)),
        section("Faults that were asked for", _faults(run)),
        section("What was asked", facts(run.asked.items())),
        section("History", _history(run.happenings)),
    ]
    title = f"chaos run of {run.job}, seed {run.seed}"
    return page(title, run.verdict, list(_verdict(run)), "\n".join(parts))


def _verdict(run: ChaosRun) -> Iterator[str]:
    """The verdict in a few sentences, the first of which says most."""
    wrong = next((each for check in run.checks for each in check.violations), None)
    unknown = next((each for check in run.checks for each in check.unknown), None)
    faults = counted(sum(run.faults.values()), "fault")
    if wrong is not None:
        yield f"{wrong}."
    elif run.verdict is Verdict.INVALID:
        yield "Something is wrong that no check has listed."
    elif unknown is not None:
        yield f"Not everything could be looked at: {unknown}"
    elif run.verdict is Verdict.UNKNOWN:
        yield "Not everything could be looked at."
    else:
        yield f"{faults}, and all that was checked is as it must be."
    epochs = commits(run.happenings)
    records = counted(sum(each.rows_in for each in epochs), "record")
    yield (
        f"Job {run.job} with seed {run.seed}: {faults}, {records} in "
        f"{counted(len(epochs), 'epoch')}, {lasting(run.seconds)}."
    )
    missing = [fault for fault, times in run.faults.items() if times == 0]
    if missing:
        yield f"Asked for, and never happened: {', '.join(missing)}."


def _facts(run: ChaosRun) -> str:
    epochs = commits(run.happenings)
    kinds = Counter(type(each) for each in run.happenings)
    restores = sum(sum(each.restores.values()) for each in epochs)
    pairs = [
        ("job", run.job),
        ("seed", str(run.seed)),
        ("faults", f"{sum(run.faults.values()):,}"),
        ("records read", f"{sum(each.rows_in for each in epochs):,}"),
        ("rows written", f"{sum(each.rows_out for each in epochs):,}"),
        ("epochs", f"{len(epochs):,}"),
        ("drivers started", f"{kinds[Started]:,}"),
        ("take-overs", f"{kinds[Led]:,}"),
        ("epochs tried again", f"{kinds[Retried]:,}"),
        ("partitions restored", f"{restores:,}"),
        ("began", moment(run.at_ms)),
        ("took, checks included", lasting(run.seconds)),
        ("Penstock", run.penstock),
    ]
    again = '<p class="above">the same schedule again</p>'
    command = f'<pre class="command"><code>{escape(run.command)}</code></pre>'
    return facts(pairs) + again + command


def _faults(run: ChaosRun) -> str:
    """How often each happened; one that never did stands out, with why if that is known."""
    missed: Counter[str] = Counter()
    why: dict[str, str] = {}
    for each in run.happenings:
        if isinstance(each, Missed):
            missed[each.fault] += 1
            why[each.fault] = each.why
    return tallies(
        (
            "" if times else "doubt",
            f"{times:,}",
            fault,
            _remark(times, missed[fault], why.get(fault)),
        )
        for fault, times in run.faults.items()
    )


def _remark(times: int, missed: int, why: str | None) -> str:
    if not missed:
        return "" if times else "was never due"
    return f"missed {missed:,} more: {why}" if times else f"did not come about: {why}"


def _history(happenings: tuple[Happening, ...]) -> str:
    half = HISTORY_MAX // 2
    left_out = max(len(happenings) - HISTORY_MAX, 0)
    rows = [_line(each) for each in happenings]
    if left_out:
        gap = ("–", f"{counted(left_out, 'line')} between these are left out")
        rows = [*rows[:half], gap, *rows[-half:]]
    summary = f"<b>{counted(len(happenings), 'line')}</b>, in the order in which they were seen"
    return folded(summary, grid(("at", "what happened"), rows))


def _line(happening: Happening) -> tuple[str, str]:
    return clock(happening.at_s), told(happening)
