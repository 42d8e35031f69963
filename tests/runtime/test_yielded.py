"""A row is what it was when it was yielded, whatever its function does to it afterwards."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.runtime import yielded
from tests.support.in_process import CLICKS, OnePartition, Sent, click
from tests.support.logs import new_log

Rows = Iterator[Any]
LOG = new_log(CLICKS)
THREE = [click("ada", 1), click("ada", 2), click("ada", 3)]


def partition(function: Any, folder: Path, **process: Any) -> OnePartition:
    job = ps.Job("clicks", partitions=1)
    stream = job.read(LOG, name="clicks", event_time="at").key_by("user")
    processed = stream.process(function, **process)
    if function.outputs.get(""):
        processed.write(ps.Table("out"))
    for side in filter(None, function.outputs):
        processed.side(side).write(ps.Table(side))
    return OnePartition(job, folder)


@ps.stateful(emits="n long")
def one_dict(user: str, events: ps.Events) -> Rows:
    """Fills in the same dict for every event."""
    row: dict[str, Any] = {}
    for event in events:
        row["n"] = event.n
        yield row


@ps.stateful(emits="n long", each=True, name="one_dict")
class OneDict:
    """Keeps one dict for all calls."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {}

    def process(self, user: str, event: ps.Event) -> Rows:
        """Fills it in."""
        self.row["n"] = event.n
        yield self.row


@ps.stateful(sides={"late": "n long"}, name="one_dict")
def one_side(user: str, events: ps.Events) -> Rows:
    """The same for a side output."""
    row: dict[str, Any] = {}
    for event in events:
        row["n"] = event.n
        yield ps.to("late", row)


@pytest.mark.parametrize("function", [one_dict, OneDict], ids=["function", "class"])
@pytest.mark.parametrize("on_error", ["fail", "quarantine"])
def test_a_dict_that_is_filled_in_again_is_several_rows(
    tmp_path: Path, function: Any, on_error: str
) -> None:
    """It used to be the last of them, several times."""
    done = partition(function, tmp_path, on_error=on_error).run(Sent(THREE))

    assert done.rows("out", "n") == [(1,), (2,), (3,)]


def test_a_row_for_a_side_output_is_kept_as_well(tmp_path: Path) -> None:
    """The dict inside it is the function's own."""
    done = partition(one_side, tmp_path).run(Sent(THREE))

    assert done.rows("late", "n") == [(1,), (2,), (3,)]


NESTED = pa.schema(
    [
        ("seen", pa.list_(pa.int64())),
        ("last", pa.struct([("path", pa.list_(pa.int64()))])),
        ("count", pa.map_(pa.string(), pa.int64())),
        ("bytes", pa.binary()),
        ("array", pa.list_(pa.int64())),
    ]
)


@ps.stateful(emits=NESTED)
def growing(user: str, events: ps.Events) -> Rows:
    """Goes on changing whatever it has yielded."""
    seen: list[int] = []
    count: dict[str, int] = {}
    raw = bytearray()
    array = np.zeros(1, np.int64)
    last = {"path": seen}
    for event in events:
        seen.append(event.n)
        count["n"] = event.n
        raw.append(event.n)
        array[0] = event.n
        yield {"seen": seen, "last": last, "count": count, "bytes": raw, "array": array}


def test_what_is_inside_a_row_is_kept_as_well(tmp_path: Path) -> None:
    """A list that grows between two yields is two lists."""
    done = partition(growing, tmp_path).run(Sent(THREE[:2]))

    assert done.rows("out", *NESTED.names) == [
        ([1], {"path": [1]}, [("n", 1)], b"\x01", [1]),
        ([1, 2], {"path": [1, 2]}, [("n", 2)], b"\x01\x02", [2]),
    ]


@ps.stateful(emits="n long")
def endless(user: str, events: ps.Events) -> Rows:
    """Never stops."""
    while True:
        yield {"n": 1}


@ps.stateful(emits="n long", each=True)
def endless_each(user: str, event: ps.Event) -> Rows:
    """Never stops either."""
    while True:
        yield {"n": 1}


@pytest.mark.parametrize("function", [endless, endless_each], ids=["per key", "each"])
def test_a_call_that_never_ends_is_stopped(
    tmp_path: Path, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to take the memory of the whole host."""
    monkeypatch.setattr(yielded, "CALL_ROWS_MAX", 50_000)
    failure = partition(function, tmp_path).attempt(Sent([click("ada", 1)])).failure

    assert "yielded 57,344 rows" in failure.found
    assert "one call may yield 50,000 rows" in failure.advice


def test_a_call_that_yields_too_many_bytes_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few long rows can be as much as many short ones."""
    monkeypatch.setattr(yielded, "CALL_BYTES_MAX", 1_000_000)
    failure = partition(endless, tmp_path).attempt(Sent([click("ada", 1)])).failure

    assert "yielded 16,384 rows" in failure.found
    assert "1,000,000 bytes" in failure.advice


@ps.stateful(emits="n long")
def many(user: str, events: ps.Events) -> Rows:
    """Yields more than is looked at in one step."""
    for n in range(20_000):
        yield {"n": n}


@pytest.mark.parametrize("on_error", ["fail", "quarantine"])
def test_a_call_may_yield_many_rows(tmp_path: Path, on_error: str) -> None:
    """All of them, in order, and those of the next key behind them."""
    one = partition(many, tmp_path, on_error=on_error)
    done = one.run(Sent([click("ada", 1), click("bob", 1)]))

    assert done.rows("out", "n") == [(n,) for n in range(20_000)] * 2


@ps.stateful(emits="n long", each=True)
def leaves(user: str, event: ps.Event) -> Rows:
    """Ends the process for one event."""
    if event.n == 2:
        sys.exit("enough")
    yield {"n": event.n}


def test_a_function_that_exits_has_failed(tmp_path: Path) -> None:
    """It used to end the worker, again on every try."""
    failure = partition(leaves, tmp_path).attempt(Sent(THREE)).failure

    assert failure.found == "raised SystemExit: enough"


def test_an_event_on_which_a_function_exits_is_a_dead_letter(tmp_path: Path) -> None:
    """Like one on which it raises."""
    done = partition(leaves, tmp_path, on_error="quarantine").run(Sent(THREE))

    assert done.rows("out", "n") == [(1,), (3,)]
    assert done.rows("leaves.dead-letters", "n", "_error") == [(2, "SystemExit: enough")]


def test_a_generator_that_returns_rows_is_refused_when_it_is_wrapped() -> None:
    """Python drops what a generator returns, without a word."""

    def returns(user: str, events: ps.Events) -> Rows:
        yield {"n": 1}
        return [{"n": 2}]

    with pytest.raises(ps.Invalid, match=r"returns a value in line \d+, which nothing sees"):
        ps.stateful(emits="n long")(returns)


def test_a_generator_may_return_early() -> None:
    """With nothing, or with None."""

    def returns(user: str, events: ps.Events) -> Rows:
        if not events:
            return
        with Path("/dev/null").open():
            yield {"n": 1}
            return None

    assert ps.stateful(emits="n long")(returns).name == "returns"


@ps.vectorized(emits="n long")
def doubled(batch: ps.Batch) -> Any:
    """Returns a column twice."""
    column = batch.table.column("n")
    return pa.Table.from_arrays([column, column], names=["n", "n"])


def test_a_vectorised_function_returns_each_column_once(tmp_path: Path) -> None:
    """One of the two would have been chosen for it."""
    failure = partition(doubled, tmp_path).attempt(Sent(THREE)).failure

    assert failure.found == "returned 2 columns 'n'"


@ps.vectorized(emits="n float")
def rounded(batch: ps.Batch) -> Any:
    """Returns what its column cannot hold."""
    return {"n": pa.array([0.5, 0.1])}


def test_a_vectorised_function_is_not_rounded(tmp_path: Path) -> None:
    """A tenth is another number in half the bits."""
    failure = partition(rounded, tmp_path).attempt(Sent(THREE)).failure

    assert (failure.subject, failure.found) == (
        "operator 'rounded', row 1, column 'n'",
        "is '0.1' of type double, not float",
    )
