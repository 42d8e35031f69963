"""The promises of `ObjectStore`, kept by every implementation."""

import hashlib
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.checkpoint.memory_store import MemoryStore
from penstock.checkpoint.probe_race import WRITERS, Round, complaint, race, race_in_threads
from penstock.checkpoint.s3_upload import PART_BYTES
from penstock.checkpoint.store import KEY_LENGTH_MAX, PAGE_ENTRIES_MAX, ObjectStore, digest
from penstock.effects import Digested, Stored
from penstock.errors import Invalid
from penstock.ids import ETag, Key

KEY = Key("some/object")
NO_VERSION = ETag('"0123456789abcdef0123456789abcdef"')
TRICKY = ["a-b", "a.b", "a/b", "a/b-c/d", "a/b.c", "a=b", "aB", "ab", "b"]
BAD_KEYS = ["", "/x", "x/", "a//b", "..", "a/../b", ".hidden", "a b", "é", "x" * 701]
ROUNDS = 10
LARGE_BYTES = 40_000_000


def body_of(store: ObjectStore, key: str) -> bytes | None:
    stored = store.get(Key(key))
    return None if stored is None else stored.body


def version_of(store: ObjectStore, key: str) -> ETag:
    stored = store.get(Key(key))
    assert stored is not None
    return stored.etag


def listed(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    return [entry.key for entry in store.list(prefix, after)]


def test_what_was_put_is_read_back(store: ObjectStore) -> None:
    """A recovery reads what the commit before it wrote."""
    store.put(KEY, b"\x00body\xff")

    assert body_of(store, KEY) == b"\x00body\xff"


def test_an_absent_object_is_none(store: ObjectStore) -> None:
    """A new root has no HEAD, which is an answer and not an error."""
    assert store.get(KEY) is None


def test_the_later_of_two_puts_stays(store: ObjectStore) -> None:
    """A put may be sent again."""
    store.put(KEY, b"first")
    store.put(KEY, b"second")

    assert body_of(store, KEY) == b"second"


def test_an_empty_object_is_not_an_absent_one(store: ObjectStore) -> None:
    """An epoch without output stages nothing, and that must be found again."""
    store.put(KEY, b"")
    store.upload(Key("uploaded"), io.BytesIO())

    assert (body_of(store, KEY), body_of(store, "uploaded")) == (b"", b"")
    assert store.download(KEY, io.BytesIO())
    assert [entry.size_bytes for entry in store.list("")] == [0, 0]


def test_an_absent_object_is_created(store: ObjectStore) -> None:
    """The version a create returns is the one a read finds."""
    etag = store.create(KEY, b"body")

    assert etag is not None
    assert store.get(KEY) == Stored(b"body", etag)


def test_a_present_object_is_not_created_again(store: ObjectStore) -> None:
    """Two leaders of a new job: the second must not wipe the first one's HEAD."""
    store.create(KEY, b"first")

    assert store.create(KEY, b"second") is None
    assert body_of(store, KEY) == b"first"


def test_the_current_version_is_replaced(store: ObjectStore) -> None:
    """Versions can be followed from one swap to the next without reading."""
    first = store.create(KEY, b"first")
    assert first is not None
    second = store.replace(KEY, b"second", first)
    assert second is not None
    third = store.replace(KEY, b"third", second)

    assert third is not None
    assert store.get(KEY) == Stored(b"third", third)
    assert len({first, second, third}) == 3


def test_a_stale_version_is_not_replaced(store: ObjectStore) -> None:
    """A deposed leader's next commit cannot succeed."""
    stale = store.create(KEY, b"first")
    assert stale is not None
    store.replace(KEY, b"second", stale)

    assert store.replace(KEY, b"late", stale) is None
    assert body_of(store, KEY) == b"second"


def test_an_absent_object_is_not_replaced(store: ObjectStore) -> None:
    """A HEAD that somebody deleted is not brought back by an old leader."""
    assert store.replace(KEY, b"late", NO_VERSION) is None
    assert store.get(KEY) is None


def test_a_deleted_object_is_not_replaced(store: ObjectStore) -> None:
    """Its version is gone with it."""
    etag = store.create(KEY, b"body")
    assert etag is not None
    store.delete(KEY)

    assert store.replace(KEY, b"late", etag) is None
    assert store.get(KEY) is None


def test_a_deleted_object_is_gone_and_may_come_back(store: ObjectStore) -> None:
    """The collector deletes, and may find nothing left to delete."""
    store.put(KEY, b"body")
    store.delete(KEY)
    store.delete(KEY)

    assert (store.get(KEY), listed(store, "")) == (None, [])
    assert store.create(KEY, b"again") is not None


def test_a_listing_is_in_key_order(store: ObjectStore) -> None:
    """'/' sorts after '-' and '.', which folders get wrong."""
    for name in reversed(TRICKY):
        store.put(Key(name), name.encode())

    assert listed(store, "") == sorted(TRICKY)
    assert [entry.size_bytes for entry in store.list("")] == [len(n) for n in sorted(TRICKY)]


@pytest.mark.parametrize("prefix", ["a", "a/", "a/b", "a/b-", "a/b-c/", "b", "c", "a/b-c/d"])
def test_a_listing_starts_with_its_prefix(store: ObjectStore, prefix: str) -> None:
    """A prefix is a piece of text, not a folder."""
    for name in TRICKY:
        store.put(Key(name), b"")

    assert listed(store, prefix) == [n for n in sorted(TRICKY) if n.startswith(prefix)]


def test_a_listing_goes_on_after_any_name(store: ObjectStore) -> None:
    """The last name seen may have been deleted since."""
    for name in TRICKY:
        store.put(Key(name), b"")

    for after in [*TRICKY, "a", "a/", "a/b-c", "a/b-c/", "a/bz", "z"]:
        assert listed(store, "", after) == [n for n in sorted(TRICKY) if n > after], after
        assert listed(store, "a/", after) == [
            n for n in sorted(TRICKY) if n > after and n.startswith("a/")
        ], after


@pytest.mark.parametrize("prefix", ["..", "../", "/", "/etc/", "a//", ".", "./"])
def test_a_prefix_that_no_key_has_lists_nothing(store: ObjectStore, prefix: str) -> None:
    """No listing leaves the root."""
    store.put(KEY, b"")

    assert listed(store, prefix) == []


def test_a_long_listing_comes_in_pages(store: ObjectStore) -> None:
    """More than a page, and every name once."""
    names = [f"{n % 3}/{n:05d}" for n in range(PAGE_ENTRIES_MAX + 5)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.put(Key(name), b""), names))

    pages = list(pages_of(store))

    assert [len(page) for page in pages] == [PAGE_ENTRIES_MAX, 5]
    assert [name for page in pages for name in page] == sorted(names)


def pages_of(store: ObjectStore) -> Iterator[list[str]]:
    after = ""
    while page := listed(store, "", after):
        yield page
        after = page[-1]


def test_siblings_are_listed_by_the_time_they_were_written(store: ObjectStore) -> None:
    """The collector's grace compares one object's time with another's."""
    store.put(Key("first"), b"")
    store.put(Key("second"), b"")

    first, second = store.list("")

    assert first.modified_s <= second.modified_s


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_bad_key_is_refused_by_every_operation(store: ObjectStore, key: str) -> None:
    """What one store cannot hold, none accepts; and no key leaves the root."""
    bad = Key(key)
    for attempt in (
        lambda: store.get(bad),
        lambda: store.put(bad, b""),
        lambda: store.create(bad, b""),
        lambda: store.replace(bad, b"", NO_VERSION),
        lambda: store.delete(bad),
        lambda: store.upload(bad, io.BytesIO()),
        lambda: store.download(bad, io.BytesIO()),
    ):
        with pytest.raises(Invalid, match="cannot be stored"):
            attempt()


def test_the_longest_key_is_held(store: ObjectStore) -> None:
    """The limit is one that every store keeps."""
    key = Key("/".join(["segment" * 14] * 8)[:KEY_LENGTH_MAX].rstrip("/"))
    store.put(key, b"body")

    assert listed(store, "") == [key]


def test_a_large_object_passes_through_in_pieces(store: ObjectStore) -> None:
    """A snapshot's files may be larger than the memory of the worker that moves them."""
    source = Pattern(LARGE_BYTES)
    expected = Digested(Pattern(LARGE_BYTES).sha256(), LARGE_BYTES)

    store.upload(KEY, source)  # type: ignore[arg-type]

    assert digest(store, KEY) == expected
    if not isinstance(store, MemoryStore):
        assert source.read_bytes_max <= PART_BYTES


class Pattern(io.RawIOBase):
    """A large file that is made up as it is read, and remembers the largest piece asked for."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._at = 0
        self._tile = bytes(range(251)) * 4096
        self.read_bytes_max = 0

    def read(self, size: int = -1) -> bytes:
        left = self._size_bytes - self._at
        size = left if size < 0 else min(size, left)
        self.read_bytes_max = max(self.read_bytes_max, size)
        skip = self._at % 251
        self._at += size
        return (self._tile * (size // len(self._tile) + 2))[skip : skip + size]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_END: self._size_bytes}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def sha256(self) -> str:
        sha = hashlib.sha256()
        while chunk := self.read(1 << 20):
            sha.update(chunk)
        return sha.hexdigest()


def test_an_upload_starts_where_the_file_stands(store: ObjectStore) -> None:
    """A file may have been read before it is handed over."""
    source = io.BytesIO(b"skipped|kept")
    source.seek(8)
    store.upload(KEY, source)

    assert body_of(store, KEY) == b"kept"


def test_an_upload_overwrites(store: ObjectStore) -> None:
    """An upload may be sent again."""
    store.put(KEY, b"before")
    store.upload(KEY, io.BytesIO(b"after"))

    assert body_of(store, KEY) == b"after"


def test_downloading_an_absent_object_writes_nothing(store: ObjectStore) -> None:
    """False is not an empty file."""
    target = io.BytesIO(b"untouched")

    assert not store.download(KEY, target)
    assert target.getvalue() == b"untouched"


def test_one_of_many_creators_wins(store_url: str, store: ObjectStore) -> None:
    """Threads and processes alike: at most one conditional write of a version happens."""
    rounds = [Round(Key(f"race-{n}"), None) for n in range(ROUNDS)]

    assert complaints(store_url, store, rounds) == [""] * ROUNDS


def test_one_of_many_replacers_wins(store_url: str, store: ObjectStore) -> None:
    """The swap of HEAD, raced by everybody who believes to be the leader."""
    keys = [Key(f"race-{n}") for n in range(ROUNDS)]
    for key in keys:
        store.put(key, b"old")
    rounds = [Round(key, version_of(store, key)) for key in keys]

    assert complaints(store_url, store, rounds) == [""] * ROUNDS


def complaints(store_url: str, store: ObjectStore, rounds: list[Round]) -> list[str]:
    if isinstance(store, MemoryStore):
        told = race_in_threads(store, rounds, WRITERS)
    else:
        told = race(store_url, rounds)
    return [
        complaint(turn, outcomes, body_of(store, turn.key))
        for turn, outcomes in zip(rounds, told, strict=True)
    ]
