"""State changes as rows: what a changelog outside the root is given, and gives back.

Each row is one entry of an operator's state and what it became; null for one that was removed. The
marker of the version is an entry like any other, so whoever has all rows of an epoch knows which
version they make.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.sinks.protocol import AppliedSink

__all__ = [
    "CHANGE_COLUMNS",
    "Changelog",
    "Entries",
    "Rebuilding",
    "changelog_name",
    "changes_table",
    "is_changelog",
]

CHANGE_COLUMNS = pa.schema([("entry", pa.binary()), ("value", pa.binary())])

_MARK = ".changelog="

Entries = Mapping[bytes, bytes | None]
"""Entries and what they became; None for one that was removed."""


@runtime_checkable
class Rebuilding(Protocol):
    """A changelog that state can be rebuilt from.

    Promise: what is read is what whole epochs have left, from the first one on, as of one moment.
    """

    @property
    def where(self) -> str:
        """What messages call it."""

    def entries(self, partition: int) -> Iterator[Entries]:
        """Everything that is known of one partition, in pieces; a later piece replaces what an
        earlier one says."""


class Changelog(Protocol):
    """Where a job's state changes go besides its root."""

    def sink(self, job: str, operator: str) -> AppliedSink:
        """What takes the changes of one operator."""


def changelog_name(operator: str, topic: str) -> str:
    """What the sink of an operator's changes is called. Another topic is another sink: it begins
    with everything there is."""
    return f"{operator}{_MARK}{topic}"


def is_changelog(sink: str) -> bool:
    """Whether a sink of that name takes state changes."""
    return _MARK in sink


def changes_table(changes: Iterable[tuple[bytes, bytes | None]]) -> pa.Table:
    """Changes as rows, in their order."""
    pairs = list(changes)
    entries = pa.array([entry for entry, _ in pairs], pa.binary())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.Table.from_arrays([entries, values], schema=CHANGE_COLUMNS)
