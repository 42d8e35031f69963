"""`penstock dead-letters`: look at events that could not be processed, and replay them."""

from typing import Annotated, Any

import pyarrow as pa  # type: ignore[import-untyped]
import typer
from rich.markup import escape
from rich.table import Table

from penstock.errors import Invalid
from penstock.runtime.answers import AsJson, counted, or_exit, out, print_json
from penstock.runtime.dead_letters import (
    LETTER_COLUMNS,
    Letter,
    State,
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

NAMED_MAX = 5
"""How many letters an error names."""


@dead_letters.command("list")
def list_letters(
    root: RootUrl,
    operator: Operator = "",
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="At most so many.")] = 50,
    json: AsJson = False,
) -> None:
    """The dead letters of a job, oldest first: the event, the error, requested or replayed.

    Messages that a source could not decode are among them, under the source's name; these cannot
    be replayed.
    """
    letters = or_exit(root, lambda: _letters(root, operator))[:number]
    if json:
        print_json([_as_dict(letter) for letter in letters])
        return
    if not letters:
        out.print("There are no dead letters.")
        return
    table = Table("letter", "operator", "key", "event", "error", "state", box=None)
    for letter in letters:
        table.add_row(
            *(escape(text) for text in (letter.name, letter.operator, letter.key, letter.event)),
            escape(letter.error),
            letter.state.value,
        )
    out.print(table)


@dead_letters.command()
def replay(
    root: RootUrl,
    operator: Operator = "",
    letter: Annotated[
        list[str] | None, typer.Option(help="Only this one, by its name in the list.")
    ] = None,
) -> None:
    """Let letters be processed again, by the job as it runs now or when it is started next.

    A letter is replayed once, however often it is asked for; one that fails again is a new letter.
    Going back to an epoch before its replay makes it a dead letter again, and a request that is
    older than going back is void.
    """

    def work() -> tuple[int, list[Letter]]:
        found = {name: find_letters(root, name) for name in _operators(root, operator)}
        _refuse_undecodable(root, letter or [])
        chosen = _chosen(root, [each for some in found.values() for each in some], letter or [])
        new = [each for each in chosen if _is_new(each, named=bool(letter))]
        count = 0
        for name in found:
            mine = [each for each in new if each.operator == name]
            count += replay_letters(root, name, mine)
        return count, [each for each in chosen if each not in new]

    count, left = or_exit(root, work)
    out.print(f"{counted(count, 'letter')} will be processed again.")
    _tell_of_others(left)


def _is_new(letter: Letter, *, named: bool) -> bool:
    """Whether a letter is yet to be asked for. Of one that an older version may have replayed, only
    a person who names it can decide that."""
    return letter.state is State.DEAD or (named and letter.state is State.UNKNOWN)


def _tell_of_others(left: list[Letter]) -> None:
    told = {
        State.REQUESTED: "asked for already, and not yet processed",
        State.REPLAYED: "replayed already",
        State.UNKNOWN: "left alone: the root was forked by an older version, which did not copy "
        "what had been replayed. Name one with --letter if you know that it was not",
    }
    for state, words in told.items():
        count = sum(letter.state is state for letter in left)
        if count:
            out.print(f"{counted(count, 'letter')} {'was' if count == 1 else 'were'} {words}.")


def _chosen(root: str, letters: list[Letter], names: list[str]) -> list[Letter]:
    """The letters of these names, or all that have an event."""
    if not names:
        return [letter for letter in letters if letter.event]
    return [_named(root, letters, name) for name in dict.fromkeys(names)]


def _refuse_undecodable(root: str, names: list[str]) -> None:
    sources = sources_with_letters(root)
    for name in names:
        if name.partition("/")[0] in sources:
            found = "could not be decoded: it never was an event, and cannot be processed"
            raise Invalid(f"{root}: message {name!r}", found, "have it sent anew")


def _named(root: str, letters: list[Letter], name: str) -> Letter:
    """The one letter of that name. The operator may be left out of it if that leaves one."""
    found = [each for each in letters if name in (each.name, each.name.partition("/")[2])]
    subject = f"{root}: letter {name!r}"
    if len(found) == 1 and found[0].event:
        return found[0]
    if found and not found[0].event:
        advice = "set the timer anew by another event"
        raise Invalid(subject, "is of a timer and has no event to be processed again", advice)
    if found:
        raise Invalid(subject, "is one of several", f"choose {_spelt(found)}")
    unmarked = [e for e in letters if name in _without_mark(e.name)]
    if unmarked:
        found_ = "has no mark, and history was rewound: it may be of another line of history"
        raise Invalid(subject, found_, f"if it is still the one you mean, use {_spelt(unmarked)}")
    known = f"choose one of `penstock dead-letters list`, such as {_spelt(letters)}"
    raise Invalid(
        subject,
        "is not a dead letter in the present history of the job",
        known if letters else "there are no dead letters",
    )


def _without_mark(name: str) -> tuple[str, str]:
    short = name.partition("@")[0]
    return short, short.partition("/")[2]


def _spelt(letters: list[Letter]) -> str:
    return " or ".join(letter.name for letter in letters[:NAMED_MAX])


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
        "state": letter.state.value or "dead",
        "replayed": letter.state is State.REPLAYED,
        "columns": pa.Table.from_pylist([row]).to_pylist()[0],
    }
