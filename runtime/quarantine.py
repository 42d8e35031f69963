"""The quarantine of operators: the source and the tables that one adds to a job.

An operator that sets events aside keeps them in a table of dead letters, reads those that are to be
replayed from a source of its own, and names each replay in a second table.
"""

from dataclasses import replace

from penstock.errors import Invalid
from penstock.runtime.functions import MAIN
from penstock.runtime.letters import dead_letters_name, replayed_name, replays_name
from penstock.runtime.replays import Replays
from penstock.runtime.topology import (
    DEAD_LETTERS,
    REPLAYED,
    Feed,
    OperatorNode,
    SinkNode,
    SourceNode,
)
from penstock.sinks.table import Table

__all__ = ["dead_letter_sinks", "with_replays"]


def with_replays(
    nodes: list[OperatorNode], root: str
) -> tuple[list[OperatorNode], dict[str, SourceNode]]:
    """Operators that quarantine are also fed with dead letters to be replayed."""
    found, replays = [], {}
    for node in nodes:
        if node.on_error == "quarantine":
            _refuse_several_keys(node)
            name = replays_name(node.name)
            replays[name] = SourceNode(
                name=name,
                source=Replays(root, node.name, node.schema),
                schema=node.schema,
                event_time=None,
                delay_ms=0,
                idle_ms=None,
                start="earliest",
                is_replay=True,
            )
            feed = Feed(origin=name, output=MAIN, key=node.key, schema=node.schema)
            node = replace(node, feeds=(*node.feeds, feed))  # noqa: PLW2901 - the same, fed more
        found.append(node)
    return found, replays


def _refuse_several_keys(node: OperatorNode) -> None:
    """A replayed letter comes in by the key of its operator, which must be that of its event."""
    keys = sorted({", ".join(feed.key) for feed in node.feeds})
    if len(keys) > 1:
        raise Invalid(
            f"operator {node.name!r}",
            f"quarantines events that are keyed by different columns ({' and '.join(keys)}): a "
            "dead letter could not be replayed under its own key",
            "give the columns one name in a transform before key_by",
        )


def dead_letter_sinks(nodes: list[OperatorNode]) -> list[SinkNode]:
    """The tables of every operator that quarantines. No sink of the user's has such a name."""
    found = []
    for node in nodes:
        if node.on_error != "quarantine":
            continue
        tables = {
            dead_letters_name(node.name): DEAD_LETTERS,
            replayed_name(node.name): REPLAYED,
        }
        for name, output in tables.items():
            found.append(
                SinkNode(sink=Table(name, takes_any=True), operator=node.name, output=output)
            )
    return found
