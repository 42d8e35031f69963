"""RESULTS.md: one section per benchmark, each replaced by its own run and no other."""

from pathlib import Path

from rich.table import Table

__all__ = ["markdown", "write_section"]

RESULTS = Path(__file__).with_name("RESULTS.md")


def markdown(table: Table) -> str:
    """The same table as text for a document."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    heads = [str(column.header) for column in table.columns]
    rows = [heads, ["---"] * len(heads), *map(list, zip(*columns, strict=True))]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def write_section(name: str, text: str) -> None:
    """Replace one benchmark's part of RESULTS.md and leave the others' as they are."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n{text}\n{end}"
    before = RESULTS.read_text() if RESULTS.exists() else "# Measured\n"
    if begin in before:
        head, _, rest = before.partition(begin)
        RESULTS.write_text(head + section + rest.partition(end)[2])
    else:
        RESULTS.write_text(f"{before.rstrip()}\n\n{section}\n")
