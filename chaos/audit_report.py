"""An audit as a page: the verdict, what it rests on, a timeline, each violation in its place."""

from collections.abc import Iterator, Sequence
from html import escape

from penstock.chaos.audit import Audit, Audited, EpochTold
from penstock.chaos.findings import Check, Verdict, Violation
from penstock.chaos.report import (
    chip,
    counts,
    cut,
    facts,
    folded,
    grid,
    listed,
    moment,
    page,
    section,
    time_of,
    violation_line,
    wide,
)
from penstock.chaos.timeline import Bar, Lane, Mark, Span, Tick, timeline

__all__ = ["audit_page"]

BARS_MAX = 240
"""How many bars a timeline has; of a longer history, several epochs are one."""
TICKS_MAX = 7
AROUND = 2
"""How many epochs before and behind a violation are shown."""


def audit_page(done: Audit, root: str) -> str:
    """The page."""
    found = done.audited
    parts = [section("What was looked at", _facts(found, root))]
    if done.story:
        parts.append(section("Epochs and commits", _timeline(done)))
    parts.append(section("Checks", _checks(found)))
    wrong = [(check, each) for check in found.checks for each in check.violations]
    if wrong:
        parts.append(section(_counted(found), _violations(done.story, wrong)))
    unknown = [str(each) for check in found.checks for each in check.unknown]
    if unknown:
        parts.append(section("What could not be looked at", listed(unknown)))
    notes = [f"{check.name}: {note}" for check in found.checks for note in check.notes]
    if notes:
        parts.append(section("Notes", listed(notes)))
    head = "none" if found.head is None else f"{found.head.key}, sha256 {found.head.sha256}"
    parts.append(f"<footer>Head of the chain: {escape(head)}</footer>")
    title = f"audit of {found.job}"
    return page(title, found.verdict, list(_verdict(found)), "\n".join(parts))


def _verdict(found: Audited) -> Iterator[str]:
    """The verdict in a sentence or two."""
    first = next((each for check in found.checks for each in check.violations), None)
    if first is not None:
        yield f"{first}."
    elif found.verdict is Verdict.UNKNOWN:
        why = next(each for check in found.checks for each in check.unknown)
        yield f"Not everything could be looked at: {why}"
    else:
        yield "All that was looked at is what was committed, once, and explained by what was read."
    sampled = "" if found.sample >= 1 else f" Of what sinks hold, {found.sample:.2%} was compared."
    yield f"Job {found.job}, {_epochs(found)}, {moment(found.at_ms)}.{sampled}"


def _epochs(found: Audited) -> str:
    if found.epochs is None:
        return "nothing committed"
    first, last = found.epochs
    return f"epoch {last}" if first == last else f"epochs {first} to {last}"


def _facts(found: Audited, root: str) -> str:
    pairs = [
        ("job", found.job),
        ("root", root),
        ("epochs", _epochs(found).removeprefix("epochs ").removeprefix("epoch ")),
        ("generation", str(found.generation)),
        ("audited", moment(found.at_ms)),
        ("took", f"{found.seconds:,.1f} s"),
        ("Penstock", found.penstock),
    ]
    sums: dict[str, int] = {}
    for check in found.checks:
        for what in ("manifests", "offsets", "files", "rows", "rows compared"):
            if what in check.counted:
                sums[what] = sums.get(what, 0) + check.counted[what]
    return facts([*pairs, *((what, f"{number:,}") for what, number in sums.items())])


def _timeline(done: Audit) -> str:
    story, found = done.story, done.audited
    groups = _grouped(story)
    lanes = [
        Lane(name="rows in", bars=[_bar(group, "in") for group in groups]),
        Lane(name="rows out", bars=[_bar(group, "out") for group in groups]),
        Lane(name="leaders", spans=list(_leaders(story))),
    ]
    first, last = story[0].epoch, story[-1].epoch
    for name, held in found.sinks.items():
        span = Span(first, min(held.upto, last) + 1, f"{name} has taken epoch {held.upto}", "faint")
        lanes.append(Lane(name=cut(name), spans=[span]))
    marks = [
        Mark(min(max(each.epoch, first), last) + 0.5, str(each), "bad")
        for check in found.checks
        for each in check.violations
        if each.epoch is not None
    ]
    lanes.append(Lane(name="violations", marks=marks))
    return wide(timeline(lanes, _ticks(story), first, last + 1))


def _grouped(story: Sequence[EpochTold]) -> list[Sequence[EpochTold]]:
    length = -(-len(story) // BARS_MAX)
    return [story[at : at + length] for at in range(0, len(story), length)]


def _bar(group: Sequence[EpochTold], way: str) -> Bar:
    amount = sum(each.rows_in if way == "in" else each.rows_out for each in group)
    first, last = group[0], group[-1]
    named = f"epoch {first.epoch}" if len(group) == 1 else f"epochs {first.epoch} to {last.epoch}"
    title = f"{named}, {moment(last.at_ms)}: {amount:,} rows {way}"
    return Bar(first.epoch, last.epoch + 1, amount, title, "plain" if way == "in" else "good")


def _leaders(story: Sequence[EpochTold]) -> Iterator[Span]:
    """Who led, from its first epoch to its last; every other one is drawn fainter."""
    begins = _changes(story)
    for number, (start, stop) in enumerate(zip(begins, [*begins[1:], len(story)], strict=True)):
        first, last = story[start], story[stop - 1]
        title = f"token {first.token}, generation {first.generation}, {first.holder}"
        kind = "pale" if number % 2 else "faint"
        yield Span(first.epoch, last.epoch + 1, title, kind, f"token {first.token}")


def _changes(story: Sequence[EpochTold]) -> list[int]:
    """Where another leader, or another generation, begins."""
    led = [(each.token, each.generation) for each in story]
    return [n for n in range(len(led)) if n == 0 or led[n] != led[n - 1]]


def _ticks(story: Sequence[EpochTold]) -> list[Tick]:
    step = max(1, -(-len(story) // TICKS_MAX))
    return [
        Tick(each.epoch + 0.5, f"epoch {each.epoch}", f"{time_of(each.at_ms):%m-%d %H:%M:%S}")
        for each in story[::step]
    ]


def _checks(found: Audited) -> str:
    rows = "".join(
        f"<tr><td>{chip(check.verdict)}</td><td><b>{escape(check.name)}</b><br>"
        f'<span class="soft">{escape(check.promise)}</span></td><td>{escape(counts(check))}</td>'
        "</tr>"
        for check in found.checks
    )
    heads = "<th></th><th>check, and what is true if it is valid</th><th>looked at</th>"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _counted(found: Audited) -> str:
    total = sum(check.violations_total for check in found.checks)
    return "1 violation" if total == 1 else f"{total:,} violations"


def _violations(story: Sequence[EpochTold], wrong: list[tuple[Check, Violation]]) -> str:
    return "\n".join(
        folded(violation_line(each, check.name), _around(story, each), is_open=at == 0)
        for at, (check, each) in enumerate(wrong)
    )


def _around(story: Sequence[EpochTold], violation: Violation) -> str:
    """The epochs around a violation, so that one sees what went on there."""
    if violation.epoch is None:
        return ""
    shown = [each for each in story if abs(each.epoch - violation.epoch) <= AROUND]
    if not shown:
        return '<p class="soft">The epoch is not among those that are kept.</p>'
    here = next((at for at, each in enumerate(shown) if each.epoch == violation.epoch), None)
    heads = ("epoch", "committed", "leader", "rows in", "rows out", "read", "commit")
    return grid(heads, [_epoch_row(each) for each in shown], here)


def _epoch_row(told: EpochTold) -> tuple[str, ...]:
    read = ", ".join(f"{name} {start:,}–{stop:,}" for name, (start, stop) in told.ranges.items())
    return (
        f"{told.epoch:,}",
        moment(told.at_ms),
        f"token {told.token}, {told.holder}",
        f"{told.rows_in:,}",
        f"{told.rows_out:,}",
        cut(read, 120) or "nothing",
        told.commit[:12],
    )
