"""Staging small objects before the decision."""

from penstock.checkpoint.formats import Ref, ref_to
from penstock.effects import Put, Steps
from penstock.ids import Key
from penstock.points import Point

__all__ = ["stage"]


def stage(key: Key, body: bytes, at: Point) -> Steps[Ref]:
    """Store `body` under a name of this attempt's own; the reference for the manifest.

    A crash after this leaves an orphan, which the collector removes once HEAD has passed the
    epoch in its name.
    """
    yield Put(at, key, body)
    return ref_to(key, body)
