"""From topic to topic: Penstock beside Quix Streams and Structured Streaming's Python functions.

    make bench-kafka                                  about 12 minutes
    python -m benchmarks.kafka --quick                few rows; for trying
    python -m benchmarks.kafka --only quix-1          one of them

One broker, one topic of events, which all of them read in turn, each in processes of its own and
into a topic of its own, for a bounded time. What counts is what a reader that wants only what is
committed can see of it, from some seconds after its first rows on. Every row is checked. A quick
run, or one of a single system, is not written to RESULTS.md.
"""

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from confluent_kafka import KafkaException, Message, Producer
from rich.console import Console

from benchmarks.kafka_data import PARTITIONS, Events, Steps, Truth, rate_of, results_in
from benchmarks.kafka_peers import Peer, Place, peers
from benchmarks.kafka_plot import plot
from benchmarks.kafka_rebuild import KEYS, QUICK_KEYS, rebuilt
from benchmarks.kafka_report import Load, Measured, Results, report, tables
from benchmarks.kafka_watch import Reader
from benchmarks.results import write_section
from benchmarks.w1 import Watch
from benchmarks.w1_report import QUIET_CORES
from penstock.clock import SystemChance
from tests.support.kafka import Cluster, cluster

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).with_name("kafka.png")
ROWS, QUICK_ROWS = 6_000_000, 400_000
REBUILD = "rebuild"
QUICK_WARMUP_S = 2.0
LOOK_EVERY_S = 0.1
LOADS_EVERY = 10
STOP_S_MAX = 30.0
QUIET_S = 5.0
BROKER = {
    "group_initial_rebalance_delay_ms": 3000,
    "transaction_max_timeout_ms": 900_000,
    "num_io_threads": 4,
}
"""Kafka's own defaults, where the tests have others."""
PRODUCER = {
    "linger.ms": 50,
    "batch.size": 1 << 20,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
}


def main() -> None:
    """Measure, show, and write it down."""
    options = _options()
    chosen = [peer for peer in peers() if options.only in (None, peer.short)]
    if not chosen and options.only != REBUILD:
        known = ", ".join([*(peer.short for peer in peers()), REBUILD])
        raise SystemExit(f"--only {options.only} is nobody; use one of {known}")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="bench-kafka-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=180)
    try:
        with cluster(**BROKER) as broker:
            results = _measured(broker, folder, chosen, options)
        for table in tables(results).values():
            console.print(table)
        for name, why in results.failures.items():
            console.print(f"{name}: {why}")
        if options.only is None and not (options.quick or options.dry):
            write_section("kafka", report(results))
            plot(results, PICTURE)
        elif options.keep:
            (folder / "report.md").write_text(f"{report(results)}\n")
            plot(results, folder / PICTURE.name)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _measured(
    broker: Cluster, folder: Path, chosen: Sequence[Peer], options: argparse.Namespace
) -> Results:
    """Rows per second of those who were chosen; and, unless it is one of them, the rebuild."""
    results = Results()
    if chosen:
        rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
        bench = Bench.on(broker, folder, rows, options.patience)
        rounds = 1 if options.quick else options.rounds
        results = bench.measured(chosen, rounds, is_quick=options.quick)
    if options.only in (None, REBUILD):
        _wait_for_quiet(options.patience)
        results.rebuilt = rebuilt(broker.bootstrap, QUICK_KEYS if options.quick else KEYS)
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows; not written down")
    parser.add_argument("--only", help="one system; not written down")
    parser.add_argument("--rows", type=int, help="so many events")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="wait so long, in seconds, for a quiet machine"
    )
    parser.add_argument("--rounds", type=int, default=2, help="how many turns each has at most")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--keep", type=Path, help="keep what systems said, report and picture here")
    return parser.parse_args()


@dataclass
class Bench:
    """A broker with a topic of events."""

    broker: Cluster
    folder: Path
    source: str
    truth: Truth
    patience_s: float
    results: Results = field(default_factory=Results)

    @classmethod
    def on(cls, broker: Cluster, folder: Path, rows: int, patience_s: float) -> "Bench":
        """Fill a topic."""
        source = broker.topic("events", PARTITIONS, retention_ms=-1)
        events, started_s = Events.make(rows), time.perf_counter()
        _fill(broker.bootstrap, source, events)
        taken_s = time.perf_counter() - started_s
        print(f"{rows:,} events sent, {rows / taken_s:,.0f} rows/s", file=sys.stderr, flush=True)
        return cls(broker, folder, source, Truth(events), patience_s, Results(rows=rows))

    def measured(self, chosen: Sequence[Peer], rounds: int, *, is_quick: bool) -> Results:
        """All of them in turn, and again: an hour in which the machine is slow is slow for all."""
        for number in range(rounds):
            for peer in chosen:
                if number < peer.rounds:
                    self._measure(peer, QUICK_WARMUP_S if is_quick else peer.warmup_s)
        return self.results

    def _measure(self, peer: Peer, warmup_s: float) -> None:
        _wait_for_quiet(self.patience_s)
        started_s = time.perf_counter()
        try:
            steps, load = self._run(peer)
        except Failed as error:
            self.results.failures[peer.name] = str(error)
            print(f"{peer.name}: {error}", file=sys.stderr, flush=True)
            return
        rate = rate_of(steps, min(warmup_s, peer.warmup_s))
        rows = steps[-1][1] if steps else 0
        self.results.add(peer, Measured(rate, rows, load))
        said = "no rate" if rate is None else f"{rate:,.0f} rows/s"
        taken_s = time.perf_counter() - started_s
        said += f", {rows:,} rows, {taken_s:.0f} s, others took {load.others:.2f} cores"
        said += f", the broker {load.broker:.2f}"
        print(f"{peer.name}: {said}", file=sys.stderr, flush=True)

    def _run(self, peer: Peer) -> tuple[Steps, Load]:
        """Let one of them have its turn; its progress, checked, and who else was busy."""
        mark = SystemChance().unique()[:8]
        place = Place(
            self.broker.bootstrap,
            self.source,
            self.broker.topic(f"{peer.short}-{mark}", PARTITIONS, retention_ms=-1),
            self.folder / f"{peer.short}-{mark}",
        )
        place.folder.mkdir()
        reader = Reader(place.bootstrap, place.target, PARTITIONS)
        try:
            load = self._waited(peer, place, reader)
            produced = reader.read()
            if not peer.tells or produced.bodies:
                self._check(produced.bodies, peer)
            steps = _told(place.steps) if peer.tells else reader.steps(produced)
        finally:
            reader.close()
            self.broker.delete(place.target)
            shutil.rmtree(place.folder / "process-0", ignore_errors=True)
        return steps, load

    def _waited(self, peer: Peer, place: Place, reader: Reader) -> Load:
        """Start it, look at its results until they are all there or the time is up, stop it."""
        said = place.folder / "said.log"
        deadline_s = time.monotonic() + peer.limit_s
        with said.open("wb") as log:
            commands = peer.commands(place, self.truth.rows)
            running = [subprocess.Popen(c, cwd=ROOT, stdout=log, stderr=log) for c in commands]
            watch = Loads(self.broker)
            for number in itertools.count():
                if all(process.poll() is not None for process in running):
                    break
                if reader.look() >= self.truth.rows and not peer.ends:
                    break
                if time.monotonic() > deadline_s + (STOP_S_MAX if peer.tells else 0):
                    break
                if number % LOADS_EVERY == 0:  # to look for children takes a while
                    watch.look(running)
                time.sleep(LOOK_EVERY_S)
            load = watch.load()
            for process in running:
                _stop(process)
        if any(process.returncode not in (0, -15) for process in running):
            raise Failed(_last_line(said))
        return load

    def _check(self, bodies: Sequence[bytes], peer: Peer) -> None:
        """A fast wrong answer is no result."""
        if not bodies:
            raise Failed("it wrote nothing")
        is_whole = len(bodies) >= self.truth.rows
        flaw = self.truth.flaw(results_in(bodies), is_whole=is_whole)
        if flaw is not None:
            raise Failed(f"its results are wrong: {flaw}")


class Loads:
    """Looks at who is busy while a system runs."""

    def __init__(self, broker: Cluster) -> None:
        self._broker = [each.process.pid for each in broker.brokers if each.process is not None]
        self._broker_s = self._used_s()
        self._started_s = time.perf_counter()
        self._watch = Watch()

    def look(self, running: "Sequence[subprocess.Popen[bytes]]") -> None:
        """Write down what the system's processes have used so far."""
        for process in running:
            self._watch.look(process.pid)

    def load(self) -> Load:
        """Cores on average, from the start until now."""
        wall_s = time.perf_counter() - self._started_s
        broker = (self._used_s() - self._broker_s) / wall_s
        return Load(max(0.0, self._watch.others() - broker), broker)

    def _used_s(self) -> float:
        times = [psutil.Process(pid).cpu_times() for pid in self._broker]
        return float(sum(each.user + each.system for each in times))


class Failed(Exception):
    """A system has no result, and this is why."""


def _wait_for_quiet(patience_s: float) -> None:
    """Until nobody else is busy, or patience is at its end: before each turn, not in it."""
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        watch = Watch()
        time.sleep(QUIET_S)
        if watch.others() < QUIET_CORES:
            return


def _fill(bootstrap: str, topic: str, events: Events) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    for partition, key, body in events.messages():
        while True:
            try:
                producer.produce(topic, body, key, partition, on_delivery=_sent)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(STOP_S_MAX):
        raise SystemExit("the broker does not take the events")


def _sent(error: object, _message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _told(path: Path) -> Steps:
    """What a system wrote down itself."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(at_s, rows) for at_s, rows in map(json.loads, lines)]


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """As an operator would; and then the process and all it has started, without asking."""
    if process.poll() is not None:
        return
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S_MAX)
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(STOP_S_MAX)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line[:200] for line in reversed(lines) if line), "it said nothing")


if __name__ == "__main__":
    main()
