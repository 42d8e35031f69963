"""A cursor that is hidden for ever: its broker has lost track of a transaction.

A broker does that by its own fault (KAFKA-20734, when it is killed just after a commit), which
nothing brings about at will. But brokers that do not look whether a transaction is open let a
request in that arrives when its own is over, and that comes to the same.
"""

from collections.abc import Iterator

import pytest

from penstock.errors import Unavailable
from penstock.ids import Token
from tests.support import kafka
from tests.support.kafka import Cluster
from tests.support.kafka_stories import Stage, stage
from tests.support.kafka_wire import Api, Copied
from tests.support.sink_cases import JOB, apply, cursor, people

TOOL = "org.apache.kafka.tools.TransactionsCommand"
OFFSETS = ("--topic", "__consumer_offsets", "--partition", "0")


@pytest.fixture(scope="module")
def careless() -> Iterator[Cluster]:
    """A broker as they all were before KIP-890."""
    with kafka.cluster(transaction_partition_verification_enable="false") as cluster:
        yield cluster


@pytest.fixture
def on(careless: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A sink that has written one epoch, and whose cursor is hidden since."""
    monkeypatch.setattr("penstock.sinks.kafka_writer.LOOK_S", 0.5)
    with stage(careless) as made:
        copied = Copied(Api.TXN_OFFSET_COMMIT)
        made.proxy.arm(copied)
        made.opened(line=True).apply(apply(1, people(1)))
        made.settle()
        copied.arrive(made.relay.listener)
        yield made


def test_a_sink_says_that_its_cursor_is_hidden(on: Stage) -> None:
    """It cannot know how that transaction was to end, and writes nothing until somebody has seen
    to it; to look is told the same."""
    writer = on.opened(timeout_s=1)
    with pytest.raises(Unavailable) as caught:
        writer.apply(apply(2, people(2)))
    with pytest.raises(Unavailable) as looked:
        writer.read_cursor(0)

    assert caught.value.subject.endswith(f", group {on.prefix}/{JOB}/people/0")
    assert caught.value.found == (
        "has its cursor hidden by a transaction that a broker has lost track of: nothing is open "
        "under its name any more, and still it does not end"
    )
    assert "`kafka-transactions.sh find-hanging " in caught.value.advice
    assert str(looked.value) == str(caught.value)
    assert on.written() == 3


def test_it_goes_on_when_the_transaction_was_aborted(on: Stage) -> None:
    """With Kafka's own tool, as it advises. The same writer goes on."""
    writer = on.opened(timeout_s=1)
    with pytest.raises(Unavailable, match="lost track of"):
        writer.apply(apply(2, people(2)))
    on.cluster.run(TOOL, "abort", *OFFSETS, "--start-offset", open_since(on.cluster))

    writer.apply(apply(2, people(2)))
    assert on.opened().read_cursor(0) == cursor(2)
    on.assert_holds(people(1) + people(2))


def test_it_goes_on_from_head_when_it_is_accepted(on: Stage) -> None:
    """Whatever its cursor is; and what hid that is ended."""
    on.opened(timeout_s=1).accept(0, cursor(1), Token(2))

    writer = on.opened(timeout_s=1)
    assert writer.read_cursor(0) == cursor(1)
    writer.apply(apply(2, people(2), token=2))
    on.assert_holds(people(1) + people(2))


def open_since(cluster: Cluster) -> str:
    """The offset at which the last open transaction begins; other tests leave theirs before it."""
    rows = cluster.run(TOOL, "describe-producers", *OFFSETS).splitlines()[1:]
    since = {row.split()[-1] for row in rows if row.strip()} - {"None"}
    return max(since, key=int)
