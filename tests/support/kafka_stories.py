"""What happens to a Kafka sink while it writes, told on a real broker; each tale ends by asserting
that every row is there once. Tests tell them, and planted bugs are caught by them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.checkpoint import MemoryStore
from penstock.errors import Fenced, Unavailable
from penstock.ids import Token
from penstock.sinks import Apply
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_writer import KafkaWriter
from tests.support.kafka import CALL_S_MAX, Cluster, until
from tests.support.kafka_case import QUICK, Relay, new_prefix, relayed, rows_in, target
from tests.support.kafka_wire import Api, Before, Kept, Severed
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, cursor, in_order, people

SHORT_S = 1.0
"""How long a sink waits whose line is cut for good."""

BACK_S_MAX = 4 * CALL_S_MAX
"""How long a broker may take to be back."""

Story = Callable[["Stage"], None]


@dataclass
class Stage:
    """A topic, a root and names of its own, and a line that can be cut."""

    cluster: Cluster
    relay: Relay
    proxy: TcpProxy
    topic: str
    prefix: str = field(default_factory=new_prefix)
    store: MemoryStore = field(default_factory=MemoryStore)

    def opened(self, line: bool = False, topic: str = "", **given: Any) -> KafkaWriter:
        """A leader's writer, over the line that can be cut or beside it."""
        bootstrap = self.relay.through(self.proxy) if line else self.cluster.bootstrap
        settings = {**QUICK, **given.pop("settings", {})}
        sink = KafkaSink(
            "people", bootstrap, topic or self.topic, key_column="user",
            transaction_prefix=self.prefix, settings=settings, **given,
        )  # fmt: skip
        return sink.open(target(store=self.store))

    def assert_holds(self, rows: list[Row], topic: str = "") -> None:
        """Exactly these rows are there, for readers who wait for commits."""
        found = rows_in(self.cluster.read(topic or self.topic), PEOPLE)
        assert in_order(found) == in_order(rows)

    def is_stable(self) -> bool:
        """Whether no transaction holds up the readers of the topic."""
        return self.cluster.is_stable(self.topic)

    def settle(self) -> None:
        """Wait until what was committed is so for everybody, before its broker is killed."""
        self.cluster.settle(self.topic, f"{self.prefix}/{JOB}/people/0")

    def written(self) -> int:
        """How many messages there are for readers who do not."""
        return len(self.cluster.read(self.topic, "read_uncommitted"))


@contextmanager
def stage(cluster: Cluster) -> Iterator[Stage]:
    """Somewhere to tell a tale."""
    relay = relayed(cluster)
    with TcpProxy(relay.listener) as proxy:
        yield Stage(cluster, relay, proxy, cluster.topic())


def patiently(writer: KafkaWriter, asked: Apply) -> None:
    """As a job does it: what is `Unavailable` is tried again. A broker that was killed may take
    minutes to come back on a machine that has other things to do."""
    told = "nothing"
    try:
        for _ in until(f"{asked.cursor} is applied", BACK_S_MAX):
            try:
                writer.apply(asked)
                return
            except Unavailable as failure:
                told = str(failure)
    except TimeoutError as error:
        raise AssertionError(f"{error}; at last it said: {told}") from error


def unheard(writer: KafkaWriter, asked: Apply) -> None:
    """An epoch of which its leader does not hear what became of it."""
    with pytest.raises(Unavailable):
        writer.apply(asked)


def lost_answer(on: Stage) -> None:
    """The broker has committed, and the leader is not told. It asks again."""
    writer = on.opened(line=True, timeout_s=SHORT_S)
    patiently(writer, apply(1, people(1)))
    on.proxy.arm(Severed(Api.END_TXN, heard=True))
    unheard(writer, apply(2, people(2)))
    on.proxy.arm(None)

    assert on.opened().read_cursor(0) == cursor(2)
    patiently(writer, apply(2, people(2)))
    patiently(writer, apply(3, people(3)))
    on.assert_holds(people(1) + people(2) + people(3))


def cut_off(on: Stage, api: Api) -> None:
    """A leader is cut off for good before one of its requests, and another goes on."""
    old = on.opened(line=True, timeout_s=SHORT_S)
    patiently(old, apply(1, people(1)))
    on.proxy.arm(Severed(api))
    unheard(old, apply(2, people(2)))

    new = on.opened()
    assert new.read_cursor(0) == cursor(1)
    new.apply(apply(2, people(2), token=2))
    on.assert_holds(people(1) + people(2))


def zombie(on: Stage, api: Api) -> None:
    """A leader falls asleep before one of its requests. Another takes over, does the same epoch
    and the next; then the first wakes up."""
    old, new = on.opened(line=True), on.opened()
    old.apply(apply(1, people(1)))

    def take_over() -> None:
        new.apply(apply(2, people(2), token=2))
        new.apply(apply(3, people(3), token=2))

    on.proxy.arm(Before(api, take_over))
    with pytest.raises(Fenced) as caught:
        old.apply(apply(2, people(2)))
    assert (caught.value.held, caught.value.newest) == (1, 2)
    new.apply(apply(4, people(4), token=2))
    on.assert_holds(people(1) + people(2) + people(3) + people(4))


def zombie_of_another_generation(on: Stage, api: Api) -> None:
    """The same, and meanwhile history was rewound: what the sleeper has in hand never was."""
    old, new = on.opened(line=True), on.opened()
    old.apply(apply(1, people(1)))
    at, then = (cursor(epoch, generation=2, commit=f"after {epoch}") for epoch in (1, 2))

    def rewind() -> None:
        new.accept(0, at, Token(2))
        new.apply(apply(2, people(22), follows=at, at=then, token=2))

    on.proxy.arm(Before(api, rewind))
    with pytest.raises(Fenced):
        old.apply(apply(2, people(2)))
    assert new.read_cursor(0) == then
    on.assert_holds(people(1) + people(22))


def overtaken_while_opening(on: Stage) -> None:
    """While a new leader opens the shard, the old one commits the epoch it had in hand."""
    old, new = on.opened(), on.opened(line=True)
    old.apply(apply(1, people(1)))
    on.proxy.arm(Before(Api.INIT_PRODUCER_ID, lambda: old.apply(apply(2, people(2)))))
    new.apply(apply(2, people(2), token=2))
    new.apply(apply(3, people(3), token=2))
    on.assert_holds(people(1) + people(2) + people(3))


def late_request(on: Stage) -> None:
    """The end of a transaction is sent twice, because a line broke, and the first of the two
    arrives in the midst of the next transaction, whose leader dies then."""
    writer = on.opened(line=True, timeout_s=3 * SHORT_S)
    patiently(writer, apply(1, people(1)))
    kept = Kept(Api.END_TXN)
    on.proxy.arm(kept)
    writer.apply(apply(2, people(2)))  # by the second
    assert kept.request

    severed = Severed(Api.ADD_OFFSETS)
    arrive = Before(Api.ADD_OFFSETS, lambda: kept.arrive(on.relay.listener))
    on.proxy.arm(lambda way, piece: arrive(way, piece) or severed(way, piece))
    unheard(writer, apply(3, people(3)))
    assert arrive.seen

    on.opened().apply(apply(3, people(3), token=2))
    on.assert_holds(people(1) + people(2) + people(3))


def late_message(on: Stage) -> None:
    """A message of a leader that was cut off arrives when its transaction is over."""
    old, new = on.opened(line=True, timeout_s=SHORT_S), on.opened()
    patiently(old, apply(1, people(1)))
    kept, severed = Kept(Api.PRODUCE), Severed(Api.PRODUCE)
    on.proxy.arm(lambda way, piece: kept(way, piece) | severed(way, piece))
    unheard(old, apply(2, people(2)))
    new.apply(apply(2, people(2), token=2))
    on.settle()
    kept.arrive(on.relay.listener)

    assert on.is_stable()
    new.apply(apply(3, people(3), token=2))
    on.assert_holds(people(1) + people(2) + people(3))


def forgotten(on: Stage) -> None:
    """Kafka forgets the cursor of a job that was away for long."""
    on.opened().apply(apply(1, people(1)))
    group = f"{on.prefix}/contract/people/0"
    on.cluster.admin.delete_consumer_groups([group])[group].result()
    with pytest.raises(Exception, match="has begun, and Kafka has no cursor of it any more"):
        on.opened().apply(apply(1, people(1)))
    on.assert_holds(people(1))
