"""Differences in words: which row it is, and what is in it, for the first few of each kind.

A record is a hash and a place. The row that was expected is found by its place in what was staged;
one that is only in the sink, by looking through the sink once more for rows of that hash.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.audit_compare import Difference, Kind
from penstock.chaos.audit_history import History
from penstock.chaos.audit_records import Lens
from penstock.errors import PenstockError
from penstock.sinks.protocol import PLACE, Holding
from penstock.sinks.staged import own_columns, rows_of

__all__ = ["Named", "Naming"]

NAMED_MAX = 20
"""How many rows of each kind are shown with what is in them."""

ROW_LENGTH_MAX = 160

Key = tuple[int, int]
_FOUND_ONLY = (Kind.ALTERED, Kind.STRANGE, Kind.FOREIGN, Kind.RETURNED, Kind.EARLY)
"""Kinds of which the sink's own row says more than the committed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A difference in words."""

    kind: Kind
    surplus: int
    epoch: int | None
    subject: str
    found: str


@dataclass(slots=True)
class Naming:
    """The first differences of each kind."""

    history: History
    holding: Holding
    sink: str
    _kept: dict[Kind, list[Difference]] = field(default_factory=dict)

    def add(self, difference: Difference) -> None:
        """Keep it, one row at a time, if there is room."""
        kept = self._kept.setdefault(difference.kind, [])
        for at in range(min(len(difference), NAMED_MAX - len(kept))):
            one = slice(at, at + 1)
            kept.append(
                Difference(difference.kind, difference.expected[one], difference.found[one])
            )

    def named(self) -> Iterator[Named]:
        """Each in words."""
        seen = self._seen()
        for kept in self._kept.values():
            yield from (self._named(difference, seen) for difference in kept)

    def _named(self, difference: Difference, seen: dict[Key, str]) -> Named:
        ours, theirs = difference.expected[0], difference.found[0]
        place = ours if ours["count"] else theirs
        epoch, partition, sequence = (int(place[name[1:]]) for name in PLACE)
        where = f"the row of epoch {epoch}, partition {partition}, sequence {sequence}"
        shown = self._row(epoch, partition, sequence) if ours["count"] else ""
        instead = seen.get(_key(theirs), "")
        rows = [each for each in (shown, f"in the sink {instead}" if instead else "") if each]
        said = [_found(difference), *([", ".join(rows)] if rows else [])]
        return Named(
            kind=difference.kind,
            surplus=difference.surplus,
            epoch=epoch if epoch > 0 else None,
            subject=f"sink {self.sink}, {where if epoch >= 0 else 'a row'},",
            found=": ".join(said),
        )

    def _row(self, epoch: int, partition: int, sequence: int) -> str:
        """A committed row, as it was staged."""
        for link in self.history.epochs():
            for output in link.manifest.sinks.get(self.sink, ()):
                if (link.epoch, output.partition) == (epoch, partition):
                    try:
                        body = self.history.body(output.ref, link.epoch)
                    except PenstockError:
                        return ""
                    rows = rows_of([body], pa.schema([]), ("_input",))
                    return _shown(own_columns(rows.slice(sequence, 1)))
        return ""

    def _seen(self) -> dict[Key, str]:
        """The sink's own rows of those differences that need them."""
        wanted = {
            _key(each.found[0])
            for kind, kept in self._kept.items()
            for each in kept
            if kind in _FOUND_ONLY
        }
        found: dict[Key, str] = {}
        if not wanted:
            return found
        lens, firsts = (
            Lens(self.holding.traits),
            np.array([first for first, _ in wanted], np.uint64),
        )
        for batch in self.holding.batches():
            keys = lens.keys(batch)
            for at in np.flatnonzero(np.isin(keys[:, 0], firsts)).tolist():
                key = (int(keys[at, 0]), int(keys[at, 1]))
                if key in wanted:
                    found[key] = _shown(batch.slice(at, 1))
        return found


def _key(record: Any) -> Key:
    return int(record["key"][0]), int(record["key"][1])


def _found(difference: Difference) -> str:
    ours, theirs = int(difference.expected[0]["count"]), int(difference.found[0]["count"])
    if difference.kind is Kind.DOUBLED:
        return f"is there {theirs} times, and was committed {_times(ours)}"
    if difference.kind is Kind.MISSING and theirs:
        return f"is there {_times(theirs)}, and was committed {ours} times"
    return difference.kind.value


def _shown(row: pa.Table | pa.RecordBatch) -> str:
    listed = row.to_pylist()
    return str(listed[0])[:ROW_LENGTH_MAX] if listed else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
