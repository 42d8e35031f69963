"""Invariants of a user's own: a Python function beside the job, asked after a chaos run.

    @ps.invariant
    def nothing_is_lost(found: ps.Observed) -> bool:
        return found.table("totals").num_rows > 0

It is given what the run has left. It answers with what is false or a sentence if something is
wrong, or raises AssertionError; nothing at all and an empty sentence are no objection. In
production nobody asks it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.findings import Check, Ledger
from penstock.checkpoint.inspect import StateView
from penstock.checkpoint.root import Root
from penstock.runtime.topology import Topology
from penstock.sinks.table_read import read_table
from penstock.sources.protocol import Range

__all__ = ["Observed", "check_invariants", "invariant", "invariants_of"]

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__penstock_invariant__"


def invariant(function: F) -> F:
    """Let a chaos run ask this function whether what it finds is right."""
    setattr(function, _MARK, True)
    return function


def invariants_of(module: Any) -> list[Callable[..., Any]]:
    """The invariants that a job's file has."""
    return [found for found in vars(module).values() if getattr(found, _MARK, False) is True]


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run has left, for an invariant to look at."""

    root: Root
    topology: Topology
    scratch: Path

    def table(self, name: str) -> pa.Table:
        """All rows of a table, with where each comes from."""
        return read_table(self.root, name)

    def events(self, source: str) -> pa.Table:
        """Every event of a source that the job has read, in order of partition and offset."""
        node = self.topology.sources[source]
        starts: dict[str, int] = {}
        stops: dict[str, int] = {}
        for manifest in self.root.history():  # newest first: what is seen last is the oldest
            for partition, each in manifest.sources[source].ranges.items():
                starts[partition] = each.start
                stops.setdefault(partition, each.stop)
        batches = [
            batch
            for partition, start in sorted(starts.items())
            for batch in node.source.read(partition, Range(start=start, stop=stops[partition]))
        ]
        return pa.Table.from_batches(batches) if batches else node.schema.empty_table()

    def state(self, operator: str) -> dict[Any, dict[str, Any]]:
        """Every key of an operator, and what it keeps."""
        view = StateView(self.root, operator, scratch=self.scratch / "states")
        return dict(view.scan())


def _objection(answer: Any) -> str | None:
    """What an answer objects to; None: nothing. Arrow and numpy have truths of their own."""
    plain = answer.as_py() if isinstance(answer, pa.Scalar) else answer
    if plain is None or (isinstance(plain, str) and not plain):
        return None
    if isinstance(plain, str):
        return f"does not hold: {plain}"
    return None if plain else "does not hold"


def check_invariants(functions: list[Callable[..., Any]], observed: Observed) -> Check:
    """Ask each of them."""
    ledger = Ledger("invariants", "The job's own invariants hold.")
    for function in functions:
        name = getattr(function, "__name__", "an invariant")
        ledger.count("invariants")
        try:
            answer = function(observed)
        except AssertionError as error:
            ledger.wrong("user", f"invariant {name}", f"does not hold: {error or 'asserted'}")
        except Exception as error:  # noqa: BLE001 - it is somebody else's code
            ledger.unknown(f"invariant {name}", f"raised {type(error).__name__}: {error}")
        else:
            told = _objection(answer)
            if told is not None:
                ledger.wrong("user", f"invariant {name}", told)
    return ledger.check()
