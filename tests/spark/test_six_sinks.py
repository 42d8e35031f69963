"""One job, a sink of every kind, and everything that can die does: each sink equals the chain."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import penstock as ps
from penstock.checkpoint import Root
from penstock.clock import SystemClock
from tests.support import databases, servers
from tests.support.runs import Run
from tests.support.six_sinks import Places
from tests.support.six_sinks_job import ORDERS

pytestmark = pytest.mark.slow

JOB = Path(__file__).parents[1] / "support" / "six_sinks_job.py"
SEED = 20261117
KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
"""How much dies. `make storm-sinks` asks for twenty."""
KINDS = ("driver", "worker", "executor")
ROWS = 120
"""So many more orders come between two kills."""
AWAY_S = 2.0


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Servers of the test's own, since they are killed."""
    with ExitStack() as stack:
        yield Places(
            tmp_path,
            stack.enter_context(databases.postgres()),
            stack.enter_context(databases.redis()),
            stack.enter_context(servers.moto(tmp_path)),
        )


class Shop:
    """Orders that keep coming."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.log = ps.Log.create(str(folder / "log"), ORDERS, partitions=2)
        self.chance = chance
        self.sold: dict[str, tuple[int, int]] = {}

    def sell(self) -> None:
        """Some more of them."""
        rows = [
            {"user": f"user-{self.chance.randrange(40)}", "amount": self.chance.randint(1, 99)}
            for _ in range(ROWS)
        ]
        with self.log.producer() as producer:
            producer.append(rows)
        for row in rows:
            orders, total = self.sold.get(row["user"], (0, 0))
            self.sold[row["user"]] = (orders + 1, total + row["amount"])


def start(places: Places, *options: str) -> Run:
    usual = ("--master", "local-cluster[2,1,900]", "--lease", "3", "--records", "100")
    return Run(places.folder, *usual, *options, settings=places.settings(), job=JOB)


def kill(run: Run, kind: str, chance: random.Random) -> None:
    """kill -9 of something of that kind, if there is one at this moment."""
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


def restarts(places: Places) -> dict[int, Callable[[], None]]:
    """Which server goes away after which kill. moto keeps nothing on disk, so it is stopped and
    goes on; the others are killed, and come back with what they had written down."""

    def killed(server: databases.Server) -> None:
        server.kill()
        SystemClock().sleep(AWAY_S)
        server.start()

    def stopped() -> None:
        port = places.dynamodb.url.rpartition(":")[2]
        (moto,) = (p for p in psutil.Process().children() if port in p.cmdline())
        moto.send_signal(signal.SIGSTOP)
        SystemClock().sleep(AWAY_S)
        moto.send_signal(signal.SIGCONT)

    away = (lambda: killed(places.postgres), lambda: killed(places.redis), stopped)
    return {(number + 1) * KILLS // 4: leave for number, leave in enumerate(away)}


def test_six_sinks_equal_the_chain_whatever_dies(places: Places) -> None:
    """Row by row: nothing is lost, nothing is doubled, nothing is of an epoch that never was."""
    chance = random.Random(SEED)
    shop, at = Shop(places.folder, chance), restarts(places)
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    chance.shuffle(kinds)
    run = start(places)
    for number, kind in enumerate(kinds):
        shop.sell()
        assert run.wait_for(run.epochs + 1), f"seed {SEED}, kill {number}:\n{run.said}"
        SystemClock().sleep(chance.uniform(0, 0.5))
        kill(run, kind, chance)
        if number in at:
            at[number]()
        if kind == "driver":
            run = start(places)
    shop.sell()
    assert run.wait_for(run.epochs + 1), f"seed {SEED}, after the kills:\n{run.said}"
    run.signal(signal.SIGTERM)
    assert run.end() == 0, f"seed {SEED}:\n{run.said}"
    last = start(places, "--until", "caught-up")
    assert last.end() == 0, f"seed {SEED}:\n{last.said}"

    expected, found = places.expected(), places.found()
    for sink, rows in expected.items():
        assert found[sink] == rows, f"seed {SEED}, sink {sink}"
    assert {user: rows[-1][1:3] for user, rows in expected["topic"].items()} == shop.sold
    assert Root.open(str(places.folder / "root")).check().clean
