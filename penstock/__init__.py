"""Stateful stream jobs on Apache Spark, in Python, effectively exactly once.

    import penstock as ps

The lobby: what every room shares, and the door to what a user needs of the rooms. A room is
entered when one of its names is used for the first time, so `import penstock` costs nothing.
The rooms are `penstock.checkpoint`, `penstock.fencing`, `penstock.sinks`, `penstock.sources`,
`penstock.state`, `penstock.runtime` and `penstock.chaos`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import Bug, Corrupt, Fenced, Gone, Invalid, PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.chaos.invariants import Observed, invariant
    from penstock.runtime.events import Batch, Event, Events, Moment
    from penstock.runtime.functions import stateful, to, vectorized
    from penstock.runtime.job import Job, merge
    from penstock.runtime.letter_limit import quarantine
    from penstock.runtime.settings import RunSettings
    from penstock.sinks import (
        Committed,
        Delta,
        DynamoDB,
        ForEachEpoch,
        Http,
        KafkaChangelog,
        KafkaSink,
        LogSink,
        Memory,
        Postgres,
        Redis,
        Table,
        read_table,
        table_reader,
    )
    from penstock.sources import Files, Kafka, Limits, Log, Rate
    from penstock.state import Columns, List, Map, Timer, Value, by_clock, ttl

__all__ = [
    "Batch",
    "Bug",
    "Columns",
    "Committed",
    "Corrupt",
    "Delta",
    "DynamoDB",
    "Event",
    "Events",
    "Fenced",
    "Files",
    "ForEachEpoch",
    "Gone",
    "Http",
    "Invalid",
    "Job",
    "Kafka",
    "KafkaChangelog",
    "KafkaSink",
    "Limits",
    "List",
    "Log",
    "LogSink",
    "Map",
    "Memory",
    "Moment",
    "Observed",
    "PenstockError",
    "Postgres",
    "Rate",
    "Redis",
    "RunSettings",
    "Table",
    "Timer",
    "Unavailable",
    "Value",
    "by_clock",
    "invariant",
    "merge",
    "quarantine",
    "read_table",
    "stateful",
    "table_reader",
    "to",
    "ttl",
    "vectorized",
]

_SINKS = (
    "Committed",
    "Delta",
    "DynamoDB",
    "ForEachEpoch",
    "Http",
    "KafkaChangelog",
    "KafkaSink",
    "LogSink",
    "Memory",
    "Postgres",
    "Redis",
    "Table",
    "read_table",
    "table_reader",
)
_ROOMS = {
    **dict.fromkeys(("Observed", "invariant"), "penstock.chaos.invariants"),
    **dict.fromkeys(("Files", "Kafka", "Limits", "Log", "Rate"), "penstock.sources"),
    **dict.fromkeys(_SINKS, "penstock.sinks"),
    **dict.fromkeys(("Batch", "Event", "Events", "Moment"), "penstock.runtime.events"),
    **dict.fromkeys(("stateful", "to", "vectorized"), "penstock.runtime.functions"),
    "quarantine": "penstock.runtime.letter_limit",
    **dict.fromkeys(("Job", "merge"), "penstock.runtime.job"),
    "RunSettings": "penstock.runtime.settings",
    **dict.fromkeys(
        ("Columns", "List", "Map", "Timer", "Value", "by_clock", "ttl"), "penstock.state"
    ),
}


def __getattr__(name: str) -> Any:
    """A name of a room, fetched when it is first asked for."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    found = getattr(import_module(_ROOMS[name]), name)
    globals()[name] = found
    return found
