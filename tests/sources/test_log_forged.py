"""A topic that was forged: what does not fit what the log says of it is refused, not read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import penstock as ps
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.formats import seal, unseal
from penstock.errors import Corrupt
from penstock.ids import Key
from penstock.sources.log_layout import TOPIC_KEY
from penstock.sources.log_pieces import hash_of
from penstock.sources.log_segment import AT, OFFSET, encode, rows_between
from penstock.sources.log_tail import TAIL_FORMAT, Piece, Tail
from penstock.sources.log_topic import TOPIC_REGISTER
from penstock.sources.protocol import Range

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
FIVE = pa.table({"user": list("abcde"), "n": [1, 2, 3, 4, 5]}, schema=SCHEMA)
TAIL_KEY = Key("partitions/000000/TAIL")


def topic(folder: Path) -> ps.Log:
    log = ps.Log.create(str(folder), SCHEMA, partitions=1, key="user")
    with log.producer() as producer:
        producer.append(FIVE)
    return log


def forge(folder: Path, table: pa.Table) -> None:
    """Put other rows in the place of the first segment, with a hash that fits."""
    store = DirectoryStore(folder)
    (path,) = folder.rglob("segments/*.arrow")
    body = encode(table)
    tail = unseal(TAIL_KEY, (folder / TAIL_KEY).read_bytes(), Tail, TAIL_FORMAT)
    (piece,) = tail.pieces
    forged = msgspec.structs.replace(piece, hash=hash_of(body))
    store.put(TAIL_KEY, seal(msgspec.structs.replace(tail, pieces=(forged,))))
    path.write_bytes(body)


def with_offsets(offsets: list[int | None]) -> pa.Table:
    table = FIVE.append_column(OFFSET, pa.array(offsets, pa.int64()))
    return table.append_column(AT, pa.array([0] * 5, pa.int64()))


FORGED: dict[str, Callable[[], pa.Table]] = {
    "no rows": lambda: FIVE.slice(0, 0),
    "fewer rows": lambda: FIVE.slice(0, 3),
    "twice the rows": lambda: pa.concat_tables([FIVE, FIVE]),
    "another type": lambda: FIVE.set_column(1, "n", pa.array(list("vwxyz"))),
    "offsets that fall": lambda: with_offsets([0, 2, 1, 3, 4]),
    "offsets of others": lambda: with_offsets([0, 1, 2, 3, 9]),
    "no offset": lambda: with_offsets([0, 1, 2, 3, None]),
}


@pytest.mark.parametrize("made", FORGED.values(), ids=FORGED)
def test_a_segment_holds_what_its_piece_says(tmp_path: Path, made: Callable[[], pa.Table]) -> None:
    """With fewer rows events were lost without a word; with more, counted twice."""
    log = topic(tmp_path)
    forge(tmp_path, made())

    with pytest.raises(Corrupt, match="is not what the log says of it"):
        list(log.read("0", Range(start=0, stop=5)))


CHANGES: dict[str, dict[str, Any]] = {
    "no partition": {"partitions": 0},
    "too many partitions": {"partitions": 1_000_000},
    "columns that are none": {"columns": "AAAA"},
    "columns that are no base 64": {"columns": "?"},
    "a key that is no column": {"key": ("nobody",)},
    "an event time that is no column": {"event_time": "when"},
    "an event time that is no time": {"event_time": "user"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_topic_is_what_a_topic_can_be(tmp_path: Path, change: dict[str, Any]) -> None:
    """Told in one sentence by whoever opens it."""
    topic(tmp_path)
    stored = TOPIC_REGISTER.decode((tmp_path / TOPIC_KEY).read_bytes())
    forged = msgspec.structs.replace(stored, **change)
    DirectoryStore(tmp_path).put(TOPIC_KEY, seal(forged))

    with pytest.raises(Corrupt, match="says what no topic can be"):
        ps.Log(str(tmp_path)).spans()


def test_a_time_of_no_year_is_cut_to_the_last_one() -> None:
    """A producer's clock may say anything; it decides nothing but what is shown."""
    piece = Piece(0, 0, 5, 5, 1, 1 << 62, 1 << 62, None, Key("k"), "")
    (batch,) = rows_between(piece, encode(FIVE), Range(start=0, stop=5), SCHEMA, None, 0)

    assert batch.column("_meta")[0].as_py()["broker_time"].year == 9999
