"""How a report looks, by day, by night and on paper.

Colours are named by what they mean, once, and everything else takes them by that name: `good`,
`bad` and `doubt` are verdicts, `fault` is what was done to a job on purpose, `plain` is the job at
work, `faint`, `pale` and the tints are what is written upon.
"""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ground: #f5f6f8; --ink: #1c2126; --soft: #5c6670; --line: #dfe3e8;
  --good: #1a7f4b; --bad: #c0342b; --doubt: #a86400; --plain: #3d6fb4; --fault: #7b52b9;
  --faint: #ccd5e0; --pale: #e6eaef; --plain-tint: #b3cbea; --doubt-tint: #f3d49a;
  --fault-tint: #d5c5ee;
  --good-wash: #e6f4ec; --bad-wash: #fbeae8; --doubt-wash: #fbf1de; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #1b2026; --ground: #12161a; --ink: #e7ebef; --soft: #98a3af; --line: #303841;
  --good: #4cc38a; --bad: #ff7a6e; --doubt: #e8ab4c; --plain: #6ea0e6; --fault: #b795ee;
  --faint: #46525f; --pale: #323b45; --plain-tint: #35537d; --doubt-tint: #6b4d17;
  --fault-tint: #4b3a6b;
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
td.number, th.number { text-align: right; white-space: nowrap; padding: 6px 22px 6px 8px }
td.long { overflow-wrap: anywhere; min-width: 240px }
tr.here td { background: var(--bad-wash); font-weight: 600 }
.chip { display: inline-block; min-width: 68px; text-align: center; border-radius: 99px;
  padding: 1px 10px; font-size: 12.5px; font-weight: 600; color: var(--kind);
  background: var(--wash) }
.good { --kind: var(--good); --wash: var(--good-wash) }
.bad { --kind: var(--bad); --wash: var(--bad-wash) }
.doubt { --kind: var(--doubt); --wash: var(--doubt-wash) }
.plain { --kind: var(--plain) } .fault { --kind: var(--fault) }
.faint { --kind: var(--faint) } .pale { --kind: var(--pale) } .ink { --kind: var(--ink) }
.plain-tint { --kind: var(--plain-tint) } .doubt-tint { --kind: var(--doubt-tint) }
.fault-tint { --kind: var(--fault-tint) }
.soft { color: var(--soft) }
details { border-top: 1px solid var(--line); padding: 10px 0 }
details:first-of-type { border-top: 0 }
details > summary { cursor: pointer; overflow-wrap: anywhere }
details > summary::marker { color: var(--soft) }
details .inside { padding: 10px 0 4px 18px; overflow-x: auto }
ul.listed { margin: 6px 0; padding-left: 20px; overflow-wrap: anywhere }
ul.tallies { display: grid; grid-template-columns: repeat(auto-fill, minmax(176px, 1fr)); gap: 8px;
  margin: 0; padding: 0; list-style: none }
ul.tallies li { border-radius: 8px; padding: 8px 12px; background: var(--wash, var(--ground));
  overflow-wrap: anywhere; font-size: 12.5px }
ul.tallies b { display: block; font-size: 20px; color: var(--kind, var(--ink)) }
p.legend { margin: 10px 0 0; color: var(--soft); font-size: 12.5px }
p.legend span { white-space: nowrap; margin-right: 18px }
p.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 5px;
  margin-right: 6px; background: var(--kind) }
pre.command { margin: 0; padding: 10px 14px; border-radius: 8px; background: var(--ground);
  white-space: pre-wrap }
p.promise { margin: 0 0 10px; color: var(--soft) }
p.above { margin: 16px 0 4px; color: var(--soft); font-size: 12.5px }
.wide { overflow-x: auto } .wide + .legend + .wide { margin-top: 14px }
svg.timeline { width: 100%; height: auto; display: block; min-width: 760px }
svg.timeline .good { fill: var(--good) } svg.timeline .bad { fill: var(--bad) }
svg.timeline .doubt { fill: var(--doubt) } svg.timeline .plain { fill: var(--plain) }
svg.timeline .fault { fill: var(--fault) } svg.timeline .ink { fill: var(--ink) }
svg.timeline .plain-tint { fill: var(--plain-tint) }
svg.timeline .doubt-tint { fill: var(--doubt-tint) }
svg.timeline .fault-tint { fill: var(--fault-tint) }
svg.timeline .faint { fill: var(--faint) } svg.timeline .pale { fill: var(--pale) }
svg.timeline text { font-size: 11.5px; fill: var(--soft) }
svg.timeline circle { fill-opacity: .8 }
svg.timeline text.name { fill: var(--ink) } svg.timeline text.label { fill: var(--ink) }
svg.timeline .grid { stroke: var(--line); stroke-width: 1 }
svg.timeline .rail { stroke: var(--line); stroke-width: 1 }
footer { color: var(--soft); font-size: 12.5px; margin-top: 22px; overflow-wrap: anywhere }
@media print { body { background: none } section { break-inside: avoid }
  svg.timeline { min-width: 0 } }
"""
