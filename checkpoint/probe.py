"""The probe behind `penstock doctor`: is this store safe to keep a job on?

Several stores that speak S3 have shipped conditional writes that were not: ignored, answered
wrongly, or not atomic. So every promise the commit rests on is tried below a scratch prefix,
first by one writer, then by many at once. The probe can show that a store is unsafe; that it
is safe, it can only make likely.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from penstock.checkpoint.memory_store import MemoryStore
from penstock.checkpoint.open_store import open_store, without_secrets
from penstock.checkpoint.probe_race import (
    WRITERS,
    Outcome,
    Round,
    complaint,
    race,
    race_in_threads,
)
from penstock.checkpoint.store import ObjectStore, digest
from penstock.clock import Chance, SystemChance
from penstock.effects import Stored
from penstock.errors import PenstockError
from penstock.ids import ETag, Key

__all__ = ["Check", "Diagnosis", "probe"]

RACE_ROUNDS = 30
LEFTOVER_S = 3600.0
"""No probe takes this long; what is older was left by one that was killed."""

_SCRATCH = "probe/"
LARGE_BYTES = 17 << 20
NO_SUCH_VERSION = ETag('"0123456789abcdef0123456789abcdef"')

Name: TypeAlias = Callable[[str], Key]
"""From a short name to a key below the scratch prefix."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise that was tried."""

    name: str
    passed: bool
    detail: str
    """What was done, or what the store did wrong, in words."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was tried on one store."""

    url: str
    checks: Sequence[Check]

    @property
    def safe(self) -> bool:
        """Whether nothing was found that would lose or double data."""
        return all(check.passed for check in self.checks)


def probe(url: str, chance: Chance | None = None) -> Diagnosis:
    """Try every promise on the store. What is written is removed again, come what may."""
    store = open_store(url)
    scratch = f"{_SCRATCH}{(chance or SystemChance()).unique()}/"
    try:
        return Diagnosis(without_secrets(url), tuple(_checks(url, store, scratch)))
    finally:
        with suppress(PenstockError):  # a store that failed may fail here too
            _clean_leftovers(store, scratch)
            _clean(store, scratch)


def _checks(url: str, store: ObjectStore, scratch: str) -> Iterator[Check]:
    def name(short: str) -> Key:
        return Key(scratch + short)

    for title, attempt in _ALONE.items():
        check = _try(title, partial(attempt, store, name))
        yield check
        if title == _FIRST and not check.passed:
            return  # a store that cannot be reached would fail every other check the same way
    yield from _races(url, store, name)


def _try(title: str, attempt: Callable[[], str]) -> Check:
    """A check passes if it has nothing to complain of."""
    try:
        wrong = attempt()
    except PenstockError as error:
        wrong = str(error)
    return Check(title, not wrong, wrong or "as promised")


def _clean_leftovers(store: ObjectStore, scratch: str) -> None:
    """Remove what probes that were killed long ago, by the store's clock, have left."""
    mine = store.list(scratch)
    after = ""
    while mine and (page := store.list(_SCRATCH, after)):
        for entry in page:
            if entry.modified_s < mine[0].modified_s - LEFTOVER_S:
                store.delete(entry.key)
        after = page[-1].key


def _clean(store: ObjectStore, scratch: str) -> None:
    after = ""
    while page := store.list(scratch, after):
        for entry in page:
            store.delete(entry.key)
        after = page[-1].key


def _reads_its_write(store: ObjectStore, name: Name) -> str:
    store.put(name("read"), b"written")
    return _unless(_body(store, name("read")) == b"written", "a write was not seen by a read")


def _sees_overwrites(store: ObjectStore, name: Name) -> str:
    store.put(name("over"), b"old")
    store.put(name("over"), b"new")
    return _unless(_body(store, name("over")) == b"new", "an overwrite was not seen by a read")


def _creates_once(store: ObjectStore, name: Name) -> str:
    first = store.create(name("create"), b"first")
    if first is None or _body(store, name("create")) != b"first":
        return "an object that did not exist was not created"
    if store.create(name("create"), b"second") is not None:
        return "a writer was told it created an object that was there already"
    unchanged = _body(store, name("create")) == b"first"
    return _unless(unchanged, "a create that was refused changed the object all the same")


def _replaces_the_current(store: ObjectStore, name: Name) -> str:
    old = _seed(store, name("current"))
    new = store.replace(name("current"), b"new", old)
    if new is None or _body(store, name("current")) != b"new":
        return "the current version was not replaced"
    return _unless(new != old, "a replaced object kept its version")


def _refuses_the_stale(store: ObjectStore, name: Name) -> str:
    old = _seed(store, name("stale"))
    store.replace(name("stale"), b"new", old)
    if store.replace(name("stale"), b"late", old) is not None:
        return "a writer was told it replaced a version that was no longer there"
    unchanged = _body(store, name("stale")) == b"new"
    return _unless(unchanged, "a replace that was refused changed the object all the same")


def _refuses_the_absent(store: ObjectStore, name: Name) -> str:
    if store.replace(name("absent"), b"late", NO_SUCH_VERSION) is not None:
        return "a writer was told it replaced a version of an object that does not exist"
    absent = store.get(name("absent")) is None
    return _unless(absent, "a replace that was refused created the object all the same")


def _forgets_the_deleted(store: ObjectStore, name: Name) -> str:
    store.put(name("deleted"), b"gone")
    store.delete(name("deleted"))
    store.delete(name("deleted"))
    gone = store.get(name("deleted")) is None
    return _unless(gone, "an object was still there after it was deleted")


def _lists_in_order(store: ObjectStore, name: Name) -> str:
    keys = [name(f"list/{short}") for short in ("a-b", "a.b", "a/b", "a/c", "ab")]
    for key in reversed(keys):
        store.put(key, b"listed")
    found = [entry.key for entry in store.list(name("list/"))]
    if sorted(found) != keys:
        return f"a listing showed {len(found)} objects that were not the {len(keys)} written"
    if found != keys:
        return "a listing was not in key order"
    rest = [entry.key for entry in store.list(name("list/"), keys[1])]
    return _unless(rest == keys[2:], "a listing did not go on where it was told to")


def _streams_large_objects(store: ObjectStore, name: Name) -> str:
    body = bytes(range(251)) * (LARGE_BYTES // 251 + 1)
    store.upload(name("large"), io.BytesIO(body))
    expected = MemoryStore()
    expected.put(name("large"), body)
    same = digest(store, name("large")) == digest(expected, name("large"))
    return _unless(same, "a large object did not come back as it was written")


_FIRST = "a write is read back"
_ALONE: Mapping[str, Callable[[ObjectStore, Name], str]] = {
    _FIRST: _reads_its_write,
    "an overwrite is seen": _sees_overwrites,
    "an object is created once": _creates_once,
    "the current version can be replaced": _replaces_the_current,
    "a stale version cannot be replaced": _refuses_the_stale,
    "an absent object cannot be replaced": _refuses_the_absent,
    "a deleted object is gone": _forgets_the_deleted,
    "a listing is whole and in order": _lists_in_order,
    "a large object comes back the same": _streams_large_objects,
}


def _races(url: str, store: ObjectStore, name: Name) -> Iterator[Check]:
    """Two races in one run, because most of the time goes into starting the processes."""
    title = "one of many creators wins", "one of many replacers wins"
    try:
        rounds = _rounds(store, name)
        told = _run(url, store, rounds)
    except PenstockError as error:
        yield from (Check(each, False, str(error)) for each in title)
        return
    for each, part in zip(title, (slice(RACE_ROUNDS), slice(RACE_ROUNDS, None)), strict=True):
        wrong = _wrong(store, rounds[part], told[part])
        yield Check(each, not wrong, wrong or _described(store))


def _rounds(store: ObjectStore, name: Name) -> list[Round]:
    numbers = range(RACE_ROUNDS)
    creates = [Round(name(f"race/create-{number}"), None) for number in numbers]
    keys = [name(f"race/replace-{number}") for number in numbers]
    return creates + [Round(key, _seed(store, key)) for key in keys]


def _run(url: str, store: ObjectStore, rounds: Sequence[Round]) -> list[Mapping[str, Outcome]]:
    if isinstance(store, MemoryStore):
        return race_in_threads(store, rounds, WRITERS)
    return race(url, rounds)


def _described(store: ObjectStore) -> str:
    where = "this process only" if isinstance(store, MemoryStore) else "two processes"
    return f"{RACE_ROUNDS} rounds of {len(WRITERS)} writers in {where}, one winner each"


def _wrong(
    store: ObjectStore, rounds: Sequence[Round], told: Sequence[Mapping[str, Outcome]]
) -> str:
    """What went wrong first, and in how many rounds something did."""
    found = [
        complaint(turn, outcomes, _body(store, turn.key))
        for turn, outcomes in zip(rounds, told, strict=True)
    ]
    wrong = [each for each in found if each]
    if wrong:
        return f"{wrong[0]} (wrong in {len(wrong)} of {len(rounds)} rounds)"
    certain = any(Outcome.WON in outcomes.values() for outcomes in told)
    return _unless(certain, "no writer was ever told that it won")


def _seed(store: ObjectStore, key: Key) -> ETag:
    store.put(key, b"old")
    stored = store.get(key)
    return stored.etag if stored else NO_SUCH_VERSION


def _body(store: ObjectStore, key: Key) -> bytes | None:
    stored: Stored | None = store.get(key)
    return None if stored is None else stored.body


def _unless(fine: bool, wrong: str) -> str:
    return "" if fine else wrong
