"""Dead letters by name: the tables they are in, what identifies one, and how people write it.

A letter is a row of a committed file, and a file's name is never used twice. So the file and the
row's number identify a letter among those of all lines of history; epoch, partition and number
identify it in one line.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from penstock.checkpoint.formats import Sealed
from penstock.fields import Count, FormatNumber, Name
from penstock.ids import Epoch, Generation, Key

__all__ = [
    "LETTERS",
    "REPLAY_ENDINGS",
    "REQUEST_FORMAT",
    "FileLetters",
    "LetterKey",
    "LetterPlace",
    "Request",
    "dead_letters_name",
    "grouped",
    "letter_name",
    "place_of",
    "replayed_name",
    "replays_name",
]

LetterKey: TypeAlias = tuple[Key, int]
"""The file of a letter, and the number of its row."""

LetterPlace: TypeAlias = tuple[int, int, int]
"""Epoch, partition and number: a letter in one line of history."""

LETTERS = "letters"
"""The one partition of a source of replayed letters. Its offsets count them."""

REPLAY_ENDINGS = (".replays", ".replayed", ".dead-letters")
"""What an operator that quarantines adds to its name: a source, and two tables."""

REQUEST_FORMAT = 1
MARK_LENGTH = 8
"""How much of a file's unique name is shown."""

_FILE = re.compile(r"tables/[^/]+/(\d{12})/(\d+)-([^/.]+)\.\w+")


def dead_letters_name(operator: str) -> str:
    """The table of an operator's dead letters."""
    return f"{operator}.dead-letters"


def replayed_name(operator: str) -> str:
    """The table of those that were replayed: one row for each, in the epoch that did."""
    return f"{operator}.replayed"


def replays_name(operator: str) -> str:
    """The source that an operator reads replayed letters from."""
    return f"{operator}.replays"


class FileLetters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Letters of one file."""

    file: Key
    ranges: tuple[tuple[Count, Count], ...]
    """Numbers of rows: from the first up to, not including, the second."""

    @property
    def count(self) -> int:
        """How many letters the ranges name; nothing is expanded for it."""
        return sum(max(0, stop - start) for start, stop in self.ranges)

    def each(self) -> Iterator[LetterKey]:
        """One letter after the other."""
        return ((self.file, n) for start, stop in self.ranges for n in range(start, stop))


class Request(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters that somebody wants replayed, in the line of history they were seen in."""

    format: FormatNumber = REQUEST_FORMAT
    operator: Name
    generation: Generation
    letters: tuple[FileLetters, ...]

    @property
    def count(self) -> int:
        """How many letters the request names; nothing is expanded for it."""
        return sum(file.count for file in self.letters)

    def each(self) -> Iterator[LetterKey]:
        """One letter after the other."""
        return (letter for file in self.letters for letter in file.each())


def grouped(letters: Iterable[LetterKey]) -> tuple[FileLetters, ...]:
    """The same letters file by file, those that follow each other as one range."""
    found: dict[Key, list[tuple[int, int]]] = {}
    for file, number in sorted(set(letters)):
        ranges = found.setdefault(file, [])
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return tuple(FileLetters(file, tuple(ranges)) for file, ranges in found.items())


def place_of(letter: LetterKey) -> LetterPlace | None:
    """Where a letter is in its line of history; None for a file that is none of a table."""
    found = _FILE.fullmatch(letter[0])
    return None if found is None else (Epoch(int(found[1])), int(found[2]), letter[1])


def letter_name(operator: str, letter: LetterKey, *, marked: bool) -> str:
    """How people write a letter: `sum/4/0/0`. A mark tells it from one of another line of history
    that has the same place: `sum/4/0/0@9abc995c`."""
    found = _FILE.fullmatch(letter[0])
    if found is None:
        return f"{letter[0]}, row {letter[1]}"
    mark = f"@{found[3][:MARK_LENGTH]}" if marked else ""
    return f"{operator}/{int(found[1])}/{int(found[2])}/{letter[1]}{mark}"
