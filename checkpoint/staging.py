"""Staging objects before the decision: stored under an attempt's own name, named by nothing.

A crash afterwards leaves an orphan, which the collector removes once HEAD has passed the epoch
in its name.
"""

from penstock.checkpoint.formats import Ref, ref_to
from penstock.checkpoint.layout import delta_key
from penstock.checkpoint.manifest import Delta
from penstock.checkpoint.store import ObjectStore
from penstock.effects import Put, Steps
from penstock.ids import Key
from penstock.points import Point
from penstock.state.delta import DeltaFile

__all__ = ["stage", "stage_delta"]


def stage(key: Key, body: bytes, at: Point) -> Steps[Ref]:
    """Store `body` under a name of this attempt's own; the reference for the manifest."""
    yield Put(at, key, body)
    return ref_to(key, body)


def stage_delta(store: ObjectStore, delta: DeltaFile) -> Delta:
    """Upload a delta file; what the manifest says of it."""
    marker = delta.marker
    key = delta_key(marker.operator, marker.partition, marker.epoch, marker.attempt)
    with delta.path.open("rb") as source:
        store.upload(key, source)
    ref = Ref(key=key, sha256=delta.sha256, size_bytes=delta.size_bytes)
    return Delta(attempt=marker.attempt, ref=ref)
