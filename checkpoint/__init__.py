"""What makes an epoch real: object stores, HEAD, manifests, commit, recovery, collection.

Promise: HEAD and all it reaches is always one whole epoch; nothing that is reachable from a
retained manifest or a pin is ever removed; what cannot be known is never reported as known.

May import the lobby, `penstock.fencing`, `penstock.state`.
"""

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.collector import Collected, Retention, collect
from penstock.checkpoint.formats import Ref, ref_to
from penstock.checkpoint.head import HEAD_REGISTER, Head
from penstock.checkpoint.leader import Leader, lead
from penstock.checkpoint.manifest import (
    Delta,
    Draft,
    Manifest,
    Output,
    PartitionState,
    Range,
    Snapshot,
    SnapshotFile,
    SourceProgress,
)
from penstock.checkpoint.memory_store import MemoryStore
from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.perform import perform, store_handlers
from penstock.checkpoint.pins import Pin, Pins, list_pins, pin, read_pins, unpin
from penstock.checkpoint.recovery import Lineage, recover
from penstock.checkpoint.rewind import find_epoch
from penstock.checkpoint.root import Lease, Root, Session
from penstock.checkpoint.staging import stage
from penstock.checkpoint.store import ObjectStore
from penstock.checkpoint.view import View

__all__ = [
    "HEAD_REGISTER",
    "Chain",
    "Collected",
    "Delta",
    "Draft",
    "Head",
    "Leader",
    "Lease",
    "Lineage",
    "Manifest",
    "MemoryStore",
    "ObjectStore",
    "Output",
    "PartitionState",
    "Pin",
    "Pins",
    "Range",
    "Ref",
    "Retention",
    "Root",
    "Session",
    "Snapshot",
    "SnapshotFile",
    "SourceProgress",
    "View",
    "collect",
    "find_epoch",
    "lead",
    "list_pins",
    "open_store",
    "perform",
    "pin",
    "read_pins",
    "recover",
    "ref_to",
    "stage",
    "store_handlers",
    "unpin",
]
