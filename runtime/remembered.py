"""The job that a root remembers: its description, or what can be told without one.

Roots of earlier versions have no description. Their manifests name sources, operators and sinks,
and the newest file of a table has its columns; the rest is not known, and taken as it is declared
with the next commit.
"""

import logging

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.rewind import is_table_file
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Gone
from penstock.points import Point
from penstock.runtime.description import (
    JobDescription,
    KnownOperator,
    KnownSink,
    KnownSource,
    own_columns,
    read_description,
)
from penstock.runtime.letters import dead_letters_name
from penstock.sinks.changelog import is_changelog
from penstock.sinks.table import Table
from penstock.sinks.table_index import find_files
from penstock.sinks.table_read import fetch_file

__all__ = ["remembered"]

log = logging.getLogger("penstock.run")


def remembered(root: Root, newest: Manifest) -> JobDescription:
    """What the root remembers as of its last epoch."""
    if newest.description is not None:
        chain = Chain()
        perform(chain.head(Point.READ_HEAD), root.handlers)
        reading = read_description(chain, newest.description, newest.epoch)
        return perform(reading, root.handlers)
    return JobDescription(
        partitions=max(map(len, newest.operators.values()), default=0),
        sources={name: KnownSource() for name in newest.sources if not _replays(newest, name)},
        operators={name: KnownOperator() for name in newest.operators},
        sinks={name: _sink(root, newest, name) for name in newest.sinks if not is_changelog(name)},
    )


def _replays(newest: Manifest, source: str) -> bool:
    """Whether a source is that of an operator's letters, which comes and goes with their table."""
    operator = source.removesuffix(".replays")
    return operator != source and dead_letters_name(operator) in newest.sinks


def _sink(root: Root, newest: Manifest, name: str) -> KnownSink:
    if name not in newest.tables and not any(is_table_file(o.ref) for o in newest.sinks[name]):
        return KnownSink()
    return KnownSink(kind=Table.__name__, columns=_columns(root, name))


def _columns(root: Root, table: str) -> dict[str, str]:
    """Those of the newest file. One that cannot be read tells nothing, and `penstock audit` more:
    a job need not read its tables to go on."""
    try:
        files = find_files(root, table)
        newest = files.newest()
        return {} if newest is None else own_columns(fetch_file(files, newest.output.ref)[0])
    except (Corrupt, Gone) as unreadable:
        log.warning("the columns of table %s are not known: %s", table, unreadable)
        return {}
