"""Events made up in the place of a job's sources, from the columns that each says it has."""

from collections.abc import Collection

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.asked import COMING_S, Asked
from penstock.chaos.brief import Generated
from penstock.errors import Invalid
from penstock.runtime.job import Job
from penstock.sources.rate_keys import check_key

__all__ = ["generated_for"]

PARTITIONS = 2
KEYS = 500
START_MS = 1_767_225_600_000
"""When the first made-up event happened, if they are all there at once."""


def generated_for(
    job: Job, asked: Asked, now_ms: int, without: Collection[str]
) -> dict[str, Generated]:
    """As many events as are asked for, over all sources that have none yet. Those that come at a
    rate come from when a driver may have started."""
    assert asked.made_up is not None
    records, seed, rate = asked.made_up, asked.seed, asked.rate
    names = [name for name in job.described.inputs if name not in without]
    if not names:
        return {}
    share = max(1, records // len(names))
    return {
        name: Generated(
            records=share,
            partitions=PARTITIONS,
            seed=seed + number,
            key=_key(job, name),
            keys=KEYS,
            event_time=job.described.inputs[name].event_time,
            rows_per_s=None if rate is None else rate / len(names) / PARTITIONS,
            start_ms=START_MS if rate is None else now_ms + round(COMING_S * 1000),
        )
        for number, name in enumerate(names)
    }


def _key(job: Job, source: str) -> str | None:
    """The column that the job keys a source by: of its values there are few, so that keys come
    again. None if it is keyed by none, or by what cannot be made up."""
    schema: pa.Schema = job.described.inputs[source].source.schema()
    for operator in job.described.operators.values():
        for stream, columns in operator.parts:
            if stream.origin == source and columns and columns[0] in schema.names:
                try:
                    check_key(schema.field(columns[0]).type, KEYS, source)
                except Invalid:
                    return None
                return columns[0]
    return None
