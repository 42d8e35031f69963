from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Corrupt, Invalid
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.columns import PAGE_BYTES, Columns
from penstock.state.database import PartitionDatabase
from penstock.state.delta import Marker, write_delta
from penstock.state.keys import encode_key
from penstock.state.layout import DATA, section_prefix
from penstock.state.overlay import Overlay
from penstock.state.settings import StateSettings

SETTINGS = StateSettings()
ENTRY_BYTES = 16 + 8
PAGE_ENTRIES = PAGE_BYTES // ENTRY_BYTES
TOTAL = np.dtype([("count", "<i8"), ("sum", "<f8")])


class Nothing:
    """A committed version that is empty."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [None for _ in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


class Epochs:
    """A partition's database, one delta after the other."""

    def __init__(self, folder: Path) -> None:
        self.database = PartitionDatabase(folder / "database", SETTINGS)
        self._folder = folder
        self._epoch = 0

    def columns(self, key: Any = "S16", value: Any = "<i8") -> tuple[Overlay, Columns]:
        overlay = Overlay(self.database)
        return overlay, Columns(overlay, "totals", 7, key, value)

    def commit(self, overlay: Overlay) -> dict[bytes, bytes | None]:
        self._epoch += 1
        marker = Marker(
            job="job",
            operator="totals",
            partition=0,
            generation=Generation(1),
            epoch=Epoch(self._epoch),
            attempt=Attempt("a"),
        )
        path = self._folder / f"{self._epoch}.sst"
        self.database.ingest([write_delta(path, marker, overlay.changes, b"{}", SETTINGS).path])
        return overlay.changes


@pytest.fixture
def epochs(tmp_path: Path) -> Iterator[Epochs]:
    made = Epochs(tmp_path)
    yield made
    made.database.close()


def fresh(key: Any = "S16", value: Any = "<i8") -> tuple[Overlay, Columns]:
    overlay = Overlay(Nothing())
    return overlay, Columns(overlay, "totals", 7, key, value)


def random_keys(seed: int, count: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(np.random.default_rng(seed).bytes(16 * count), "S16")


def groups_of(keys: np.ndarray[Any, Any], groups: int = 3) -> np.ndarray[Any, Any]:
    first = np.frombuffer(keys.tobytes(), np.uint8)[:: keys.dtype.itemsize]
    return (first % groups).astype(np.uint16)


def numbers(*given: int) -> np.ndarray[Any, Any]:
    return np.array(given, np.int64)


def in_group(keys: Any, group: int = 0) -> np.ndarray[Any, Any]:
    return np.full(len(keys), group, np.uint16)


def read(columns: Columns, keys: Any, groups: Any) -> list[Any]:
    """The values as a plain list, with None where there is none."""
    values, found = columns.get_many(keys, groups)
    return [value if there else None for value, there in zip(values.tolist(), found, strict=True)]


def colliding(count: int) -> np.ndarray[Any, Any]:
    """Keys of 16 bytes with one and the same hash: the second word takes back the first."""
    first = np.arange(count, dtype=np.uint64)
    mixed = first + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.stack([first, mixed], axis=1).view("S16").reshape(count)


BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "commit"]),
        st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 99)), max_size=12),
    ),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES)
def test_it_holds_what_a_dict_holds(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[str, list[tuple[int, int]]]]
) -> None:
    """Batches with repeated and unknown keys, over several epochs."""
    epochs, expected = Epochs(tmp_path_factory.mktemp("columns")), dict[int, int]()
    overlay, columns = epochs.columns("<i8")
    everything = np.arange(-8, 9)
    groups = (everything % 2).astype(np.uint16)
    for what, batch in batches:
        keys, values = numbers(*(k for k, _ in batch)), numbers(*(v for _, v in batch))
        if what == "put":
            columns.put_many(keys, values, (keys % 2).astype(np.uint16))
            expected.update(batch)
        elif what == "remove":
            columns.remove_many(keys, (keys % 2).astype(np.uint16))
            expected = {k: v for k, v in expected.items() if k not in keys.tolist()}
        else:
            epochs.commit(overlay)
            overlay, columns = epochs.columns("<i8")
        assert read(columns, everything, groups) == [expected.get(k) for k in everything.tolist()]
    epochs.database.close()


def test_it_grows_through_many_doublings_and_empties_again(epochs: Epochs) -> None:
    """Every doubling parts every page of a group; none may lose an entry on the way."""
    keys = random_keys(1, 40 * PAGE_ENTRIES)
    groups, values = groups_of(keys), np.arange(len(keys))
    pages = []
    for part in np.array_split(np.arange(len(keys)), 6):
        overlay, columns = epochs.columns()
        columns.put_many(keys[part], values[part], groups[part])
        epochs.commit(overlay)
        pages.append(sum(1 for _ in epochs.database.scan(b"\x01", b"\x02")))
        known = slice(0, part[-1] + 1)
        assert read(epochs.columns()[1], keys[known], groups[known]) == values[known].tolist()
    overlay, columns = epochs.columns()
    columns.remove_many(keys, groups)
    epochs.commit(overlay)

    assert pages == sorted(pages)
    assert pages[-1] > 8 * 3
    assert list(epochs.database.scan(b"\x01", b"\x02")) == []


@pytest.mark.parametrize("seed", range(5))
def test_large_random_batches_agree_with_a_dict(epochs: Epochs, seed: int) -> None:
    """Half of each batch is known already, some of it twice; a third goes away again."""
    random = np.random.default_rng(seed)
    pool, expected = random_keys(seed, 4_000), dict[bytes, int]()
    for _ in range(4):
        overlay, columns = epochs.columns()
        keys, values = random.choice(pool, 3_000), random.integers(0, 1 << 40, 3_000)
        columns.put_many(keys, values, groups_of(keys))
        expected.update(zip(keys.tolist(), values.tolist(), strict=True))
        gone = random.choice(pool, 1_000)
        columns.remove_many(gone, groups_of(gone))
        expected = {k: v for k, v in expected.items() if k not in set(gone.tolist())}
        epochs.commit(overlay)

        assert read(epochs.columns()[1], pool, groups_of(pool)) == [
            expected.get(key) for key in pool.tolist()
        ]


def test_a_batch_larger_than_a_piece_is_one_batch() -> None:
    """Pieces are cut between groups; what is put in one must not undo another."""
    keys = np.arange(300_000)
    groups = (keys % 11).astype(np.uint16)
    _, columns = fresh("<i8")
    columns.put_many(keys, keys * 2, groups)
    columns.put_many(keys[::3], keys[::3] * 5, groups[::3])

    values, found = columns.get_many(keys, groups)

    assert found.all()
    assert np.array_equal(values, np.where(keys % 3 == 0, keys * 5, keys * 2))


def test_keys_with_one_hash_are_still_different_keys() -> None:
    """A page is found by the hash, and a key only by the key."""
    keys = colliding(50)
    _, columns = fresh()
    columns.put_many(keys[:40], np.arange(40), in_group(keys[:40]))
    columns.put_many(keys[20:], np.arange(20, 50) * 10, in_group(keys[20:]))
    columns.remove_many(keys[5:10], in_group(keys[5:10]))

    expected: list[int | None] = [*range(20), *range(200, 500, 10)]
    expected[5:10] = [None] * 5
    assert read(columns, keys, in_group(keys)) == expected


def test_keys_with_one_hash_do_not_multiply_the_pages() -> None:
    """No number of pages would part them: only that one page gets long."""
    keys = colliding(4 * PAGE_ENTRIES)
    overlay, columns = fresh()
    columns.put_many(keys, np.arange(len(keys)), in_group(keys))

    assert len(overlay.changes) == 2


def test_only_touched_pages_are_written(epochs: Epochs) -> None:
    """The delta of an epoch is as small as what the epoch touched."""
    keys = random_keys(2, 20 * PAGE_ENTRIES)
    overlay, columns = epochs.columns()
    columns.put_many(keys, np.arange(len(keys)), groups_of(keys))
    epochs.commit(overlay)
    overlay, columns = epochs.columns()
    columns.put_many(keys[:1], np.array([-1]), groups_of(keys)[:1])

    assert len(overlay.changes) == 1


def test_what_stays_as_it_is_is_no_change(epochs: Epochs) -> None:
    """An epoch that sets what is there already has no delta at all."""
    keys = random_keys(3, 5_000)
    overlay, columns = epochs.columns()
    columns.put_many(keys, np.arange(5_000), groups_of(keys))
    epochs.commit(overlay)
    overlay, columns = epochs.columns()
    columns.put_many(keys[::7], np.arange(5_000)[::7], groups_of(keys)[::7])
    columns.remove_many(random_keys(4, 100), groups_of(random_keys(4, 100)))

    assert overlay.changes == {}


def test_the_order_of_a_batch_does_not_show_in_the_bytes() -> None:
    """A second attempt that reads its rows in another order makes the same delta."""
    keys = np.concatenate([random_keys(5, 9_000), colliding(20)])
    shuffled = np.random.default_rng(6).permutation(len(keys))
    values = np.arange(len(keys))
    (one, first), (two, second) = fresh(), fresh()
    first.put_many(keys, values, groups_of(keys))
    second.put_many(keys[shuffled], values[shuffled], groups_of(keys)[shuffled])

    assert one.changes == two.changes


def test_of_a_repeated_key_the_last_value_counts() -> None:
    """Rows of a batch are in the order of the log."""
    _, columns = fresh("<i8")
    columns.put_many(numbers(1, 2, 1, 1), numbers(10, 20, 30, 40), in_group(range(4)))

    assert read(columns, numbers(1, 2), in_group(range(2))) == [40, 20]


def test_a_key_belongs_to_its_group() -> None:
    """The same key in two groups is two entries, each of which moves with its group."""
    _, columns = fresh("<i8")
    columns.put_many(numbers(1, 1), numbers(10, 20), np.array([3, 4], np.uint16))

    assert read(columns, numbers(1, 1, 1), np.array([3, 4, 5], np.uint16)) == [10, 20, None]


def test_two_states_do_not_meet() -> None:
    """Each has pages of its own."""
    overlay = Overlay(Nothing())
    one, two = (Columns(overlay, f"s{n}", n, "<i8", "<i8") for n in (1, 2))
    one.put_many(numbers(1), numbers(10), in_group(range(1)))
    two.put_many(numbers(1), numbers(20), in_group(range(1)))

    assert read(one, numbers(1), in_group(range(1))) == [10]
    assert read(two, numbers(1), in_group(range(1))) == [20]


def test_pages_lie_in_their_group_behind_every_ordinary_key() -> None:
    """So a key-group range that is cut out has them, and no scan of a key meets one."""
    overlay, columns = fresh("<i8")
    columns.put_many(numbers(1), numbers(10), in_group(range(1), 258))

    last = section_prefix(258, DATA) + encode_key((2**62, "z" * 9)) + b"\xff"
    assert all(last < entry < section_prefix(258, b"\x02") for entry in overlay.changes)
    assert len(overlay.changes) == 2


ROWS = np.array([(3, 1.5), (4, -2.5)], TOTAL)
COLUMNS: dict[str, tuple[Any, Any, list[Any]]] = {
    "numpy structured": (TOTAL, ROWS, [(3, 1.5), (4, -2.5)]),
    "numpy structured with gaps": (
        np.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"], "offsets": [0, 8]}),
        np.array([(1, 1.5), (2, 2.5)], np.dtype([("a", "u1"), ("b", ">f8")], align=True)),
        [(1, 1.5), (2, 2.5)],
    ),
    "numpy 2-D": (("<f8", 2), np.array([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]]),
    "numpy 2-D bytes": ("V3", np.array([[1, 2, 3], [4, 5, 6]], "u1"), [b"\1\2\3", b"\4\5\6"]),
    "numpy strided": ("<i8", np.arange(4)[::2], [0, 2]),
    "numpy big-endian": ("<i8", np.array([1, 2], ">i4"), [1, 2]),
    "arrow struct": (
        TOTAL,
        pa.array([{"count": 3, "sum": 1.5}, {"count": 4, "sum": -2.5}]),
        [(3, 1.5), (4, -2.5)],
    ),
    "arrow sliced struct": (
        TOTAL,
        pa.array([{"count": n, "sum": n / 2} for n in range(4)]).slice(1, 2),
        [(1, 0.5), (2, 1.0)],
    ),
    "arrow ints in chunks": ("<i8", pa.chunked_array([[5], [6]]), [5, 6]),
    "arrow floats": ("<f8", pa.array([0.5, 1.5]), [0.5, 1.5]),
    "arrow bools": ("?", pa.array([True, False]), [True, False]),
    "arrow bytes": ("V2", pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"]),
    "arrow lists": (
        ("<f4", 2),
        pa.array([[9, 9], [1, 2], [3, 4]], pa.list_(pa.float32(), 2)).slice(1),
        [[1.0, 2.0], [3.0, 4.0]],
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_come_as_numpy_and_as_arrow(kind: str) -> None:
    """Whatever a job's columns are, they need no loop to get in."""
    declared, values, expected = COLUMNS[kind]
    _, columns = fresh("<i8", declared)
    columns.put_many(numbers(1, 2), values, in_group(range(2)))

    assert read(columns, numbers(1, 2), in_group(range(2))) == expected


KEYS: dict[str, tuple[Any, Any, Any]] = {
    "int64": ("<i8", numbers(-5, 5), pa.array([-5, 5])),
    "int32": ("<i8", np.array([-5, 5], np.int32), pa.array([-5, 5], pa.int32())),
    "uint64": ("<u8", np.array([5, 2**64 - 1], np.uint64), pa.array([5, 2**64 - 1], pa.uint64())),
    "16 bytes": (
        "S16",
        np.array([b"a" * 16, b"b" * 15 + b"\0"], "S16"),
        pa.array([b"-" * 16, b"a" * 16, b"b" * 15 + b"\0"], pa.binary(16)).slice(1),
    ),
    "5 bytes": (
        "V5",
        np.array([b"abcde", b"fghij"], "V5"),
        pa.array([b"abcde", b"fghij"], pa.binary(5)),
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_the_same_from_numpy_and_from_arrow(kind: str) -> None:
    """What one job wrote with one, another finds with the other."""
    declared, plain, arrow = KEYS[kind]
    _, columns = fresh(declared)
    columns.put_many(plain, numbers(1, 2), in_group(range(2)))
    columns.put_many(arrow[1:], numbers(3), pa.array([0], pa.uint16()))

    assert read(columns, arrow, in_group(range(2))) == [1, 3]
    assert read(columns, plain, in_group(range(2))) == [1, 3]


def test_an_empty_batch_changes_nothing() -> None:
    """A partition without rows in this epoch is ordinary."""
    overlay, columns = fresh()
    none = np.empty(0, "S16")
    columns.put_many(none, np.empty(0, np.int64), np.empty(0, np.uint16))
    columns.remove_many(pa.array([], pa.binary(16)), np.empty(0, np.uint16))

    assert read(columns, none, np.empty(0, np.uint16)) == []
    assert overlay.changes == {}


GOOD = {"keys": np.array([1, 2]), "values": np.array([1, 2]), "groups": np.zeros(2, np.uint16)}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "keys of another type": (
        {"keys": np.array([1.0, 2.0])},
        "state 'totals' was given float64 as keys: give int64, as it is declared.",
    ),
    "keys that may not fit": (
        {"keys": np.array([1, 2], np.uint64)},
        "state 'totals' was given uint64 as keys: give int64, as it is declared.",
    ),
    "keys of another width": (
        {"keys": np.array([b"abc", b"d"])},
        "state 'totals' was given S3 as keys: give int64, as it is declared.",
    ),
    "keys of no fixed width": (
        {"keys": pa.array(["a", "b"])},
        "state 'totals' was given object as keys: give int64, as it is declared.",
    ),
    "a list": (
        {"keys": [1, 2]},
        "state 'totals' was given a list as keys: give a numpy array or an Arrow array.",
    ),
    "nulls in keys": (
        {"keys": pa.array([1, None])},
        "state 'totals' was given nulls as keys: fill them or filter such rows out.",
    ),
    "nulls in values": (
        {"values": pa.array([1, None])},
        "state 'totals' was given nulls as values: fill them or filter such rows out.",
    ),
    "masked keys": (
        {"keys": np.ma.array([1, 2], mask=[True, False])},
        "state 'totals' was given a MaskedArray as keys: give a numpy array or an Arrow array.",
    ),
    "too few values": (
        {"values": np.array([1])},
        "state 'totals' was given 2 keys and 1 values: give one value for each key.",
    ),
    "values that would lose digits": (
        {"values": np.array([0.5, 1.5])},
        "state 'totals' was given float64 as values: give int64, as it is declared.",
    ),
    "too few groups": (
        {"groups": np.zeros(1, np.uint16)},
        "state 'totals' was given 2 keys and 1 uint16 as groups: give one uint16 for each key.",
    ),
    "groups out of range": (
        {"groups": np.array([0, 40_000])},
        "state 'totals' was given key groups from 0 to 40000: give numbers from 0 to 32767.",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_refused_in_a_sentence(kind: str) -> None:
    """And nothing has been changed by then."""
    changed, said = BAD[kind]
    overlay, columns = fresh("<i8")
    with pytest.raises(Invalid) as caught:
        columns.put_many(**{**GOOD, **changed})

    assert str(caught.value) == said
    assert overlay.changes == {}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("<f8", "<i8", "state 'totals' has float64 as its key: use int64 or S16."),
        ("S300", "<i8", "has S300 as its key: use a type of fixed width, up to 256 bytes."),
        ("<i8", "O", "has object as its value: use a type of fixed width, up to 4096 bytes."),
        (
            "<i8",
            "nonsense",
            "state 'totals' has 'nonsense' as its value, which has no fixed width: "
            'use int, float, np.int32 or Literal["S16"].',
        ),
    ],
)
def test_a_bad_declaration_is_refused(key: Any, value: Any, said: str) -> None:
    """When it is made, and not when the first batch arrives."""
    with pytest.raises(Invalid) as caught:
        fresh(key, value)

    assert str(caught.value).endswith(said)


def test_a_state_of_another_width_is_refused() -> None:
    """Bytes read as another type would be values that nobody wrote."""
    overlay, columns = fresh("<i8", TOTAL)
    columns.put_many(numbers(1), ROWS[:1], in_group(range(1)))
    with pytest.raises(Invalid) as caught:
        Columns(overlay, "totals", 7, "<i8", "<f4").get_many(numbers(1), in_group(range(1)))

    assert str(caught.value) == (
        "state 'totals' was {count: int64, sum: float64} by int64 and is declared as float32 by "
        "int64: declare it as it was, or give the new one another name and fill it from the old."
    )


def test_half_an_entry_is_corrupt() -> None:
    """A page that is not whole is not guessed at."""
    overlay, columns = fresh("<i8")
    columns.put_many(numbers(1), numbers(1), in_group(range(1)))
    page = max(overlay.changes)
    overlay.put(page, (overlay.get(page) or b"")[:-1])
    with pytest.raises(Corrupt):
        columns.get_many(numbers(1), in_group(range(1)))


def test_the_same_keys_in_other_groups_are_other_entries(epochs: Epochs) -> None:
    """Also when a batch has as many keys as its pages have entries."""
    _, columns = epochs.columns("<i8", "<i8")
    keys = np.array([1, 2], np.int64)
    columns.put_many(keys, np.array([10, 20], np.int64), np.array([5, 5], np.uint16))
    columns.put_many(keys, np.array([11, 21], np.int64), np.array([5, 6], np.uint16))

    asked, groups = np.array([1, 2, 2], np.int64), np.array([5, 5, 6], np.uint16)
    values, found = columns.get_many(asked, groups)
    assert (values.tolist(), found.tolist()) == ([11, 20, 21], [True, True, True])
