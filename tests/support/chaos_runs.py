"""A chaos run that never was: what a conductor would have written down, from a seed."""

import random
from collections import Counter
from typing import Any

from penstock.chaos.findings import Check, Ledger, worst
from penstock.chaos.history import (
    ChaosRun,
    Committed,
    Ended,
    Family,
    Happening,
    Held,
    Led,
    Missed,
    Noted,
    Retried,
    Started,
    Struck,
    strikes,
)

EPOCHS, FAULTS = 150, 70
RECORDS = 20_000

KINDS: dict[str, tuple[Family, str, float]] = {
    "executor.kill": (Family.EXECUTOR, "executor {n} was ended by SIGKILL", 4.5),
    "host.lose": (Family.EXECUTOR, "executor {n} was killed and its disk is gone", 5.5),
    "worker.kill": (Family.WORKER, "Python worker {n} was ended by SIGKILL", 1.6),
    "daemon.kill": (Family.WORKER, "worker daemon {n} was ended by SIGKILL", 1.8),
    "pause.executor": (Family.PAUSE, "executor {n} was paused for 6 s", 6.0),
    "pause.worker": (Family.PAUSE, "Python worker {n} was paused for 2 s", 2.0),
    "store.slow": (Family.STORE, "PUT of delta {n} was answered after 800 ms", 0.9),
    "store.refused-503": (Family.STORE, "GET of snapshot {n} was answered with 503", 0.6),
    "store.ack-lost": (Family.STORE, "HEAD was swapped and the answer was lost", 0.4),
    "disk.corrupt": (Family.DISK, "a bit of partition {n}'s database was flipped", 0.9),
    "disk.delete": (Family.DISK, "the state folder of executor {n} was removed", 3.2),
    "clock.forward": (Family.CLOCK, "the driver's clock is {n} h ahead", 0.2),
}
"""Faults that may happen at any epoch, what is said of them, and about how long they hold up."""

AT_EPOCH = {45: "driver.kill", 72: "line.away", 101: "pause.driver"}
"""Faults that change who leads, or hold the job."""
WOKEN = 112
"""When the driver that was paused sees that another one leads."""


class Story:
    """A run, told in the order in which it would have been seen."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.driver = 1
        self.lag = 6 * RECORDS
        self.lines: list[Happening] = []

    def tell(self) -> list[Happening]:
        """From the first driver to its last successor."""
        self._begin()
        struck = self.chance.choices(range(3, EPOCHS), k=FAULTS - len(AT_EPOCH))
        due = Counter(struck)
        names = list(KINDS)
        for epoch in range(1, EPOCHS + 1):
            for number in range(due[epoch]):
                first = number == 0 and len(names) > 0
                self._strike(names.pop() if first else self.chance.choice(list(KINDS)), epoch)
            self._turn(epoch)
            self._commit(epoch)
        self._pass(0.4)
        self._say(Ended, driver=self.driver, code=0)
        return self.lines

    def _say(self, kind: Any, **facts: Any) -> None:
        self.lines.append(kind(at_s=round(self.now, 3), **facts))

    def _pass(self, about_s: float) -> None:
        self.now += about_s * self.chance.uniform(0.6, 1.5)
        self.lag += int(4000 * about_s)

    def _begin(self) -> None:
        self._say(Started, driver=1)
        self._pass(7)
        self._say(Led, driver=1, epoch=0)
        self._say(Started, driver=2, standby=True)

    def _strike(self, fault: str, epoch: int) -> None:
        family, text, cost = KINDS[fault]
        self._pass(0.5)
        said = text.format(n=self.chance.randint(1, 8))
        self._say(Struck, fault=fault, family=family, text=said)
        self._pass(cost)
        if cost > 1.5 and self.chance.random() < 0.5:
            why = f"task {self.chance.randint(0, 7)} failed: its executor is gone"
            self._say(Retried, driver=self.driver, epoch=epoch, why=why)

    def _turn(self, epoch: int) -> None:
        fault = AT_EPOCH.get(epoch)
        if fault == "driver.kill":
            self._kill(fault, epoch)
        elif fault == "line.away":
            self._hold(fault)
        elif fault == "pause.driver":
            self._depose(fault, epoch)
        elif epoch == WOKEN:
            self._wake()
        elif epoch in (30, 88):
            why = "no database was being written to" if epoch == 30 else "the disk has 40 GB left"
            self._say(Missed, fault="disk.full", family=Family.DISK, why=why)

    def _kill(self, fault: str, epoch: int) -> None:
        self._say(Struck, fault=fault, family=Family.DRIVER, text="driver 1 was ended by SIGKILL")
        self._say(Ended, driver=1, code=-9)
        self._pass(1)
        self._say(Started, driver=3, standby=True)
        self._pass(16)
        self.driver = 2
        self._say(Led, driver=2, epoch=epoch - 1)
        self._pass(2)

    def _hold(self, fault: str) -> None:
        text = "Postgres takes no connections for 20 s"
        self._say(Struck, fault=fault, family=Family.SINK, text=text)
        self._pass(1)
        why = "connection refused, tried for 1 s"
        self._say(Held, driver=self.driver, sinks={"totals": why})
        self._pass(20)
        self._say(Held, driver=self.driver, sinks={})

    def _depose(self, fault: str, epoch: int) -> None:
        text = "driver 2 was paused for 40 s, longer than its lease"
        self._say(Struck, fault=fault, family=Family.PAUSE, text=text)
        self._pass(17)
        self.driver = 3
        self._say(Led, driver=3, epoch=epoch - 1)
        self._pass(2)

    def _wake(self) -> None:
        self._say(Noted, text="driver 2 goes on")
        self._pass(0.3)
        self._say(Ended, driver=2, code=3, said="driver-2 is deposed: token 3 is in HEAD, not 2")

    def _commit(self, epoch: int) -> None:
        took = self.chance.uniform(0.9, 2.1)
        self.now += took
        self.lag = max(self.lag + int(4000 * took) - RECORDS, 0)
        hurt = any(isinstance(each, Struck | Led) for each in self.lines[-3:])
        retries = sum(isinstance(each, Retried) for each in self.lines[-3:])
        ways = {"snapshot files from the store": 2, "database on this host, behind": 6}
        rows = RECORDS if self.lag else self.chance.randint(5_000, RECORDS)
        self._say(
            Committed,
            driver=self.driver,
            epoch=epoch,
            rows_in=rows,
            rows_out=rows // 7,
            seconds=took,
            retries=retries,
            restores=ways if hurt and self.chance.random() < 0.6 else {},
            lag=self.lag,
        )


def made_run(seed: int = 7, *checks: Check) -> ChaosRun:
    """A run with these checks, besides two that are valid."""
    happenings = Story(seed).tell()
    faults = Counter({"disk.full": 0}) + Counter(each.fault for each in strikes(happenings))
    checked = (*_sound(len(happenings)), *checks)
    return ChaosRun(
        penstock="0.9.0",
        job="shop",
        seed=seed,
        command=f"penstock chaos examples/shop.py --seed {seed} --faults all --records 3000000",
        at_ms=1_760_000_000_000,
        seconds=happenings[-1].at_s + 31.4,
        asked={
            "faults": ", ".join(Family),
            "records": "3,000,000",
            "master": "local-cluster[3,1,1024]",
            "drivers": "2, one of which stands by",
            "sinks": "totals (Postgres), clicks (Kafka), table sessions",
        },
        faults={"disk.full": 0, **faults},
        happenings=tuple(happenings),
        checks=checked,
        verdict=worst(check.verdict for check in checked),
    )


def _sound(seen: int) -> tuple[Check, Check]:
    chain = Ledger("chain", "Epochs are dense and every manifest names the one before it.")
    chain.count("manifests", EPOCHS)
    rows = Ledger("sink totals", "It holds each row that was committed, once.")
    rows.count("rows", 412_338)
    rows.count("rows compared", 412_338)
    rows.note(f"{seen:,} happenings were compared with the chain")
    return chain.check(), rows.check()
