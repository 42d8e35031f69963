"""Spark reads the files that a Delta table names.

There is no delta-spark for the Spark we run on (4.4.0, the newest that can be had, is built for 4.2
and fails on 4.3), so Spark is given the active files and not the log: what is tested is that it
reads every type of them, and that they are the table.
"""

import os
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.sinks.delta import Delta
from tests.support.delta_case import target
from tests.support.sink_cases import apply

KINDS = pa.schema(
    [
        ("user", pa.string()),
        ("small", pa.uint8()),
        ("large", pa.int64()),
        ("price", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", tz="Asia/Seoul")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("home", pa.struct([("city", pa.string()), ("floor", pa.int64())])),
    ]
)
FULL: dict[str, Any] = {
    "user": "김 🚀",
    "small": 255,
    "large": 2**63 - 1,
    "price": Decimal("-1234567890123456.7891"),
    "at": datetime(2026, 3, 1, 9, 30, 15, 123456, tzinfo=UTC),
    "day": date(2026, 2, 28),
    "raw": b"\x00\xff",
    "tags": ["a", "", None],
    "home": {"city": None, "floor": 0},
}
NOTHING: dict[str, Any] = dict.fromkeys(KINDS.names) | {"user": "nobody"}


@pytest.mark.slow
def test_spark_reads_the_active_files(tmp_path: Path) -> None:
    """Merged and merged again, they hold the last row of each key and nothing else."""
    writer = Delta("lake", str(tmp_path), key="user").open(target(KINDS))
    for epoch in range(1, 4):
        rows = [FULL | {"large": epoch}, NOTHING | {"user": f"only {epoch}"}]
        writer.apply(apply(epoch, rows, columns=KINDS))
    writer.apply(apply(4, [FULL, NOTHING], columns=KINDS))
    active = DeltaTable(str(tmp_path)).file_uris()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        found = spark.read.parquet(*active).orderBy("user").toArrow().to_pylist()
    finally:
        spark.stop()

    others = [NOTHING | {"user": f"only {epoch}"} for epoch in range(1, 4)]
    assert found == [NOTHING, *others, FULL]
    assert len(active) < len(list(tmp_path.glob("*.parquet")))
