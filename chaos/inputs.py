"""Events made up in the place of a job's sources, from the columns that each says it has.

They are to reach what a job is made of. Keys come again, and are the same in all sources, so that
state is read and joins find something. Events happen in bursts with pauses of a minute up to a day
between them, so that timers fire, sessions end, windows close and states expire.
"""

from collections.abc import Collection

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.asked import COMING_S, Asked
from penstock.chaos.brief import Generated
from penstock.errors import Invalid
from penstock.runtime.describing import Input
from penstock.runtime.job import Job
from penstock.sources.rate_keys import check_key

__all__ = ["generated_for"]

PARTITIONS = 2
EVENTS_PER_KEY = 100
KEYS_MAX = 500
BURSTS = 40
"""How often nothing happens for a while, over all events of a source."""
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
    keyed = {name: _key_columns(job, name, _keys(share)) for name in names}
    return {
        name: Generated(
            records=share,
            partitions=PARTITIONS,
            seed=seed + number,
            key=next(iter(keyed[name]), None),
            keys=_keys(share),
            key_with=tuple(keyed[name][1:]),
            event_time=job.described.inputs[name].event_time,
            rows_per_s=None if rate is None else rate / len(names) / PARTITIONS,
            start_ms=START_MS if rate is None else now_ms + round(COMING_S * 1000),
            burst_rows=max(1, share // PARTITIONS // BURSTS) if rate is None else None,
        )
        for number, name in enumerate(names)
    }


def _keys(records: int) -> int:
    """Few, so that each comes again and again."""
    return min(KEYS_MAX, max(1, records // EVENTS_PER_KEY))


def _key_columns(job: Job, source: str, keys: int) -> list[str]:
    """The columns that the job keys a source by, but for those that cannot be made up."""
    input_ = job.described.inputs[source]
    schema: pa.Schema = input_.source.schema()
    found: dict[str, None] = {}
    for operator in job.described.operators.values():
        for stream, columns in operator.parts:
            if stream.origin == source:
                found |= dict.fromkeys(columns or ())
    return [name for name in found if name in schema.names and _can_be(name, input_, keys)]


def _can_be(name: str, input_: Input, keys: int) -> bool:
    """Whether so many keys can be made up in a column."""
    try:
        check_key(input_.source.schema().field(name).type, keys, name)
    except Invalid:
        return False
    return name != input_.event_time
