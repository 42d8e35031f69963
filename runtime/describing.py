"""From what a user wrote to a topology: every mistake is found here, and named.

What was written is kept as it was; checking needs the sources' columns, and sometimes Spark, to
know what a transform makes of them. So nothing is asked of the outside before a job is started.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.runtime.functions import MAIN, Form, Wrapped
from penstock.runtime.letter_limit import LetterLimit, Quarantine
from penstock.runtime.letters import REPLAY_ENDINGS
from penstock.runtime.quarantine import dead_letter_sinks, with_replays
from penstock.runtime.topology import (
    CHANGES,
    UNDECODABLE,
    Feed,
    OperatorNode,
    SinkNode,
    SourceNode,
    Topology,
    unified,
)
from penstock.sinks.changelog import CHANGE_COLUMNS
from penstock.sinks.protocol import AppliedSink, Sink
from penstock.sinks.table import Table
from penstock.sources import Files, Log
from penstock.sources.protocol import META_NAME, Sifting, Source
from penstock.state.key_hash import key_groups

if TYPE_CHECKING:
    from penstock.runtime.job import Job, Stream

__all__ = ["Described", "Input", "Operator", "Written", "build", "sets_aside"]

Transform = Callable[[Any], Any]
Transformed = Callable[[Transform, pa.Schema], pa.Schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A source as it was described."""

    name: str
    source: Source
    event_time: str | None
    delay_ms: int
    idle_ms: int | None
    start: Any
    on_undecodable: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A sink as it was described."""

    sink: Sink
    origin: str
    output: str
    transforms: tuple[Transform, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A function as it was described."""

    wrapped: Wrapped
    parts: "Sequence[tuple[Stream | Written, tuple[str, ...]]]"
    on_error: str
    at_most: LetterLimit | None = None


@dataclass(slots=True)
class Described:
    """Everything that was written of a job, in order."""

    inputs: dict[str, Input] = field(default_factory=dict)
    operators: dict[str, Operator] = field(default_factory=dict)
    sinks: list[Written] = field(default_factory=list)

    def add_input(self, input_: Input) -> None:
        """One more source."""
        self._check_new("source", input_.name)
        _refuse_reserved("source", input_.name)
        self.inputs[input_.name] = input_

    def add_operator(
        self,
        wrapped: Any,
        name: str | None,
        parts: "Sequence[tuple[Stream, tuple[str, ...]]]",
        on_error: "str | Quarantine",
    ) -> str:
        """One more function; the name it goes by."""
        if not isinstance(wrapped, Wrapped):
            found = f"is a plain {type(wrapped).__name__}"
            raise Invalid(f"function {getattr(wrapped, '__name__', wrapped)!r}", found, _WRAP)
        found_name = check_name("operator", name or wrapped.name)
        self._check_new("operator", found_name)
        _refuse_reserved("operator", found_name)
        at_most = on_error.at_most if isinstance(on_error, Quarantine) else None
        policy = "quarantine" if isinstance(on_error, Quarantine) else on_error
        if policy not in ("fail", "quarantine"):
            found = f"has the policy {policy!r}"
            advice = "use 'fail', 'quarantine' or ps.quarantine(at_most='1 %')"
            raise Invalid(f"operator {found_name!r}", found, advice)
        named = replace(wrapped, name=found_name)
        self.operators[found_name] = Operator(named, parts, policy, at_most)
        return found_name

    def add_sink(self, written: Written) -> None:
        """One more sink."""
        name = written.sink.name
        if any(each.sink.name == name for each in self.sinks):
            raise Invalid(f"sink {name!r}", "is there twice", "give one another name")
        _refuse_alike("sink", name, (each.sink.name for each in self.sinks))
        _refuse_reserved("sink", name)
        self.sinks.append(written)

    def _check_new(self, what: str, name: str) -> None:
        if name in self.inputs or name in self.operators:
            found = "has a name that is taken"
            advice = (
                f"give it one of its own: {'read' if what == 'source' else 'process'}(…, name='…')"
            )
            raise Invalid(f"{what} {name!r}", found, advice)
        _refuse_alike(what, name, self.inputs if what == "source" else self.operators)


def _refuse_alike(what: str, name: str, others: Iterable[str]) -> None:
    """Names become folders, and there are disks on which `Count` and `count` are one folder: the
    collector would find the objects of one below the name of the other, and remove them."""
    alike = [other for other in others if other.casefold() == name.casefold()]
    if alike:
        raise Invalid(
            f"{what} {name!r}",
            f"differs from {alike[0]!r} only in upper and lower case",
            "give one of them another name",
        )


RESERVED_ENDINGS = (*REPLAY_ENDINGS, f".{UNDECODABLE}")
"""Names that Penstock gives: to what an operator or a source has set aside."""


def _refuse_reserved(what: str, name: str) -> None:
    """A name of the user's must not stand for, or beside, one that Penstock gives by itself."""
    ending = next((end for end in RESERVED_ENDINGS if name.casefold().endswith(end)), None)
    if ending is not None:
        found = f"has a name that ends with {ending!r}, as those of dead letters do"
        raise Invalid(f"{what} {name!r}", found, "give it another name")


_WRAP = 'wrap it: @ps.stateful(emits="user string, clicks long")'


def build(job: "Job", root: str, transformed: Transformed) -> Topology:
    """The topology of a job, checked as a whole."""
    described = job.described
    if not described.operators and not described.sinks:
        raise Invalid(f"job {job.name!r}", "does nothing", "process or write what it reads")
    operators, written_sinks = _with_plain_writes(described)
    sources = {name: _source(input_) for name, input_ in described.inputs.items()}
    builder = _Builder(sources, operators, transformed)
    nodes = [builder.operator(name, stage) for stage, name in enumerate(operators, 1)]
    nodes, replays = with_replays(nodes, root)
    outputs = {node.name: node.wrapped.outputs for node in nodes}
    sinks = [_sink(written, outputs) for written in written_sinks]
    sinks += dead_letter_sinks(nodes)
    sinks += _undecodable_sinks(sources)
    sinks += _changelog_sinks(job, nodes)
    used = {feed.origin for node in nodes for feed in node.feeds}
    for name in sources:
        if name not in used:
            raise Invalid(f"source {name!r}", "is read and not used", "process it, or leave it out")
    return Topology(
        job=job.name,
        partitions=job.partitions,
        order=job.order,
        sources={**sources, **replays},
        operators=tuple(nodes),
        sinks=tuple(sinks),
        transformed=frozenset(builder.through_spark),
    )


@dataclass(slots=True)
class _Builder:
    """Builds operators one after the other, each with the columns of those before it."""

    sources: dict[str, SourceNode]
    operators: dict[str, Operator]
    transformed: Transformed
    through_spark: set[str] = field(default_factory=set)

    def operator(self, name: str, stage: int) -> OperatorNode:
        operator = self.operators[name]
        feeds = tuple(self._feed(name, stream, key) for stream, key in operator.parts)
        _check_keys(name, feeds)
        schema = unified(f"operator {name!r}", [feed.schema for feed in feeds])
        wrapped = operator.wrapped
        if wrapped.function is _as_they_are:
            wrapped = replace(wrapped, outputs={MAIN: schema})
        return OperatorNode(
            stage=stage,
            wrapped=wrapped,
            feeds=feeds,
            schema=schema,
            on_error=operator.on_error,
            at_most=operator.at_most,
        )

    def _feed(self, operator: str, stream: "Stream | Written", key: tuple[str, ...]) -> Feed:
        schema, transform = self._columns(stream)
        where = f"operator {operator!r}"
        for column in key:
            if column not in schema.names:
                found = f"is keyed by {column!r}, which {stream.origin!r} does not have"
                raise Invalid(where, found, f"use one of {', '.join(schema.names)}")
        _check_hashable(where, schema, key)
        return Feed(
            origin=stream.origin, output=stream.output, key=key, schema=schema, transform=transform
        )

    def _columns(self, stream: "Stream | Written") -> tuple[pa.Schema, Transform | None]:
        if stream.origin in self.operators:
            outputs = self.operators[stream.origin].wrapped.outputs
            if stream.output not in outputs:
                what = f"side output {stream.output!r}" if stream.output else "rows"
                advice = "declare it with `emits` or `sides`"
                raise Invalid(f"operator {stream.origin!r}", f"emits no {what}", advice)
            return outputs[stream.output], None
        if stream.output != MAIN:
            found = f"has no side output {stream.output!r}"
            raise Invalid(f"source {stream.origin!r}", found, "side outputs are of functions")
        schema = self.sources[stream.origin].schema
        if not stream.transforms:
            return schema, None
        transform = _composed(stream.transforms)
        found_schema = self.transformed(transform, self._with_meta(stream.origin))
        if META_NAME not in found_schema.names:
            raise Invalid(
                f"the transform of source {stream.origin!r}",
                f"drops the column {META_NAME!r}, which says where a row comes from",
                f"select it too: df.select('user', '{META_NAME}')",
            )
        self.through_spark.add(stream.origin)
        at = found_schema.get_field_index(META_NAME)
        own = found_schema.remove(at)
        _check_own(f"the transform of source {stream.origin!r}", own)
        return own, transform

    def _with_meta(self, source: str) -> pa.Schema:
        from penstock.runtime.reading import rows_schema

        return rows_schema(self.sources[source])


def _composed(transforms: tuple[Transform, ...]) -> Transform:
    def transform(frame: Any) -> Any:
        for change in transforms:
            frame = change(frame)
        return frame

    return transform


def _source(input_: Input) -> SourceNode:
    schema = input_.source.schema()
    where = f"source {input_.name!r}"
    _check_own(where, schema)
    if isinstance(input_.start, str) and input_.start not in ("earliest", "latest"):
        found = f"cannot start at {input_.start!r}"
        raise Invalid(
            where, found, "use 'earliest', 'latest', a moment, or an offset per partition"
        )
    if input_.event_time is not None:
        at = schema.get_field_index(input_.event_time)
        if at < 0:
            found = f"has no column {input_.event_time!r}"
            raise Invalid(where, found, f"use one of {', '.join(schema.names)} as event_time")
        if not pa.types.is_timestamp(schema.field(at).type):
            found = f"has {schema.field(at).type} in its column {input_.event_time!r}"
            raise Invalid(where, found, "choose a timestamp column as event_time")
    source = input_.source
    return SourceNode(
        name=input_.name,
        # Tasks run in other folders than the driver does.
        source=source.located() if isinstance(source, Files | Log) else source,
        schema=schema,
        event_time=input_.event_time,
        delay_ms=input_.delay_ms,
        idle_ms=input_.idle_ms,
        start=input_.start,
        sets_aside=sets_aside(input_),
    )


def sets_aside(input_: Input) -> bool:
    """Whether what cannot be decoded is kept in a table: by the source's own policy, or by what the
    job says of a source that has none."""
    where, source, policy = f"source {input_.name!r}", input_.source, input_.on_undecodable
    if policy not in (None, "fail", "quarantine"):
        raise Invalid(where, f"has on_undecodable={policy!r}", "use 'fail' or 'quarantine'")
    if not isinstance(source, Sifting):
        return policy == "quarantine"
    said = "Files(…, poison=…)" if isinstance(source, Files) else "Kafka(…, on_undecodable=…)"
    if policy is not None:
        found = f"is read with on_undecodable={policy!r}, and has a policy of its own"
        raise Invalid(where, found, f"say it there: {said}")
    return source.sifts


def _check_own(where: str, schema: pa.Schema) -> None:
    for column in schema.names:
        if column.startswith("_"):
            found = f"has a column {column!r}, and a leading '_' is for Penstock's own"
            raise Invalid(where, found, "give it another name")


def _check_keys(operator: str, feeds: tuple[Feed, ...]) -> None:
    first = [feeds[0].schema.field(column).type for column in feeds[0].key]
    for feed in feeds[1:]:
        kinds = [feed.schema.field(column).type for column in feed.key]
        if kinds != first:
            found = f"is keyed by {_spelt(first)} of {feeds[0].origin!r} and by {_spelt(kinds)} of "
            raise Invalid(f"operator {operator!r}", f"{found}{feed.origin!r}", "cast one of them")


def _spelt(kinds: list[pa.DataType]) -> str:
    return ", ".join(map(str, kinds))


def _check_hashable(where: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
    for column in key:
        try:
            key_groups([pa.chunked_array([], schema.field(column).type)])
        except Invalid as error:
            found = f"is keyed by {column!r} of type {schema.field(column).type}"
            raise Invalid(where, found, "cast it to a type that can be a key") from error


def _with_plain_writes(described: Described) -> tuple[dict[str, Operator], list[Written]]:
    """The operators, and one that passes rows on for every source that is written as it is."""
    operators, sinks = dict(described.operators), []
    for written in described.sinks:
        if written.origin in described.operators:
            sinks.append(written)
            continue
        name = f"{written.sink.name}.rows"
        if name in operators or name in described.inputs:
            found = f"needs the name {name!r} for itself, and something has it"
            raise Invalid(f"sink {written.sink.name!r}", found, "rename that")
        operators[name] = Operator(_passing(name), ((written, ()),), "fail")
        sinks.append(Written(written.sink, name, MAIN, ()))
    return operators, sinks


def _passing(name: str) -> Wrapped:
    """A function that changes nothing; its columns are those of what it is fed with."""
    return Wrapped(
        function=_as_they_are,
        name=name,
        form=Form.PER_PARTITION,
        outputs={},
        states=(),
        parameters=("events",),
        with_moment=False,
    )


def _as_they_are(batch: Any) -> Any:
    return batch.table


def _sink(written: Written, outputs_of: Mapping[str, Mapping[str, pa.Schema]]) -> SinkNode:
    outputs = outputs_of[written.origin]
    where = f"sink {written.sink.name!r}"
    if written.output not in outputs:
        what = f"no side output {written.output!r}" if written.output else "nothing"
        found = f"writes what operator {written.origin!r} emits, which is {what}"
        raise Invalid(where, found, "declare it with `emits` or `sides`")
    columns = outputs[written.output]
    if isinstance(written.sink, AppliedSink):
        written.sink.check(columns.empty_table())
    return SinkNode(
        sink=written.sink, operator=written.origin, output=written.output, columns=columns
    )


def _undecodable_sinks(sources: Mapping[str, SourceNode]) -> list[SinkNode]:
    """A table for every source that leaves out what it cannot decode."""
    return [
        SinkNode(
            sink=Table(f"{name}.{UNDECODABLE}", takes_any=True), operator=name, output=UNDECODABLE
        )
        for name, node in sources.items()
        if node.sets_aside
    ]


def _changelog_sinks(job: "Job", nodes: list[OperatorNode]) -> list[SinkNode]:
    """One for every operator that keeps state, if the job has a changelog outside its root."""
    if job.changelog is None:
        return []
    return [
        SinkNode(
            sink=job.changelog.sink(job.name, node.name),
            operator=node.name,
            output=CHANGES,
            columns=CHANGE_COLUMNS,
        )
        for node in nodes
        if node.wrapped.states
    ]
