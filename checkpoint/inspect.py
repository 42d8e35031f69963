"""Looking into state without the job: any retained or pinned epoch, key by key, as plain values.

A partition is restored into a scratch folder by the very code that restores it for the job, so
what is shown is what the job would have seen. Nothing is written to the root and no function of
the job is needed: the database says itself what its states are, and values are self-describing.
A dataclass is therefore shown as a dict, a Decimal as text.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.head import Head
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.recovery import Lineage, recover, whole_changelog
from penstock.checkpoint.restore import Identity, Restorer
from penstock.checkpoint.rewind import Target, find_epoch
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Gone, Invalid
from penstock.fields import Count, Text
from penstock.state.database import PartitionDatabase
from penstock.state.host import HostFolder
from penstock.state.key_groups import GROUPS, partition_of
from penstock.state.key_hash import key_groups
from penstock.state.keys import decode_key, encode_key
from penstock.state.layout import (
    DATA,
    GROUPS_MAX,
    after_prefix,
    group_of_entry,
    group_prefix,
    section_prefix,
    time_from,
)
from penstock.state.settings import StateSettings

__all__ = ["KEY_COLUMN", "StateView", "plain"]

KEY_COLUMN = "_key"
"""What `as_table` calls the column of keys."""

SETTINGS = StateSettings(block_cache_bytes=8 << 20)
_PAGES = b"\xf0"
"""Behind every ordinary key of a group: see `penstock.state.columns`."""
_HEADER = len(section_prefix(0, DATA))
_STAMP_BYTES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = (str, int, float, bool, bytes, datetime, date, Decimal, type(None))
_ARROW: dict[type, pa.DataType] = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
    date: pa.date32(),
}


class _State(msgspec.Struct, frozen=True):
    """A state as the database knows it."""

    number: Count
    description: dict[Text, Any]


class StateView:
    """The state of one operator as it was after one epoch. `scratch` is a folder of this host;
    what is restored there stays, and is used again by the next view on it."""

    def __init__(
        self, root: Root, operator: str, epoch: Target | None = None, *, scratch: Path
    ) -> None:
        self._root = root
        self._operator = operator
        head = root.head()
        self._generation = head.generation
        self._manifest = _manifest(root, head, operator, epoch)
        self._folders = HostFolder(scratch, root.chance)
        self._restorer = Restorer(root.store, SETTINGS, root.clock)
        lineages = perform(recover(self._chain(), self._manifest), root.handlers)
        self._lineages = {at: line for (name, at), line in lineages.items() if name == operator}

    @property
    def manifest(self) -> Manifest:
        """Of the epoch that is looked at."""
        return self._manifest

    def get(self, key: Any, key_type: pa.DataType | None = None) -> dict[str, Any]:
        """All states of one key, by name; those that hold nothing are left out.

        Where a key is follows from its hash, and that from its Arrow type in the job, which a
        Python value does not tell: `key_type` says it, a struct for a key of several columns.
        Without it, or if nothing is there, every key group is looked into.
        """
        encoded = encode_key(key)
        for group in _likely_groups(key, key_type):
            partition = partition_of(group, len(self._lineages))
            if partition in self._lineages:
                with self._opened(partition) as database:
                    found = _states_of(database, group, encoded)
                if found:
                    return found
        for partition in self._lineages:
            with self._opened(partition) as database:
                for group in _groups(database):
                    found = _states_of(database, group, encoded)
                    if found:
                        return found
        return {}

    def scan(self, limit: int | None = None) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Keys and their states, in the order of key groups and, within each, of keys."""
        return islice(self._scan(), limit)

    def columns(self) -> dict[str, str]:
        """What there is of vectorised states, which belong to key groups and to no single key."""
        entries: dict[str, int] = {}
        for partition in self._lineages:
            with self._opened(partition) as database:
                for name, state in _schemas(database).items():
                    if state.description["kind"] == "columns":
                        found = sum(_column_entries(database, state.number))
                        entries[name] = entries.get(name, 0) + found
        return {name: f"columns state, {count} entries" for name, count in entries.items()}

    def as_table(self) -> pa.Table:
        """One row per key, a column per state; what is not plain is written as JSON."""
        rows = list(self.scan())
        names = sorted({name for _, states in rows for name in states})
        columns = {KEY_COLUMN: _column([key for key, _ in rows])}
        for name in names:
            columns[name] = _column([states.get(name) for _, states in rows])
        return pa.table(columns)

    def _scan(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        for partition in sorted(self._lineages):
            with self._opened(partition) as database:
                for group in _groups(database):
                    prefix = section_prefix(group, DATA)
                    yield from _keys_between(database, prefix, prefix + _PAGES)

    @contextmanager
    def _opened(self, partition: int) -> Iterator[PartitionDatabase]:
        """A partition's database at the version of the epoch."""
        manifest = self._manifest
        folder = self._folders.partition(manifest.job, self._operator, partition)
        who = Identity(manifest.job, self._operator, partition, manifest.generation)
        lineage = self._lineages[partition]
        try:
            opened = self._restorer.open(who, lineage, folder, self._whole(partition))
        except Corrupt as damage:
            self._explain(damage)
            raise
        try:
            yield opened.database
        finally:
            opened.close()

    def _whole(self, partition: int) -> Callable[[], Lineage | None]:
        name, root = (self._operator, partition), self._root
        return lambda: perform(whole_changelog(self._chain(), self._manifest, name), root.handlers)

    def _chain(self) -> Chain:
        return Chain(generation=self._generation)

    def _explain(self, damage: Corrupt) -> None:
        """A running job may have given the epoch up since, or gone back before it: then nothing
        is damaged."""
        head = self._root.head()
        epoch, floor = self._manifest.epoch, head.floor
        if head.generation != self._generation:
            raise Gone(
                f"epoch {epoch}",
                "is of a line of history that was rewound while it was looked at",
                "look again",
            ) from damage
        if epoch < floor and all(pin.epoch != epoch for pin in self._root.pins()):
            raise Gone(
                f"epoch {epoch}",
                f"has been given up while it was looked at: epochs from {floor} on are kept",
                "pin an epoch before looking at it for long",
            ) from damage


def plain(value: Any) -> Any:
    """A value that JSON can hold: a map's keys become text if they are neither text nor numbers."""
    if isinstance(value, dict):
        return {k if isinstance(k, str | int) else _text(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _text(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(plain(key)).decode().strip('"')


def _manifest(root: Root, head: Head, operator: str, epoch: Target | None) -> Manifest:
    if epoch is None:
        manifest = root.newest()
        if manifest is None:
            raise Invalid(f"operator {operator}", "has no state yet", "run the job first")
    else:
        chain = Chain(generation=head.generation)
        manifest = perform(find_epoch(chain, head, epoch), root.handlers).manifest
    if operator not in manifest.operators:
        known = ", ".join(sorted(manifest.operators)) or "none"
        raise Invalid(
            f"operator {operator}",
            f"has no state in epoch {manifest.epoch}; those that have: {known}",
            "choose one of these",
        )
    return manifest


def _likely_groups(key: Any, key_type: pa.DataType | None) -> list[int]:
    """The key group if the job has as many as most, and the key is of the type it seems."""
    parts = key if isinstance(key, tuple) else (key,)
    kinds: list[pa.DataType | None] = [_ARROW.get(type(part)) for part in parts]
    if key_type is not None:
        is_struct = pa.types.is_struct(key_type)
        kinds = [field.type for field in key_type] if is_struct else [key_type]
    if len(kinds) != len(parts) or (key_type is None and None in kinds):
        return []
    try:
        columns = [pa.array([part], kind) for part, kind in zip(parts, kinds, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise Invalid(f"key {key!r}", f"is no {key_type}", "give the key's type") from error
    return [int(key_groups(columns, GROUPS)[0])]


def _groups(database: PartitionDatabase) -> Iterator[int]:
    """The key groups that hold anything, each found by one seek."""
    start, stop = group_prefix(0), after_prefix(group_prefix(0)[:1])
    while (first := next(database.scan(start, stop), None)) is not None:
        group = group_of_entry(first[0])
        yield group
        if group + 1 >= GROUPS_MAX:
            return
        start = group_prefix(group + 1)


def _states_of(database: PartitionDatabase, group: int, key: bytes) -> dict[str, Any]:
    prefix = section_prefix(group, DATA) + key
    found = _keys_between(database, prefix, after_prefix(prefix))
    return next(found, (None, {}))[1]


def _keys_between(
    database: PartitionDatabase, start: bytes, stop: bytes
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every key with an entry in a range, and its states."""
    states = {state.number: (name, state) for name, state in _schemas(database).items()}
    entries = (
        (entry[: decode_key(entry, _HEADER)[1]], entry, raw)
        for entry, raw in database.scan(start, stop)
    )
    for place, same in groupby(entries, lambda each: each[0]):  # by bytes: 1 and 1.0 are two keys
        by_state: dict[int, list[tuple[bytes, bytes]]] = {}
        for _, entry, raw in same:
            state, sub = entry[len(place)], entry[len(place) + 1 :]
            by_state.setdefault(state, []).append((sub, raw))
        shown = (
            (states[number][0], _decoded(states[number][1].description, found))
            for number, found in by_state.items()
        )
        yield decode_key(place, _HEADER)[0], dict(shown)


def _decoded(description: dict[str, Any], entries: list[tuple[bytes, bytes]]) -> Any:
    """What the entries of one state of one key hold."""
    kind = description["kind"]
    if kind == "timer":
        return [_iso(time_from(sub, 0)) for sub, _ in entries]
    skip = 0 if description["clock"] is None else _STAMP_BYTES
    if kind == "map":
        return {decode_key(sub)[0]: _value(raw, skip) for sub, raw in entries}
    if kind == "list":  # its counter stands under the empty sub-key
        return [_value(raw, skip) for sub, raw in entries if sub]
    return _value(entries[0][1], skip)


def _value(raw: bytes, skip: int) -> Any:
    try:
        return msgspec.msgpack.decode(raw[skip:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise Corrupt("an entry", f"holds no value ({error})", "run `penstock fsck`") from error


def _iso(at_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat()
    except OverflowError:  # beyond the year 9999
        return f"{at_ms} ms since 1970"


def _column_entries(database: PartitionDatabase, number: int) -> Iterator[int]:
    """How many entries each key group has of a vectorised state: its head says so."""
    for group in _groups(database):
        head = database.get(section_prefix(group, DATA) + _PAGES + bytes([number, 0]))
        if head is not None:
            yield int(msgspec.msgpack.decode(head)[1])


def _schemas(database: PartitionDatabase) -> dict[str, _State]:
    body = database.schemas
    try:
        return {} if body is None else msgspec.json.decode(body, type=dict[str, _State])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Corrupt(database.name, f"has no schemas ({error})", "run `penstock fsck`") from error


def _column(values: list[Any]) -> pa.Array:
    """The values as they are if all are plain and alike, else as JSON."""
    if all(isinstance(value, _PLAIN) for value in values):
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass  # of several types
    texts = [None if v is None else msgspec.json.encode(plain(v)).decode() for v in values]
    return pa.array(texts, pa.string())
