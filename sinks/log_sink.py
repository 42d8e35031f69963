"""`LogSink`: committed outputs as a topic that other jobs read.

    job.write(ps.LogSink("totals", "data/totals", key="user"))

Each row is in the topic once, and rows of one partition of the topic are in the order in which
the job emitted them. So a job that reads it is to this one as this one is to its own sources: a
chain of jobs is exactly-once from end to end. An epoch appears in one partition after the other; a
reader may meet it in one and not yet in the next. How that is safe: `log_sink_steps`.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import absolute_url, open_store, without_secrets
from penstock.checkpoint.perform import store_handlers
from penstock.clock import SystemChance, SystemClock
from penstock.ids import check_name
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import as_key
from penstock.sinks.log_sink_holding import LogHolding, hold
from penstock.sinks.log_sink_topic import Wanted, topic_for
from penstock.sinks.log_sink_writer import LogWriter, producer_of
from penstock.sinks.protocol import Target
from penstock.sinks.staged import own_columns
from penstock.sources.log import Log
from penstock.sources.log_rows import check_moments
from penstock.sources.log_topic import Topic, check_topic, with_columns
from penstock.state.key_hash import key_groups

__all__ = ["LogSink"]


@dataclass(frozen=True, slots=True, repr=False)
class LogSink:
    """Rows into the topic at `url`, which is made if there is none.

    Rows with equal `key` go to one partition of the topic, the one any producer would choose.
    Without a key, those of the job's partition n go to the topic's partition n, counted round.
    """

    name: str
    url: str
    _: KW_ONLY
    partitions: int | None = None
    """Of a topic that is made; as many as the job has, if not said. One that is there must have as
    many or more."""
    key: str | Sequence[str] = ()
    event_time: str | None = None
    create: bool = True

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        object.__setattr__(self, "key", as_key(self.key))
        object.__setattr__(self, "url", absolute_url(self.url))

    def __repr__(self) -> str:
        return f"LogSink({self.name!r}, {without_secrets(self.url)!r})"

    @property
    def where(self) -> str:
        """The sink and its topic, as messages call them."""
        return f"sink {self.name}, log {without_secrets(self.url)}"

    @property
    def guarantee(self) -> Guarantee:
        """For readers of the topic."""
        return Guarantee.EXACTLY_ONCE

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return as_key(self.key)

    def shards(self, partitions: int) -> int:
        """One cursor for all partitions of the topic, whatever the job's are."""
        return 1

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` if no topic could have such columns, or their key or event time."""
        own = own_columns(rows)
        key, event_time = as_key(self.key), self.event_time
        made = Topic(
            id="",
            partitions=1 if self.partitions is None else self.partitions,
            columns=with_columns(self.where, None, own.schema),
            key=key,
            event_time=event_time,
        )
        check_topic(self.where, made)
        if key:
            key_groups([own.column(name) for name in key])
        if event_time is not None:
            check_moments(self.where, own, event_time)

    def open(self, target: Target) -> LogWriter:
        """Find the topic or make it, and see that it takes such rows."""
        wanted = Wanted(
            where=self.where,
            partitions=self.partitions,
            made_with=target.partitions,
            key=as_key(self.key),
            event_time=self.event_time,
            create=self.create,
        )
        clock, chance = SystemClock(), SystemChance()
        handlers = store_handlers(open_store(self.url), clock)
        return LogWriter(
            where=self.where,
            producer=producer_of(target.job, self.name),
            columns=target.columns,
            topic=topic_for(wanted, target.columns, handlers, chance),
            handlers=handlers,
            clock=clock,
            chance=chance,
        )

    def read_back(self, target: Target) -> LogHolding:
        """The topic as it is now. It is not made."""
        return hold(self.where, Log(self.url), producer_of(target.job, self.name), SystemClock())
