"""Where events come from: offsets, ranges, readers.

Promise: a range is exact and repeatable; reading it twice gives the same rows in the same order.
What retention has removed is `Gone`, with the choices there are, and never skipped.

    protocol, planning    what every source can do, and fair ranges under limits
    log, log_*            `Log`: begin with log_layout, log_tail and log_append
    kafka, kafka_*        `Kafka`: begin with kafka_range and kafka_cluster
    files, files_*        `Files`: begin with files and files_record
    rate, rate_*          `Rate`
    ddl                   columns as people write them

May import the lobby, `penstock.fencing`, `penstock.state`, `penstock.checkpoint`.
"""

from penstock.sources.files import Dropped, Files, Quarantined
from penstock.sources.kafka import DroppedMessage, Kafka
from penstock.sources.log import Log
from penstock.sources.log_lane import Batching, Placed
from penstock.sources.log_producer import Ack, Producer
from penstock.sources.planning import lag, plan_ranges, start_offsets
from penstock.sources.protocol import META, META_NAME, Limits, Range, Source, Span
from penstock.sources.rate import Rate

__all__ = [
    "META",
    "META_NAME",
    "Ack",
    "Batching",
    "Dropped",
    "DroppedMessage",
    "Files",
    "Kafka",
    "Limits",
    "Log",
    "Placed",
    "Producer",
    "Quarantined",
    "Range",
    "Rate",
    "Source",
    "Span",
    "lag",
    "plan_ranges",
    "start_offsets",
]
