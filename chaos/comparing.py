"""A run with faults beside the same run without: epoch by epoch, what differs, and where first.

Both roots hold the same epochs over the same ranges at the same times (`replaying`). Compared are
the rows staged for every sink with where they come from, how far every source and its time has
come, and the state of every partition. Differences are told in words, the oldest first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.findings import Ledger
from penstock.chaos.state_at import entry_name, state_at
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest, Output
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.points import Point
from penstock.sinks.changelog import is_changelog
from penstock.sinks.protocol import PLACE
from penstock.sinks.table import open_file
from penstock.sinks.table_index import body_of

__all__ = ["Comparison", "Difference"]

STATES_MAX = 6
"""At so many epochs, the last among them, all of the state is compared."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same in both."""

    invariant: str
    subject: str
    found: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.subject}, epoch {self.epoch}: {self.found}"


@dataclass(slots=True)
class Comparison:
    """Two roots of one job, the second without a fault. `scratch` is a folder to work in."""

    suffered: Root
    calm: Root
    scratch: Path
    ledger: Ledger | None = None

    def differences(
        self, ours: Mapping[int, Manifest], theirs: Mapping[int, Manifest]
    ) -> Iterator[Difference]:
        """Everything that differs, oldest epoch first; state after all else."""
        for epoch in sorted(ours):
            other = theirs.get(epoch)
            if other is None:
                yield Difference("I10", "the replay", "has no such epoch", epoch)
                return
            self._count("epochs")
            yield from self._sources(ours[epoch], other)
            yield from self._outputs(ours[epoch], other)
        yield from self._states(ours, theirs)

    def _sources(self, ours: Manifest, theirs: Manifest) -> Iterator[Difference]:
        for name, one in ours.sources.items():
            other = theirs.sources.get(name)
            for what in ("resume_at", "watermark_ms", "seen_ms"):
                mine, its = getattr(one, what), getattr(other, what, None)
                if mine != its:
                    invariant = "I5" if what == "resume_at" else "I11"
                    found = f"has {what} {mine}, and {its} without faults"
                    yield Difference(invariant, f"source {name}", found, ours.epoch)

    def _outputs(self, ours: Manifest, theirs: Manifest) -> Iterator[Difference]:
        for sink, staged in ours.sinks.items():
            if is_changelog(sink):
                continue  # what goes there is the state, which is compared as that
            one = {output.partition: output for output in staged if output.rows}
            other = {out.partition: out for out in theirs.sinks.get(sink, ()) if out.rows}
            for partition in sorted(one.keys() | other.keys()):
                mine = self._rows(self.suffered, one.get(partition))
                its = self._rows(self.calm, other.get(partition))
                self._count("rows", 0 if mine is None else mine.num_rows)
                if (told := _unlike(mine, its)) is not None:
                    subject = f"sink {sink}, partition {partition}"
                    yield Difference(told[0], subject, told[1], ours.epoch)

    def _rows(self, root: Root, output: Output | None) -> pa.Table | None:
        if output is None:
            return None
        body = perform(body_of(Chain(), output.ref, Point.READ_OBJECT), root.handlers)
        schema, batches = open_file(output.ref.key, body)
        return pa.Table.from_batches(batches, schema).replace_schema_metadata(None)

    def _states(
        self, ours: Mapping[int, Manifest], theirs: Mapping[int, Manifest]
    ) -> Iterator[Difference]:
        epochs = sorted(ours)
        step = max(1, -(-len(epochs) // STATES_MAX))
        for epoch in sorted({*epochs[::-step]}):
            yield from self._state(ours[epoch], theirs[epoch])

    def _state(self, ours: Manifest, theirs: Manifest) -> Iterator[Difference]:
        mine = dict(state_at(self.suffered, ours, self.scratch / "suffered"))
        its = dict(state_at(self.calm, theirs, self.scratch / "calm"))
        for place in sorted(mine.keys() | its.keys()):
            one, other = mine.get(place, {}), its.get(place, {})
            self._count("entries of state", len(one))
            subject = f"operator {place[0]}, partition {place[1]}"
            for entry in sorted(one.keys() | other.keys()):
                if one.get(entry) != other.get(entry):
                    found = f"has {_raw(one.get(entry))}, and {_raw(other.get(entry))}"
                    at = f"{subject}, {entry_name(entry)}"
                    yield Difference("I3", at, f"{found} without faults", ours.epoch)

    def _count(self, what: str, by: int = 1) -> None:
        if self.ledger is not None:
            self.ledger.count(what, by)


def _unlike(mine: pa.Table | None, its: pa.Table | None) -> tuple[str, str] | None:
    """What differs between the rows of one object and another, and the promise that breaks."""
    if mine is not None and its is not None and mine.equals(its):
        return None
    ours = [] if mine is None else mine.to_pylist()
    theirs = [] if its is None else its.to_pylist()
    if len(ours) != len(theirs):
        promise = "I1" if len(ours) < len(theirs) else "I2"
        return promise, f"has {len(ours)} rows, and {len(theirs)} without faults"
    for number, (row, other) in enumerate(zip(ours, theirs, strict=True)):
        columns = [name for name in row | other if not _same(row.get(name), other.get(name))]
        if columns:
            own = [name for name in columns if name not in PLACE] or columns
            name = own[0]
            told = f"row {number} has {name}={_short(row.get(name))}, and {_short(other.get(name))}"
            return "I16", f"{told} without faults"
    return None


def _same(one: object, other: object) -> bool:
    """Whether two values are alike; what is no number is like what is no number."""
    return one == other or repr(one) == repr(other)


def _short(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 200 else text[:197] + "…"


def _raw(value: bytes | None) -> str:
    return "nothing" if value is None else f"{len(value)} bytes {value[:16].hex()}"
