"""The topology in Structured Streaming, as a Python function with state.

    python -m benchmarks.kafka_spark --bootstrap B --source T --target T --folder F --steps FILE
        --batch 1000000 --batches 2 --limit 300

Started by `benchmarks.kafka`. State is in RocksDB with a changelog; Spark's sink for Kafka does not
promise more than at-least-once. What counts is when a batch was finished, in Spark's own words.
There is no connector for Spark 4.3 on Maven Central, so it is that of the release before.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.kafka_data import PARTITIONS
from benchmarks.w1_spark import SETTINGS

__all__ = ["CONNECTOR"]

MAVEN = "https://repo1.maven.org/maven2/org/apache/spark"
TOKENS = "spark-token-provider-kafka-0-10_2.13"
CONNECTOR = {
    "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "spark.jars.excludes": f"org.apache.spark:{TOKENS}",
    "spark.jars": f"{MAVEN}/{TOKENS}/4.0.0/{TOKENS}-4.0.0.jar",
}
EVENT = "user STRING, amount LONG, at STRING"
RESULT = "user string, count long, total long"
POLL_S = 0.1


@dataclass(frozen=True)
class Batch:
    """One that is finished."""

    ended_s: float
    rows: int
    taken_s: float


def update(
    key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """A row for each event of a user in this batch."""
    count, total = state.get if state.exists else (0, 0)
    for part in parts:
        counts = count + np.arange(1, len(part) + 1)
        totals = total + part["amount"].cumsum().to_numpy()
        count, total = int(counts[-1]), int(totals[-1])
        yield pd.DataFrame({"user": key[0], "count": counts, "total": totals})
    state.update((count, total))


def counted(frame: DataFrame) -> DataFrame:
    """From messages to messages."""
    events = frame.selectExpr(f"from_json(CAST(value AS STRING), '{EVENT}') AS event")
    rows = (
        events.select("event.*")
        .groupBy("user")
        .applyInPandasWithState(
            update, RESULT, "count long, total long", "update", GroupStateTimeout.NoTimeout
        )
    )
    return rows.selectExpr("user AS key", "to_json(struct(user, count, total)) AS value")


def main() -> None:
    """Run until so many batches are finished, or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bootstrap", "source", "target", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--limit", type=float, required=True)
    options = parser.parse_args()
    frame = (
        _session()
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.batch)
        .load()
    )
    query = (
        counted(frame)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("kafka.compression.type", "lz4")
        .option("topic", options.target)
        .option("checkpointLocation", options.folder)
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    deadline_s = time.monotonic() + options.limit
    batches: list[Batch] = []
    while len(batches) < options.batches and time.monotonic() < deadline_s:
        is_over = not query.isActive
        batches += _finished(query.recentProgress)[len(batches) :]
        if is_over:
            break
        time.sleep(POLL_S)
    options.steps.write_text("".join(f"{json.dumps(step)}\n" for step in _steps(batches)))
    if not query.isActive and (failure := query.exception()) is not None:
        raise SystemExit(str(failure).strip().splitlines()[0][:300])
    sys.stdout.flush()
    os._exit(0)  # a batch under way would hold up a stop for as long as it likes


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master(f"local[{PARTITIONS}]").appName("kafka peers")
    for name, value in {**SETTINGS, **CONNECTOR}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _finished(progress: list[Any]) -> list[Batch]:
    """The batches that had rows, each with the moment at which it was found to be finished."""
    found = [json.loads(each.json) for each in progress]
    return [
        Batch(time.monotonic(), each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000)
        for each in found
        if each["numInputRows"]
    ]


def _steps(batches: list[Batch]) -> list[tuple[float, int]]:
    """Rows that were done when a batch was finished. If it is the only one, it counts from its own
    beginning: better a figure with its warm-up than none."""
    rows = itertools.accumulate(batch.rows for batch in batches)
    steps = [(batch.ended_s, done) for batch, done in zip(batches, rows, strict=True)]
    if len(batches) == 1:
        steps.insert(0, (batches[0].ended_s - batches[0].taken_s, 0))
    return steps


if __name__ == "__main__":
    main()
