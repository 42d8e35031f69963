"""`Job`: what a user writes.

    job = ps.Job("clicks")
    (job.read(ps.Log("data/clicks"), event_time="at")
        .transform(lambda df: df.where("country = 'KR'"))
        .key_by("user")
        .process(count_clicks)
        .write(ps.Table("totals")))

    if __name__ == "__main__":
        job.run("s3://bucket/jobs/clicks")

Describing a job does nothing. `topology` checks all of it, and says what is wrong by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.runtime.describing import Described, Input, Written, build
from penstock.runtime.functions import MAIN, Wrapped
from penstock.runtime.kafka_writing import sink_to
from penstock.runtime.letter_limit import Quarantine
from penstock.runtime.topology import Topology
from penstock.sinks.changelog import Changelog
from penstock.sinks.protocol import Sink
from penstock.sources.kafka import Kafka
from penstock.sources.protocol import Source
from penstock.state import ttl
from penstock.state.key_groups import GROUPS

if TYPE_CHECKING:
    from penstock.runtime.run import Ran, RunSettings

__all__ = ["Job", "Keyed", "Stream", "merge"]

Transform = Callable[[Any], Any]
PARTITIONS = 8
"""How many partitions a job's state has unless it says otherwise. Fixed for the life of a root."""


class Job:
    """One job: sources, functions, sinks. One root belongs to one job."""

    def __init__(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS,
        order: str = "event-time",
        changelog: "Changelog | None" = None,
    ) -> None:
        """`partitions` is how many ways the state is parted, and never changes on a root.
        `order` is that of a key's events: 'event-time', or 'log'. `changelog` is where state
        changes also go, for others to read and to rebuild from: `ps.KafkaChangelog(…)`."""
        self.name = check_name("job", name)
        if not 1 <= partitions <= GROUPS:
            found = f"has {partitions} partitions"
            raise Invalid(f"job {name!r}", found, f"use 1 to {GROUPS}")
        if order not in ("event-time", "log"):
            raise Invalid(f"job {name!r}", f"has the order {order!r}", "use 'event-time' or 'log'")
        self.partitions = partitions
        self.order = order
        self.changelog = changelog
        self.described = Described()

    def read(  # noqa: PLR0913 - each is a setting with a default, and people write few of them
        self,
        source: Source,
        *,
        name: str | None = None,
        event_time: str | None = None,
        delay: str = "0 s",
        idle: str | None = None,
        start: "str | datetime | dict[str, int]" = "earliest",
        on_undecodable: str | None = None,
    ) -> "Stream":
        """A stream of a source's events.

        `event_time` is the column that says when an event happened; `delay` how much later than
        a later one it may come; `idle` after how long a silent partition no longer holds time
        back; `start` where to begin: 'earliest', 'latest', a moment, or an offset per partition.
        `on_undecodable` is what becomes of events whose time is outside of the years 1 to 9999:
        'fail' stops the job at the first, 'quarantine' keeps them in a table of their own, in the
        same commit. Kafka and Files have a policy of their own, which is used.
        """
        found = check_name("source", name or _name_of(source))
        input_ = Input(
            name=found,
            source=source,
            event_time=event_time,
            delay_ms=0 if delay == "0 s" else _length_ms(found, "delay", delay),
            idle_ms=None if idle is None else _length_ms(found, "idle", idle),
            start=start,
            on_undecodable=on_undecodable,
        )
        self.described.add_input(input_)
        return Stream(self, found)

    def topology(
        self, root: str, transformed: "Callable[[Transform, pa.Schema], pa.Schema]"
    ) -> Topology:
        """The whole job, checked. `transformed` tells the columns that a transform makes of
        others. `root` is where letters to be replayed are."""
        return build(self, root, transformed)

    def run(
        self,
        root: str,
        *,
        until: str | None = None,
        master: str | None = None,
        require: str | None = None,
        settings: "RunSettings | None" = None,
    ) -> "Ran":
        """Run until stopped, or until everything that is there is processed ('caught-up')."""
        from penstock.runtime.answers import err
        from penstock.runtime.run import RunSettings, run_job
        from penstock.runtime.view import view_on

        chosen = (settings or RunSettings()).with_options(
            until=until, master=master, require=require
        )
        with view_on(err) as view:
            return run_job(self, root, chosen, view)


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows of a source, of a transform, or of a function."""

    job: Job
    origin: str
    output: str = MAIN
    transforms: tuple[Transform, ...] = ()

    def transform(self, change: Transform) -> "Stream":
        """Any Spark DataFrame code: a function of a DataFrame that keeps the column `_meta`."""
        if self.origin in self.job.described.operators:
            raise Invalid(
                f"operator {self.origin!r}",
                "is followed by a transform",
                "transform right after `read`, or do it in the function",
            )
        return Stream(self.job, self.origin, self.output, (*self.transforms, change))

    def key_by(self, *columns: str) -> "Keyed":
        """The same rows, parted by the values of some columns."""
        if not columns:
            raise Invalid(f"stream {self.origin!r}", "is keyed by nothing", "name a column")
        return Keyed(self.job, ((self, columns),))

    def side(self, output: str) -> "Stream":
        """A side output of the function."""
        return Stream(self.job, self.origin, output)

    def write(self, sink: "Sink | Kafka") -> "Stream":
        """Send the rows to a sink. Several may take the same rows."""
        described = self.job.described
        chosen = sink_to(sink) if isinstance(sink, Kafka) else sink
        described.add_sink(Written(chosen, self.origin, self.output, self.transforms))
        return self


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows parted by a key."""

    job: Job
    parts: tuple[tuple[Stream, tuple[str, ...]], ...]

    def process(
        self, function: Wrapped, *, name: str | None = None, on_error: str | Quarantine = "fail"
    ) -> Stream:
        """Run a wrapped function on every key. `on_error`: 'fail' stops the job at a call that
        raises; 'quarantine' puts its events among the dead letters, in the same commit. Events
        whose key cannot be stored, or whose time no calendar has, follow the same policy. Of a
        vectorised function, only those do."""
        operator = self.job.described.add_operator(function, name, self.parts, on_error)
        return Stream(self.job, operator)


def merge(*streams: Keyed) -> Keyed:
    """Several keyed streams into one function: `ps.merge(a.key_by("user"), b.key_by("uid"))`."""
    if not streams:
        raise Invalid("merge", "was given no stream", "give it two or more")
    job = streams[0].job
    for stream in streams:
        if stream.job is not job:
            found = f"was given streams of the jobs {job.name!r} and {stream.job.name!r}"
            raise Invalid("merge", found, "read both sources in one job")
    return Keyed(job, tuple(part for stream in streams for part in stream.parts))


def _length_ms(source: str, what: str, length: str) -> int:
    try:
        return ttl(length).length_ms
    except Invalid as error:
        found = f"has {what}={length!r}, which {error.found}"
        raise Invalid(f"source {source!r}", found, "write '90 s' or '1 day'") from error


def _name_of(source: Source) -> str:
    if isinstance(source, Kafka) and source.told.topics.is_one:
        return source.told.topics.names[0]
    url = getattr(source, "url", None)
    if isinstance(url, str):
        return url.rstrip("/").rsplit("/", 1)[-1]
    return type(source).__name__.lower()
