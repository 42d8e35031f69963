"""Filling an empty database from a changelog that is kept outside the root.

Entries come in pieces, each of which becomes a file that the database takes in whole. Until the
last piece has come, the marker in it is one that no lineage knows: a database that is half filled
when its process dies is discarded like any other that is not on the chain.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import Corrupt
from penstock.ids import Attempt, Epoch, Generation
from penstock.sinks.changelog import Entries
from penstock.state import Marker, PartitionDatabase
from penstock.state.delta import decode_marker, write_delta
from penstock.state.layout import MARKER_KEY, SCHEMA_KEY

__all__ = ["fill"]

UNFINISHED = Marker(
    job="unfinished",
    operator="unfinished",
    partition=0,
    generation=Generation(0),
    epoch=Epoch(0),
    attempt=Attempt("unfinished"),
)


def fill(database: PartitionDatabase, pieces: Iterable[Entries], scratch: Path) -> None:
    """Bring an empty database to the version that the pieces make together.

    1. Take in every piece under the marker of nothing that there is.
    2. Take in the marker that was found, which makes it a version.
    """
    known: dict[bytes, bytes | None] = {}
    for piece in pieces:  # 1
        known |= {name: piece[name] for name in (MARKER_KEY, SCHEMA_KEY) if name in piece}
        _take_in(database, UNFINISHED, _without(piece), known.get(SCHEMA_KEY) or b"{}", scratch)
    marker = decode_marker("the changelog outside the root", known.get(MARKER_KEY))
    if marker is None:
        return
    if known.get(SCHEMA_KEY) is None:
        found = "has a version and no schemas"
        raise Corrupt("the changelog outside the root", found, "give the job a new topic for it")
    _take_in(database, marker, {}, known[SCHEMA_KEY] or b"", scratch)  # 2


def _without(piece: Entries) -> dict[bytes, bytes | None]:
    return {entry: value for entry, value in piece.items() if entry not in (MARKER_KEY, SCHEMA_KEY)}


def _take_in(
    database: PartitionDatabase, marker: Marker, changes: Entries, schemas: bytes, scratch: Path
) -> None:
    with _file(scratch) as path:
        write_delta(path, marker, changes, schemas, database.settings)
        database.ingest([path])


@contextmanager
def _file(scratch: Path) -> Iterator[Path]:
    """A place for one file, which is gone afterwards: the database has it by then."""
    path = scratch.with_suffix(".sst")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
