"""The vectorised view of a state: columns in, columns out, never a Python object per key.

RocksDB hands out one object per value. So entries are kept by the page: all those of a key group
whose hashes lie in one range are one entry of RocksDB, behind every ordinary key of the group,

    01 group(2) 01 f0 state(1) 00             the head: how many pages and entries, of which types
    01 group(2) 01 f0 state(1) 01 start(6)    a page: its keys packed, then its values packed

and are moved with the group. A key's *place* is its group and 48 bits of its hash in one number:
who sorts by place has sorted by group, by page and within the page. A group has a power of two of
pages, each named by its first place. Order is by place, then key: the same calls, the same bytes.

A page is rewritten for one key of it. Measured with 1 M keys of 48 bytes, an epoch that reads and
changes a share of them takes, against a `Value` per key, 3 times as long at 1 %, as long at 3 %, a
third at 10 %, less than a twentieth at 100 %; but its delta is 86 times as large at 1 %, 9 times at
10 %, and the smaller one only when nearly all change (benchmarks/RESULTS.md). Few keys of a large
state are better off as `Value`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.errors import Corrupt, Invalid
from penstock.fields import Count, Text
from penstock.state.dtypes import (
    Array,
    Dtype,
    Packed,
    fits,
    item_type,
    key_dtype,
    packed,
    spell_dtype,
    to_numpy,
    value_dtype,
)
from penstock.state.layout import DATA, GROUPS_MAX, section_prefix
from penstock.state.mixing import GOLDEN, stir
from penstock.state.overlay import Overlay

__all__ = ["PAGE_BYTES", "Columns"]

PAGE_BYTES = 32 << 10
"""What a page holds at most, on average. The largest does not count: keys with one hash, which
no number of pages would part, make one page long and do not multiply all of them."""

PIECE_ENTRIES = 1 << 16
"""Larger batches are worked off in pieces, which stay in the processor's cache."""

DEPTH_MAX = 24

_PAGES, _HEAD, _PAGE = b"\xf0", b"\x00", b"\x01"
_HASH_BITS = 48

K = TypeVar("K")
V = TypeVar("V")
Groups = NDArray[np.uint16]
Places = NDArray[np.uint64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Entries in the order of their places."""

    places: Places
    keys: Packed
    values: Packed

    def at(self, which: Indices | Mask) -> "_Rows":
        """Some of them, in that order."""
        return _Rows(self.places[which], self.keys[which], self.values[which])


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What a key group knows about its pages."""

    depth: Annotated[int, msgspec.Meta(ge=0, le=DEPTH_MAX)]
    entries: Count
    key: Text
    value: Text

    def pages(self, group: int) -> Places:
        """The pages of its group: two to the power of the depth."""
        step = 1 << (_HASH_BITS - self.depth)
        return np.arange(group << _HASH_BITS, group + 1 << _HASH_BITS, step, dtype=np.uint64)


class Columns(Generic[K, V]):
    """One state of fixed-width keys and values, for whole batches, over one overlay."""

    def __init__(self, overlay: Overlay, name: str, number: int, key: Any, value: Any) -> None:
        self._overlay = overlay
        self._where = f"state {name!r}"
        self._prefix = _PAGES + bytes([number])
        self._key = key_dtype(key, self._where)
        self._value = value_dtype(value, self._where)
        self._packed_key = np.dtype(f"V{self._key.itemsize}")
        self._packed_value = np.dtype(f"V{self._value.itemsize}")

    def get_many(self, keys: Any, groups: Any) -> tuple[Array, Mask]:
        """The values of `keys`, zero where there is none, and for each whether there is one."""
        packed, numbers = self._batch(keys, groups)
        depths = _depths(self._heads(numbers))
        values, found = np.zeros(len(packed), self._packed_value), np.zeros(len(packed), np.bool_)
        for taken, places, sought in _pieces(packed, numbers):
            stored = self._load(_pages(places, depths))
            at, hit = _match(stored, places, sought)
            hits = slice(None) if hit.all() else hit  # a mask costs, and often all are there
            values[taken[hits]] = stored.values[at[hits]]
            found[taken[hits]] = True
        return values.view(self._value.base).reshape(len(values), *self._value.shape), found

    def put_many(self, keys: Any, values: Any, groups: Any) -> None:
        """Set the value of each key; of a key that comes more than once, the last one counts."""
        packed, numbers = self._batch(keys, groups)
        bodies = self._pack("values", values, self._value)
        if len(bodies) != len(packed):
            found = f"was given {len(packed)} keys and {len(bodies)} values"
            raise Invalid(self._where, found, "give one value for each key")
        heads = self._heads(numbers)
        for taken, places, ordered in _pieces(packed, numbers):
            last = _last_of_each(ordered, places)
            self._put(heads, _Rows(places[last], ordered[last], bodies.take(taken[last])))

    def remove_many(self, keys: Any, groups: Any) -> None:
        """Remove each key; no error if it is not there."""
        packed, numbers = self._batch(keys, groups)
        heads = self._heads(numbers)
        depths = _depths(heads)
        for _, places, ordered in _pieces(packed, numbers):
            pages = _pages(places, depths)
            stored = self._load(pages)
            at, hit = _match(stored, places, ordered)
            kept = np.ones(len(stored.places), np.bool_)
            kept[at[hit]] = False
            left = stored.at(kept)
            self._store(pages, left, _page_of(left.places, depths))
            self._store_heads(self._resized(heads, stored.places[~kept], -1))

    def _put(self, heads: dict[int, _Head], new: _Rows) -> None:
        depths = _depths(heads)
        page_of_new = _page_of(new.places, depths)
        pages = page_of_new[_changes(page_of_new)]
        bodies, counts = self._read(pages)
        keys, numbers = self._keys(bodies, counts), _groups(pages, counts)
        in_groups = np.array_equal(numbers, new.places >> _HASH_BITS)
        if in_groups and _are_same(keys, new.keys):
            self._store(pages, new, page_of_new)  # all of its pages' entries change, none is new
            return
        stored = _Rows(_places(keys, numbers), keys, self._values(bodies, counts))
        at, hit = _match(stored, new.places, new.keys)
        resized = self._resized(heads, new.places[~hit], 1)
        deeper = [group for group, head in resized.items() if head.depth > heads[group].depth]
        if deeper:  # every page of such a group is parted, also those without a new entry
            pages = np.unique(np.concatenate([pages, *(heads[g].pages(g) for g in deeper)]))
            stored = self._load(pages)
            at, hit = _match(stored, new.places, new.keys)
        hits = slice(None) if hit.all() else hit
        stored.values[at[hits]] = new.values[hits]
        merged = _merged(stored, new.at(~hit))
        self._store(pages, merged, _page_of(merged.places, _depths(heads | resized)))
        self._store_heads(resized)

    def _batch(self, keys: Any, groups: Any) -> tuple[Packed, Groups]:
        """The keys and their groups, checked."""
        packed = self._pack("keys", keys, self._key)
        numbers = to_numpy(self._where, "key groups", groups)
        if numbers.shape != packed.shape or numbers.dtype.kind not in "iu":
            found = f"was given {len(packed)} keys and {numbers.size} {numbers.dtype} as groups"
            raise Invalid(self._where, found, "give one uint16 for each key")
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < GROUPS_MAX:
            found = f"was given key groups from {numbers.min()} to {numbers.max()}"
            raise Invalid(self._where, found, f"give numbers from 0 to {GROUPS_MAX - 1}")
        return packed, numbers.astype(np.uint16)

    def _pack(self, what: str, column: Any, declared: Dtype) -> Packed:
        array = to_numpy(self._where, what, column)
        if array.ndim == 0 or not fits(item_type(array), declared):
            found = f"was given {spell_dtype(item_type(array))} as {what}"
            raise Invalid(self._where, found, f"give {spell_dtype(declared)}, as it is declared")
        return packed(array, declared)

    def _heads(self, numbers: Groups) -> dict[int, _Head]:
        """The head of each group in the batch; an empty one for a group without pages."""
        groups = np.flatnonzero(np.bincount(numbers)).tolist()
        bodies = self._overlay.get_many([self._head_key(group) for group in groups])
        return {group: self._head(body) for group, body in zip(groups, bodies, strict=True)}

    def _head(self, body: bytes | None) -> _Head:
        empty = _Head(0, 0, spell_dtype(self._key), spell_dtype(self._value))
        head = empty if body is None else msgspec.msgpack.decode(body, type=_Head)
        if (head.key, head.value) != (empty.key, empty.value):
            raise Invalid(
                self._where,
                f"was {head.value} by {head.key} and is declared as {empty.value} by {empty.key}",
                "declare it as it was, or give the new one another name and fill it from the old",
            )
        return head

    def _resized(self, heads: dict[int, _Head], places: Places, sign: int) -> dict[int, _Head]:
        """The heads after the entries at `places` have come, or gone."""
        counts = np.bincount((places >> _HASH_BITS).astype(np.intp))
        resized = {}
        for group in np.flatnonzero(counts).tolist():
            entries = heads[group].entries + sign * int(counts[group])
            size_bytes = entries * (self._key.itemsize + self._value.itemsize)
            depth = min(DEPTH_MAX, max(0, (size_bytes - 1) // PAGE_BYTES).bit_length())
            depth = max(heads[group].depth, depth)
            resized[group] = msgspec.structs.replace(heads[group], depth=depth, entries=entries)
        return resized

    def _load(self, pages: Places) -> _Rows:
        """The entries of some pages."""
        bodies, counts = self._read(pages)
        keys = self._keys(bodies, counts)
        places = _places(keys, _groups(pages, counts))
        return _Rows(places, keys, self._values(bodies, counts))

    def _read(self, pages: Places) -> tuple[list[bytes], list[int]]:
        """Some pages as they are stored, with one request, and how many entries each has."""
        size = self._key.itemsize + self._value.itemsize
        bodies = [body or b"" for body in self._overlay.get_many(self._page_keys(pages))]
        if any(len(body) % size for body in bodies):
            raise Corrupt(self._where, "has a page with half an entry", "restore this partition")
        return bodies, [len(body) // size for body in bodies]

    def _keys(self, bodies: list[bytes], counts: list[int]) -> Packed:
        parts = zip(bodies, counts, strict=True)
        found = [np.frombuffer(body, self._packed_key, count) for body, count in parts]
        return np.concatenate([np.empty(0, self._packed_key), *found])

    def _values(self, bodies: list[bytes], counts: list[int]) -> Packed:
        width = self._key.itemsize
        found = [
            np.frombuffer(body, self._packed_value, count, count * width)
            for body, count in zip(bodies, counts, strict=True)
        ]
        return np.concatenate([np.empty(0, self._packed_value), *found])

    def _store(self, before: Places, rows: _Rows, page_of_row: Places) -> None:
        """Write `rows`, which are all there is in the pages `before`."""
        firsts = np.flatnonzero(_changes(page_of_row))
        pages, bounds = page_of_row[firsts], [*firsts.tolist(), len(rows.places)]
        put = self._overlay.put
        for key in self._page_keys(np.setdiff1d(before, pages)):
            put(key, None)
        for key, begin, end in zip(self._page_keys(pages), bounds[:-1], bounds[1:], strict=True):
            put(key, b"".join((rows.keys[begin:end].data, rows.values[begin:end].data)))

    def _store_heads(self, heads: dict[int, _Head]) -> None:
        for group, head in heads.items():
            body = msgspec.msgpack.encode(head) if head.entries else None
            self._overlay.put(self._head_key(group), body)

    def _head_key(self, group: int) -> bytes:
        return section_prefix(group, DATA) + self._prefix + _HEAD

    def _page_keys(self, pages: Places) -> list[bytes]:
        middle, within = self._prefix + _PAGE, (1 << _HASH_BITS) - 1
        return [
            section_prefix(page >> _HASH_BITS, DATA) + middle + (page & within).to_bytes(6, "big")
            for page in pages.tolist()
        ]


def _pieces(keys: Packed, numbers: Groups) -> Iterator[tuple[Indices, Places, Packed]]:
    """A batch in pieces of whole groups: how to take each in order, its places and keys then."""
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers))
    everywhere = _all_places(keys, numbers)
    begin = 0
    while begin < len(order):
        end = int(ends[min(int(np.searchsorted(ends, begin + PIECE_ENTRIES)), len(ends) - 1)])
        piece = order[begin:end]
        places = everywhere.take(piece)
        within = _order_of(places)
        taken, places = piece.take(within), places.take(within)
        packed = keys.take(taken)  # faster than an index in brackets, for items of such a type
        settled = _settled(packed, places)
        if settled is None:
            yield taken, places, packed
        else:
            yield taken[settled], places, packed[settled]
        begin = end


def _order_of(places: Places) -> Indices:
    """How to take places, which are in the order of their groups, in order.

    The rank of the group, the first bits of the hash, and the index, packed in one number each:
    sorting those is twice as fast as sorting indices. If bits that were left out would tell the
    order, it is sorted the slow way.
    """
    count = len(places)
    rank = np.cumsum(_changes(places >> _HASH_BITS), dtype=np.uint64)
    index_bits, rank_bits = count.bit_length(), int(rank[-1]).bit_length()
    if index_bits + rank_bits > 30:
        return np.argsort(places, kind="stable")
    numbers = (places << (64 - _HASH_BITS)) >> rank_bits
    numbers |= rank << np.uint64(64 - rank_bits)
    mask = np.uint64((1 << index_bits) - 1)
    numbers &= ~mask
    numbers |= np.arange(count, dtype=np.uint64)
    numbers.sort()
    order: Indices = (numbers & mask).astype(np.intp)
    sorted_places = places.take(order)
    in_order = bool((sorted_places[1:] >= sorted_places[:-1]).all())
    return order if in_order else np.argsort(places, kind="stable")


def _all_places(keys: Packed, numbers: Groups) -> Places:
    """The same as `_places` for a large batch, in steps that stay in the processor's cache."""
    places = np.empty(len(keys), np.uint64)
    for begin in range(0, len(keys), PIECE_ENTRIES):
        part = slice(begin, begin + PIECE_ENTRIES)
        places[part] = _places(keys[part], numbers[part])
    return places


def _places(keys: Packed, numbers: Groups) -> Places:
    """Group and hash in one number."""
    places = _hashed(keys) >> np.uint64(64 - _HASH_BITS)
    places |= numbers.astype(np.uint64) << np.uint64(_HASH_BITS)
    return places


def _hashed(keys: Packed) -> Places:
    """Splitmix64 over the words of each key."""
    mixed = np.zeros(len(keys), np.uint64)
    for column in _words(keys).T:
        mixed ^= column
        mixed += GOLDEN
        stir(mixed)
    return mixed


def _words(keys: Packed) -> Places:
    """Each key as a row of 64-bit numbers, the last one filled up with zeros."""
    count = -(-keys.dtype.itemsize // 8)
    return keys.astype(f"V{count * 8}", copy=False).view("<u8").reshape(len(keys), count)


def _depths(heads: dict[int, _Head]) -> Places:
    """The depth of each group, by its number."""
    depths = np.zeros(GROUPS_MAX, np.uint64)
    depths[list(heads)] = [head.depth for head in heads.values()]
    return depths


def _groups(pages: Places, counts: list[int]) -> Groups:
    """The group of each entry of some pages."""
    return np.repeat((pages >> _HASH_BITS).astype(np.uint16), counts)


def _page_of(places: Places, depths: Places) -> Places:
    """The page that each place is in, by the first place in it."""
    shift: Places = _HASH_BITS - depths[places >> _HASH_BITS]
    return places >> shift << shift


def _pages(places: Places, depths: Places) -> Places:
    """The pages that places, which are in order, are in: each once."""
    pages = _page_of(places, depths)
    return pages[_changes(pages)]


def _changes(column: Array) -> Mask:
    """Where an item is not the same as the one before it."""
    changes = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes


def _last_of_each(keys: Packed, places: Places) -> Mask | slice:
    """Of entries in order, only the last one of each key."""
    last, same = np.ones(len(keys), np.bool_), np.flatnonzero(places[1:] == places[:-1])
    last[same] = _differ(keys[same], keys[same + 1])
    return last if len(same) else slice(None)


def _settled(keys: Packed, places: Places) -> Indices | None:
    """Of entries in the order of their places: the order in which those at the same place are
    sorted by key, and as they came; None if no two are."""
    changes = _changes(places)
    if changes.all():
        return None
    tied = ~changes
    tied[:-1] |= tied[1:]
    order = np.arange(len(places))
    some = order[tied]
    names = keys[some].view(f"S{keys.dtype.itemsize}")
    order[tied] = some[np.lexsort((some, names, places[some]))]
    return order


def _match(stored: _Rows, places: Places, keys: Packed) -> tuple[Indices, Mask]:
    """Where each key is among the stored ones, and whether it is there at all."""
    if not len(stored.places):
        return np.zeros(len(places), np.intp), np.zeros(len(places), np.bool_)
    last = len(stored.places) - 1
    at = np.minimum(np.searchsorted(stored.places, places), last)
    hit = stored.places[at] == places
    left = np.flatnonzero(hit & _differ(stored.keys[at], keys))
    while len(left):  # another key has the same place: look at the next
        hit[left] = False
        left = left[at[left] < last]
        at[left] += 1
        left = left[stored.places[at[left]] == places[left]]
        hit[left] = True
        left = left[_differ(stored.keys[at[left]], keys[left])]
    return at, hit


def _are_same(some: Packed, others: Packed) -> bool:
    """Whether both are the same keys, one by one."""
    return len(some) == len(others) and not _differ(some, others).any()


def _differ(some: Packed, others: Packed) -> Mask:
    """Which keys are not the same; faster word by word than as bytes."""
    differ = np.zeros(len(some), np.bool_)
    for one, other in zip(_words(some).T, _words(others).T, strict=True):
        differ |= one != other
    return differ


def _merged(stored: _Rows, new: _Rows) -> _Rows:
    """Both, in order. No key is in both."""
    if not len(new.places):
        return stored
    places = np.concatenate([stored.places, new.places])
    keys = np.concatenate([stored.keys, new.keys])
    values = np.concatenate([stored.values, new.values])
    order = np.argsort(places, kind="stable")  # two runs, which this sort only merges
    rows = _Rows(places, keys, values).at(order)
    settled = _settled(rows.keys, rows.places)
    return rows if settled is None else rows.at(settled)
