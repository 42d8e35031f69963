"""A job in other clothes: the same job with other sources, or with something before its sinks.

What is described stays described by whoever wrote it. The copy has the same name, partitions,
functions and names of everything, and so the same state and the same cursors; nothing of the job
that was given is changed by making it or by running it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from penstock.errors import Invalid
from penstock.runtime.describing import Described, Input, Operator, sets_aside
from penstock.runtime.job import Job, Stream
from penstock.sinks.protocol import Sink
from penstock.sources.protocol import Source

__all__ = ["dressed"]

_NONE: Mapping[str, Source] = MappingProxyType({})


def _as_it_is(sink: Sink) -> Sink:
    return sink


def dressed(
    job: Job,
    *,
    sources: Mapping[str, Source] = _NONE,
    sinks: Callable[[Sink], Sink] = _as_it_is,
    changelog: bool = True,
) -> Job:
    """The same job, reading some of its sources elsewhere, with what `sinks` makes of each sink.

    A source that takes the place of another is read from its beginning, because offsets and moments
    of the other mean nothing in it; what the job says of its time stays. Without `changelog` the
    copy has none outside its root.
    """
    _check_known(job, sources)
    copy = Job(
        job.name,
        partitions=job.partitions,
        order=job.order,
        changelog=job.changelog if changelog else None,
    )
    described = job.described
    copy.described = Described(
        inputs={name: _read(input_, sources) for name, input_ in described.inputs.items()},
        operators={name: _fed(each, copy) for name, each in described.operators.items()},
        sinks=[replace(written, sink=sinks(written.sink)) for written in described.sinks],
    )
    return copy


def _check_known(job: Job, sources: Mapping[str, Source]) -> None:
    for name in sources:
        if name not in job.described.inputs:
            known = ", ".join(job.described.inputs) or "none"
            found = f"reads no source {name!r}"
            raise Invalid(f"job {job.name!r}", found, f"use one of its sources: {known}")


def _read(input_: Input, sources: Mapping[str, Source]) -> Input:
    if input_.name not in sources:
        return input_
    policy = "quarantine" if sets_aside(input_) else None
    substitute = sources[input_.name]
    return replace(input_, source=substitute, start="earliest", on_undecodable=policy)


def _fed(operator: Operator, job: Job) -> Operator:
    """The same operator, fed with streams of the copy: a stream knows its job."""
    parts = [
        (replace(stream, job=job) if isinstance(stream, Stream) else stream, key)
        for stream, key in operator.parts
    ]
    return replace(operator, parts=parts)
