"""`penstock dead-letters`: look at events that could not be processed, and play them again."""

from typing import Annotated, Any

import pyarrow as pa  # type: ignore[import-untyped]
import typer
from rich.markup import escape
from rich.table import Table

from penstock.errors import Invalid
from penstock.runtime.answers import AsJson, or_exit, out, print_json
from penstock.runtime.dead_letters import (
    LETTER_COLUMNS,
    Letter,
    find_letters,
    find_undecodable,
    operators_with_letters,
    replay_letters,
    sources_with_letters,
)

__all__ = ["dead_letters", "list_letters", "replay"]

dead_letters = typer.Typer(
    no_args_is_help=True, help="Dead letters: events an operator could not process."
)
RootUrl = Annotated[str, typer.Argument(help="The job's root.")]
Operator = Annotated[str, typer.Option(help="Only those of this operator or source.")]


@dead_letters.command("list")
def list_letters(
    root: RootUrl,
    operator: Operator = "",
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="At most so many.")] = 50,
    json: AsJson = False,
) -> None:
    """The dead letters of a job, oldest first: which event, which error, played again or not.

    Messages that a source could not decode are among them, under the source's name; these cannot
    be played again.
    """
    letters = or_exit(root, lambda: _letters(root, operator))[:number]
    if json:
        print_json([_as_dict(letter) for letter in letters])
        return
    if not letters:
        out.print("There are no dead letters.")
        return
    table = Table("letter", "operator", "key", "event", "error", "played again", box=None)
    for letter in letters:
        table.add_row(
            *(escape(text) for text in (letter.name, letter.operator, letter.key, letter.event)),
            escape(letter.error),
            "yes" if letter.replayed else "",
        )
    out.print(table)


@dead_letters.command()
def replay(
    root: RootUrl,
    operator: Operator = "",
    letter: Annotated[list[str] | None, typer.Option(help="Only this one, by its name.")] = None,
) -> None:
    """Let letters be processed again, by the job as it runs now or when it is started next.

    One that was played already is not played twice; one that fails again is a new letter.
    """

    def work() -> int:
        wanted = set(letter or [])
        count = 0
        for name in _operators(root, operator):
            letters = [each for each in find_letters(root, name) if not each.replayed]
            chosen = [each for each in letters if not wanted or each.name in wanted]
            count += replay_letters(root, name, chosen)
        return count

    count = or_exit(root, work)
    out.print(f"{count:,} {'letter' if count == 1 else 'letters'} will be processed again.")


def _letters(root: str, operator: str) -> list[Letter]:
    sources = [name for name in sources_with_letters(root) if operator in ("", name)]
    found = [letter for name in sources for letter in find_undecodable(root, name)]
    if sources and operator:
        return found
    operators = _operators(root, operator)
    return found + [letter for name in operators for letter in find_letters(root, name)]


def _operators(root: str, operator: str) -> list[str]:
    known = operators_with_letters(root)
    if operator and operator not in known:
        found = f"has no dead letters of operator {operator!r}"
        raise Invalid(root, found, f"choose one of {', '.join(known) or 'none'}")
    return [operator] if operator else known


def _as_dict(letter: Letter) -> dict[str, Any]:
    row = {n: v for n, v in letter.row.items() if n not in LETTER_COLUMNS and n[0] != "_"}
    return {
        "letter": letter.name,
        "operator": letter.operator,
        "key": letter.key,
        "event": letter.event,
        "error": letter.error,
        "replayed": letter.replayed,
        "columns": pa.Table.from_pylist([row]).to_pylist()[0],
    }
