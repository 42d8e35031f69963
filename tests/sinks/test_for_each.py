"""A function of the user's own, and the cursor that the root keeps for it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.checkpoint import MemoryStore
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.ids import Token
from penstock.sinks import PROVENANCE, Guarantee, Target
from penstock.sinks.cursors import Held
from penstock.sinks.for_each import Committed, ForEachEpoch, ForEachWriter
from penstock.sinks.root_cursor import At, RootCursor
from tests.support.faulty_store import FaultyStore
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, people


class Calls:
    """What a function was called with."""

    def __init__(self, *raises: Exception) -> None:
        self.epochs: list[Committed] = []
        self.rows: list[list[dict[str, Any]]] = []
        self._raises = list(raises)

    def keep(self, epoch: Committed, batches: Iterator[pa.RecordBatch]) -> None:
        self.epochs.append(epoch)
        self.rows.append([row for batch in batches for row in batch.to_pylist()])
        if self._raises:
            raise self._raises.pop(0)


def opened(calls: Calls, store: MemoryStore | None = None) -> ForEachWriter:
    target = Target(job=JOB, columns=PEOPLE, partitions=3, store=store or MemoryStore())
    return ForEachEpoch(calls.keep).open(target)


def test_a_function_is_called_once_with_all_of_an_epoch() -> None:
    """With where each row comes from, and a name for the epoch that no other has."""
    calls = Calls()
    opened(calls).apply(apply(1, people(1)))

    (epoch,) = calls.epochs
    assert (epoch.job, epoch.sink, epoch.generation, epoch.number) == (JOB, "keep", 1, 1)
    assert epoch.id == f"{JOB}/keep/1-1-{cursor(1).mark:x}"
    assert [{name: row[name] for name in PEOPLE.names} for row in calls.rows[0]] == people(1)
    assert set(calls.rows[0][0]) == {*PEOPLE.names, *PROVENANCE.names}
    assert ForEachEpoch(calls.keep).shards(8) == 1


def test_an_epoch_without_rows_is_an_epoch() -> None:
    """Whoever counts epochs would miss it."""
    calls = Calls()
    opened(calls).apply(apply(1, []))

    assert ([epoch.number for epoch in calls.epochs], calls.rows) == ([1], [[]])


def test_what_passes_is_tried_again_and_the_rest_is_said() -> None:
    """The cursor moves only after the function has returned."""
    calls = Calls(Unavailable("their server", "is away", "wait"), ValueError("no such table"))
    writer = opened(calls)
    with pytest.raises(Unavailable, match="their server is away"):
        writer.apply(apply(1, people(1)))
    with pytest.raises(Invalid) as caught:
        writer.apply(apply(1, people(1)))

    assert str(caught.value) == (
        "sink keep failed on epoch 1 (ValueError('no such table')): mend it and start the job "
        "again: the epoch is given to it once more."
    )
    assert writer.read_cursor(0) is None
    writer.apply(apply(1, people(1)))
    assert writer.read_cursor(0) == cursor(1)
    assert len({epoch.id for epoch in calls.epochs}) == 1


def test_the_same_number_after_a_rewind_has_another_name() -> None:
    """A function that is idempotent by it does not skip what is new."""
    calls = Calls()
    writer = opened(calls)
    writer.apply(apply(1, people(1)))
    new = cursor(1, generation=2, commit="of the new line")
    writer.accept(0, cursor(0, generation=2), Token(2))
    writer.apply(apply(1, people(1), follows=cursor(0, generation=2), at=new, token=2))

    assert [epoch.number for epoch in calls.epochs] == [1, 1]
    assert len({epoch.id for epoch in calls.epochs}) == 2


def test_what_it_promises_is_what_its_author_declares() -> None:
    """Nobody else can know."""
    keep = Calls().keep

    assert ForEachEpoch(keep).guarantee is Guarantee.AT_LEAST_ONCE
    assert ForEachEpoch(keep, guarantee="exactly-once").guarantee is Guarantee.EXACTLY_ONCE  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="guarantee 'twice' is not one there is"):
        ForEachEpoch(keep, guarantee="twice")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [7, "function", None])
def test_what_cannot_be_called_is_refused(given: Any) -> None:
    """When the job is described."""
    with pytest.raises(Invalid, match="which cannot be called"):
        ForEachEpoch(given)


def test_a_function_without_a_name_needs_one() -> None:
    """Manifests and messages call it by something."""
    with pytest.raises(Invalid, match="sink '<lambda>' is not a name that every store can hold"):
        ForEachEpoch(lambda epoch, batches: None)

    assert ForEachEpoch(lambda epoch, batches: None, name="mine").name == "mine"


def test_it_can_be_sent_to_workers() -> None:
    """A job is sent whole, also with functions that are nowhere but in it."""
    kept: list[int] = []
    sink = ForEachEpoch(lambda epoch, batches: kept.append(epoch.number), name="mine")
    copy = cloudpickle.loads(cloudpickle.dumps(sink))

    assert (copy.name, copy.guarantee) == ("mine", Guarantee.AT_LEAST_ONCE)


HELD = Held(cursor(1), Token(1))


def test_a_cursor_whose_answer_is_lost_has_moved() -> None:
    """It is read again before anybody is told otherwise."""
    store = MemoryStore()
    cursors = RootCursor(FaultyStore(store, answers={"create": [1], "replace": [1]}), JOB, "keep")
    cursors.move(0, cursors.read(0), Held(cursor(0), Token(1)))
    cursors.move(0, cursors.read(0), HELD)

    assert RootCursor(store, JOB, "keep").read(0).held == HELD


def test_a_cursor_that_somebody_else_has_moved_stays() -> None:
    """A leader that was stopped between reading and writing does not take it back."""
    cursors = RootCursor(MemoryStore(), JOB, "keep")
    slow = cursors.read(0)
    cursors.move(0, slow, Held(cursor(2), Token(2)))

    with pytest.raises(Unavailable, match="was not moved, or by another leader"):
        cursors.move(0, slow, HELD)

    assert cursors.read(0).held == Held(cursor(2), Token(2))


def test_a_cursor_that_was_altered_is_not_believed() -> None:
    """A flipped bit in an epoch would skip rows."""
    store = MemoryStore()
    cursors = RootCursor(store, JOB, "keep")
    cursors.move(0, At(None, None), HELD)
    (entry,) = store.list("cursors/")
    stored = store.get(entry.key)
    assert stored is not None
    store.put(entry.key, stored.body.replace(b'"epoch":1', b'"epoch":9'))

    with pytest.raises(Corrupt, match="does not match its own checksum"):
        cursors.read(0)
