import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.sinks import Table, read_table
from penstock.sinks.spark_source import PenstockDataSource, register
from penstock.sinks.table import Format
from tests.support.tables import TableJob

pytestmark = pytest.mark.slow

MOMENT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
COLUMNS: dict[str, Any] = {
    "user": ["ann", None],
    "clicks": pa.array([1, 2], pa.int32()),
    "at": pa.array([MOMENT, None], pa.timestamp("us", tz="Asia/Seoul")),
    "tags": [["a", "b"], []],
    "best": [{"score": 1.5, "name": "x"}, None],
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One session, whose zone is not the one of the table."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()


def load(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    reader = spark.read.format("penstock").option("root", str(root))
    for name, value in {"table": "totals", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def rows(frame: DataFrame) -> pa.Table:
    """A data frame's rows in the order that provenance tells."""
    return frame.orderBy("_epoch", "_partition", "_sequence").toArrow()


@pytest.mark.parametrize("written", ["arrow", "parquet"])
def test_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path, written: Format) -> None:
    """Zones, nulls and nested offsets among the rest."""
    job = TableJob(DirectoryStore(tmp_path), Table("totals", format=written))
    job.write({0: COLUMNS, 3: COLUMNS})
    job.write({1: COLUMNS}, index=True)

    found = rows(load(spark, tmp_path))

    assert found.to_pylist() == read_table(str(tmp_path), "totals").to_pylist()
    assert found.num_rows == 6
    assert load(spark, tmp_path).where("_input[0].last = 1 and user is null").count() == 3


def test_a_data_frame_stays_at_the_epoch_it_was_made_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two figures computed from one data frame are of the same table, though the job goes on."""
    job = TableJob(DirectoryStore(tmp_path))
    job.write_users("ann")
    job.write_users("bob")
    now, before = load(spark, tmp_path), load(spark, tmp_path, epoch=1)
    job.write_users("cid", index=True)

    assert [row.user for row in now.orderBy("_epoch").collect()] == ["ann", "bob"]
    assert [row.user for row in before.collect()] == ["ann"]


def test_named_columns_are_read_as_of_each_query_or_of_an_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark asks the source nothing when it is told the columns: not even which epoch it is."""
    job = TableJob(DirectoryStore(tmp_path))
    job.write_users("ann")
    named = spark.read.format("penstock").schema("user string").option("table", "totals")
    live = named.option("root", str(tmp_path)).load()
    fixed = named.option("root", str(tmp_path)).option("epoch", "1").load()
    job.write_users("bob", index=True)

    assert sorted(row.user for row in live.collect()) == ["ann", "bob"]
    assert [row.user for row in fixed.collect()] == ["ann"]


def test_columns_that_came_and_went(spark: SparkSession, tmp_path: Path) -> None:
    """One that was added is null before; one that is in between is asked for by name."""
    job = TableJob(DirectoryStore(tmp_path))
    job.write({0: {"user": ["ann"]}})
    job.write({0: {"user": ["bob"], "clicks": [7]}})
    two = load(spark, tmp_path).select("user", "clicks").orderBy("user").collect()
    job.write({0: {"user": ["cid"]}})

    assert [tuple(row) for row in two] == [("ann", None), ("bob", 7)]
    with pytest.raises(PySparkException, match="has a column 'clicks' in tables/totals/"):
        load(spark, tmp_path).collect()
    named = spark.read.format("penstock").schema("clicks long, user string")
    asked = named.option("root", str(tmp_path)).option("table", "totals").load()
    assert [tuple(row) for row in asked.orderBy("user").collect()] == [
        (None, "ann"),
        (7, "bob"),
        (None, "cid"),
    ]


def test_a_table_without_files_is_an_empty_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    """With the columns that every table has."""
    TableJob(DirectoryStore(tmp_path)).write()

    frame = load(spark, tmp_path)

    assert frame.columns == ["_epoch", "_partition", "_sequence", "_input"]
    assert frame.count() == 0


def test_mistakes_are_told_in_our_words(spark: SparkSession, tmp_path: Path) -> None:
    """When the data frame is made, not when it is used."""
    job = TableJob(DirectoryStore(tmp_path))
    job.write_users("ann")

    with pytest.raises(PySparkException, match="table total is not a table of this job"):
        load(spark, tmp_path, table="total")
    with pytest.raises(PySparkException, match="cannot be read as of epoch 2"):
        load(spark, tmp_path, epoch=2)
    with pytest.raises(PySparkException, match="epoch 'last' is not a number"):
        load(spark, tmp_path, epoch="last")
    with pytest.raises(PySparkException, match="was not told the root"):
        spark.read.format("penstock").option("table", "totals").load()


def test_a_flipped_bit_fails_the_task(spark: SparkSession, tmp_path: Path) -> None:
    """Files are verified where they are read."""
    job = TableJob(DirectoryStore(tmp_path))
    ref = job.write_users("ann").sinks["totals"][0].ref
    frame = load(spark, tmp_path)
    stored = job.store.get(ref.key)
    assert stored is not None
    job.store.put(ref.key, stored.body[:-1] + b"?")

    with pytest.raises(PySparkException, match=ref.key):
        frame.collect()


def test_small_files_share_a_task(tmp_path: Path) -> None:
    """A table of many epochs is not a task for each of them."""
    job = TableJob(DirectoryStore(tmp_path))
    for _ in range(3):
        job.write({n: {"user": ["ann"]} for n in range(100)})
    source = PenstockDataSource({"root": str(tmp_path), "table": "totals"})

    partitions = source.reader(source.schema()).partitions()

    assert [len(partition.value[1]) for partition in partitions] == [256, 44]
