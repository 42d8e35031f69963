"""One shard of a Kafka sink that is open: its producer, and the cursor it knows of.

The order is what makes it safe. A shard is opened by taking its name, and only then is its cursor
read: from the first on nobody else can change the second. As long as the producer lives and
nothing has failed, what we remember is what Kafka has, because anybody who opens the shard shuts
us out. After a failure nothing is known, the producer is thrown away, and the shard is opened anew.

librdkafka speaks the protocol of transactions without KIP-890's second part: a producer has one
epoch for all of its transactions, so a request that was sent twice, because a line broke, can
still arrive when the next transaction has begun, and count for that one. So a producer that has
had trouble on its lines during a transaction is not used for another. The next one has a higher
epoch, and whatever arrives late is refused.

A broker may lose track of a transaction (KAFKA-20734): its coordinator takes it for ended, and its
cursor stays hidden for ever. Whether it was to be committed nobody can be asked any more, so the
shard is not opened, and says why: either end, if it is the wrong one, doubles rows or loses some.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import repeat
from threading import Thread

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.errors import Unavailable
from penstock.sinks.kafka_clients import Clients, Heard
from penstock.sinks.kafka_cursor import HOME, Note, note_of
from penstock.sinks.kafka_errors import as_error
from penstock.sinks.kafka_messages import Chunk

__all__ = ["PLAIN", "OpenShard", "open_shard", "open_shard_unread", "read_note", "take_name"]

AHEAD = 3
"""How many chunks may be on their way while the next one is made."""
STABLE = "read_committed"
"""The isolation of a consumer that is told no offset that may still change."""
PLAIN = "read_uncommitted"
"""The isolation of one that is told the last that was committed, whatever is under way."""
LOOKS = 2
"""How often a broker must have an answer, and none that lasts, before we say that it never will."""
WAIT_S = 0.005
ABORT_S = 5.0
SPARE_S = 0.5
"""How much longer than it was given a call may take."""
MOVING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
MOVE_S = 0.1
"""How long to leave a coordinator alone that is on the move."""


def read_note(
    clients: Clients, topic: str, name: str, timeout_s: float, isolation: str = STABLE
) -> Note | None:
    """What a shard's cursor says: once no transaction can change it, unless told otherwise."""
    found, _ = _looked_at(clients, topic, name, timeout_s, isolation)
    return note_of(_where(clients, name), found)


def open_shard(clients: Clients, topic: str, name: str) -> "OpenShard":
    """Shut out whoever wrote to the shard, then see where it is.

    1. Take its name: the coordinator ends what was open under it, one way or the other, and
       refuses everybody who had it before.
    2. Read the cursor. Nobody else can change it any more.
    """
    producer, heard = take_name(clients, name)  # 1
    found, group = _last(clients, topic, name)  # 2
    return OpenShard(clients, name, (producer, heard, group), found)


def open_shard_unread(clients: Clients, topic: str, name: str) -> "OpenShard":
    """Shut out whoever wrote to the shard, for somebody who puts another cursor there whatever it
    is now. That also ends what hides it, if a producer of this name has left it: a producer's
    commit ends all that is open of its own."""
    producer, heard = take_name(clients, name)
    found, group = _looked_at(clients, topic, name, clients.timeout_s, PLAIN)
    return OpenShard(clients, name, (producer, heard, group), found)


def take_name(clients: Clients, name: str) -> tuple[Producer, Heard]:
    """The producer of that name. Whatever was open under it is ended when this returns."""
    heard = Heard()
    producer = clients.producer(name, heard)
    with clients.explained(heard, producer):
        producer.init_transactions(clients.timeout_s)
    return producer, heard


class OpenShard:
    """A shard that nobody else can write to, for all we know."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        line: tuple[Producer, Heard, object],
        found: TopicPartition,
    ) -> None:
        self._clients = clients
        self._name = name
        self._producer, self._heard, self._group = line
        self._found = found
        self._is_begun = False

    @property
    def note(self) -> Note | None:
        """What its cursor says; None: it has none. `Invalid` if it is somebody else's, which
        whoever puts another there need not look at."""
        return note_of(_where(self._clients, self._name), self._found)

    def transact(self, note: Note, chunks: Iterable[Chunk] = ()) -> bool:
        """Messages and cursor, or neither; whether the shard may be used again after it.

        1. Begin.
        2. Send the messages, and wait until all are there.
        3. Send the cursor to the same transaction. From here on it is hidden from whoever looks,
           so it is not sent sooner.
        4. Commit. Without an answer nobody knows: whoever opens the shard next will be told by its
           cursor.
        5. Only now believe in the cursor.
        6. Look whether something was sent twice on the way.
        """
        with self._explained():
            before, after = self._told(), note.at(self._found.topic)
            self._producer.begin_transaction()  # 1
            self._is_begun = True
            self._send(chunks)  # 2
            self._send_cursor(after)  # 3
            self._is_begun = False
            self._producer.commit_transaction(self._clients.timeout_s)  # 4
            self._found = after  # 5
            return self._told() == before  # 6

    def abort(self) -> None:
        """Take back what was begun, so that readers need not wait until it times out. If it fails,
        whoever opens the shard next does it."""
        if self._is_begun:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_S)

    def _send(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._make_room(AHEAD * len(chunk))
            parts = (
                repeat(self._found.topic),
                chunk.values,
                repeat(None) if chunk.keys is None else chunk.keys,
                repeat(chunk.partition),
                repeat(None),
                repeat(None),
                repeat(0) if chunk.times_ms is None else chunk.times_ms,
                repeat(None) if chunk.headers is None else chunk.headers,
            )
            # No row is touched by a loop of Python.
            deque(map(self._producer.produce, *parts), maxlen=0)
        self._make_room(0)

    def _send_cursor(self, at: TopicPartition) -> None:
        """librdkafka may not return from this while a coordinator is away, whatever time it is
        given (its issues 5456 and 5511). So it is waited for in a thread that can be left behind,
        and its producer with it: whoever opens the shard next shuts that out."""
        sent: Future[None] = Future()
        arguments = ([at], self._group, self._clients.timeout_s)

        def send(producer: Producer = self._producer) -> None:
            try:
                producer.send_offsets_to_transaction(*arguments)
            except KafkaException as failure:
                sent.set_exception(failure)
            else:
                sent.set_result(None)

        Thread(target=send, name="penstock-kafka-cursor", daemon=True).start()
        try:
            sent.result(self._clients.timeout_s + SPARE_S)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def _make_room(self, messages_max: int) -> None:
        """Wait until no more messages than that are on their way; all of them are sent at once if
        none may be."""
        before, waited_s = len(self._producer), 0.0
        wait = self._producer.poll if messages_max else self._producer.flush
        while (left := len(self._producer)) > messages_max:
            if left < before:
                before, waited_s = left, 0.0
            if waited_s > self._clients.timeout_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            wait(WAIT_S)
            waited_s += WAIT_S

    def _told(self) -> int:
        """How often the producer had something to say."""
        self._producer.poll(0)
        return self._heard.lines

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with self._clients.explained(self._heard, self._producer):
            try:
                yield
            except KafkaException as failure:
                error = as_error(failure)
                if error.name() == "_STATE":
                    error = self._cause() or error
                raise KafkaException(error) from None

    def _cause(self) -> KafkaError | None:
        """Why a transaction can go no further. A producer says so when asked to begin another one,
        which it cannot."""
        try:
            self._producer.begin_transaction()
        except KafkaException as failure:
            error = as_error(failure)
            return None if error.name() == "_STATE" else error
        return None


def _last(clients: Clients, topic: str, name: str) -> tuple[TopicPartition, object]:
    """The offset of a shard whose name is ours, and its group. Nothing is open under the name; so
    if Kafka answers those who would take any cursor, and not those who want one that stays, that is
    no matter of time."""
    for _ in range(LOOKS):
        try:
            return _looked_at(clients, topic, name, clients.timeout_s)
        except Unavailable:
            _looked_at(clients, topic, name, clients.timeout_s, PLAIN)  # or else it is just away
    raise Unavailable(
        _where(clients, name),
        "has its cursor hidden by a transaction that a broker has lost track of: nothing is open "
        "under its name any more, and still it does not end",
        "see where it is open with Kafka's `kafka-transactions.sh find-hanging "
        "--max-transaction-timeout 0`; if that is in all partitions that its epoch wrote to, abort "
        "it there and in __consumer_offsets, and start the job again, which applies the epoch "
        "again; else see which epoch is the last in the topic, and if that is HEAD's, or if what "
        "it lacks may be left out, have the sink go on from HEAD with `penstock sinks accept`",
    )


def _looked_at(
    clients: Clients, topic: str, name: str, timeout_s: float, isolation: str = STABLE
) -> tuple[TopicPartition, object]:
    """The offset of a shard, and what a transaction must be told of its group."""
    heard = Heard()
    consumer = clients.consumer(name, heard, isolation)
    try:
        with clients.explained(heard, consumer):
            found = _committed(consumer, TopicPartition(topic, HOME), timeout_s)
            group = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    return found, group


def _committed(consumer: Consumer, at: TopicPartition, timeout_s: float) -> TopicPartition:
    """The offset of the consumer's group. Its coordinator may be on the move."""
    for _ in range(int(timeout_s / MOVE_S)):
        try:
            [found] = consumer.committed([at], timeout_s)
        except KafkaException as failure:
            if as_error(failure).name() not in MOVING:
                raise
            consumer.poll(MOVE_S)
        else:
            if found.error is not None:
                raise KafkaException(found.error)
            return found
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _where(clients: Clients, name: str) -> str:
    return f"{clients.place}, group {name}"
