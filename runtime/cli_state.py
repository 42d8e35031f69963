"""`penstock state`: look into the state of a job, running or not, at any epoch that is kept."""

import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.markup import escape

from penstock.checkpoint.inspect import StateView, plain
from penstock.checkpoint.rewind import Target
from penstock.checkpoint.root import Root
from penstock.errors import Invalid
from penstock.ids import Epoch
from penstock.runtime.answers import EXIT_FOUND, AsJson, or_exit, out, print_json

__all__ = ["get", "parse_key", "parse_target", "scan", "states"]

T = TypeVar("T")

states = typer.Typer(no_args_is_help=True, help="State: what a job remembers, key by key.")

RootUrl = Annotated[str, typer.Argument(help="Where the job lives.")]
Operator = Annotated[str, typer.Argument(help="The operator; `penstock status` names them.")]
AtEpoch = Annotated[str, typer.Option(help="An epoch or the name of a pin; else the last one.")]


@states.command()
def get(
    root: RootUrl,
    operator: Operator,
    key: Annotated[str, typer.Argument(help="JSON if it can be read as such, else text.")],
    epoch: AtEpoch = "",
    json: AsJson = False,
) -> None:
    """All states of one key."""

    def look(view: StateView) -> tuple[Any, dict[str, Any]]:
        for wanted in _readings(key):
            found = view.get(wanted)
            if found:
                break
        return wanted, found

    shown, found = or_exit(root, lambda: _looked(root, operator, epoch, look))
    if json:
        print_json({"key": plain(shown), "states": plain(found)})
    elif not found:
        out.print(f"There is no state of {escape(_text(shown))}.")
    for name, value in () if json else found.items():
        out.print(f"{escape(name)}: {escape(_text(value))}")
    raise typer.Exit(0 if found else EXIT_FOUND)


@states.command()
def scan(
    root: RootUrl,
    operator: Operator,
    limit: Annotated[int, typer.Option(min=1, help="At most so many keys.")] = 20,
    epoch: AtEpoch = "",
    json: AsJson = False,
) -> None:
    """The first keys and their states, in the order they are stored in."""

    def look(view: StateView) -> tuple[list[tuple[Any, dict[str, Any]]], dict[str, str]]:
        return list(view.scan(limit + 1)), view.columns()

    rows, columns = or_exit(root, lambda: _looked(root, operator, epoch, look))
    shown = list(islice(rows, limit))
    if json:
        keys = [{"key": plain(key), "states": plain(found)} for key, found in shown]
        print_json({"keys": keys, "columns": columns, "more": len(rows) > limit})
        return
    for key, found in shown:
        values = ", ".join(f"{name} = {_text(value)}" for name, value in found.items())
        out.print(f"{escape(_text(key))}: {escape(values)}")
    for name, words in columns.items():
        out.print(f"{escape(name)}: {words}")
    if len(rows) > limit:
        out.print("There are more; raise --limit to see them.")
    elif not rows and not columns:
        out.print("There is no state.")


def parse_target(text: str) -> Target:
    """An epoch if it is a number, else the name of a pin."""
    return Epoch(int(text)) if text.isascii() and text.isdigit() else text


def parse_key(text: str) -> Any:
    """A key from a shell: JSON if it can be read as such, a list as a key of several columns."""
    try:
        key = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if isinstance(key, dict):
        raise Invalid(f"key {text}", "is an object", "give its columns in order, as a list")
    return tuple(key) if isinstance(key, list) else key


def _readings(text: str) -> list[Any]:
    """What a person may have meant by a key, the likelier first: 123 may be text as well."""
    key = parse_key(text)
    return [key] if isinstance(key, str) else [key, text]


def _looked(root: str, operator: str, epoch: str, look: Callable[[StateView], T]) -> T:
    """What `look` sees, through a scratch folder that goes with the command."""
    with tempfile.TemporaryDirectory() as scratch:
        target = parse_target(epoch) if epoch else None
        return look(StateView(Root.open(root), operator, target, scratch=Path(scratch)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(plain(value)).decode()
