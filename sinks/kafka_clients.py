"""Clients of one Kafka: how they are made, what they hear, and what their failures mean.

A client that is well says nothing. What it has to say is counted and thrown away, because it may
quote a setting; that it said something at all is what counts: librdkafka sends a request again
when a line breaks, and the first one may arrive later than the second. Whoever must not have that
does not use such a client for another transaction; see `penstock.sinks.kafka_shard`.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks.kafka_errors import Place, as_error, is_refusal, sorted_error
from penstock.sinks.kafka_settings import KafkaSettings, Scalar

__all__ = ["Clients", "Heard"]

LOG_LEVEL = 6
"""Of librdkafka: from here on down to its worst. A line that breaks is told at this level."""
RETRY_MS = 20
"""How soon a request is sent again. librdkafka waits 100 ms, also for a coordinator that has still
to write down the end of the transaction before this one."""
SPARE_MS = 100
LISTEN_S = 0.1

C = TypeVar("C")
T = TypeVar("T")


class Heard:
    """What a client has said of itself. It is told while the client is polled or flushed."""

    def __init__(self) -> None:
        self.lines = 0
        self.refusal: KafkaError | None = None
        """Why it will never be let in, if that was said."""

    def log(self, level: int, text: str, *parts: object) -> None:
        """Called as a logger is."""
        del level, text, parts
        self.lines += 1

    def error(self, error: KafkaError) -> None:
        """Called when something is wrong with a line."""
        self.lines += 1
        if is_refusal(error):
            self.refusal = error


class _Polled(Protocol):
    """A client as far as it is listened to."""

    def poll(self, timeout: float) -> object: ...


class Clients:
    """Makes clients for one sink."""

    def __init__(self, place: Place, settings: KafkaSettings, own: Mapping[str, Scalar]) -> None:
        """`own`: what the sink tells its producers besides."""
        self.place = place
        self.timeout_s = settings.timeout_s
        self._settings = {**_patience(settings), **settings.filled_in()}
        self._own = own
        self._secrets = settings.secrets()

    def producer(self, transactional_id: str, heard: Heard) -> Producer:
        """A producer of that name, which has not yet told anybody."""
        own: dict[str, Any] = {
            **self._own,
            "transactional.id": transactional_id,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2**31 - 1,
        }
        return self._made(Producer, {**self._told(heard), **own})

    def consumer(self, group: str, heard: Heard, isolation: str) -> Consumer:
        """A consumer that asks for a group's offsets, and joins nothing. With `read_committed` it
        is told those that no transaction can change any more."""
        own: dict[str, Any] = {
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
        return self._made(Consumer, {**self._told(heard), **own})

    def admin(self, heard: Heard) -> AdminClient:
        """For what a topic's owner does."""
        return self._made(AdminClient, self._told(heard))

    def answer(self, admin: AdminClient, heard: Heard, future: "Future[T]") -> T:
        """What an admin client is told; what it raises if not is for `explained`."""
        waited_s = 0.0
        while waited_s < self.timeout_s and heard.refusal is None:
            try:
                return future.result(LISTEN_S)
            except TimeoutError:
                waited_s += LISTEN_S
            admin.poll(0)
        raise KafkaException(heard.refusal or KafkaError(KafkaError._TIMED_OUT))

    @contextmanager
    def explained(
        self, heard: Heard | None = None, client: "_Polled | None" = None
    ) -> Iterator[None]:
        """Raise what a client raises inside as a Penstock error about this Kafka."""
        try:
            yield
        except KafkaException as failure:
            if client is not None:
                with suppress(KafkaException):
                    client.poll(0)  # now it tells what it was told
            raise self.sorted(as_error(failure), heard) from None

    def _made(self, kind: Callable[[dict[str, Any]], C], settings: dict[str, Any]) -> C:
        """A client, or why there can be none with such settings."""
        try:
            with self.explained():
                return kind(settings)
        except (TypeError, ValueError) as failure:
            # A setting of a kind that the client does not know. What it says may quote it.
            found = f"cannot be used with its settings ({type(failure).__name__})"
            raise Invalid(str(self.place), found, "correct them") from None

    def sorted(self, error: KafkaError, heard: Heard | None = None) -> PenstockError:
        """What to raise for an error. That a client was never let in says more than that it got
        no answer."""
        found = sorted_error(self.place, error, self._secrets)
        if heard is None or heard.refusal is None or not isinstance(found, Unavailable):
            return found
        return sorted_error(self.place, heard.refusal, self._secrets)

    def _told(self, heard: Heard) -> dict[str, Any]:
        return {
            **self._settings,
            "log_level": LOG_LEVEL,
            "logger": heard,
            "error_cb": heard.error,
        }


def _patience(settings: KafkaSettings) -> dict[str, Scalar]:
    """When a request is sent again, and when it is given up: some calls of librdkafka wait for no
    other reason. A transaction must outlive its requests."""
    socket_ms = min(settings.timeout_s * 1000, settings.transaction_ms - SPARE_MS)
    return {"retry.backoff.ms": RETRY_MS, "socket.timeout.ms": int(max(socket_ms, SPARE_MS))}
