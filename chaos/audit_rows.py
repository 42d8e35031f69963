"""Every output row that is kept: of tables all there ever were, of other sinks what is staged.

Files are read one at a time and batch by batch, and of each only the columns that say where its
rows come from. What they must be is worked out in `audit_trace`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.audit_history import History, Link
from penstock.chaos.audit_trace import (
    TRACED,
    Inputs,
    Reads,
    Rising,
    Stretch,
    flaw_in_places,
    inputs_of,
)
from penstock.chaos.findings import Ledger
from penstock.checkpoint.manifest import Output, Range
from penstock.checkpoint.rewind import is_table_file
from penstock.errors import Corrupt, Gone, Invalid
from penstock.ids import Epoch
from penstock.runtime.topology import Topology
from penstock.sinks.changelog import is_changelog
from penstock.sinks.table import open_file
from penstock.sinks.table_index import TableFile, find_files

__all__ = [
    "Rows",
    "TableDigest",
    "applied_in",
    "changelogs_in",
    "listing_digest",
    "output_name",
    "tables_in",
]


class TableDigest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All files of a table up to an epoch, in one hash: of each its epoch, partition, hash and
    rows, in order."""

    files: int
    rows: int
    sha256: str


def listing_digest(files: Iterable[TableFile]) -> TableDigest:
    """The digest of a listing, each file taken at its word."""
    digest, count, rows = hashlib.sha256(), 0, 0
    for file in files:
        output = file.output
        digest.update(
            f"{file.epoch} {output.partition} {output.ref.sha256} {output.rows}\n".encode()
        )
        count, rows = count + 1, rows + output.rows
    return TableDigest(files=count, rows=rows, sha256=digest.hexdigest())


def tables_in(history: History) -> list[str]:
    """The sinks that are tables, by what was committed."""
    found = set() if history.newest is None else set(history.newest.tables)
    for name, outputs in _outputs(history):
        if any(is_table_file(output.ref) for output in outputs):
            found.add(name)
    return sorted(found)


def applied_in(history: History) -> list[str]:
    """The other sinks. One that was never given a row is none of them in the first epoch: a table
    has an index from its second on."""
    others = set(tables_in(history)) | set(changelogs_in(history))
    staged = {name for name, outputs in _outputs(history) if outputs}
    named = {name for name, _ in _outputs(history)}
    return sorted((named if history.head.epoch > 1 else staged) - others)


def changelogs_in(history: History) -> list[str]:
    """The sinks that take state changes, which are no rows of anybody's."""
    return sorted({name for name, _ in _outputs(history) if is_changelog(name)})


def _outputs(history: History) -> Iterator[tuple[str, tuple[Output, ...]]]:
    return (each for link in history.epochs() for each in link.manifest.sinks.items())


@dataclass(slots=True)
class Rows:
    """The rows of one sink on trial."""

    history: History
    topology: Topology | None
    ledger: Ledger
    name: str
    _rising: Rising = field(default_factory=Rising)
    _links: dict[Epoch, Link] = field(init=False)
    _listed: dict[tuple[Epoch, int], Output] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._links = {link.epoch: link for link in self.history.links}

    def table(self) -> TableDigest | None:
        """All rows of a table, as of the history's last epoch; None if not all could be seen."""
        try:
            files = find_files(self.history.root, self.name, self.history.head.epoch)
            seen = listing_digest(self._each(files))
        except Gone as gone:
            self.ledger.unknown(f"table {self.name}", gone.found)
            return None
        except Corrupt as wrong:
            self.ledger.wrong("I7", wrong.subject, wrong.found)
            return None
        self._compare()
        return seen

    def staged(self) -> None:
        """What is staged for a sink outside the root."""
        for link in self.history.epochs():
            outputs = link.manifest.sinks.get(self.name, ())
            self._check_alone(link, outputs)
            for output in outputs:
                self._file(TableFile(link.epoch, output))

    def _each(self, files: Iterable[TableFile]) -> Iterator[TableFile]:
        before = (0, -1)
        for file in files:
            place = (file.epoch, file.output.partition)
            if place <= before:
                found = f"is listed behind epoch {before[0]}, partition {before[1]}"
                self._wrong("I2", file, found)
            if file.epoch in self._links:
                self._listed[place] = file.output
            before = place
            self._file(file)
            yield file

    def _compare(self) -> None:
        """Whether the table lists just what the manifests that are kept have added to it."""
        for epoch, link in self._links.items():
            outputs = link.manifest.sinks.get(self.name, ())
            self._check_alone(link, outputs)
            for output in outputs:
                theirs = self._listed.pop((epoch, output.partition), None)
                if theirs is None:
                    self._wrong("I4", TableFile(epoch, output), "is not listed by the table")
                elif theirs != output:
                    self._wrong("I4", TableFile(epoch, theirs), "is not what its epoch has added")
        for (epoch, _), output in self._listed.items():
            self._wrong("I4", TableFile(epoch, output), "is listed, and its epoch did not add it")

    def _check_alone(self, link: Link, outputs: Iterable[Output]) -> None:
        """Whether each partition has staged one object."""
        seen: set[int] = set()
        for output in outputs:
            if output.partition in seen:
                subject = f"sink {self.name}, epoch {link.epoch}, partition {output.partition}"
                self.ledger.wrong("I2", subject, "has two objects of rows", link.epoch)
            seen.add(output.partition)

    def _file(self, file: TableFile) -> None:
        output = file.output
        needed_by = file.epoch
        if is_table_file(output.ref):  # it stays as long as the table does
            needed_by = self.history.head.epoch
        try:
            body = self.history.body(output.ref, needed_by)
            self._look(file, body)
        except Gone:
            return  # given up meanwhile, with its epoch
        except Corrupt as wrong:
            self.ledger.wrong("I7", wrong.subject, wrong.found, file.epoch)
        except (pa.ArrowException, OSError, KeyError, Invalid) as error:
            self._wrong("I7", file, f"cannot be read as rows ({error})")

    def _look(self, file: TableFile, body: bytes) -> None:
        output = file.output
        self.ledger.count("files")
        self.ledger.count("bytes", len(body))
        reads, rows = self._reads(file.epoch), 0
        stretches: dict[str, Stretch] = {}
        for batch in _batches(file, body):
            flaw = flaw_in_places(batch, file.epoch, output.partition, rows)
            if flaw is not None:
                self._wrong("I2", file, flaw)
            rows += batch.num_rows
            self._trace(file, inputs_of(batch), reads, stretches)
        if rows != output.rows:
            found = f"has {rows:,} rows, and its manifest says {output.rows:,}"
            self._wrong("I1" if rows < output.rows else "I2", file, found)
        self.ledger.count("rows", rows)
        self._rise(file, reads, stretches)

    def _trace(
        self, file: TableFile, inputs: Inputs, reads: Reads, stretches: dict[str, Stretch]
    ) -> None:
        backwards = inputs.backwards()
        if len(backwards):
            self._wrong("I2", file, f"has an input that ends before it begins, row {backwards[0]}")
        for origin, stretch in inputs.stretches():
            before = stretches.get(origin)
            stretches[origin] = stretch if before is None else before.with_other(stretch)
            allowed = reads.allowed(origin)
            outside = inputs.outside(origin, allowed)
            if len(outside):
                read = "nothing of it" if allowed is None else f"{allowed.start} to {allowed.stop}"
                found = f"has rows, such as row {outside[0]}, from {origin} at offset "
                found += f"{stretch.first} to {stretch.last}, of which its epoch read {read}"
                self.ledger.wrong("I2", output_name(file), found, file.epoch, len(outside))
        self.ledger.count("inputs", len(inputs.firsts))

    def _rise(self, file: TableFile, reads: Reads, stretches: dict[str, Stretch]) -> None:
        rising = [each for each in stretches.items() if reads.is_source(each[0])]
        for origin, first, before in self._rising.flaws(file.epoch, rising):
            found = f"has rows from {origin} at offset {first}, and an earlier epoch has rows "
            self._wrong("I2", file, f"{found}from offset {before}: it was processed twice")

    def _reads(self, epoch: Epoch) -> Reads:
        """What an epoch read, or, if nobody knows any more, all that was read before."""
        link, oldest = self._links.get(epoch), next(iter(self._links.values()))
        ranges: dict[str, Range] = {}
        for source, progress in (link or oldest).manifest.sources.items():
            if link is not None:
                mine = progress.ranges
            else:
                starts = {p: each.start for p, each in progress.ranges.items()}
                starts = {**progress.resume_at, **starts}
                mine = {p: Range(start=0, stop=stop) for p, stop in starts.items()}
            ranges.update({f"{source}/{partition}": each for partition, each in mine.items()})
        operators = None if self.topology is None else self.topology.operators
        return Reads(
            ranges,
            frozenset([*self._links.values()][-1].manifest.sources),
            None if operators is None else frozenset(each.name for each in operators),
        )

    def _wrong(self, invariant: str, file: TableFile, found: str) -> None:
        self.ledger.wrong(invariant, output_name(file), found, file.epoch)


def output_name(file: TableFile) -> str:
    """A file as violations call it."""
    return f"{file.output.ref.key} (epoch {file.epoch}, partition {file.output.partition})"


def _batches(file: TableFile, body: bytes) -> Iterator[pa.RecordBatch]:
    return open_file(file.output.ref.key, body, TRACED)[1]
