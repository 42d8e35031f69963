"""One epoch as a Spark job: stages of parts, from the plan to the reports.

Only DataFrame operations are used that Spark Connect knows as well: `range`, `mapInArrow`,
`repartitionById`, `union`, `observe`.
"""

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import Invalid, Unavailable
from penstock.runtime.checking import Outcome
from penstock.runtime.reading import rows_schema
from penstock.runtime.tasks import OperatorStage, PackStage, ReadStage, RowsStage, packed_workshop
from penstock.runtime.topology import Feed
from penstock.runtime.transforming import read_reports
from penstock.runtime.wire import PARTS_DDL, Failure, Kind, Plan, Report, decode, encode, parts_of
from penstock.runtime.workshop import Workshop

__all__ = ["EpochRunner", "SparkFailed", "transformed_schema"]


class SparkFailed(Unavailable):
    """A Spark job did not come to its end: a process died, or a shuffle was lost."""


def transformed_schema(spark: SparkSession, transform: Any, schema: pa.Schema) -> pa.Schema:
    """The columns that a transform makes of others."""
    try:
        frame = spark.createDataFrame([], from_arrow_schema(schema))
        changed = transform(frame)
        if not isinstance(changed, DataFrame):
            found = f"returns a {type(changed).__name__}"
            raise Invalid("a transform", found, "return the changed DataFrame")
        found_schema: pa.Schema = to_arrow_schema(changed.schema, timezone="UTC")
        return found_schema
    except PySparkException as error:
        said = str(error).splitlines()[0][:300]
        raise Invalid("a transform", f"cannot be applied ({said})", "correct it") from error


class EpochRunner:
    """Runs epochs of one job on one session."""

    def __init__(self, spark: SparkSession, shop: Workshop) -> None:
        self._spark = spark
        self._shop = shop
        self._packed = packed_workshop(shop)

    def run(self, plan: Plan) -> Outcome:
        """Run one try of an epoch, and bring back what its tasks say."""
        observations: dict[tuple[int, int], Observation] = {}
        topology = self._shop.topology
        frame = self._read(plan)
        for stage, number, feed in self._transformed_feeds():
            frame = frame.union(self._through(plan, (stage, number), feed, observations))
        for operator in topology.operators:
            if not (plan.direct and operator.stage == 1):
                frame = frame.repartitionById(topology.partitions, F.col("to")).mapInArrow(
                    OperatorStage(self._packed, operator.stage), PARTS_DDL
                )
        reports, failures = _sorted(self._collected(frame))
        for each in read_reports(self._shop, topology, plan):
            if isinstance(each, Failure):
                failures.append(each)
            else:
                reports.append(each)
        observed = {place: int(seen.get["rows"] or 0) for place, seen in observations.items()}
        return Outcome(reports, failures, observed)

    def is_alive(self) -> bool:
        """Whether Spark is still there."""
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - py4j's, when the JVM is gone
            return False

    def _read(self, plan: Plan) -> DataFrame:
        return self._assignments(plan).mapInArrow(ReadStage(self._packed), PARTS_DDL)

    def _assignments(self, plan: Plan) -> DataFrame:
        """One row per reading task. The plan is a literal, so it costs no stage of its own."""
        count = len(plan.tasks)
        numbers = self._spark.range(0, count, 1, count)
        return numbers.select(F.lit(encode(plan).decode()).alias("plan"), F.col("id"))

    def _transformed_feeds(self) -> list[tuple[int, int, Feed]]:
        topology = self._shop.topology
        return [
            (operator.stage, number, feed)
            for operator in topology.operators
            for number, feed in enumerate(operator.feeds)
            if feed.origin in topology.transformed
        ]

    def _through(
        self,
        plan: Plan,
        place: tuple[int, int],
        feed: Feed,
        observations: dict[tuple[int, int], Observation],
    ) -> DataFrame:
        """A source's rows, transformed, counted and packed."""
        node = self._shop.topology.sources[feed.origin]
        schema = from_arrow_schema(rows_schema(node))
        rows = self._assignments(plan).mapInArrow(RowsStage(self._packed, feed.origin), schema)
        changed = rows if feed.transform is None else feed.transform(rows)
        packed = changed.mapInArrow(PackStage(self._packed, place, plan.run), PARTS_DDL)
        observations[place] = Observation()
        return packed.observe(observations[place], F.sum("rows").alias("rows"))

    def _collected(self, frame: DataFrame) -> pa.Table:
        try:
            return frame.toArrow()
        except PySparkException as error:
            raise SparkFailed("Spark", _first_line(error), "the epoch is tried again") from error
        except Exception as error:
            raise SparkFailed("Spark", _first_line(error), "the epoch is tried again") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line or "lost" in line]
    return f"failed ({(telling or lines or [type(error).__name__])[0][:300]})"


def _sorted(table: pa.Table) -> tuple[list[Report], list[Failure]]:
    reports, failures = [], []
    for part in parts_of(
        table.select(["to", "stage", "kind", "rows", "head", "body"]).to_batches()
    ):
        if part.kind is Kind.REPORT:
            reports.append(decode(part.head, Report))
        elif part.kind is Kind.FAILURE:
            failures.append(decode(part.head, Failure))
    return reports, failures
