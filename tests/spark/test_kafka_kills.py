"""From topic to topic while drivers, executors, workers and brokers die: a reader that ran all the
time has seen what a few lines of Python say, once, in order."""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Message, Producer, TopicPartition

from penstock.checkpoint import Root
from penstock.clock import SystemClock
from tests.support import kafka
from tests.support.kafka import CALL_S_MAX, Cluster, until
from tests.support.runs import Run

pytestmark = pytest.mark.slow

JOB = Path(__file__).parents[1] / "support" / "kafka_job.py"
SEED = 20261117
KILLS = int(os.environ.get("PENSTOCK_KILLS", "2"))
"""How many processes of the job die. `make storm-kafka` asks for twenty, and three brokers."""
ORDERS = 10_000 * KILLS
BROKERS_KILLED = max(1, KILLS * 3 // 20)
KINDS = ("driver", "executor", "worker")
USERS, PARTITIONS = 500, 3
TRANSACTION = 500
"""So many orders are one transaction of the shop's; every fourth of them is taken back."""
AWAY_S = 2.0


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    """Three of the test's own, since they are killed."""
    with kafka.cluster(brokers=3) as found:
        yield found


@dataclass
class Shop:
    """Orders that keep coming, in transactions, some of which are taken back."""

    cluster: Cluster
    topic: str
    chance: random.Random
    sold: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """What must come out for each user: orders so far, their total, the number of the order."""
    aborted: int = 0
    _number: int = 0
    _producer: Producer | None = None

    def sell(self, count: int) -> None:
        """So many more that count."""
        done = 0
        while done < count:
            if self.chance.random() < 0.25:
                self._transaction(counts=False)
            done += self._transaction(counts=True)

    def _transaction(self, counts: bool) -> int:
        """One transaction, and whether it counts is decided when all of it is in the log."""
        orders = [self._order() for _ in range(TRANSACTION)]
        producer = self._open()
        producer.begin_transaction()
        for order in orders:
            body = json.dumps(order if counts else {**order, "number": -1}).encode()
            producer.produce(self.topic, body, key=str(order["user"]).encode())
        assert producer.flush(CALL_S_MAX) == 0
        if not counts:
            producer.abort_transaction(CALL_S_MAX)
            self.aborted += TRANSACTION
            return 0
        producer.commit_transaction(CALL_S_MAX)
        for order in orders:
            self._expect(str(order["user"]), int(order["amount"]), int(order["number"]))
        return TRANSACTION

    def _order(self) -> dict[str, object]:
        self._number += 1
        user = f"user-{self.chance.randrange(USERS)}"
        return {"user": user, "amount": self.chance.randint(1, 99), "number": self._number}

    def _expect(self, user: str, amount: int, number: int) -> None:
        rows = self.sold.setdefault(user, [])
        orders, total, _ = rows[-1] if rows else (0, 0, 0)
        rows.append((orders + 1, total + amount, number))

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = self.cluster.producer(transactional_id="shop", partitioner="murmur2")
            self._producer.init_transactions(CALL_S_MAX)
        return self._producer


class Reader:
    """A read_committed consumer that looks at the results from the first moment to the last."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.rows: dict[str, list[tuple[int, int, int]]] = {}
        self.count = 0
        self._ended = threading.Event()
        self._consumer = cluster.consumer(isolation_level="read_committed")
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(1000, 0.2):
                if message.error() is None:
                    self._take(message)

    def _take(self, message: Message) -> None:
        row = json.loads(message.value() or b"")
        assert (message.key() or b"").decode() == row["user"]
        rows = self.rows.setdefault(row["user"], [])
        rows.append((row["orders"], row["total"], row["number"]))
        self.count += 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join(CALL_S_MAX)
        self._consumer.close()


def start(folder: Path, settings: dict[str, str], *options: str) -> Run:
    usual = ("--master", "local-cluster[2,1,900]", "--lease", "3", "--records", "3000")
    return Run(folder, *usual, *options, settings=settings, job=JOB)


def kill(run: Run, kind: str, chance: random.Random) -> None:
    """kill -9 of something of that kind."""
    if kind == "driver":
        run.process.kill()
        run.end()
        return
    victims = run.executors() if kind == "executor" else run.workers()
    assert victims, f"there is no {kind}:\n{run.said}"
    try:
        chance.choice(victims).kill()
    except psutil.NoSuchProcess:
        pytest.fail(f"the {kind} was gone before it was killed")


def test_a_reader_of_the_results_sees_the_reference_whatever_dies(
    brokers: Cluster, tmp_path: Path
) -> None:
    """No duplicate, no gap, in order for every user: the whole way is exactly-once."""
    chance = random.Random(SEED)
    settings = {
        "ORDERS_BROKERS": brokers.bootstrap,
        "ORDERS_IN": brokers.topic("orders", partitions=4),
        "ORDERS_OUT": brokers.topic("results", partitions=PARTITIONS),
    }
    shop, reader = Shop(brokers, "orders", chance), Reader(brokers, "results")
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    chance.shuffle(kinds)
    dying = {(number + 1) * KILLS // (BROKERS_KILLED + 1) for number in range(BROKERS_KILLED)}
    run = start(tmp_path, settings)
    for number, kind in enumerate(kinds):
        shop.sell(ORDERS // KILLS)
        assert run.wait_for(run.epochs + 1), f"seed {SEED}, kill {number}:\n{run.said}"
        SystemClock().sleep(chance.uniform(0, 0.5))
        kill(run, kind, chance)
        if number in dying:
            broker = chance.choice(brokers.brokers)
            broker.kill()
            SystemClock().sleep(AWAY_S)
            broker.start()
        if kind == "driver":
            run = start(tmp_path, settings)
    for _ in until("the reader has seen every order", 400):
        if reader.count >= ORDERS or run.process.poll() is not None:
            break
    run.signal(signal.SIGTERM)
    assert run.end() == 0, f"seed {SEED}:\n{run.said}"
    last = start(tmp_path, settings, "--until", "caught-up")
    assert last.end() == 0, f"seed {SEED}:\n{last.said}"
    reader.close()

    assert sum(map(len, shop.sold.values())) == ORDERS
    assert shop.aborted > 0
    assert reader.rows == shop.sold, f"seed {SEED}"
    assert Root.open(str(tmp_path / "root")).check().clean
    told = brokers.committed("orders-job", "orders")
    assert {n: offset for n, (offset, _) in told.items()} == _ends(brokers)


def _ends(brokers: Cluster) -> dict[int, int]:
    """Where the shop's topic ends: the lag that tools show is none."""
    with brokers.consumer(isolation_level="read_committed") as consumer:
        return {
            number: consumer.get_watermark_offsets(TopicPartition("orders", number), CALL_S_MAX)[1]
            for number in brokers.leaders("orders")
        }
