"""An open `LogSink`: shares an epoch's rows out over the topic, and takes them in, home last."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.perform import Handlers, perform
from penstock.clock import Chance, Clock
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.fencing.register import Seen
from penstock.ids import Token
from penstock.sinks.cursors import Apply, Cursor
from penstock.sinks.log_sink_rows import routed, segments
from penstock.sinks.log_sink_steps import (
    HOME,
    Hold,
    Note,
    accepting,
    applying,
    check_ahead,
    decided,
    note_of,
    put,
)
from penstock.sources.log_append import Batch, Claim, Replaced, Writer
from penstock.sources.log_look import read_tail
from penstock.sources.log_segment import encode, event_max_ms
from penstock.sources.log_tail import Tail
from penstock.sources.log_topic import Topic, read_topic

__all__ = ["LogWriter", "producer_of"]

PARTITIONS_AT_ONCE = 8
CLAIMS_MAX = 4
"""How often one `apply` takes its place back from others who may have it as well."""

LOOKS = 3

R = TypeVar("R")


def producer_of(job: str, sink: str) -> str:
    """By what name a sink appends: one that no producer of a user's can have, for want of a
    slash."""
    return f"{job}/{sink}"


@dataclass(slots=True, kw_only=True)
class LogWriter:
    """A topic that is written to by one sink of one job."""

    where: str
    """The sink and its topic, as messages call them."""
    producer: str
    columns: pa.Schema
    topic: Topic
    handlers: Handlers
    clock: Clock
    chance: Chance
    _hold: Hold | None = None

    def read_cursor(self, shard: int) -> Cursor | None:
        """What home says."""
        home = self._home()
        return None if home is None else home.cursor

    def apply(self, asked: Apply) -> None:
        """Take in the rows of an epoch, in every partition, once."""
        for _ in range(CLAIMS_MAX):
            try:
                self._apply(asked)
                return
            except Replaced:
                # By a later leader, or by a writer of our own token that was left behind: home's
                # note tells, which is looked at again.
                self._hold = None
            except PenstockError:
                self._hold = None
                raise
        raise Unavailable(
            self.where, "was claimed by others again and again", "see who else writes as this job"
        )

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor into home's note, and refuse whoever wrote here before."""
        self._hold = None
        self.topic = self._current_topic()
        claim = self._claim()
        home = perform(accepting(claim, cursor, token, self.topic.partitions), self.handlers)
        self._told(claim, home)

    def close(self) -> None:
        """Nothing is held that others would wait for."""

    def _apply(self, asked: Apply) -> None:
        """One try.

        1. Home's note tells whether there is anything to do, and whether we may.
        2. Claim home, then tell every other partition.
        3. None of them may have half of another epoch.
        4. Each of them takes its rows, unless it has them.
        5. Home takes its own rows and the cursor. From here on the epoch is taken.
        """
        hold = self._hold
        if hold is None or not hold.is_for(asked):
            self.topic = self._current_topic()
            if decided(asked, self._home()):  # 1
                return
            hold = self._claimed(asked)  # 2
            if decided(asked, hold.note):  # by somebody else, between the two
                return
        check_ahead(self.where, hold, asked)  # 3
        parts = self._routed(asked, hold)
        others = [number for number in parts if number != HOME and not hold.has(number)]
        note = Note.of(asked.token, self.topic.partitions, asked.cursor)

        def take(number: int) -> Seen[Tail]:
            batches = self._batches(hold, number, parts.get(number), note)
            return perform(put(hold, number, batches, self._now_ms(), self.chance), self.handlers)

        tails = dict(zip(others, self._each(take, others), strict=True))  # 4
        tails[HOME] = take(HOME)  # 5
        self._hold = self._moved(hold, note, tails)

    def _claimed(self, asked: Apply) -> Hold:
        claim = self._claim()
        home = perform(applying(claim, asked, self.topic.partitions), self.handlers)
        return self._told(claim, home)

    def _told(self, claim: Claim, home: Seen[Tail]) -> Hold:
        """Every partition that the next epoch may go to, told of the claim."""
        mark = home.document.marks[self.producer]
        note = note_of(home.document, self.producer)
        assert note is not None, "whoever claims home leaves a note"

        def tell(number: int) -> Seen[Tail]:
            return perform(claim.tell(number, mark.epoch), self.handlers)

        others = range(1, note.partitions)
        tails = dict(zip(others, self._each(tell, others), strict=True))
        writer = Writer(self.topic.id, self.producer, mark.epoch)
        return Hold(writer, note, mark.sequence, {HOME: home, **tails})

    def _moved(self, hold: Hold, note: Note, tails: Mapping[int, Seen[Tail]]) -> Hold | None:
        """What is held after an epoch; None if there are new partitions, which know no claim."""
        if note.partitions != hold.note.partitions:
            return None
        return Hold(hold.writer, note, hold.sequence + 1, {**hold.tails, **tails})

    def _routed(self, asked: Apply, hold: Hold) -> dict[int, pa.Table]:
        partitions = hold.note.partitions
        return routed(self.where, asked.outputs, self.columns, self.topic, partitions)

    def _batches(self, hold: Hold, number: int, rows: pa.Table | None, note: Note) -> list[Batch]:
        """The segments of one partition's rows, all of one number; for home also without rows."""
        sequence, follows = hold.sequence + 1, hold.taken(number)
        if rows is None:
            return [Batch(sequence, follows, 0, None, b"", note.written())]
        return [
            Batch(
                sequence,
                follows,
                part.num_rows,
                event_max_ms(part, self.topic.event_time),
                encode(part),
                note.written(),
            )
            for part in segments(rows)
        ]

    def _current_topic(self) -> Topic:
        topic = perform(read_topic(self.where), self.handlers).document
        if topic.id != self.topic.id:
            found = "was removed and made anew since the sink was opened"
            raise Invalid(self.where, found, "start the job again")
        return topic

    def _home(self) -> Note | None:
        """What home remembers. That there is nothing is believed only when it is said again."""
        for _ in range(LOOKS):
            seen = perform(read_tail(self.topic.id, HOME), self.handlers)
            if seen is not None:
                return note_of(seen.document, self.producer)
        return None

    def _claim(self) -> Claim:
        return Claim(self.topic.id, self.producer, self._now_ms(), self.chance)

    def _each(self, work: Callable[[int], R], numbers: Iterable[int]) -> list[R]:
        """Do something with several partitions at once. All are done with when it returns or
        raises: nothing of a try goes on behind the back of the next."""
        wanted = list(numbers)
        if not wanted:
            return []
        with ThreadPoolExecutor(min(PARTITIONS_AT_ONCE, len(wanted))) as pool:
            return [done.result() for done in [pool.submit(work, number) for number in wanted]]

    def _now_ms(self) -> int:
        return round(self.clock.wall() * 1000)
