"""A job as the runtime sees it: sources, operators in order, sinks; checked as a whole.

It is a value: it is sent to the tasks as it is, and the same topology always does the same.
Operators stand in an order in which each comes after those that feed it, and that order is the
order of the stages of an epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.runtime.functions import Wrapped
from penstock.runtime.letter_limit import LetterLimit
from penstock.sinks.protocol import AppliedSink, Sink
from penstock.sources.protocol import Source
from penstock.state.key_groups import GROUPS

__all__ = [
    "CHANGES",
    "DEAD_LETTERS",
    "REPLAYED",
    "UNDECODABLE",
    "Feed",
    "OnError",
    "OperatorNode",
    "Order",
    "SinkNode",
    "SourceNode",
    "Topology",
    "unified",
]

Order = str
"""'event-time' or 'log'."""
OnError = str
"""'fail' or 'quarantine'."""

DEAD_LETTERS = "dead-letters"
"""The output, and the ending of the table's name, that quarantined events go to."""

REPLAYED = "replayed-letters"
"""The output that an operator's replayed dead letters are. The leader stages it."""

UNDECODABLE = "undecodable"
"""The same for messages that a source could not decode."""

CHANGES = "changes"
"""The output that an operator's state changes are, for a changelog kept elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """A source, and what the job says of its time."""

    name: str
    source: Source
    schema: pa.Schema
    event_time: str | None
    """The column that says when an event happened; None: what the source itself says."""
    delay_ms: int
    """How much later than a later one an event may come."""
    idle_ms: int | None
    """After how long without events a partition no longer holds time back."""
    start: Any
    is_replay: bool = False
    """Whether it holds replayed dead letters: `penstock.runtime.replays.Replays`."""
    sets_aside: bool = False
    """Whether what cannot be decoded is kept in a table of its own; else it stops the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What comes into an operator from one source or operator."""

    origin: str
    output: str
    key: tuple[str, ...]
    schema: pa.Schema
    transform: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorNode:
    """One stage."""

    stage: int
    wrapped: Wrapped
    feeds: tuple[Feed, ...]
    schema: pa.Schema
    """All columns its events may have, over all feeds."""
    on_error: OnError
    at_most: LetterLimit | None = None
    """How many dead letters an epoch may have; None: any number."""

    @property
    def name(self) -> str:
        """What its state, its metrics and messages call it."""
        return self.wrapped.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of its key, as its first feed calls them."""
        return self.feeds[0].key


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Where an output goes."""

    sink: Sink
    operator: str
    """What makes its rows; of undecodable messages it is a source."""
    output: str
    columns: pa.Schema | None = None
    """Those of its rows; of dead letters, which are a table, nobody asks."""

    @property
    def name(self) -> str:
        """The sink's name."""
        return self.sink.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The whole job."""

    job: str
    partitions: int
    order: Order
    sources: Mapping[str, SourceNode]
    operators: tuple[OperatorNode, ...]
    sinks: tuple[SinkNode, ...]
    groups: int = GROUPS
    transformed: frozenset[str] = field(default=frozenset())
    """Sources whose rows go through Spark's own operations before they are keyed."""

    @property
    def applied(self) -> list[SinkNode]:
        """The sinks outside the root."""
        return [node for node in self.sinks if isinstance(node.sink, AppliedSink)]

    @property
    def tables(self) -> list[SinkNode]:
        """The sinks whose files stay below the root."""
        return [node for node in self.sinks if not isinstance(node.sink, AppliedSink)]

    def changelog_of(self, operator: str) -> SinkNode | None:
        """The sink that an operator's state changes go to, if there is one."""
        found = (n for n in self.sinks if n.operator == operator and n.output == CHANGES)
        return next(found, None)

    def undecodable_of(self, source: str) -> SinkNode | None:
        """The table that a source's undecodable messages go to, if they are kept."""
        found = (n for n in self.sinks if n.operator == source and n.output == UNDECODABLE)
        return next(found, None)

    def operator(self, stage: int) -> OperatorNode:
        """The operator of a stage, counted from 1."""
        return self.operators[stage - 1]

    def feeds_from(self, origin: str, output: str = "") -> list[tuple[OperatorNode, int, Feed]]:
        """Where the rows of a source, or of an output of an operator, go."""
        return [
            (operator, number, feed)
            for operator in self.operators
            for number, feed in enumerate(operator.feeds)
            if feed.origin == origin and feed.output == output
        ]

    def sources_of(self, operator: OperatorNode) -> set[str]:
        """The sources whose time an operator follows."""
        found: set[str] = set()
        by_name = {each.name: each for each in self.operators}
        for feed in operator.feeds:
            if feed.origin in self.sources:
                found.add(feed.origin)
            else:
                found |= self.sources_of(by_name[feed.origin])
        return found


def unified(where: str, schemas: list[pa.Schema]) -> pa.Schema:
    """One schema with the columns of all; a column that several have must be of one type."""
    try:
        return pa.unify_schemas(schemas)
    except pa.ArrowException as error:
        for schema in schemas:
            for other in schemas:
                for name in set(schema.names) & set(other.names):
                    one, two = schema.field(name).type, other.field(name).type
                    if one != two:
                        found = f"is {one} in one of its inputs and {two} in another"
                        advice = "cast one of them in a transform"
                        raise Invalid(f"{where}, column {name!r}", found, advice) from error
        raise Invalid(where, f"has inputs that do not fit together ({error})", "cast") from error
