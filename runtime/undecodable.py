"""Messages that a source could not decode, kept in the same commit as all that it could.

Each is a row of the table `<source>.undecodable`: the message as it came, why it is one, and where
it was. It was never an event, so it cannot be replayed: mend whoever sends such messages, and
have them sent anew.

A row whose event time is outside of the years 1 to 9999 is undecodable too, whatever its source is:
one such time would carry the watermark beyond every other event for good. Its message is decoded
by then, so its value is the row as JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.formats import ref_to
from penstock.checkpoint.manifest import Output
from penstock.errors import Invalid
from penstock.ids import Attempt
from penstock.runtime.row_values import json_of_row, python_rows
from penstock.runtime.topology import SourceNode, Topology
from penstock.runtime.wire import Plan, WantedRange
from penstock.runtime.workshop import Workshop
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.staged import staged
from penstock.sources.event_times import outside_calendar, why_outside
from penstock.sources.protocol import Undecoded

__all__ = ["Left", "UntimelyRow", "count_left", "stage_left", "without_untimely"]


@dataclass(frozen=True, slots=True)
class Left:
    """What was left out of a range."""

    wanted: WantedRange
    messages: Sequence[Undecoded]


@dataclass(frozen=True, slots=True)
class UntimelyRow:
    """A row whose event time no calendar has."""

    offset: int
    reason: str
    value: bytes
    key: bytes | None = None
    count: int = 1


def without_untimely(
    node: SourceNode, partition: str, rows: pa.Table
) -> tuple[pa.Table, list[Undecoded]]:
    """The rows whose event time is in the calendar, and the others; `Invalid` names the first of
    those if their source does not set them aside."""
    beyond = outside_calendar(rows.column("_event_time"))
    if beyond is None:
        return rows, []
    bad = rows.filter(pa.array(beyond))
    if not node.sets_aside:
        raise _untimely(node, partition, bad)
    own = bad.select([name for name in bad.column_names if not name.startswith("_")])
    places = zip(bad.column("_offset").to_pylist(), _micros(bad), python_rows(own), strict=True)
    left: list[Undecoded] = [
        UntimelyRow(offset, why_outside(micros), json_of_row(row)) for offset, micros, row in places
    ]
    return rows.filter(pa.array(~beyond)), left


def _untimely(node: SourceNode, partition: str, bad: pa.Table) -> Invalid:
    column = "" if node.event_time is None else f" (column {node.event_time!r})"
    return Invalid(
        f"source {node.name!r}, partition {partition}",
        f"has an event at offset {bad.column('_offset')[0].as_py()} that cannot be decoded: "
        f"{why_outside(_micros(bad)[0])}{column}",
        "correct its unit where it is sent, or set such events aside by on_undecodable="
        "'quarantine'; of Files, by poison='quarantine'",
    )


def _micros(rows: pa.Table) -> list[int]:
    found: list[int] = rows.column("_event_time").cast(pa.int64()).to_pylist()
    return found


def stage_left(shop: Workshop, plan: Plan, task: int, left: Sequence[Left]) -> dict[str, Output]:
    """Store what one reading task left out, source by source; what the manifest will say of it."""
    found = {}
    for source in {each.wanted.source for each in left if each.messages}:
        node = shop.topology.undecodable_of(source)
        if node is None:
            continue
        rows = _rows(plan, task, [each for each in left if each.wanted.source == source])
        attempt = Attempt(shop.chance.unique())
        key, body = staged(node.sink, plan.epoch, task, attempt, rows)
        shop.store.put(key, body)
        found[node.name] = Output(partition=task, ref=ref_to(key, body), rows=rows.num_rows)
    return found


def count_left(topology: Topology, left: Sequence[Left]) -> int:
    """How many messages will be kept."""
    kept = (each for each in left if topology.undecodable_of(each.wanted.source) is not None)
    return sum(len(each.messages) for each in kept)


def _rows(plan: Plan, task: int, left: Sequence[Left]) -> pa.Table:
    pairs = [(each.wanted, message) for each in left for message in each.messages]
    count = len(pairs)
    columns = {
        "key": pa.array([m.key for _, m in pairs], pa.binary()),
        "value": pa.array([m.value for _, m in pairs], pa.binary()),
        "_error": pa.array([m.reason for _, m in pairs], pa.string()),
        "_key": pa.array([_shown(m.key) for _, m in pairs], pa.string()),
        "_source": pa.array([w.source for w, _ in pairs], pa.string()),
        "_source_partition": pa.array([w.partition for w, _ in pairs], pa.string()),
        "_offset": pa.array([m.offset for _, m in pairs], pa.int64()),
        "_event_time": pa.nulls(count, pa.timestamp("us", tz="UTC")),
        "_epoch": pa.array([plan.epoch] * count, PROVENANCE.field("_epoch").type),
        "_partition": pa.array([task] * count, PROVENANCE.field("_partition").type),
        "_sequence": pa.array(range(count), PROVENANCE.field("_sequence").type),
        "_input": pa.array([_input(w, m) for w, m in pairs], PROVENANCE.field("_input").type),
    }
    return pa.table(columns)


def _input(wanted: WantedRange, message: Undecoded) -> list[dict[str, object]]:
    name = f"{wanted.source}/{wanted.partition}"
    last = min(message.offset + message.count, wanted.stop) - 1
    return [{"from": name, "first": message.offset, "last": max(last, message.offset)}]


def _shown(key: bytes | None) -> str:
    return "" if key is None else key.decode(errors="backslashreplace")
