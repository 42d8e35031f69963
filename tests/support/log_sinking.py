"""Topics that a sink writes to, in memory, and leaders that die or sleep in the middle of it."""

import dataclasses
import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.checkpoint import MemoryStore
from penstock.checkpoint.perform import armed
from penstock.points import Point
from penstock.sinks import Apply, Cursor, Target
from penstock.sinks.log_sink import LogSink
from penstock.sinks.log_sink_writer import LogWriter
from penstock.sources import Log
from tests.support.log_sink_case import parts_of
from tests.support.logs import new_url
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, staged

PARTS = 3
"""How many partitions most topics here have."""


class Died(BaseException):
    """The end of a process, with the request it was at. No handler of the runtime catches it."""


class Mortal:
    """Lets a process live until its n-th request, counted from 1: that one is not sent, or it is
    done and the answer never heard. From then on nothing of the process moves."""

    def __init__(self, number: int, *, heard: bool) -> None:
        self.number = number
        self.heard = heard
        self.is_dead = False
        self._seen = 0
        self._lock = threading.Lock()

    def before(self, at: Point) -> None:
        with self._lock:
            self._seen += 1
            if self.is_dead or (self._seen == self.number and not self.heard):
                self.is_dead = True
                raise Died(at)

    def after(self, at: Point) -> None:
        with self._lock:
            if self.is_dead or (self._seen >= self.number and self.heard):
                self.is_dead = True
                raise Died(at)


class Sleeper:
    """Lets something happen before a process's n-th request, once."""

    def __init__(self, number: int, meanwhile: Callable[[], None]) -> None:
        self.number = number
        self.has_slept = False
        self._meanwhile = meanwhile
        self._seen = 0
        self._lock = threading.Lock()

    def before(self, at: Point) -> None:
        with self._lock:
            self._seen += 1
            falls_asleep = self._seen == self.number
        if falls_asleep:
            self.has_slept = True
            self._meanwhile()

    def after(self, at: Point) -> None:
        """It sleeps before requests only."""


def sinking(url: str | None = None, *, partitions: int | None = PARTS) -> LogSink:
    """A sink into a topic of its own, without a key: rows go where `_partition` says."""
    return LogSink("people", url or new_url(), partitions=partitions)


def opened(
    sink: LogSink, fate: Mortal | Sleeper | None = None, columns: pa.Schema = PEOPLE
) -> LogWriter:
    """A writer, to which something may happen from its first `apply` on."""
    target = Target(job=JOB, columns=columns, partitions=PARTS, store=MemoryStore())
    writer = sink.open(target)
    if fate is None:
        return writer
    return dataclasses.replace(writer, handlers=armed(writer.handlers, fate.before, fate.after))


def rows_for(epoch: int, partition: int, count: int = 2) -> list[Row]:
    """What partition's share of an epoch is made of."""
    return [{"user": f"{epoch}-{partition}", "n": n} for n in range(count)]


def spread(
    epoch: int,
    partitions: Sequence[int] = range(PARTS),
    *,
    token: int = 1,
    follows: Cursor | str | None = "the epoch before",
    at: Cursor | None = None,
) -> Apply:
    """An epoch with rows for these partitions."""
    outputs = [body for p in partitions for body in staged(epoch, rows_for(epoch, p), PEOPLE, p)]
    asked = apply(epoch, [], token=token, follows=follows, at=at)
    return dataclasses.replace(asked, outputs=tuple(outputs))


def expected(*epochs: tuple[int, Sequence[int]], of: int = PARTS) -> list[list[Row]]:
    """What each partition of the topic has after these epochs, given as `spread` takes them."""
    parts: list[list[Row]] = [[] for _ in range(of)]
    for epoch, partitions in epochs:
        for partition in partitions:
            parts[partition % of] += rows_for(epoch, partition)
    return parts


def held(sink: LogSink) -> list[list[Row]]:
    """What a reader finds in each partition."""
    return parts_of(sink.url)


def log_of(sink: LogSink) -> Log:
    """The topic as anybody sees it."""
    return Log(sink.url)
