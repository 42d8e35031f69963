"""W1 on Penstock: a function per key and a vectorised one, shuffled and direct.

    python -m benchmarks.w1_penstock function-shuffled --folder F --out F/results.jsonl

Started by `benchmarks.w1`, once for each name. An epoch's time is that from one commit to the
next, so whatever happens in between is in it: planning, Spark, the function, the durable delta,
the staged outputs, the manifest and the swap of HEAD. The latency of a small epoch is the time
from its plan to its commit.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]

import penstock as ps
from benchmarks.w1_data import (
    CORES,
    FULL,
    FUNCTION,
    FUNCTION_DIRECT,
    GROWTH,
    LONG,
    MEMORY,
    PARTITIONS,
    QUICK,
    SCHEMA,
    SMALL,
    SMALL_DIRECT,
    SMALL_ROWS,
    VECTORISED,
    VECTORISED_DIRECT,
    Amount,
    Measured,
    epochs_of,
    write,
)
from penstock.ids import Epoch
from penstock.runtime.frames import EpochRunner
from penstock.runtime.functions import Wrapped
from penstock.runtime.planning import Planner
from penstock.runtime.run import run_job
from penstock.runtime.session import start_spark
from penstock.runtime.telling import EpochDone, Silent

__all__ = ["PARTS", "main"]

MEMORY_EVERY = 10
"""Memory is looked at every so many epochs."""


@dataclass
class Total:
    """What is kept of a key by the vectorised function."""

    n: int
    s: int


@ps.stateful(emits="user long, n long, s long")
def count(user: int, events: ps.Events, total: ps.Value[tuple[int, int]]) -> Iterator[Any]:
    """Count and sum, key by key."""
    n, s = total.get((0, 0))
    amounts = events.values("amount")
    n, s = n + len(amounts), s + sum(amounts)
    total.set((n, s))
    yield {"user": user, "n": n, "s": s}


@ps.vectorized(emits="user long, n long, s long")
def count_columns(batch: ps.Batch, totals: ps.Columns[int, Total]) -> dict[str, Any]:
    """The same for a whole partition at once."""
    found, groups, places = batch.by_key()
    users = found.to_numpy()
    known, _ = totals.get_many(users, groups)
    known["n"] += np.bincount(places, minlength=len(users))
    np.add.at(known["s"], places, batch.column("amount"))
    totals.put_many(users, known, groups)
    return {"user": users, "n": known["n"].copy(), "s": known["s"].copy()}


@dataclass
class Commits(Silent):
    """Listens to a job, and writes down when each epoch was committed and what it was made of.
    Of whatever else a job may tell it takes no note."""

    at_s: list[float] = field(default_factory=list)
    done: list[EpochDone] = field(default_factory=list)
    memory: list[dict[str, float]] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)
    with_memory: bool = False

    def committed(self, done: EpochDone) -> None:
        """One more."""
        self.at_s.append(time.perf_counter())
        self.done.append(done)
        if self.with_memory and len(self.done) % MEMORY_EVERY == 0:
            self.memory.append(memory_mib())

    def retried(self, epoch: Epoch, why: str) -> None:
        """Written down, because what had to be tried again measures something else."""
        self.retries.append(f"epoch {epoch} was tried again: {why}")

    def intervals(self, first: int) -> list[float]:
        """From commit to commit; `first` epochs are warm-up."""
        return [float(taken_s) for taken_s in np.diff(self.at_s)[first - 1 :]]


def memory_mib() -> dict[str, float]:
    """What the driver, its JVM and the workers hold now."""
    found = {"driver": psutil.Process().memory_info().rss, "JVM": 0, "workers": 0}
    for process in psutil.Process().children(recursive=True):
        try:
            kind = "JVM" if "java" in process.name() else "workers"
            found[kind] += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return {name: size_bytes / (1 << 20) for name, size_bytes in found.items()}


class Stopwatch:
    """Times the calls of a method, wherever it is called from."""

    def __init__(self, kind: type, name: str) -> None:
        self.seconds: list[float] = []
        original: Callable[..., Any] = getattr(kind, name)

        def timed(*given: Any) -> Any:
            started = time.perf_counter()
            try:
                return original(*given)
            finally:
                self.seconds.append(time.perf_counter() - started)

        setattr(kind, name, timed)


@dataclass(frozen=True)
class Bench:
    """One name: a folder of its own, and where results go."""

    folder: Path
    out: Path
    amount: Amount

    def log(self, name: str, *, is_keyed: bool, appends: Iterator[pa.Table]) -> ps.Log:
        """A topic with a batch per epoch."""
        key = "user" if is_keyed else ()
        log = ps.Log.create(str(self.folder / name), SCHEMA, partitions=PARTITIONS, key=key)
        self.append(log, appends)
        return log

    def append(self, log: ps.Log, appends: Iterator[pa.Table]) -> None:
        """More rows, each table durable before the next."""
        with log.producer() as producer:
            for table in appends:
                producer.append(table)
                producer.flush()

    def run(
        self, log: ps.Log, function: Wrapped, rows: int, *, with_memory: bool = False
    ) -> Commits:
        """Process all there is in epochs of so many rows."""
        name = log.url.rsplit("/", 1)[-1]
        job = ps.Job("w1", partitions=PARTITIONS, order="log")
        job.read(log).key_by("user").process(function).write(ps.Table("totals"))
        commits = Commits(with_memory=with_memory)
        settings = ps.RunSettings(
            master=CORES,
            until="caught-up",
            limits=ps.Limits(records=rows),
            state_folder=str(self.folder / f"{name}-state"),
        )
        run_job(job, str(self.folder / f"{name}-root"), settings, commits)
        if commits.retries:
            raise SystemExit(commits.retries[0])
        return commits


def speed(bench: Bench, system: str, function: Wrapped, *, is_keyed: bool) -> None:
    """Rows per second at each size."""
    for rows, epochs in bench.amount.epochs.items():
        first = bench.amount.warmups[rows]
        total = first + epochs
        log = bench.log(f"w1-{rows}", is_keyed=is_keyed, appends=epochs_of(total, rows))
        commits = bench.run(log, function, rows)
        check_totals(bench.folder / f"w1-{rows}-root", rows * total)
        check_direct(commits, is_keyed)
        work = series_of(commits.done[first:])
        seconds = commits.intervals(first)
        write(bench.out, Measured(system=system, rows=rows, seconds=seconds, series=work))


def check_totals(root: Path, rows: int) -> None:
    """A fast wrong answer is no result."""
    table = ps.read_table(str(root), "totals", latest_by="user")
    counted = sum(table["n"].to_pylist())
    if counted != rows:
        raise SystemExit(f"{counted} rows were counted, where there are {rows}")


def check_direct(commits: Commits, is_keyed: bool) -> None:
    """Epochs ran the way their name says."""
    ways = {done.direct for done in commits.done}
    if ways != {is_keyed}:
        raise SystemExit(f"epochs were direct: {ways}")


def series_of(done: list[EpochDone]) -> dict[str, list[float]]:
    """What epochs were made of."""
    return {
        "planned to reports": [each.seconds for each in done],
        "commit": [each.commit_s for each in done],
        "rows out": [float(each.rows_out) for each in done],
        **{
            f"work: {name}": [each.work.get(name, 0.0) for each in done]
            for name in (done[0].work if done else ())
        },
    }


def latency(bench: Bench, system: str, *, is_keyed: bool) -> None:
    """How long an epoch of a few rows takes, and what with."""
    planning, running = Stopwatch(Planner, "plan"), Stopwatch(EpochRunner, "run")
    first = bench.amount.small_warmups
    total = first + bench.amount.small_epochs
    log = bench.log("small", is_keyed=is_keyed, appends=epochs_of(total, SMALL_ROWS))
    commits = bench.run(log, count, SMALL_ROWS)
    check_direct(commits, is_keyed)
    done = commits.done[first:]
    tasks = np.array([sum(each.work.values()) for each in done])
    series = {
        "planning": planning.seconds[first:total],
        "Spark and reading": (np.array(running.seconds[first:total]) - tasks).tolist(),
        "tasks": tasks.tolist(),
        **series_of(done),
    }
    seconds = [each.seconds + each.commit_s for each in done]
    write(bench.out, Measured(system=system, rows=SMALL_ROWS, seconds=seconds, series=series))


def long(bench: Bench) -> None:
    """Whether small epochs get slower, or the processes larger."""
    epochs = bench.amount.long_epochs
    log = bench.log("long", is_keyed=False, appends=epochs_of(epochs, SMALL_ROWS))
    commits = bench.run(log, count, SMALL_ROWS, with_memory=True)
    series = {kind: [each[kind] for each in commits.memory] for kind in commits.memory[0]}
    seconds = commits.intervals(1)
    write(bench.out, Measured(system=LONG, rows=SMALL_ROWS, seconds=seconds, series=series))


def growth(bench: Bench) -> None:
    """Epochs of the same size over states of very different ones. Keys are loaded first."""
    amount, rows = bench.amount, bench.amount.rows[0]
    for keys in amount.keys:
        log = bench.log(f"grown-{keys}", is_keyed=False, appends=each_key_once(keys, amount))
        bench.run(log, count, amount.load_rows)
        total = amount.grown_warmups + amount.grown_epochs
        bench.append(log, epochs_of(total, rows, keys))
        commits = bench.run(log, count, rows)
        check_totals(bench.folder / f"grown-{keys}-root", keys + total * rows)
        work = series_of(commits.done[amount.grown_warmups :])
        seconds = commits.intervals(amount.grown_warmups)
        write(
            bench.out,
            Measured(system=GROWTH, rows=rows, keys=keys, seconds=seconds, series=work),
        )


def each_key_once(keys: int, amount: Amount) -> Iterator[pa.Table]:
    """Rows that leave nothing but state behind."""
    for start in range(0, keys, amount.load_rows):
        users = np.arange(start, min(keys, start + amount.load_rows), dtype=np.int64)
        yield pa.table([users, np.ones(len(users), np.int64)], schema=SCHEMA)


PARTS: dict[str, Callable[[Bench], None]] = {
    "function-shuffled": lambda bench: speed(bench, FUNCTION, count, is_keyed=False),
    "function-direct": lambda bench: speed(bench, FUNCTION_DIRECT, count, is_keyed=True),
    "vectorised-shuffled": lambda bench: speed(bench, VECTORISED, count_columns, is_keyed=False),
    "vectorised-direct": lambda bench: speed(
        bench, VECTORISED_DIRECT, count_columns, is_keyed=True
    ),
    "latency-shuffled": lambda bench: latency(bench, SMALL, is_keyed=False),
    "latency-direct": lambda bench: latency(bench, SMALL_DIRECT, is_keyed=True),
    "long": long,
    "growth": growth,
}


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    spark = start_spark("w1", CORES, MEMORY)
    try:
        PARTS[options.part](Bench(options.folder, options.out, QUICK if options.quick else FULL))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
