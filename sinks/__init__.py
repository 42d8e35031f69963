"""Where results go: staged before the decision, rolled forward after it.

Promise: a sink is given only what a committed manifest names, each epoch once as far as the
sink's own cursor can tell, in order. Nothing is ever computed again after a commit. A table needs
no cursor: its staged files are the table, visible exactly as far as the chain is.

May import the lobby, `penstock.fencing`, `penstock.checkpoint`. Only `penstock.sinks.spark_source`
knows Spark.
"""

from penstock.sinks.guarantee import Guarantee, parse_guarantee
from penstock.sinks.protocol import PROVENANCE, AppliedSink, Sink
from penstock.sinks.roll_forward import Apply, Cursor, ReadCursor, roll_forward
from penstock.sinks.table import Table
from penstock.sinks.table_index import (
    TableFile,
    extend_index,
    files_at,
    files_since_index,
    index_files,
)
from penstock.sinks.table_read import read_table, table_names, table_reader
from penstock.sinks.table_sweep import TableSwept, sweep_table

__all__ = [
    "PROVENANCE",
    "AppliedSink",
    "Apply",
    "Cursor",
    "Guarantee",
    "ReadCursor",
    "Sink",
    "Table",
    "TableFile",
    "TableSwept",
    "extend_index",
    "files_at",
    "files_since_index",
    "index_files",
    "parse_guarantee",
    "read_table",
    "roll_forward",
    "sweep_table",
    "table_names",
    "table_reader",
]
