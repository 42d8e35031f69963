"""The audit of replays: each dead letter at most once, and nothing but letters.

1. The rows of the table of replayed letters: none twice, each a letter of this history, set aside
   before it was replayed, and with the event that it holds.
2. Their offsets: each its own, without a gap, and as many as the epoch says it has read.
3. What an older version has replayed from a topic, by the same rules.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.chaos.audit_letters import Event, LetterBook, spelt
from penstock.chaos.audit_trace import inputs_of
from penstock.checkpoint.manifest import SourceProgress
from penstock.ids import Epoch, Key
from penstock.runtime.letters import LETTERS, LetterKey, replayed_name, replays_name
from penstock.runtime.replay_topics import TopicRow, replayed_from_topic, topic_rows

__all__ = ["check_replays"]

_COLUMNS = (
    "_letter_file",
    "_letter_sequence",
    "_event_source",
    "_event_partition",
    "_event_offset",
)


@dataclass(frozen=True, slots=True)
class _Replay:
    letter: LetterKey
    event: Event
    epoch: Epoch
    """The one that replayed it."""


def check_replays(book: LetterBook) -> None:
    """Follow everything that was replayed."""
    replays = list(_replays(book))
    book.ledger.count("replayed", len(replays))
    _check_letters(book, replays)  # 1
    _check_offsets(book)  # 2
    _check_topic(book, {each.letter for each in replays})  # 3


def _replays(book: LetterBook) -> Iterator[_Replay]:
    for file in book.table(replayed_name(book.operator)):
        for batch in book.batches(file, *_COLUMNS):
            columns = (batch.column(name).to_pylist() for name in _COLUMNS)
            for name, number, *event in zip(*columns, strict=True):
                source, partition, offset = event
                yield _Replay((Key(name), number), (source, partition, offset), file.epoch)


def _check_letters(book: LetterBook, replays: Iterable[_Replay]) -> None:
    first: dict[LetterKey, Epoch] = {}
    for each in replays:
        flaw = _flaw(book, each)
        if flaw is not None:
            book.wrong(each.letter, each.event, each.epoch, flaw)
        if each.letter in first:
            found = f"was replayed in epoch {first[each.letter]} already: it is counted twice"
            book.wrong(each.letter, each.event, each.epoch, found)
        first.setdefault(each.letter, each.epoch)


def _flaw(book: LetterBook, each: _Replay) -> str | None:
    """What is wrong with a letter that was replayed; None: nothing."""
    file, number = each.letter
    if file not in book.files or number not in book.events(file):
        return "was replayed, and is not a dead letter of this history"
    if book.files[file].epoch >= each.epoch:
        return f"was replayed before it was set aside, in epoch {book.files[file].epoch}"
    held = book.events(file)[number]
    return None if held == each.event else f"holds {spelt(held)}, and was replayed as another event"


def _check_offsets(book: LetterBook) -> None:
    at, counts = 0, dict[Epoch, int]()
    for file in book.table(replayed_name(book.operator)):
        for batch in book.batches(file, "_input"):
            for expected, offset in enumerate(inputs_of(batch).firsts.tolist(), at):
                if offset != expected:
                    _wrong_offset(book, file.epoch, f"has {offset}, where {expected} follows")
        at += file.output.rows
        counts[file.epoch] = counts.get(file.epoch, 0) + file.output.rows
    for link in book.history.epochs():
        progress = link.manifest.sources.get(replays_name(book.operator), SourceProgress())
        read, recorded = progress.ranges.get(LETTERS), counts.get(link.epoch, 0)
        wanted = 0 if read is None else read.stop - read.start
        if wanted != recorded:
            found = f"reads {wanted} letters, and {recorded} are recorded as replayed"
            _wrong_offset(book, link.epoch, found)


def _wrong_offset(book: LetterBook, epoch: Epoch, found: str) -> None:
    subject = f"source {replays_name(book.operator)}, partition {LETTERS}, in epoch {epoch}"
    book.ledger.wrong("I5", subject, found, epoch)


def _check_topic(book: LetterBook, replayed: set[LetterKey]) -> None:
    root = book.history.root
    keys = {(f.epoch, f.output.partition): key for key, f in book.files.items()}
    for row in topic_rows(root, book.operator):
        book.ledger.count("replayed")
        file = keys.get((Epoch(row.letter[0]), row.letter[1]))
        letter = None if file is None else (file, row.letter[2])
        flaw = _flaw_in_topic(book, row, letter, replayed)
        if flaw is not None:
            at = row.read_in or Epoch(row.letter[0])
            book.ledger.wrong(flaw[0], _subject(book, row), flaw[1], at)
        elif letter is not None:
            replayed.add(letter)
    if replayed_from_topic(root, book.operator).unknown_below:
        why = "the root was forked by an older version, without the topic that says so"
        book.ledger.unknown(f"which letters of operator {book.operator} were replayed", why)


def _flaw_in_topic(
    book: LetterBook, row: TopicRow, letter: LetterKey | None, replayed: set[LetterKey]
) -> tuple[str, str] | None:
    """The promise that a row of the topic breaks, and how; None: none."""
    if letter is None or letter[1] not in book.events(letter[0]):
        return "I2", "was replayed, and is not a dead letter of this history"
    if not row.is_later:
        return "I1", "was set aside after that offset was read: it counts as replayed and was not"
    if letter in replayed:
        return "I2", "was replayed twice"
    return None


def _subject(book: LetterBook, row: TopicRow) -> str:
    name = "/".join(map(str, (book.operator, *row.letter)))
    at = "" if row.read_in is None else f", in epoch {row.read_in}"
    place = f"source {replays_name(book.operator)}, partition {row.partition}, offset {row.offset}"
    return f"operator {book.operator}, letter {name}, {place}{at}"
