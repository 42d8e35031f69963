"""Notes: what a producer has a partition remember beside its mark, in the same swap."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest

from penstock.clock import SystemChance
from penstock.errors import Corrupt, Invalid
from penstock.ids import Key
from penstock.sources import Log
from penstock.sources.log_append import Batch, Claim, Taken, Writer, append, stage
from penstock.sources.log_look import read_tail
from penstock.sources.log_pieces import children, hash_of
from penstock.sources.log_segment import encode
from penstock.sources.log_tail import Mark, Piece, tail_register
from tests.support.logs import EVENTS, append_each, column, new_log, numbered, run, tail_of

BEFORE_NOTES = (
    b'{"checksum":"c0edd11b492495af5ae4e2f15c1f224761fbeff3526a69db1d267a48486b27fc","format":1,'
    b'"topic":"t1","partition":1,"fan":32,"version":7,"earliest":0,"latest":3,"at_ms":5,"pieces":'
    b'[[0,0,3,3,100,5,5,null,"partitions/000001/segments/000000000001-a.arrow","abc"]],"marks":'
    b'{"ada":[2,4,3,5]},"rewrites":0,"compacted_to":0,"merged_to":0,"floor":0,"next_floor":0,'
    b'"recent":["c1","c2"]}'
)
"""A TAIL as it was written when there were no notes yet."""

KEY = "partitions/000001/segments/000000000001-a.arrow"


def test_a_tail_from_before_there_were_notes_is_read_and_written_as_it_was() -> None:
    """Topics are not made anew for a new Penstock, and an older one may still read them."""
    register = tail_register(1)
    tail = register.decode(BEFORE_NOTES)

    assert tail.pieces == (Piece(0, 0, 3, 3, 100, 5, 5, None, KEY, "abc"),)  # type: ignore[arg-type]
    assert (tail.marks, tail.note_of("ada")) == ({"ada": Mark(2, 4, 3, 5)}, "")
    assert register.encode(tail) == BEFORE_NOTES


def test_a_tail_with_a_note_is_not_read_by_those_who_know_of_none() -> None:
    """They are told that it is too new, and do not call it damaged."""
    register = tail_register(1)
    tail = register.decode(BEFORE_NOTES)
    noted = msgspec.structs.replace(tail, **tail.marked("ada", Mark(2, 5, 3, 6), "here"))
    body = register.encode(noted)

    assert register.decode(body) == noted
    assert (noted.format, noted.note_of("ada"), noted.note_of("bob")) == (2, "here", "")
    newer = register.encode(msgspec.structs.replace(noted, format=3))
    with pytest.raises(Invalid, match="has format 3, and this version of Penstock reads up to 2"):
        register.decode(newer)


def put(log: Log, writer: Writer, *batches: Batch) -> None:
    """Take batches into the first partition, all with one swap."""
    seen = run(log, read_tail(writer.topic, 0))
    version = 0 if seen is None else seen.document.version
    staged = [run(log, stage(0, batch, version, SystemChance())) for batch in batches]
    run(log, append(writer, 0, staged, 5, SystemChance(), seen))


def batch(sequence: int, follows: int, *numbers: int, note: str | None = None) -> Batch:
    """Rows of one number."""
    body = encode(pa.Table.from_pylist(numbered(*numbers), EVENTS)) if numbers else b""
    return Batch(sequence, follows, len(numbers), None, body, note)


def test_a_note_changes_with_the_rows_and_stays_with_the_mark() -> None:
    """Also when others append, and when a batch comes without one."""
    log = new_log()
    writer = Writer(log.topic().id, "ada", 1)
    put(log, writer, batch(1, 0, 10, note="one"))
    append_each(log, numbered(11))
    put(log, writer, batch(2, 1, 12))
    kept = tail_of(log).note_of("ada")
    put(log, writer, batch(3, 2, 13, note="three"))

    assert (kept, tail_of(log).note_of("ada")) == ("one", "three")
    assert column(log) == [10, 11, 12, 13]


def test_a_batch_without_rows_moves_the_mark_alone() -> None:
    """Nothing is stored for it, and nobody who reads finds anything new."""
    log = new_log()
    writer = Writer(log.topic().id, "ada", 1)
    put(log, writer, batch(1, 0, 10, note="one"))
    before = tail_of(log)
    put(log, writer, batch(2, 1, note="two"))
    after = tail_of(log)

    assert after.marks["ada"] == Mark(1, 2, 1, 5)
    assert after.note_of("ada") == "two"
    assert (after.pieces, after.latest, after.at_ms) == (before.pieces, before.latest, before.at_ms)


def test_batches_of_one_number_go_in_together_and_once() -> None:
    """What is too much for one segment is still one batch."""
    log = new_log()
    writer = Writer(log.topic().id, "ada", 1)
    parts = [batch(1, 0, 10, 11, note="one"), batch(1, 0, 12, note="one")]
    put(log, writer, *parts)
    put(log, writer, *parts)
    put(log, writer, batch(2, 1, 13))

    assert column(log) == [10, 11, 12, 13]


def test_a_claim_may_change_how_far_its_producer_is() -> None:
    """In the first partition, in the step that decides; the others keep what they have."""
    log = new_log(partitions=2)
    writer = Writer(log.topic().id, "ada", 1)
    put(log, writer, batch(4, 0, 10, note="four"))
    claim = Claim(writer.topic, "ada", 6, SystemChance())
    found: list[Taken] = []

    def change(taken: Taken) -> Taken:
        found.append(taken)
        return Taken(9, "nine")

    home = run(log, claim.begin(change)).document
    other = run(log, claim.tell(1, 2)).document

    assert found == [Taken(4, "four")]
    assert (home.marks["ada"], home.note_of("ada")) == (Mark(2, 9, 1, 6), "nine")
    assert (other.marks["ada"], other.note_of("ada")) == (Mark(2, 0, 0, 6), "")


def page(*heights: int, reach: Sequence[tuple[int, int]] = ((0, 1), (1, 3))) -> bytes:
    """A page that lists pieces of these heights, and from and up to these offsets."""
    return msgspec.json.encode(
        [
            Piece(height, first, stop, 1, 100, 5, 5, None, Key(KEY), "abc")
            for height, (first, stop) in zip(heights, reach, strict=False)
        ]
    )


NOT_MEETING: dict[str, Sequence[tuple[int, int]]] = {
    "twice": [(0, 3), (0, 3)],
    "overlap": [(0, 2), (1, 3)],
    "gap": [(0, 1), (2, 3)],
    "later": [(1, 2), (2, 3)],
    "shorter": [(0, 1), (1, 2)],
    "longer": [(0, 1), (1, 4)],
    "nothing in one": [(0, 3), (3, 3)],
    "backwards": [(0, 4), (4, 3)],
}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (page(1), "its pieces are of another height"),
        (page(0, 2), "its pieces are of another height"),
        (b"[" * 200_000, "is no page"),
        (b"{}", "is no page"),
        (page(), "do not meet"),
        *((page(0, 0, reach=reach), "do not meet") for reach in NOT_MEETING.values()),
        (page(0).replace(b"partitions", b"../../partitions"), "is no page"),
    ],
    ids=["itself", "deeper", "nested", "something else", "empty", *NOT_MEETING, "elsewhere"],
)
def test_a_page_that_leads_nowhere_is_refused(body: bytes, says: str) -> None:
    """A page that lists itself would be read for ever."""
    listed = Piece(1, 0, 3, 3, 100, 5, 5, None, Key(KEY), hash_of(body))
    reading = children(listed)
    next(reading)

    with pytest.raises(Corrupt, match=says):
        reading.send(body)


def test_a_page_of_pieces_one_lower_is_read() -> None:
    """As every page is that was ever written."""
    listed = Piece(1, 0, 3, 3, 100, 5, 5, None, Key(KEY), hash_of(page(0, 0)))
    reading = children(listed)
    next(reading)

    with pytest.raises(StopIteration) as done:
        reading.send(page(0, 0))
    assert [piece.height for piece in done.value.value] == [0, 0]
