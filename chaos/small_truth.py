"""The judge of a small root: every table and every state against the plain model, wherever it can
be read."""

import json
from collections.abc import Iterator

from penstock.chaos.small_root import CHANGELOG, OPERATOR, PIN, TABLE, Line, SmallRoot
from penstock.checkpoint import Chain, Manifest, MemoryStore, perform, recover
from penstock.effects import Steps
from penstock.errors import Gone, PenstockError
from penstock.ids import Epoch, Key
from penstock.points import Point
from penstock.sinks.table_index import (
    files_since_index,
    find_files,
    read_index,
    read_page,
)

__all__ = ["wrong_with"]


def wrong_with(small: SmallRoot) -> str | None:
    """The first thing that a root says otherwise than its model; None if there is none."""
    try:
        found = next(_wrong(small), None)
    except PenstockError as error:
        return f"{type(error).__name__}: {error}"
    if found is None and small.source is not None:
        behind = wrong_with(small.source)
        return None if behind is None else f"the source of the fork: {behind}"
    return found


def _wrong(small: SmallRoot) -> Iterator[str]:
    model, head = small.model, small.root.head()
    if (head.epoch, head.floor) != (len(model.line), model.floor):
        wanted = f"epoch {len(model.line)} with floor {model.floor}"
        yield f"HEAD is at epoch {head.epoch} with floor {head.floor}, not at {wanted}"
    if tuple(small.sink.rows) != model.sunk:
        yield f"{CHANGELOG} has taken {small.sink.rows}, not {model.sunk}"
    yield from _wrong_as_of(small)
    for manifest in small.manifests():
        yield from _wrong_at(small, manifest, model.line[: manifest.epoch], "retained")
    yield from _wrong_pins(small)


def _wrong_as_of(small: SmallRoot) -> Iterator[str]:
    """The table as a reader sees it, as of each retained epoch; as of the first and the last below
    the floor it may be gone."""
    line, floor = small.model.line, small.model.floor
    asked = [1, floor - 1, *range(floor, len(line) + 1)]
    for epoch in sorted({epoch for epoch in asked if 1 <= epoch <= len(line)}):
        try:
            files = find_files(small.root, TABLE, Epoch(epoch))
            found = _rows(small.store, [file.output.ref.key for file in files])
        except Gone:
            if epoch >= floor:
                yield f"the table as of epoch {epoch} is gone, and the floor is {floor}"
            continue
        if found != _expected(line[:epoch]):
            yield f"the table as of epoch {epoch} has {found}, not {_expected(line[:epoch])}"


def _wrong_at(small: SmallRoot, manifest: Manifest, line: Line, how: str) -> Iterator[str]:
    """Table and state as a job would find them that went on from this epoch."""
    keys = perform(_table_keys(manifest), small.root.handlers)
    rows = _rows(small.store, keys)
    if rows != _expected(line):
        yield f"from epoch {manifest.epoch}, {how}, the table is {rows}, not {_expected(line)}"
    totals = _totals(small, manifest)
    if totals != dict(line[-1].totals):
        yield f"epoch {manifest.epoch}, {how}, has the state {totals}, not {line[-1].totals}"


def _wrong_pins(small: SmallRoot) -> Iterator[str]:
    pins = {pin.name: pin for pin in small.root.pins()}
    if pins.keys() != small.model.pins.keys():
        yield f"there are the pins {sorted(pins)}, not {sorted(small.model.pins)}"
    for name, line in small.model.pins.items():
        pin = pins[name]
        reading = Chain().manifest(pin.manifest, pin.epoch, Point.READ_MANIFEST)
        yield from _wrong_at(small, perform(reading, small.root.handlers), line, f"pin {PIN}")


def _table_keys(manifest: Manifest) -> Steps[list[Key]]:
    """The files of the table as of a manifest, by its own index and its own past."""
    found: list[Key] = []
    chain = Chain()
    if TABLE in manifest.tables:
        index = yield from read_index(
            chain, manifest.tables[TABLE], manifest.epoch, Point.READ_OBJECT
        )
        for page in index.pages:
            files = yield from read_page(chain, page, Point.READ_OBJECT)
            found += [file.output.ref.key for file in files]
        found += [file.output.ref.key for file in index.files]
    since = yield from files_since_index(chain, manifest, TABLE)
    return [*found, *(file.output.ref.key for file in since)]


def _rows(store: MemoryStore, keys: list[Key]) -> list[int | None]:
    """What is in these files; None for one that is missing."""
    found = (store.get(key) for key in keys)
    return [None if stored is None else json.loads(stored.body) for stored in found]


def _expected(line: Line) -> list[int | None]:
    return [past.row for past in line if past.row is not None]


def _totals(small: SmallRoot, manifest: Manifest) -> dict[int, int]:
    lineages = perform(recover(Chain(), manifest), small.root.handlers)
    totals: dict[int, int] = {}
    for ref in lineages[OPERATOR, 0].refs():
        reading = Chain().payload(ref, manifest.epoch, Point.READ_OBJECT)
        body = perform(reading, small.root.handlers)
        totals |= {int(key): total for key, total in json.loads(body).items()}
    return totals
