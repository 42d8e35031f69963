"""Logs to try things on: in memory, under a name of their own, and what can be seen of them."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.perform import perform, store_handlers
from penstock.checkpoint.store import ObjectStore
from penstock.clock import SystemChance
from penstock.effects import Steps
from penstock.ids import Key
from penstock.sources import Batching, Log, Producer, Range
from penstock.sources.log_append import Batch, Writer, append, stage
from penstock.sources.log_lane import Wiring
from penstock.sources.log_layout import tail_key
from penstock.sources.log_look import read_tail
from penstock.sources.log_pieces import covering
from penstock.sources.log_segment import encode
from penstock.sources.log_tail import Piece, Tail, tail_register
from tests.support.driving import CountingChance, ManualClock

EVENTS = pa.schema([("user", pa.string()), ("n", pa.int64())])
"""The columns of most logs here."""

AT_ONCE = Batching(rows=1, linger_s=3600.0)
"""Every call is a batch, and goes without waiting for company."""

NEVER = Batching(linger_s=3600.0)
"""Rows wait until they are flushed."""

PATIENCE_S = 30.0
"""How long a test waits for what should come at once."""

R = TypeVar("R")


def new_url() -> str:
    """A store in memory that nobody else has."""
    return f"memory://{SystemChance().unique()}"


def new_log(schema: pa.Schema = EVENTS, *, url: str | None = None, **settings: Any) -> Log:
    """An empty topic, on a clock that goes only when told to."""
    return Log.create(url or new_url(), schema, **{"clock": ManualClock(), **settings})


def clock_of(log: Log) -> ManualClock:
    """The clock that the log was given."""
    clock = log._clock
    assert isinstance(clock, ManualClock)
    return clock


def numbered(*numbers: int | None, user: str | None = "ada") -> list[dict[str, Any]]:
    """Rows of the usual columns."""
    return [{"user": user, "n": number} for number in numbers]


def append_each(log: Log, *calls: Any, partition: int | None = 0) -> None:
    """Append what is given, each as a segment of its own."""
    with log.producer(batching=AT_ONCE) as producer:
        for rows in calls:
            producer.append(rows, partition)


def batches(
    log: Log, partition: int = 0, start: int | None = None, stop: int | None = None
) -> list[pa.RecordBatch]:
    """What a partition holds, from some offset up to some other."""
    span = log.spans()[str(partition)]
    begin = span.earliest if start is None else start
    return list(
        log.read(str(partition), Range(start=begin, stop=span.latest if stop is None else stop))
    )


def rows(
    log: Log, partition: int = 0, start: int | None = None, stop: int | None = None
) -> dict[int, dict[str, Any]]:
    """The rows of a partition by their offsets."""
    found: dict[int, dict[str, Any]] = {}
    for batch in batches(log, partition, start, stop):
        for row in batch.to_pylist():
            found[row.pop("_meta")["offset"]] = row
    return found


def column(log: Log, name: str = "n", partition: int = 0) -> list[Any]:
    """One column of a partition."""
    return [row[name] for row in rows(log, partition).values()]


def meta(log: Log, name: str, partition: int = 0) -> list[Any]:
    """One thing that is known of each row of a partition."""
    return [row["_meta"][name] for batch in batches(log, partition) for row in batch.to_pylist()]


def store_of(log: Log) -> ObjectStore:
    """What the log is on."""
    return open_store(log.url)


def objects(log: Log, prefix: str = "") -> list[str]:
    """The names of everything on the log's store."""
    found, after = list[str](), ""
    while page := store_of(log).list(prefix, after):
        found += [entry.key for entry in page]
        after = page[-1].key
    return found


def remove_all(log: Log) -> None:
    """Remove a topic the way people do: by deleting everything."""
    for key in objects(log):
        store_of(log).delete(Key(key))


def run(log: Log, protocol: Steps[R]) -> R:
    """Perform a protocol on the log's store."""
    return perform(protocol, store_handlers(store_of(log), clock_of(log)))


def segments(log: Log, partition: int = 0) -> list[Piece]:
    """The segments of a partition, wherever in the tree they are listed."""
    tail = log.tails()[partition]
    return run(log, covering(tail.pieces, tail.earliest, tail.latest))


def tail_of(log: Log, partition: int = 0) -> Tail:
    """What a partition says of itself."""
    return log.tails()[partition]


def stage_only(log: Log, partition: int = 0, body: bytes = b"never taken in") -> Key:
    """What a producer leaves that dies between staging and its swap."""
    version = tail_of(log, partition).version
    return run(log, stage(partition, Batch(1, 0, 1, None, body), version, SystemChance())).key


def spoil(log: Log, key: str) -> None:
    """Flip a bit in the middle of an object."""
    stored = store_of(log).get(Key(key))
    assert stored is not None
    body = bytearray(stored.body)
    body[len(body) // 2] ^= 1
    store_of(log).put(Key(key), bytes(body))


@dataclass
class ByHand:
    """A producer without threads: every step is taken by the test."""

    log: Log
    writer: Writer
    store: ObjectStore
    partition: int = 0
    chance: CountingChance = field(default_factory=lambda: CountingChance(SystemChance().unique()))

    @classmethod
    def make(cls, log: Log, store: ObjectStore, name: str = "hand", epoch: int = 1) -> "ByHand":
        """A producer of that name, which claims nothing."""
        return cls(log, Writer(log.topic().id, name, epoch), store)

    def append(self, sequence: int, follows: int, *numbers: int) -> dict[int, int]:
        """Stage one batch and take it in: the offset after it, by sequence."""
        body = encode(pa.Table.from_pylist(numbered(*numbers), EVENTS))
        batch = Batch(sequence, follows, len(numbers), None, body)
        handlers = store_handlers(self.store, clock_of(self.log))
        seen = perform(read_tail(self.writer.topic, self.partition), handlers)
        version = 0 if seen is None else seen.document.version
        staged = perform(stage(self.partition, batch, version, self.chance), handlers)
        now_ms = round(clock_of(self.log).wall() * 1000)
        appending = append(self.writer, self.partition, [staged], now_ms, self.chance)
        return perform(appending, handlers).stops


def placed(acked: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Where rows went, in short: partition, start, stop."""
    return [(each.partition, each.offsets.start, each.offsets.stop) for each in acked]


def spans(log: Log) -> Mapping[str, tuple[int, int]]:
    """The offsets of each partition, in short."""
    return {name: (span.earliest, span.latest) for name, span in log.spans().items()}


def narrow(log: Log, fan: int) -> None:
    """Let so few pieces make a page that there are soon pages of pages."""
    topic = log.topic()
    for partition in range(topic.partitions):
        register = tail_register(partition)
        empty = Tail(topic=topic.id, partition=partition, fan=fan)
        assert store_of(log).create(tail_key(partition), register.encode(empty)) is not None


def producer_on(store: ObjectStore, log: Log, **batching: Any) -> Producer:
    """A nameless producer whose store is not the one the log would open."""
    topic, clock, chance = log.topic(), clock_of(log), SystemChance()
    wiring = Wiring(
        log.name,
        Writer(topic.id, f"nameless-{chance.unique()}", 0),
        topic.event_time,
        store_handlers(store, clock),
        clock,
        chance,
        Batching(**{"rows": 1, "linger_s": 3600.0, **batching}),
    )
    return Producer(wiring.writer.producer, topic, wiring)


def ends(attempt: Callable[[], Any]) -> bool:
    """Whether something comes to an end. It is left behind if it does not."""
    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return not thread.is_alive()
