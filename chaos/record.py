"""The record of a simulated run: all that became real in it, the plain model of the oracle.

Every committed epoch is remembered with its rows and its whole state, and with the epoch before it.
So each epoch stands at the end of one line of history, whatever HEAD has gone back on since.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.chaos.letter_truth import Post
from penstock.chaos.model_workload import Row

__all__ = ["Committed", "Json", "Line", "Record", "refs_of", "state_refs"]

Json = dict[str, Any]


@dataclass(slots=True)
class Committed:
    """One epoch that became real."""

    manifest: Json
    manifest_key: str
    rows: dict[int, list[Row]]
    """Per shard."""
    line: "Line"
    """The epochs before it, and itself."""
    state: dict[int, int] = field(default_factory=dict)
    files: dict[str, list[Json]] = field(default_factory=dict)
    """By table: the files that it added, as its manifest names them."""
    post: Post = field(default_factory=Post)
    """The dead letters of its line as of this epoch."""

    @property
    def epoch(self) -> int:
        """Its number."""
        return int(self.manifest["epoch"])

    def table_files(self, table: str) -> list[Json]:
        """Every file of a table as of this epoch."""
        return [file for done in self.line for file in done.files.get(table, ())]


Line = list[Committed]
"""A line of history: epoch n is at n - 1."""


class Record:
    """Every epoch that ever became real."""

    def __init__(self) -> None:
        self.by_key: dict[str, Committed] = {}
        self.by_commit: dict[str, Committed] = {}
        self.by_mark: dict[int, Committed] = {}
        self.made: set[tuple[int, int]] = set()
        """Token and epoch of each."""

    def add(self, done: Committed) -> None:
        """Remember one more."""
        commit = done.manifest["commit"]
        self.by_key[done.manifest_key] = done
        self.by_commit[commit] = done
        self.by_mark[_mark(commit)] = done
        self.made.add((done.manifest["token"], done.epoch))


def _mark(commit: str) -> int:
    """What a cursor calls a commit."""
    return int.from_bytes(hashlib.sha256(commit.encode()).digest()[:8]) >> 1


def state_refs(line: Line) -> tuple[list[Json], int]:
    """What rebuilds the state at the end of a line, in order, and the oldest epoch it involves."""
    refs: list[Json] = []
    epoch = oldest = len(line)
    for partition in line[-1].manifest["operators"]["totals"]:
        mine: list[Json] = []
        first: list[Json] = []
        base, at = 0, epoch
        while at > base:
            state = line[at - 1].manifest["operators"]["totals"][partition]
            if state["delta"] is not None:
                mine.insert(0, state["delta"]["ref"])
            if state["snapshot"] is not None and base == 0:
                base = state["snapshot"]["epoch"]
                first = list(_snapshot_refs(state["snapshot"]))
            oldest, at = min(oldest, at), at - 1
        refs += [*first, *mine]
    return refs, oldest


def refs_of(manifest: Json) -> Iterator[Json]:
    """Everything that a manifest names, its parent aside."""
    for partitions in manifest["operators"].values():
        for state in partitions.values():
            if state["delta"] is not None:
                yield state["delta"]["ref"]
            if state["snapshot"] is not None:
                yield from _snapshot_refs(state["snapshot"])
    for outputs in manifest["sinks"].values():
        yield from (output["ref"] for output in outputs)
    yield from (index["ref"] for index in manifest["tables"].values())


def _snapshot_refs(snapshot: Json) -> Iterable[Json]:
    yield from (file["ref"] for file in snapshot["files"])
    yield from (delta["ref"] for _, delta in snapshot["tail"])
