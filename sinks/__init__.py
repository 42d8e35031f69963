"""Where results go: staged before the decision, rolled forward after it.

Promise: a sink is given only what a committed manifest names, each epoch once as far as the
sink's own cursor can tell, in order. Nothing is ever computed again after a commit. A table needs
no cursor: its staged files are the table, visible exactly as far as the chain is.

May import the lobby, `penstock.fencing`, `penstock.state`, `penstock.checkpoint`, and, because a
topic is written to as well as read, `penstock.sources`. Only `penstock.sinks.spark_source` knows
Spark.
"""

from penstock.sinks.cursors import Apply, Cursor, Held, ReadCursor
from penstock.sinks.delta import Delta
from penstock.sinks.dynamodb import DynamoDB
from penstock.sinks.for_each import Committed, ForEachEpoch
from penstock.sinks.guarantee import Guarantee, parse_guarantee
from penstock.sinks.http_sink import Http
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_changelog import KafkaChangelog
from penstock.sinks.log_sink import LogSink
from penstock.sinks.memory import Memory
from penstock.sinks.postgres import Postgres
from penstock.sinks.protocol import (
    PROVENANCE,
    AppliedSink,
    Holding,
    ReadableSink,
    Sink,
    StagedSink,
    Target,
    Traits,
    Writer,
)
from penstock.sinks.redis import Redis
from penstock.sinks.roll_forward import Shard, roll_forward
from penstock.sinks.table import Table
from penstock.sinks.table_index import extend_index, files_at, files_since_index, index_files
from penstock.sinks.table_read import read_table, table_names, table_reader
from penstock.sinks.table_sweep import TableSwept, sweep_table
from penstock.sinks.table_tail import TableFile, TableTail, table_tails

__all__ = [
    "PROVENANCE",
    "AppliedSink",
    "Apply",
    "Committed",
    "Cursor",
    "Delta",
    "DynamoDB",
    "ForEachEpoch",
    "Guarantee",
    "Held",
    "Holding",
    "Http",
    "KafkaChangelog",
    "KafkaSink",
    "LogSink",
    "Memory",
    "Postgres",
    "ReadCursor",
    "ReadableSink",
    "Redis",
    "Shard",
    "Sink",
    "StagedSink",
    "Table",
    "TableFile",
    "TableSwept",
    "TableTail",
    "Target",
    "Traits",
    "Writer",
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
    "table_tails",
]
