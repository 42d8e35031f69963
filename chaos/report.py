"""A report as one page that needs nothing else: no script, no font, no picture from elsewhere.

The verdict stands on top, what it rests on below. It is read by day and by night, on a screen or on
paper. Whatever comes from a job is escaped: a row may hold anything.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

from penstock.calendar import datetime_of
from penstock.chaos.findings import PROMISES, Check, Verdict, Violation
from penstock.chaos.report_style import STYLE

__all__ = [
    "KINDS",
    "chip",
    "counts",
    "cut",
    "facts",
    "folded",
    "grid",
    "legend",
    "listed",
    "moment",
    "page",
    "section",
    "tallies",
    "time_of",
    "violation_line",
    "wide",
]

KINDS = {Verdict.VALID: "good", Verdict.INVALID: "bad", Verdict.UNKNOWN: "doubt"}
"""What a verdict is drawn as."""

_SIGNS = {Verdict.VALID: "✓", Verdict.INVALID: "✕", Verdict.UNKNOWN: "?"}

LONG_CHARS = 60
"""A cell with more may be broken anywhere."""

_NUMBER = re.compile(r"[\d,.:]+( (s|min|h))?( \d+ (s|min))?|–")


def page(title: str, verdict: Verdict, lines: Sequence[str], body: str) -> str:
    """A whole page. The first of `lines` says most."""
    kind = KINDS[verdict]
    told = "".join(
        f'<p class="{"first" if at == 0 else ""}">{escape(line[:1].upper() + line[1:])}</p>'
        for at, line in enumerate(lines)
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(verdict)} – {escape(title)}</title><style>{STYLE}</style></head>
<body><main>
<header class="verdict {kind}"><h1>{_SIGNS[verdict]} {escape(verdict)}</h1>{told}</header>
{body}
</main></body></html>
"""


def section(title: str, body: str) -> str:
    """A part of a page; `body` is HTML."""
    return f"<section><h2>{escape(title)}</h2>\n{body}\n</section>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names with what they stand for."""
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs
    )
    return f'<dl class="facts">{listed}</dl>'


def chip(verdict: Verdict) -> str:
    """A verdict in a line."""
    return f'<span class="chip {KINDS[verdict]}">{escape(verdict)}</span>'


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], here: int | None = None) -> str:
    """A table of texts; numbers stand to the right. Row number `here` is the one meant."""
    shown = [[(cell, _kind(cell)) for cell in row] for row in rows]
    cells = []
    for at, row in enumerate(shown):
        inner = "".join(f'<td class="{kind}">{escape(cell)}</td>' for cell, kind in row)
        cells.append(f'<tr class="{"here" if at == here else ""}">{inner}</tr>')
    named = "".join(
        f'<th class="{_kind_of_column([row[at][1] for row in shown])}">{escape(head)}</th>'
        for at, head in enumerate(heads)
    )
    return f"<table><thead><tr>{named}</tr></thead><tbody>{''.join(cells)}</tbody></table>"


def folded(summary: str, inside: str, *, is_open: bool = False) -> str:
    """Something that can be unfolded; both are HTML."""
    state = " open" if is_open else ""
    shown = f'<div class="inside">{inside}</div>' if inside else ""
    return f"<details{state}><summary>{summary}</summary>{shown}</details>"


def wide(inside: str) -> str:
    """HTML that may be wider than the screen: it is moved sideways there, and not the page."""
    return f'<div class="wide">{inside}</div>'


def listed(lines: Iterable[str]) -> str:
    """Lines of text below each other."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="listed">{items}</ul>'


def legend(pairs: Iterable[tuple[str, str]]) -> str:
    """What each kind stands for in a picture."""
    shown = "".join(f'<span><i class="{kind}"></i>{escape(name)}</span>' for kind, name in pairs)
    return f'<p class="legend">{shown}</p>'


def tallies(entries: Iterable[tuple[str, str, str, str]]) -> str:
    """Counts to be seen at a glance, each with a kind, a name, and a remark that may be empty."""
    items = "".join(
        f'<li class="{kind}"><b>{escape(count)}</b>{escape(name)}'
        + (f'<br><span class="soft">{escape(remark)}</span>' if remark else "")
        + "</li>"
        for kind, count, name, remark in entries
    )
    return f'<ul class="tallies">{items}</ul>'


def violation_line(violation: Violation, where: str = "") -> str:
    """A violation in a line, as HTML, with the promise it breaks."""
    promise = escape(PROMISES.get(violation.invariant, ""))
    behind = f' <span class="soft">({escape(where)})</span>' if where else ""
    return (
        f'<span class="chip {KINDS[Verdict.INVALID]}" title="{promise}">'
        f"{escape(violation.invariant)}</span> "
        f"<b>{escape(violation.subject)}</b> {escape(violation.found)}{behind}"
    )


def counts(check: Check) -> str:
    """What a check has looked at."""
    return ", ".join(f"{number:,} {what}" for what, number in check.counted.items())


def cut(text: str, length: int = 16) -> str:
    """As much of a text as there is room for."""
    return text if len(text) <= length else text[: length - 1] + "…"


def time_of(at_ms: int) -> datetime:
    """When that is."""
    return datetime_of(at_ms)


def moment(at_ms: int) -> str:
    """When that is, for a person."""
    return f"{time_of(at_ms):%Y-%m-%d %H:%M:%S} UTC"


def _kind(cell: str) -> str:
    if _NUMBER.fullmatch(cell):
        return "number"
    return "long" if len(cell) > LONG_CHARS else ""


def _kind_of_column(kinds: Sequence[str]) -> str:
    return "number" if kinds and set(kinds) == {"number"} else ""
