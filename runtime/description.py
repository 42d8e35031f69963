"""The description of a job: what its root remembers of it, beside offsets, state and rows.

Offsets, state and tables outlive the program that made them. Whoever goes on with them must read
the same sources, key by the same columns, and write the same types; this is what is needed to tell.
It is one small object, stored when it has changed and named by every manifest from then on, so
going back to an epoch, or forking it, brings back the description of that epoch.

A field that is empty is not known: then it fits anything. New fields have defaults, so that the
descriptions of today can be read when there is more to remember.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref, decode, encode
from penstock.checkpoint.layout import description_key
from penstock.checkpoint.staging import stage
from penstock.effects import Steps
from penstock.errors import Invalid
from penstock.fields import Count, FormatNumber, Text
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.runtime.topology import (
    CHANGES,
    DEAD_LETTERS,
    OperatorNode,
    SinkNode,
    SourceNode,
    Topology,
)
from penstock.sinks.protocol import KeyedSink, Sink, SinkAround, StagedSink
from penstock.sinks.table import open_file
from penstock.sources.protocol import Anchored

__all__ = [
    "DESCRIPTION_FORMAT",
    "JobDescription",
    "KnownOperator",
    "KnownSink",
    "KnownSource",
    "describe",
    "own_columns",
    "read_description",
    "stage_description",
]

DESCRIPTION_FORMAT = 1
OWN = "written by the user"
"""The kind of every source and sink that is none of Penstock's: classes may be renamed."""


class KnownSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered of a source."""

    kind: Text = ""
    """Empty: nothing is known of it but that it was read."""
    event_time: Text | None = None
    """The column that says when an event happened; None: what the source itself says."""
    anchors: dict[Text, Text] = {}
    """See `penstock.sources.protocol.Anchored`."""


class KnownOperator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered of an operator that keeps state."""

    keys: dict[Text, tuple[Text, ...]] = {}
    """The columns of the key in words, by the source or operator that the events come from; several
    if its events come in by several keys."""
    key_types: tuple[Text, ...] = ()
    """As far as they decide where a key's state is found."""
    states: dict[Text, dict[Text, Any]] = {}
    """Every state there ever was, as `StateSpec.description` has it."""


class KnownSink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered of a sink."""

    kind: Text = ""
    """Empty: nothing is known of it but that it was written to."""
    key: tuple[Text, ...] = ()
    columns: dict[Text, Text] = {}
    """Of a table, every column there ever was and its type, without those of Penstock's own."""


class JobDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a root remembers of its job."""

    format: FormatNumber = DESCRIPTION_FORMAT
    partitions: Count = 0
    groups: Count = 0
    order: Text = ""
    sources: dict[Text, KnownSource] = {}
    operators: dict[Text, KnownOperator] = {}
    """Those that keep state."""
    sinks: dict[Text, KnownSink] = {}
    """All but changelogs, which may be given up and begun anew."""


def describe(topology: Topology) -> JobDescription:
    """What is to be remembered of a job as it is now."""
    nodes = [node for node in topology.sinks if node.output != CHANGES]
    return JobDescription(
        partitions=topology.partitions,
        groups=topology.groups,
        order=topology.order,
        sources={
            name: _source(node) for name, node in topology.sources.items() if not node.is_replay
        },
        operators={
            node.name: _operator(node, topology) for node in topology.operators if _keeps(node)
        },
        sinks={node.name: _sink(node, topology) for node in nodes},
    )


def own_columns(schema: pa.Schema) -> dict[str, str]:
    """The columns of a table and their types, without those of Penstock's own."""
    return {field.name: str(field.type) for field in schema if not field.name.startswith("_")}


def stage_description(description: JobDescription, epoch: Epoch, attempt: Attempt) -> Steps[Ref]:
    """Store a description for the manifest of an epoch. A crash before that leaves an orphan."""
    key = description_key(epoch, attempt)
    return (yield from stage(key, encode(description), Point.STAGE_OUTPUT))


def read_description(chain: Chain, ref: Ref, needed_by: Epoch) -> Steps[JobDescription]:
    """The description that the manifest of an epoch names."""
    body = yield from chain.payload(ref, needed_by, Point.READ_OBJECT)
    return decode(ref.key, body, JobDescription, DESCRIPTION_FORMAT)


def _source(node: SourceNode) -> KnownSource:
    source = node.source
    return KnownSource(
        kind=_kind(source),
        event_time=node.event_time,
        anchors=dict(source.anchors()) if isinstance(source, Anchored) else {},
    )


def _kind(thing: object) -> str:
    """The name of the class of ours that something is of, also if a user has refined it."""
    ours = (each for each in type(thing).__mro__ if each.__module__.startswith("penstock."))
    return next((each.__name__ for each in ours), OWN)


def _keeps(node: OperatorNode) -> bool:
    return bool(node.wrapped.states)


def _operator(node: OperatorNode, topology: Topology) -> KnownOperator:
    keys: dict[str, set[str]] = {}
    for feed in node.feeds:
        replays = feed.origin in topology.sources and topology.sources[feed.origin].is_replay
        if not replays:
            origin = f"{feed.origin}.{feed.output}" if feed.output else feed.origin
            keys.setdefault(origin, set()).add(", ".join(feed.key))
    first = node.feeds[0]
    return KnownOperator(
        keys={origin: tuple(sorted(spelt)) for origin, spelt in keys.items()},
        key_types=tuple(_key_type(first.schema.field(column).type) for column in first.key),
        states={spec.name: spec.description() for spec in node.wrapped.states},
    )


def _key_type(kind: pa.DataType) -> str:
    """A type as far as the key hash and the encoding of keys tell it from others. A whole number of
    another width is hashed to another key group, so no type is widened."""
    if pa.types.is_dictionary(kind):
        return _key_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with a zone"
    return str(kind).removeprefix("large_")


def _sink(node: SinkNode, topology: Topology) -> KnownSink:
    sink = node.sink
    while isinstance(sink, SinkAround):
        sink = sink.sink
    return KnownSink(
        kind=_kind(sink),
        key=sink.key_columns if isinstance(sink, KeyedSink) else (),
        columns=own_columns(_written(sink, _columns(node, topology))),
    )


def _columns(node: SinkNode, topology: Topology) -> pa.Schema:
    """The columns that the user's own events or rows give a sink."""
    if node.output == DEAD_LETTERS:
        operators: Mapping[str, OperatorNode] = {each.name: each for each in topology.operators}
        return operators[node.operator].schema
    return pa.schema([]) if node.columns is None else node.columns


def _written(sink: Sink, columns: pa.Schema) -> pa.Schema:
    """Columns as a file of the table has them: a format may keep a type as another one. Of other
    sinks the target knows its columns, and is asked when it is opened."""
    if not isinstance(sink, StagedSink):
        return pa.schema([])
    try:
        body = sink.encode(columns.empty_table())
    except pa.ArrowException as why:
        found = f"cannot be written in its format ({why})"
        raise Invalid(f"table {sink.name!r}", found, "emit other types, or use 'arrow'") from why
    return open_file(sink.key(Epoch(0), 0, Attempt("none")), body)[0]
