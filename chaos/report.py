"""A report as one page that needs nothing else: no script, no font, no picture from elsewhere.

The verdict stands on top, what it rests on below. It is read by day and by night, on a screen or on
paper. Whatever comes from a job is escaped: a row may hold anything.
"""

from collections.abc import Iterable, Sequence
from html import escape

from penstock.chaos.findings import Verdict

__all__ = ["KINDS", "chip", "facts", "folded", "grid", "page", "section"]

KINDS = {Verdict.VALID: "good", Verdict.INVALID: "bad", Verdict.UNKNOWN: "doubt"}
"""What a verdict is drawn as."""

_SIGNS = {Verdict.VALID: "✓", Verdict.INVALID: "✕", Verdict.UNKNOWN: "?"}

_STYLE = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ground: #f5f6f8; --ink: #1c2126; --soft: #5c6670; --line: #dfe3e8;
  --good: #1a7f4b; --bad: #c0342b; --doubt: #a86400; --plain: #3d6fb4;
  --faint: #ccd5e0; --pale: #e6eaef;
  --good-wash: #e6f4ec; --bad-wash: #fbeae8; --doubt-wash: #fbf1de; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #1b2026; --ground: #12161a; --ink: #e7ebef; --soft: #98a3af; --line: #303841;
  --good: #4cc38a; --bad: #ff7a6e; --doubt: #e8ab4c; --plain: #6ea0e6;
  --faint: #46525f; --pale: #323b45;
  --good-wash: #16281f; --bad-wash: #331c1a; --doubt-wash: #2e2412; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 64px }
code, .mono, td.mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  font-size: 12.5px; overflow-wrap: anywhere }
header.verdict { border-left: 8px solid var(--kind); background: var(--wash);
  border-radius: 10px; padding: 22px 26px; margin-bottom: 22px }
header.verdict h1 { margin: 0; font-size: 30px; letter-spacing: -.01em; color: var(--kind) }
header.verdict p { margin: 6px 0 0; font-size: 16px }
header.verdict p.first { font-weight: 600; overflow-wrap: anywhere }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 22px; margin: 16px 0 }
section > h2 { margin: 0 0 12px; font-size: 16px }
dl.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr));
  gap: 12px 24px; margin: 0 }
dl.facts dt { color: var(--soft); font-size: 12.5px }
dl.facts dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 12.5px }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top }
tr:last-child td { border-bottom: 0 }
td.number, th.number { text-align: right }
tr.here td { background: var(--bad-wash); font-weight: 600 }
.chip { display: inline-block; min-width: 68px; text-align: center; border-radius: 99px;
  padding: 1px 10px; font-size: 12.5px; font-weight: 600; color: var(--kind);
  background: var(--wash) }
.good { --kind: var(--good); --wash: var(--good-wash) }
.bad { --kind: var(--bad); --wash: var(--bad-wash) }
.doubt { --kind: var(--doubt); --wash: var(--doubt-wash) }
.soft { color: var(--soft) }
details { border-top: 1px solid var(--line); padding: 10px 0 }
details:first-of-type { border-top: 0 }
details > summary { cursor: pointer; overflow-wrap: anywhere }
details > summary::marker { color: var(--soft) }
details .inside { padding: 10px 0 4px 18px; overflow-x: auto }
ul.plain { margin: 6px 0; padding-left: 20px }
svg.timeline { width: 100%; height: auto; display: block }
svg.timeline .good { fill: var(--good) } svg.timeline .bad { fill: var(--bad) }
svg.timeline .doubt { fill: var(--doubt) } svg.timeline .plain { fill: var(--plain) }
svg.timeline .faint { fill: var(--faint) } svg.timeline .pale { fill: var(--pale) }
svg.timeline text { font-size: 11.5px; fill: var(--soft) }
svg.timeline text.name { fill: var(--ink) } svg.timeline text.label { fill: var(--ink) }
svg.timeline .grid { stroke: var(--line); stroke-width: 1 }
svg.timeline .rail { stroke: var(--line); stroke-width: 1 }
footer { color: var(--soft); font-size: 12.5px; margin-top: 22px; overflow-wrap: anywhere }
@media print { body { background: none } section { break-inside: avoid } }
"""


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
<title>{escape(verdict)} – {escape(title)}</title><style>{_STYLE}</style></head>
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
    """A table of texts; whole numbers stand to the right. Row number `here` is the one meant."""
    cells = []
    for at, row in enumerate(rows):
        inner = "".join(f'<td class="{_kind(cell)}">{escape(cell)}</td>' for cell in row)
        cells.append(f'<tr class="{"here" if at == here else ""}">{inner}</tr>')
    named = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<table><thead><tr>{named}</tr></thead><tbody>{''.join(cells)}</tbody></table>"


def folded(summary: str, inside: str, *, is_open: bool = False) -> str:
    """Something that can be unfolded; both are HTML."""
    state = " open" if is_open else ""
    shown = f'<div class="inside">{inside}</div>' if inside else ""
    return f"<details{state}><summary>{summary}</summary>{shown}</details>"


def _kind(cell: str) -> str:
    return "number" if cell.replace(",", "").isdigit() else ""
