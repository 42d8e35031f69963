"""W1 on Spark alone: Structured Streaming in the JVM and in Python, and the floor.

    python -m benchmarks.w1_spark groupby-parquet --folder F --out F/results.jsonl

Started by `benchmarks.w1`, once for each name. Rows come from Parquet files, as many files at once
as make one epoch. Structured Streaming's time for a batch is what it says itself
(`triggerExecution`). It is given what helps it: RocksDB with a changelog, no counting of the keys
it holds, files listed once; and those whose rows go to Python, the faster kind of socket. Outputs
are written as Parquet, because those of Penstock are durable too; and once more to nowhere, so that
nobody has to guess what the sink costs.
"""

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.w1_data import (
    CORES,
    FLOOR,
    FULL,
    GROUP_BY,
    MEMORY,
    PARTITIONS,
    PYTHON,
    QUICK,
    SMALL_GROUP_BY,
    SMALL_ROWS,
    Amount,
    Measured,
    epochs_of,
    rows_of,
    write,
)

__all__ = ["PARTS", "main"]

SETTINGS = {
    **MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
EMITTED = "user long, n long, s long"
POLL_S = 0.2
PRIMING_ROWS = 10
"""Of the batch that comes before all others; so few that no other can be taken for it."""
PRIMING_LIMIT_S = 120.0
JVM_LIMIT_S = 300.0
"""How long the JVM's own aggregation may take."""

Count = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Bench:
    """One name: a folder of its own, where results go, and the session."""

    folder: Path
    out: Path
    amount: Amount
    spark: SparkSession

    def files(self, rows: int, tables: Iterable[pa.Table], per_epoch: int) -> Path:
        """Parquet files, so many for each epoch, in the order in which they are to be read."""
        folder = self.folder / f"rows-{rows}"
        folder.mkdir(exist_ok=True)
        started = time.time() - 1_000_000
        for number, table in enumerate(tables):
            for share in range(per_epoch):
                start, stop = (table.num_rows * at // per_epoch for at in (share, share + 1))
                place = number * per_epoch + share
                path = folder / f"{place:06d}.parquet"
                pq.write_table(table.slice(start, stop - start), path)
                os.utime(path, (started + place, started + place))
        return folder


def streamed(
    bench: Bench, count: Count, sink: str, rows: int, plan: tuple[int, int, float]
) -> list[dict[str, Any]]:
    """Run a query over so many batches; what it says of each that it finished in time.

    A batch of a few rows comes before them. Time runs from its end: until then Spark compiles the
    query and starts its workers, and a limit would say nothing about how fast rows are processed.
    """
    epochs, per_epoch, limit_s = plan
    primer = rows_of(epochs, PRIMING_ROWS)
    source = bench.files(rows, chain([primer], epochs_of(epochs, rows)), per_epoch)
    frame = bench.spark.readStream.schema("user long, amount long")
    frame = frame.option("maxFilesPerTrigger", per_epoch)
    writer = count(frame.parquet(str(source))).writeStream.outputMode("update")
    place = bench.folder / f"query-{rows}"
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    if sink == "noop":
        writer = writer.format("noop")
    else:
        writer = writer.foreachBatch(_to_parquet(place / "outputs"))
    query = writer.trigger(availableNow=True).start()
    _wait(query, PRIMING_LIMIT_S, lambda: bool(query.recentProgress))
    if query.isActive and not query.recentProgress:
        raise SystemExit(f"no batch of {PRIMING_ROWS} rows was finished in {PRIMING_LIMIT_S:g} s")
    _wait(query, limit_s, lambda: False)
    found = [json.loads(each.json) for each in query.recentProgress]
    if not query.isActive and (failure := query.exception()) is not None:
        raise SystemExit(str(failure).strip().splitlines()[0][:300])
    return [each for each in found if each["numInputRows"] == rows]


def _wait(query: StreamingQuery, limit_s: float, is_enough: Callable[[], bool]) -> None:
    """Until a query has ended, or that is enough, or time is up."""
    started = time.perf_counter()
    while query.isActive and not is_enough() and time.perf_counter() - started < limit_s:
        time.sleep(POLL_S)


def _to_parquet(folder: Path) -> Callable[[DataFrame, int], None]:
    def write_batch(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / str(number)))

    return write_batch


def measured(
    system: str, rows: int, progress: list[dict[str, Any]], warmups: int, limit_s: float = 0.0
) -> Measured:
    """What the batches after warm-up took, in Spark's own words; of one that was given up before
    the end of its warm-up, the last batch, which is the warmest."""
    counted = progress[warmups:] or progress[-1:]
    durations: dict[str, list[float]] = {}
    for each in counted:
        for name, taken_ms in each["durationMs"].items():
            durations.setdefault(name, []).append(taken_ms / 1000)
    note = f"given up after {limit_s:g} s, {len(progress)} batches finished" if limit_s else ""
    if progress and len(progress) <= warmups:
        note += ", all of them warm-up: the last one counts"
    return Measured(
        system=system,
        rows=rows,
        seconds=durations.get("triggerExecution", []),
        limit_s=limit_s,
        note=note,
        series=durations,
    )


def group_by(frame: DataFrame) -> DataFrame:
    """What the JVM does by itself."""
    return frame.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))


def jvm_speed(bench: Bench, sink: str) -> None:
    """The JVM's aggregation at each size."""
    for rows, epochs in bench.amount.epochs.items():
        first = bench.amount.warmups[rows]
        plan = (first + epochs, PARTITIONS, JVM_LIMIT_S)
        progress = streamed(bench, group_by, sink, rows, plan)
        system = GROUP_BY[sink]
        write(bench.out, measured(system, rows, progress, first, _given_up(plan, progress)))


def jvm_latency(bench: Bench, sink: str) -> None:
    """How long a batch of a few rows takes."""
    first = bench.amount.small_warmups
    plan = (first + bench.amount.small_epochs, 1, JVM_LIMIT_S)
    progress = streamed(bench, group_by, sink, SMALL_ROWS, plan)
    system, given_up = SMALL_GROUP_BY[sink], _given_up(plan, progress)
    write(bench.out, measured(system, SMALL_ROWS, progress, first, given_up))


def _given_up(plan: tuple[int, int, float], progress: list[dict[str, Any]]) -> float:
    """The limit, if it was reached before all batches were finished."""
    return plan[2] if len(progress) < plan[0] else 0.0


def with_group_state(frame: DataFrame) -> DataFrame:
    """The older way to a Python function with state."""

    def update(
        key: tuple[int], parts: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        n, s = state.get if state.exists else (0, 0)
        for part in parts:
            n, s = n + len(part), s + int(part["amount"].sum())
        state.update((n, s))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "s": [s]})

    return frame.groupBy("user").applyInPandasWithState(
        update, EMITTED, "n long, s long", "update", GroupStateTimeout.NoTimeout
    )


class Counter(StatefulProcessor):
    """The newer way."""

    def init(self, handle: Any) -> None:
        """Called once per task."""
        self.total = handle.getValueState("total", "n long, s long")

    def handleInputRows(  # noqa: N802 - Spark's name for it
        self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any
    ) -> Iterator[pd.DataFrame]:
        """Called for each key."""
        n, s = self.total.get() if self.total.exists() else (0, 0)
        for part in rows:
            n, s = n + len(part), s + int(part["amount"].sum())
        self.total.update((n, s))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "s": [s]})

    def close(self) -> None:
        """Nothing is held."""


def with_transform(frame: DataFrame) -> DataFrame:
    """The newer way to a Python function with state."""
    check_protobuf()
    return frame.groupBy("user").transformWithStateInPandas(
        statefulProcessor=Counter(),
        outputStructType=EMITTED,
        outputMode="Update",
        timeMode="None",
    )


def check_protobuf() -> None:
    """Spark talks to such a function in a language of its own, and does not bring the library."""
    try:
        importlib.import_module("google.protobuf")
    except ImportError as missing:
        found = "transformWithState needs protobuf, which is not installed"
        raise SystemExit(found) from missing


def python_speed(bench: Bench, name: str, count: Count, rows: int) -> None:
    """A Python function with state; what it cannot finish in time is given up."""
    first = bench.amount.python_warmups
    plan = (first + bench.amount.python_epochs, PARTITIONS, bench.amount.python_limit_s)
    progress = streamed(bench, count, "Parquet", rows, plan)
    system = PYTHON + name
    write(bench.out, measured(system, rows, progress, first, _given_up(plan, progress)))
    sys.stdout.flush()
    os._exit(0)  # a query that hangs would hold up a stop for as long as it likes


def floor(bench: Bench) -> None:
    """Shuffle the rows and hand them to Python, which counts them; nothing is kept."""

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    for rows, epochs in bench.amount.epochs.items():
        first = bench.amount.warmups[rows]
        total = first + epochs
        folder = bench.files(rows, epochs_of(total, rows), PARTITIONS)
        files = sorted(str(path) for path in folder.iterdir())
        seconds = []
        for number in range(total):
            mine = files[number * PARTITIONS : (number + 1) * PARTITIONS]
            started = time.perf_counter()
            frame = bench.spark.read.schema("user long, amount long").parquet(*mine)
            found = frame.repartition(PARTITIONS, "user").mapInArrow(counted, "rows long")
            assert np.sum([row.rows for row in found.collect()]) == rows
            seconds.append(time.perf_counter() - started)
        write(bench.out, Measured(system=FLOOR, rows=rows, seconds=seconds[first:]))


PARTS: dict[str, Callable[[Bench], None]] = {
    "groupby-parquet": lambda bench: jvm_speed(bench, "Parquet"),
    "groupby-noop": lambda bench: jvm_speed(bench, "noop"),
    "floor": floor,
    "apply-small": lambda bench: python_speed(
        bench, "applyInPandasWithState", with_group_state, min(bench.amount.python_rows)
    ),
    "apply-large": lambda bench: python_speed(
        bench, "applyInPandasWithState", with_group_state, max(bench.amount.python_rows)
    ),
    "transform-small": lambda bench: python_speed(
        bench, "transformWithStateInPandas", with_transform, min(bench.amount.python_rows)
    ),
    "transform-large": lambda bench: python_speed(
        bench, "transformWithStateInPandas", with_transform, max(bench.amount.python_rows)
    ),
    "latency-parquet": lambda bench: jvm_latency(bench, "Parquet"),
    "latency-noop": lambda bench: jvm_latency(bench, "noop"),
}


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master(CORES).appName("w1 peers")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    amount = QUICK if options.quick else FULL
    try:
        PARTS[options.part](Bench(options.folder, options.out, amount, spark))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
