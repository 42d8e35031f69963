"""The checks of a chaos run, each with its promise, what it found wrong, and what happened there.

A violation says where in history to look; what is shown with it is what was seen just before and
just after that epoch became real.
"""

from collections.abc import Sequence
from html import escape

from penstock.chaos.findings import Check, Verdict, Violation
from penstock.chaos.history import ChaosRun, Committed, Happening
from penstock.chaos.report import chip, counts, folded, grid, listed, violation_line
from penstock.chaos.telling import clock, told
from penstock.runtime.answers import counted

__all__ = ["checks_told"]

AROUND = 5
"""How many happenings before and behind a violation are shown."""

WORST_FIRST = (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID)


def checks_told(run: ChaosRun) -> str:
    """All of them, as HTML: the worst first, and what is not valid unfolded."""
    checks = sorted(run.checks, key=lambda check: WORST_FIRST.index(check.verdict))
    return "\n".join(
        folded(_summary(check), _inside(check, run.happenings), is_open=_stands_out(check))
        for check in checks
    )


def _stands_out(check: Check) -> bool:
    return check.verdict is not Verdict.VALID


def _summary(check: Check) -> str:
    looked = counts(check)
    behind = f' <span class="soft">{escape(looked)}</span>' if looked else ""
    return f"{chip(check.verdict)} <b>{escape(check.name)}</b>{behind}"


def _inside(check: Check, happenings: Sequence[Happening]) -> str:
    parts = [f'<p class="promise">{escape(check.promise)}</p>']
    for at, each in enumerate(check.violations):
        parts.append(folded(violation_line(each), _around(happenings, each), is_open=at == 0))
    parts.append(_more(check.violations_total - len(check.violations), "violation"))
    if check.unknown:
        parts.append("<p>What could not be looked at:</p>" + listed(map(str, check.unknown)))
    parts.append(_more(check.unknown_total - len(check.unknown), "thing"))
    if check.notes:
        parts.append("<p>Worth knowing:</p>" + listed(check.notes))
    return "".join(parts)


def _more(count: int, noun: str) -> str:
    return f'<p class="soft">And {counted(count, noun)} more.</p>' if count > 0 else ""


def _around(happenings: Sequence[Happening], violation: Violation) -> str:
    """What happened around the commit of the epoch that something is wrong with."""
    if violation.epoch is None:
        return '<p class="soft">It belongs to no epoch in particular.</p>'
    found = (at for at, each in enumerate(happenings) if _is_commit(each, violation.epoch))
    middle = next(found, None)
    if middle is None:
        return f'<p class="soft">Epoch {violation.epoch:,} was not committed in this run.</p>'
    first = max(middle - AROUND, 0)
    shown = happenings[first : middle + AROUND + 1]
    rows = [(clock(each.at_s), told(each)) for each in shown]
    return grid(("at", "what happened"), rows, middle - first)


def _is_commit(happening: Happening, epoch: int) -> bool:
    return isinstance(happening, Committed) and happening.epoch == epoch
