"""Records on disk: all of them come back, each in the part of its key."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.chaos.spill import PARTS, RECORD, Records, Spill, records


def made(keys: list[int]) -> Records:
    """Records with these keys, numbered."""
    hashes = np.array([[key, 0] for key in keys], np.uint64).reshape(-1, 2)
    found = records(hashes, hashes)
    found["sequence"] = np.arange(len(keys))
    return found


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=30), max_size=6))
def test_every_record_comes_back_once_in_its_part(batches: list[list[int]]) -> None:
    """In the order in which they were added, however many batches there were."""
    with Spill() as spill:
        for keys in batches:
            spill.add(made(keys))
        parts = [spill.part(number) for number in range(PARTS)]

    everything = [int(key) for part in parts for key in part["key"][:, 0]]
    assert len(spill) == len(everything)
    assert sorted(everything) == sorted(key for keys in batches for key in keys)
    for number, part in enumerate(parts):
        assert part.dtype == RECORD
        assert {int(key) >> 56 for key in part["key"][:, 0]} <= {number}
        wanted = [key for keys in batches for key in keys if key >> 56 == number]
        assert part["key"][:, 0].tolist() == wanted


def test_nothing_of_it_has_a_name(tmp_path: Path) -> None:
    """A process that is killed leaves no file behind."""
    with Spill(tmp_path) as spill:
        spill.add(made([1, 2, 3]))
        assert list(tmp_path.iterdir()) == []
