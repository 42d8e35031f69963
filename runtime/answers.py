"""How the command line answers: tables or JSON on standard output, one sentence on the other."""

import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from penstock.checkpoint.open_store import without_secrets
from penstock.errors import PenstockError

__all__ = ["EXIT_ERROR", "EXIT_FOUND", "AsJson", "counted", "err", "or_exit", "out", "print_json"]

EXIT_FOUND = 1
"""The command worked, and what it found is bad."""

EXIT_ERROR = 2
"""The command could not do its work."""

T = TypeVar("T")

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def or_exit(url: str, work: Callable[[], T]) -> T:
    """The result of `work` on what is at a URL, or its error as one sentence and an exit."""
    try:
        return work()
    except PenstockError as error:
        shown = without_secrets(url)
        where = "" if url in error.subject or shown in error.subject else f"{shown}: "
        err.print(f"[bold red]penstock:[/] {escape(where + str(error))}")
        raise typer.Exit(EXIT_ERROR) from error


def counted(count: int, noun: str) -> str:
    """So many of something: one epoch, two epochs."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def print_json(answer: Any) -> None:
    """An answer for programs."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")
