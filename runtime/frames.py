"""One epoch as a Spark job: stages of parts, from the plan to the reports.

Only DataFrame operations are used that Spark Connect knows as well: `range`, `mapInArrow`,
`repartitionById`, `union`, `observe`, `select`; and settings of the session.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.runtime.checking import Outcome
from penstock.runtime.reading import rows_schema
from penstock.runtime.tasks import (
    OperatorStage,
    PackStage,
    PlanHere,
    ReadStage,
    RowsStage,
    packed_workshop,
)
from penstock.runtime.topology import Feed
from penstock.runtime.transforming import read_reports
from penstock.runtime.wire import PARTS_DDL, Failure, Kind, Plan, Report, decode, encode, parts_of
from penstock.runtime.workshop import Workshop

__all__ = ["EpochRunner", "SparkFailed", "transformed_schema"]

SETTING_BYTES_MAX = 64 << 10
"""The longest plan that is a setting: every task is sent all settings."""
CAUSE_CHARS_MAX = 300

_GONE = "ExecutorLostFailure"
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?:Caused by)?:? ?([A-Za-z_][\w.$]*(?:Error|Exception|Failure): .+)")
"""An error as Java tells it: its name, and what it says."""


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
    """Runs epochs of one job on one session.

    What Spark makes of a query it makes anew for each, and for a small epoch that is most of the
    work. So the frame of an epoch is kept, without its plan, and the plan comes to the tasks as a
    setting of the query. Two kinds of epochs are described anew each time: those whose plan is too
    long for a setting, and those with a transform, whose rows are counted by an observation that
    can be used only once.
    """

    def __init__(self, spark: SparkSession, shop: Workshop) -> None:
        self._spark = spark
        self._shop = shop
        self._packed = packed_workshop(shop)
        self._setting = f"spark.penstock.plan.{shop.chance.unique()[:16]}"
        self._kept: dict[tuple[int, bool], DataFrame] = {}

    def run(self, plan: Plan) -> Outcome:
        """Run one try of an epoch, and bring back what its tasks say."""
        observations: dict[tuple[int, int], Observation] = {}
        body = encode(plan)
        with _explained():
            if self._transformed_feeds() or len(body) > SETTING_BYTES_MAX:
                table = self._frame(plan, PlanHere(body), observations).toArrow()
            else:
                table = self._collected_again(plan, body)
        reports, failures = _sorted(table)
        for each in read_reports(self._shop, self._shop.topology, plan):
            if isinstance(each, Failure):
                failures.append(each)
            else:
                reports.append(each)
        observed = {place: int(seen.get["rows"] or 0) for place, seen in observations.items()}
        return Outcome(reports, failures, observed)

    def _collected_again(self, plan: Plan, body: bytes) -> pa.Table:
        """What the tasks say, from a frame that is kept. Another query over the same frame: the
        very same one would be answered from the shuffle files of the last epoch."""
        shape = (len(plan.tasks), plan.direct)
        if shape not in self._kept:
            self._kept[shape] = self._frame(plan, PlanHere(setting=self._setting), {})
        self._spark.conf.set(self._setting, body.decode())
        try:
            return self._kept[shape].select("*").toArrow()
        finally:
            with suppress(Exception):  # Spark may be gone
                self._spark.conf.unset(self._setting)

    def _frame(
        self, plan: Plan, here: PlanHere, observations: dict[tuple[int, int], Observation]
    ) -> DataFrame:
        """An epoch from its reading tasks to its reports."""
        topology = self._shop.topology
        numbers = self._spark.range(0, len(plan.tasks), 1, len(plan.tasks))
        frame = numbers.mapInArrow(ReadStage(self._packed, here), PARTS_DDL)
        for stage, number, feed in self._transformed_feeds():
            rows = self._through(numbers, feed, here)
            packed = rows.mapInArrow(PackStage(self._packed, (stage, number), plan.run), PARTS_DDL)
            observation = observations[stage, number] = Observation()
            frame = frame.union(packed.observe(observation, F.sum("rows").alias("rows")))
        for operator in topology.operators:
            if not (plan.direct and operator.stage == 1):
                frame = frame.repartitionById(topology.partitions, F.col("to")).mapInArrow(
                    OperatorStage(self._packed, operator.stage), PARTS_DDL
                )
        return frame

    def is_alive(self) -> bool:
        """Whether Spark is still there."""
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - py4j's, when the JVM is gone
            return False

    def _transformed_feeds(self) -> list[tuple[int, int, Feed]]:
        topology = self._shop.topology
        return [
            (operator.stage, number, feed)
            for operator in topology.operators
            for number, feed in enumerate(operator.feeds)
            if feed.origin in topology.transformed
        ]

    def _through(self, numbers: DataFrame, feed: Feed, here: PlanHere) -> DataFrame:
        """A source's rows, transformed."""
        node = self._shop.topology.sources[feed.origin]
        schema = from_arrow_schema(rows_schema(node))
        rows = numbers.mapInArrow(RowsStage(self._packed, here, feed.origin), schema)
        changed: DataFrame = rows if feed.transform is None else feed.transform(rows)
        return changed


@contextmanager
def _explained() -> Iterator[None]:
    """Whatever Spark raises, and py4j if Spark is gone, as a failure that is tried again."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise SparkFailed("Spark", _cause(error), "the epoch is tried again") from error


def _cause(error: Exception) -> str:
    """Of all that Spark says, the line that says why: an executor that is gone, what Python raised
    in a task, or the last of the errors that Java passed on."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    gone = [line[line.index(_GONE) :] for line in lines if _GONE in line]
    raised = [found[1] for found in map(_RAISED.match, map(str.strip, lines)) if found is not None]
    found = gone[:1] or _python_errors(lines)[-1:] or raised[-1:] or lines or [type(error).__name__]
    return f"failed ({found[0].strip()[:CAUSE_CHARS_MAX]})"


def _python_errors(lines: list[str]) -> list[str]:
    """What stands below each traceback: the first line that is not moved in."""
    found, in_traceback = [], False
    for line in lines:
        if line.rstrip().endswith(_TRACEBACK):
            in_traceback = True
        elif in_traceback and not line[0].isspace():
            found.append(line)
            in_traceback = False
    return found


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
