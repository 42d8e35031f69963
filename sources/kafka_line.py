"""One Kafka, as a source talks to it: who connects, and how long an answer is waited for.

References are looked up here, where a connection is made, and nowhere else. A question is asked
again until it is answered or the time is over: leaders move, brokers come back. Clients that did
their work are kept for the next who asks; one that failed is closed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.secrets import references_in, resolved
from penstock.sources.kafka_client import Asker, Heard, Reader, Told, open_asker, open_reader
from penstock.sources.kafka_errors import PASSING, away, error_of, plain, refused
from penstock.sources.kafka_pool import Pool
from penstock.sources.kafka_settings import KafkaSettings, Scalars

__all__ = ["STEP_S", "Awaited", "Line", "Purpose"]

TRY_S_FIRST, TRY_S_MAX = 2.0, 10.0
"""How long an answer is waited for before the question is asked anew: another broker may lead."""
TRY_S_MIN = 0.1
STEP_S = 0.1
PAUSE_S = 0.1

Purpose: TypeAlias = Literal["reading", "sampling", "telling"]
"""What a reader is for: a range, a few messages of every partition, or a group's offsets."""
NOBODY = "penstock"
"""The group of a source that has none: a reader must have one, and nothing is ever said in it."""

QUIET: Scalars = {"log_level": 0}
"""Else the client prints, to the standard error of whichever process it is in."""
PROMISED: Scalars = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}
READING: Scalars = {
    "check.crcs": True,
    # What a range needs is there already, so a broker has nothing to wait for; and while it
    # waits, a reader that turns to another range gets no answer.
    "fetch.wait.max.ms": 1,
    # By default a reader whose buffer was full once lets it run empty for a second.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16 << 10,
    # Nobody here is a member of a group; but so long does a reader wait for the group's broker
    # when it is closed with an offset that was not told yet, and by default that is 45 s.
    "session.timeout.ms": 1000,
}
SAMPLING: Scalars = {
    **READING,
    "fetch.message.max.bytes": 64 << 10,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1 << 10,
}

_ASKERS: Pool[Asker] = Pool()
_READERS: Pool[Reader] = Pool()

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class Awaited(Protocol[V_co]):
    """An answer on its way."""

    def result(self, timeout: float | None) -> V_co:
        """The answer; `TimeoutError` if it does not come in time."""


Question: TypeAlias = Callable[[AdminClient, float], Mapping[K, Awaited[V]]]
"""Sends a request that may take so many seconds; there may be several answers."""


@dataclass(frozen=True, slots=True)
class Line:
    """A way to one Kafka. Nothing is open in it."""

    settings: KafkaSettings
    clock: Clock

    @property
    def where(self) -> str:
        """How messages call the source."""
        return self.settings.name

    @contextmanager
    def asker(self) -> Iterator[Asker]:
        """Somebody to ask, for as long as the block."""
        told = self._told(QUIET)
        with _lent(_ASKERS, told, open_asker) as found:
            yield found

    @contextmanager
    def reader(self, purpose: Purpose) -> Iterator[Reader]:
        """Somebody who reads, for as long as the block."""
        own = SAMPLING if purpose == "sampling" else READING
        group = {"group.id": self.settings.group or NOBODY}
        told = self._told({**QUIET, **own}, {**PROMISED, **group})
        with _lent(_READERS, told, open_reader) as found:
            yield found

    def asked(
        self, question: Question[K, V], passing: frozenset[int] = PASSING
    ) -> dict[K, V | KafkaError]:
        """The answers, each of which may be an error that will not pass by itself.

        Every try has a client of its own unless the one before it answered: an asker that waits
        for a broker that is dead does not look for another, and tries without a pause to reach it.
        """
        deadline_s, try_s = self.deadline_s(), TRY_S_FIRST
        while True:
            left_s = max(TRY_S_MIN, deadline_s - self.clock.monotonic())
            try:
                with self.asker() as asker:
                    return self._answers(asker, question, passing, min(try_s, left_s))
            except Unavailable:
                if self.clock.monotonic() >= deadline_s:
                    raise
            self.clock.sleep(PAUSE_S)
            try_s = min(2 * try_s, TRY_S_MAX)

    def deadline_s(self) -> float:
        """When patience ends that begins now."""
        return self.clock.monotonic() + self.settings.timeout_s

    def wait(self, heard: Heard, deadline_s: float, error: KafkaError | None = None) -> None:
        """Pause a little; raise if the time is over, or if no time will help."""
        self.check(heard)
        if self.clock.monotonic() >= deadline_s:
            raise self.away(heard, error)
        self.clock.sleep(PAUSE_S)

    def check(self, heard: Heard) -> None:
        """Raise if what was said in passing is for a person."""
        if heard.login is not None:
            raise self.refused(heard.login)

    def away(self, heard: Heard, error: KafkaError | None = None) -> PenstockError:
        """What to raise for an answer that does not come."""
        known = heard.last or error
        text = f"not within {self.settings.timeout_s:g} s" if known is None else known.str()
        return away(self.where, plain(text, self._secrets()))

    def refused(self, error: KafkaError) -> PenstockError:
        """What to raise for an error."""
        return refused(self.where, error, self._secrets())

    def _answers(
        self, asker: Asker, question: Question[K, V], passing: frozenset[int], try_s: float
    ) -> dict[K, V | KafkaError]:
        futures = question(asker.handle, try_s)
        answers = {key: self._answer(asker, future) for key, future in futures.items()}
        errors = [each for each in answers.values() if isinstance(each, KafkaError)]
        waiting = next((error for error in errors if error.code() in passing), None)
        if waiting is None:
            return answers
        asker.listen()
        self.check(asker.heard)
        raise self.away(asker.heard, waiting)

    def _answer(self, asker: Asker, future: Awaited[V]) -> V | KafkaError:
        for _ in range(round(2 * TRY_S_MAX / STEP_S)):
            try:
                return future.result(STEP_S)
            except TimeoutError:
                asker.listen()
                self.check(asker.heard)
            except KafkaException as error:
                return error_of(error)
        return KafkaError(KafkaError._TIMED_OUT)

    def _told(self, defaults: Scalars, promised: Scalars | None = None) -> Told:
        given = {**defaults, **self.settings.settings, **(promised or {})}
        given["bootstrap.servers"] = self.settings.bootstrap
        known = {
            name: resolved(self.where, value) if isinstance(value, str) else value
            for name, value in given.items()
        }
        return Told(self.where, known, self._secrets())

    def _secrets(self) -> dict[str, str]:
        texts = [self.settings.bootstrap, *map(str, self.settings.settings.values())]
        return references_in(self.where, " ".join(texts))


C = TypeVar("C", Asker, Reader)


@contextmanager
def _lent(pool: Pool[C], told: Told, opened: Callable[[Told], C]) -> Iterator[C]:
    """A client, which is closed if the block does not end well."""
    client = pool.take(told.key()) or opened(told)
    try:
        yield client
    except BaseException:
        client.close()
        pool.drop(told.key())
        raise
    pool.give(told.key(), client)
