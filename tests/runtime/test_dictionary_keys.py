"""Keys of a dictionary type, as pandas makes of categories: the dictionary is no list of keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.runtime.events import Batch
from tests.runtime.test_unfit_keys import CASES, each, keyed, run_of, topic_of, total, whole
from tests.support.in_process import LocalRun

Rows = Iterator[dict[str, Any]]

ENCODED = {
    "plain": pa.array(["a", "b", "c", "a"]),
    "shared": pa.array(["a", "b", "c", "a"]).dictionary_encode(),
    "unused": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0], pa.int8()), pa.array(["a", "b", "c", "nobody"])
    ),
    "twice": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), pa.array(["a", "b", "c", "a"])
    ),
}
"""The same four keys, in several ways."""


@ps.stateful(emits="k string, n long, calls long")
def calls(key: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Tells of each call."""
    so_far.set(so_far.get(0) + 1)
    yield {"k": key, "n": len(events), "calls": so_far.get()}


def told(folder: Path, source: Any, partitions: int) -> list[tuple[Any, ...]]:
    """What `calls` tells of the events of a source."""
    job = ps.Job("job", partitions=partitions)
    job.read(source, name="log").key_by("key").process(calls, name="op").write(ps.Table("out"))
    run = LocalRun(job, folder)
    run.run()
    return run.rows("out", "k", "n", "calls")


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("way", ENCODED)
def test_a_function_is_called_for_the_keys_of_events_alone(
    tmp_path: Path, way: str, partitions: int
) -> None:
    """A call for a key of another partition makes state of it where it does not belong."""
    table = pa.table({"key": ENCODED[way], "n": pa.array([1, 2, 4, 8], pa.int64())})

    assert told(tmp_path, topic_of(tmp_path, table), partitions) == [
        ("a", 2, 1),
        ("b", 1, 1),
        ("c", 1, 1),
    ]


def test_categories_in_files_are_keys_as_their_texts_are(tmp_path: Path) -> None:
    """That is how most of them come: pandas writes categories as dictionaries."""
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"key": ENCODED["unused"]}), folder / "a.parquet")
    files = ps.Files(str(folder), record=str(tmp_path / "record"), settle_s=0)
    files.discover()

    assert told(tmp_path, files, 3) == [("a", 2, 1), ("b", 1, 1), ("c", 1, 1)]


@pytest.mark.parametrize("function", [total, each], ids=["by key", "by event"])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_key_of_a_dictionary_is_a_letter(tmp_path: Path, case: str, function: Any) -> None:
    """It is one event's affair, as it is in a column without a dictionary."""
    kind, good, bad, why = CASES[case]
    table = keyed(kind, good, bad)
    table = table.set_column(0, "key", table.column("key").dictionary_encode())
    run = run_of(topic_of(tmp_path, table), tmp_path, function, "quarantine")
    run.run()

    assert max(run.rows("out", "n")) == (5,)
    assert run.rows("op.dead-letters", "n", "_error") == [(2, why), (8, why)]


NULL_INSIDE = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))


@pytest.mark.parametrize("function", [total, each, whole], ids=["by key", "by event", "at once"])
def test_a_null_inside_a_dictionary_is_no_key(tmp_path: Path, function: Any) -> None:
    """Arrow does not count it among the column's nulls, and None is a key that no store takes."""
    table = pa.table({"key": NULL_INSIDE, "n": pa.array([1, 2], pa.int64())})
    run = run_of(topic_of(tmp_path, table), tmp_path, function, "quarantine")
    run.run()

    assert run.rows("out", "n") == [(1,)]
    assert run.rows("op.dead-letters", "n", "_error") == [(2, "the key is null")]


def test_a_vectorised_function_is_told_the_keys_of_events_alone() -> None:
    """It writes the state of every key that it is told."""
    batch = Batch(pa.table({"key": ENCODED["unused"]}), ["key"], [7, 8, 9, 7])
    keys, groups, places = batch.by_key()

    assert keys.to_pylist() == ["a", "b", "c"]
    assert groups.tolist() == [7, 8, 9]
    assert places.tolist() == [0, 1, 2, 0]
