import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.checkpoint import MemoryStore
from penstock.checkpoint.open_store import open_store
from penstock.effects import Stored
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.fencing import Landed
from penstock.ids import ETag, Key
from penstock.sources import files_record
from penstock.sources.files_discovery import LOOKS_LOST_MAX
from penstock.sources.files_listing import Folder, RangedFile
from penstock.sources.files_order import Record
from penstock.sources.files_record import CHUNK_FILES, FileEntry, Order
from penstock.sources.files_settings import World
from penstock.sources.protocol import Range
from tests.sources.test_files import Scene, column, numbers, rows
from tests.support.driving import CountingChance, ManualClock

ORDER = Key("order.json")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.below(tmp_path)


class Watched(MemoryStore):
    """A store that tells what is asked of it, and lets somebody act before a swap or after."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Key] = []
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def get(self, key: Key) -> Stored | None:
        self.asked.append(key)
        return super().get(key)

    def create(self, key: Key, body: bytes) -> ETag | None:
        return self._watched(lambda: MemoryStore.create(self, key, body))

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        return self._watched(lambda: MemoryStore.replace(self, key, body, etag))

    def _watched(self, write: Callable[[], ETag | None]) -> ETag | None:
        before, self.before = self.before, lambda: None
        before()
        etag = write()
        after, self.after = self.after, lambda: None
        after()
        return etag


def watched(scene: Scene) -> tuple[Watched, World]:
    store = Watched()
    return store, World(clock=scene.clock, open_store=lambda _url: store)


def lose_the_answer() -> None:
    raise Unavailable("order.json", "did not answer", "try again")


def entry(number: int, **facts: Any) -> FileEntry:
    made = FileEntry(
        path=f"2026/11/16/part-{number:08}.parquet",
        size_bytes=1_000_000 + number,
        version=f"{1_790_000_000_000_000_000 + number}",
        modified_us=1_790_000_000_000_000 + number,
        partition=number % 4,
        length=100,
        format="parquet",
        unit="rows",
    )
    return msgspec.structs.replace(made, **facts)


def record(store: MemoryStore) -> Record:
    return Record(store, "in", ManualClock(), CountingChance("commit"))


def filled(store: MemoryStore, count: int, **facts: Any) -> Record:
    made = record(store)
    seen = None
    for first in range(0, count, CHUNK_FILES):
        last = min(first + CHUNK_FILES, count)
        seen = made.append(seen, [entry(number, **facts) for number in range(first, last)], "")
    return made


def test_a_lost_answer_records_nothing_twice(scene: Scene) -> None:
    """The swap happened; whoever made it must find that out, not do it again."""
    scene.write("a.jsonl", numbers(1))
    store, world = watched(scene)
    source = scene.source(world=world)
    store.after = lose_the_answer
    assert source.discover() == 1

    scene.write("b.jsonl", numbers(2))
    store.after = lose_the_answer

    assert source.discover() == 1
    assert column(source) == [1, 2]
    assert column(scene.source(world=world)) == [1, 2]


def test_an_answer_lost_for_good_records_nothing_twice(scene: Scene) -> None:
    """A process that dies between the swap and its answer leaves files that are recorded."""
    scene.write("a.jsonl", numbers(1))
    store, world = watched(scene)

    def die() -> None:
        raise KeyboardInterrupt

    store.after = die
    with pytest.raises(KeyboardInterrupt):
        scene.source(world=world).discover()

    assert scene.source(world=world).discover() == 0
    assert column(scene.source(world=world)) == [1]


def test_whoever_comes_second_looks_again(scene: Scene) -> None:
    """The other has recorded the same files, and settled the columns by another one."""
    scene.write("b.jsonl", b'{"n": 1}\n', modified_s=200)
    store, world = watched(scene)
    first, second = scene.source(world=world), scene.source(world=world)

    def interrupt() -> None:
        scene.write("a.jsonl", b'{"n": 0.5, "m": 2}\n', modified_s=100)
        assert second.discover() == 2

    store.before = interrupt

    assert first.discover() == 0
    assert first.schema().names == ["n", "m"]
    assert rows(first) == rows(second)
    assert column(first) == [0.5, 1.0]


def test_two_that_look_at_once_agree(scene: Scene, tmp_path: Path) -> None:
    """Whatever the interleaving, each file is in the order once, at one place."""
    for number in range(120):
        scene.write(f"{number}.jsonl", numbers(number))
    scene.record = str(tmp_path / "record")
    sources = [scene.source(partitions=2, settle_s=0) for _ in range(4)]
    start = threading.Barrier(len(sources))
    counts: list[int] = []

    def look(source: Any) -> None:
        start.wait()
        counts.append(source.discover())

    threads = [threading.Thread(target=look, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(counts) == 120
    for source in sources:
        assert column(source) == list(range(0, 120, 2))
        assert column(source, partition="1") == list(range(1, 120, 2))


def test_one_that_is_never_first_says_so(scene: Scene) -> None:
    """Looking for ever would look like hanging."""
    scene.write("a.jsonl", numbers(0))
    store, world = watched(scene)
    other = Record(store, str(scene.folder), scene.clock, CountingChance("theirs"))

    def interrupt() -> None:
        assert other.append(other.latest(), [entry(other.order.count)], "") is not None
        store.before = interrupt

    store.before = interrupt
    with pytest.raises(Unavailable) as caught:
        scene.source(world=world).discover()

    assert other.order.count == LOOKS_LOST_MAX
    assert str(caught.value) == (
        f"the record of files {scene.folder} was changed by others {LOOKS_LOST_MAX} times while "
        "this process looked: try again; if it stays so, let fewer processes lead this job."
    )


def test_a_record_belongs_to_one_folder(scene: Scene, tmp_path: Path) -> None:
    """Two folders in one order would each miss the files of the other."""
    scene.write("a.jsonl", numbers(1))
    scene.source().discover()
    (tmp_path / "other").mkdir()
    other = Scene(tmp_path / "other", record=scene.record)

    with pytest.raises(Invalid) as caught:
        other.source().spans()

    assert str(caught.value) == (
        f"the record of {other.folder} is the record of {scene.folder}: "
        "give each folder a record of its own."
    )


def test_the_register_stays_small_with_a_hundred_thousand_files() -> None:
    """It is read by every task and written with every new file."""
    store = Watched()
    filled(store, 100_000 - 1)
    stored = MemoryStore.get(store, ORDER)
    assert stored is not None
    fresh = record(store)
    seen = fresh.latest()
    assert seen is not None

    assert (seen.document.count, len(seen.document.chunks)) == (99_999, 199)
    assert seen.document.ends() == (2_500_000, 2_500_000, 2_500_000, 2_499_900)
    assert len(stored.body) < 160_000
    store.asked.clear()
    middle = Range(start=1_250_050, stop=1_250_150)
    assert [(file.entry, file.base) for file in fresh.files(fresh.order, 2, middle)] == [
        (entry(50_002), 1_250_000),
        (entry(50_006), 1_250_100),
    ]
    assert len(store.asked) == 1

    fresh.learn_names(seen.document)
    assert fresh.knows(entry(0).path) and fresh.knows(entry(99_998).path)
    assert not fresh.knows(entry(99_999).path)
    store.asked.clear()
    fresh.learn_names(seen.document)
    assert store.asked == []


def test_files_are_found_across_chunks() -> None:
    """A range may begin in one chunk, pass over another, and end in what no chunk holds yet."""
    store = MemoryStore()
    made = filled(store, 2 * CHUNK_FILES + 10, partition=0, length=1)
    order = made.order

    for start, stop in ((0, 1), (499, 501), (498, 1003), (1005, 1010), (0, 1010), (7, 7)):
        found = [file.base for file in made.files(order, 0, Range(start=start, stop=stop))]
        assert found == list(range(start, stop))
    assert list(made.files(order, 1, Range(start=0, stop=9))) == []
    assert len(list(made.since(order, entry(600).modified_us))) == 510


def test_a_process_that_forgot_everything_finds_the_same_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All it needs is in the record: chunks and what no chunk holds yet."""
    monkeypatch.setattr(files_record, "CHUNK_FILES", 4)
    for number in range(10):
        scene.write(f"{number}.jsonl", numbers(number))
    before = scene.source(partitions=3)
    expected = [rows(before, str(partition)) for partition in range(3)]
    scene.write("later.jsonl", numbers(10))

    after = scene.source(partitions=3)

    assert after.discover() == 1
    assert [rows(after, str(number)) for number in range(3)] == [
        expected[0],
        [*expected[1], {"offset": 27, "n": 10}],
        expected[2],
    ]
    assert [row["n"] for row in expected[0]] == [0, 3, 6, 9]


def test_a_damaged_record_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that follow from a flipped bit would be somebody else's rows."""
    monkeypatch.setattr(files_record, "CHUNK_FILES", 2)
    for number in range(3):
        scene.write(f"{number}.jsonl", numbers(number))
    scene.source().discover()
    store = open_store(scene.record)
    [chunk] = [found.key for found in store.list("chunks/")]
    stored = store.get(chunk)
    assert stored is not None

    store.put(chunk, stored.body.replace(b"0.jsonl", b"9.jsonl"))
    with pytest.raises(Corrupt) as caught:
        column(scene.source())
    assert str(caught.value) == (
        f"chunk {chunk} of the order of files is not what was stored under its name: "
        "restore it from a copy: without it nobody knows which offsets its files have."
    )
    store.delete(chunk)
    with pytest.raises(Corrupt, match="is missing"):
        column(scene.source())
    store.put(ORDER, b"{}")
    with pytest.raises(Corrupt, match=r"order\.json cannot be read as a"):
        column(scene.source())


def test_a_record_that_is_gone_is_not_begun_again(scene: Scene) -> None:
    """Files in another order would have other offsets, and be read twice or never."""
    scene.write("a.jsonl", numbers(1))
    source = scene.source()
    source.discover()
    open_store(scene.record).delete(ORDER)

    with pytest.raises(Corrupt) as caught:
        source.spans()

    assert str(caught.value) == (
        f"the record of {scene.folder} was at change 1 and is at change 0: "
        "restore it from a copy: in a new order, files would have other offsets."
    )


def test_what_was_found_before_a_store_fell_silent_is_recorded(scene: Scene) -> None:
    """A look that is cut short is not in vain."""
    scene.write("a.jsonl", numbers(1))
    scene.write("b.jsonl", numbers(2))

    class Silent(Folder):
        def open(self, path: str, size_bytes: int, version: str) -> RangedFile:
            if path == "b.jsonl":
                raise Unavailable(path, "did not answer", "try again")
            return super().open(path, size_bytes, version)

    silent = World(clock=scene.clock, open_listing=lambda *_: Silent(scene.folder))
    with pytest.raises(Unavailable):
        scene.source(world=silent).spans()

    assert scene.source().discover() == 1
    assert column(scene.source()) == [1, 2]


def test_an_order_tells_of_its_last_changes() -> None:
    """What it has forgotten is not denied: that would record files twice."""
    first = Order(folder="in").appended([entry(0)], "", "first")
    rival = Order(folder="in").appended([entry(0)], "", "rival")
    order = first
    assert order.tells_of(first, None) is Landed.YES
    assert order.tells_of(rival, None) is Landed.NO
    for number in range(1, files_record.RECENT_MAX):
        order = order.appended([entry(number)], "", f"change {number}")
    assert order.tells_of(first, None) is Landed.YES

    order = order.appended([entry(99)], "", "last")

    assert order.tells_of(first, None) is Landed.UNTOLD
    assert order.rank == (files_record.RECENT_MAX + 1,)
