"""A job against its root, before anything is changed: the one place where the two are compared.

Everything a root remembers is compared with what the job declares, and every difference is told in
one error, in one form:

    <root> remembers another job: <subject> was <was> and is <now> now: <way out>.
    <root> remembers another job, in 2 places: (1) … (2) …: (1) … (2) ….

May change: everything that a root does not remember, such as delays, time to live and retention;
functions, if they keep their name (`name=`). Sources, operators, sinks, states and columns of
tables may be added. A column of a table may be left out: its rows are null there. No type is
widened, but for states, whose rules are those of `penstock.state.types`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.root import Root
from penstock.errors import Invalid
from penstock.runtime.description import (
    JobDescription,
    KnownOperator,
    KnownSink,
    KnownSource,
    describe,
)
from penstock.runtime.letters import REPLAY_ENDINGS
from penstock.runtime.remembered import remembered
from penstock.runtime.topology import CHANGES, DEAD_LETTERS, UNDECODABLE, Topology
from penstock.state.declare import schema_flaws

__all__ = ["Difference", "Incompatible", "adopted", "check_same_job", "differences"]

NEW_ROOT = "give the job a new root"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a root remembers otherwise than the job declares it."""

    subject: str
    was: str
    now: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.subject} was {self.was} and is {self.now} now"


class Incompatible(Invalid):
    """The root was written by a job that this one cannot go on with. Nothing was changed."""

    def __init__(
        self, subject: str, found: str, advice: str, differences: tuple[Difference, ...] = ()
    ) -> None:
        super().__init__(subject, found, advice)
        self.differences = differences


def check_same_job(
    topology: Topology, root: Root, newest: Manifest | None, where: str
) -> JobDescription | None:
    """What the next commit must describe the job as; None if the root says so already.
    `Incompatible`, with all differences, if the job cannot go on with what is there."""
    declared = describe(topology)
    if newest is None:
        return declared
    known = remembered(root, newest)
    found = [*differences(known, declared), *_changelogs(topology, newest)]
    if found:
        raise _incompatible(where, found)
    next_known = adopted(known, declared)
    is_told = newest.description is not None and next_known == known
    return None if is_told else next_known


def adopted(known: JobDescription, declared: JobDescription) -> JobDescription:
    """What is remembered once a job has gone on with a root. What it leaves out is still there, in
    old rows and in old state, and so is not forgotten."""
    operators = {
        name: msgspec.structs.replace(
            new, keys={**old.keys, **new.keys}, states={**old.states, **new.states}
        )
        for name, new in declared.operators.items()
        for old in (known.operators.get(name, KnownOperator()),)
    }
    sinks = {
        name: msgspec.structs.replace(new, columns={**old.columns, **new.columns})
        for name, new in declared.sinks.items()
        for old in (known.sinks.get(name, KnownSink()),)
    }
    return msgspec.structs.replace(declared, operators=operators, sinks=sinks)


def differences(known: JobDescription, declared: JobDescription) -> list[Difference]:
    """Everything in which a job is not the one that a root remembers."""
    found = [*_settings(known, declared)]
    for name, source in known.sources.items():
        found += _source(name, source, declared.sources.get(name))
    for name, operator in known.operators.items():
        found += _operator(name, operator, declared.operators.get(name))
    for name, sink in known.sinks.items():
        found += _sink(name, sink, declared.sinks.get(name))
    return list(dict.fromkeys(found))  # a quarantine has two tables


def _settings(known: JobDescription, declared: JobDescription) -> Iterator[Difference]:
    if known.partitions and known.partitions != declared.partitions:
        was, now = str(known.partitions), str(declared.partitions)
        way_out = f"run it with partitions={was}, or {NEW_ROOT} and let it read its sources again"
        yield Difference("the number of partitions", was, now, way_out)
    if known.groups and known.groups != declared.groups:
        was, now = str(known.groups), str(declared.groups)
        way_out = f"use a version of Penstock with {was} key groups, or {NEW_ROOT}"
        yield Difference("the number of key groups", was, now, way_out)
    if known.order and known.order != declared.order:
        way_out = f"set order={known.order!r} again, or {NEW_ROOT}"
        yield Difference("the order of a key's events", known.order, declared.order, way_out)


def _source(name: str, known: KnownSource, now: KnownSource | None) -> Iterator[Difference]:
    where = f"source {name!r}"
    if now is None:
        way_out = f"put the source back, or {NEW_ROOT}"
        yield Difference(where, known.kind or "read", "gone", way_out)
        return
    if not known.kind:
        return
    beside = f"read the new one under a name of its own beside it (`name=`), or {NEW_ROOT}"
    if known.kind != now.kind:
        yield Difference(where, known.kind, now.kind, beside)
        return  # settings of two kinds have nothing in common
    for setting in sorted(known.anchors.keys() & now.anchors.keys()):
        was, new = known.anchors[setting], now.anchors[setting]
        if was != new:
            yield Difference(f"{where}, {setting}", was, new, f"set it back, or {beside}")
    if known.event_time != now.event_time:
        was, new = (each or "the source's own" for each in (known.event_time, now.event_time))
        yield Difference(f"{where}, event_time", was, new, f"set it back, or {beside}")


def _operator(name: str, known: KnownOperator, now: KnownOperator | None) -> Iterator[Difference]:
    where = f"operator {name!r}"
    if now is None:
        way_out = f"put the operator back, or {NEW_ROOT}"
        yield Difference(f"the state of {where}", "kept", "gone", way_out)
        return
    beside = f"process the new key in an operator of another name beside this one, or {NEW_ROOT}"
    for origin, was, new in _keys(known.keys, now.keys):
        way_out = f"key it by {was} again (a transform can rename a column), or {beside}"
        yield Difference(f"{where}, key of {origin!r}", was, new, way_out)
    if known.key_types and known.key_types != now.key_types:
        was, new = ", ".join(known.key_types), ", ".join(now.key_types)
        way_out = f"cast it back in a transform, or {beside}"
        yield Difference(f"{where}, type of its key", was, new, way_out)
    for flaw in schema_flaws(known.states, now.states):
        subject, new = f"state {flaw.state!r} of {where}", f"{flaw.now} ({flaw.why})"
        yield Difference(subject, flaw.was, new, flaw.way_out)


def _keys(
    known: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, str]]:
    """The origins whose events came in by a key that they no longer have. Origins may come and go
    beside one that stays; if all are new, they must bring the keys that there were."""
    common = [origin for origin in known if origin in now]
    for origin in common:
        if not set(known[origin]) <= set(now[origin]):
            yield origin, " and ".join(known[origin]), " and ".join(now[origin])
    if known and not common:
        was, new = ({key for keys in each.values() for key in keys} for each in (known, now))
        if not was <= new:
            yield ", ".join(sorted(now)), " and ".join(sorted(was)), " and ".join(sorted(new))


def _sink(name: str, known: KnownSink, now: KnownSink | None) -> Iterator[Difference]:
    where = f"sink {name!r}"
    if now is None:
        yield _sink_gone(name, known)
        return
    beside = f"give the new one a name of its own beside it, or {NEW_ROOT}"
    if known.kind and known.kind != now.kind:
        yield Difference(where, known.kind, now.kind, f"set it back, or {beside}")
        return
    if known.kind and known.key != now.key:
        was, new = (", ".join(each) or "no key" for each in (known.key, now.key))
        yield Difference(f"{where}, key", was, new, f"set it back, or {beside}")
    for column, was in known.columns.items():
        new = now.columns.get(column, was)
        if was != new:
            yield Difference(f"table {name!r}, column {column!r}", was, new, _column_way_out(name))


def _column_way_out(table: str) -> str:
    if table.endswith((f".{DEAD_LETTERS}", f".{UNDECODABLE}")):
        return f"cast it back in a transform, or {NEW_ROOT}"
    another = "give the new column another name, or write it to another table beside this one"
    return f"set it back, or {another}, or {NEW_ROOT}"


def _sink_gone(name: str, known: KnownSink) -> Difference:
    operator = next((name.removesuffix(e) for e in REPLAY_ENDINGS if name.endswith(e)), name)
    source = name.removesuffix(f".{UNDECODABLE}")
    if operator != name:
        subject = f"the quarantine of operator {operator!r}"
        way_out = f"process it with on_error='quarantine', or {NEW_ROOT}"
        return Difference(subject, "on", "off", way_out)
    if source != name:
        subject = f"the quarantine of source {source!r}"
        way_out = f"read it with on_undecodable='quarantine', or {NEW_ROOT}"
        return Difference(subject, "on", "off", way_out)
    way_out = f"put the sink back, or {NEW_ROOT}"
    return Difference(f"sink {name!r}", known.kind or "written", "gone", way_out)


def _changelogs(topology: Topology, newest: Manifest) -> Iterator[Difference]:
    """Changelogs that were given up: they have missed changes. One that was not has something
    staged for it in every epoch."""
    for node in topology.sinks:
        if node.output == CHANGES and newest.sinks.get(node.name) == ():
            way_out = "give the changelog another prefix: it begins anew"
            yield Difference(f"changelog {node.name!r}", "given up", "to go on", way_out)


def _incompatible(where: str, found: Sequence[Difference]) -> Incompatible:
    several = len(found) > 1
    counted = [(f"({number}) " if several else "", each) for number, each in enumerate(found, 1)]
    places = f", in {len(found)} places" if several else ""
    told = "; ".join(f"{number}{each}" for number, each in counted)
    ways_out = "; ".join(f"{number}{each.way_out}" for number, each in counted)
    return Incompatible(where, f"remembers another job{places}: {told}", ways_out, tuple(found))
