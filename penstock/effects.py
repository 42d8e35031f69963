"""What a protocol asks of the world, as data.

A protocol is a generator: it yields effects and is sent their answers. Production performs
them on a real store; the simulator performs the same ones on a model, with faults. A
protocol therefore has no clock, no socket and no thread of its own.

Answers, and what an exception means:

    Get      Stored, or None when there is no such object
    Fetch    the bytes, or None; for objects that never change, whose version nobody asks
    Digest   Digested, or None; for objects too large to hold
    Put      None. Safe to send again: the same key always gets the same bytes
    Create   the new ETag, or None: the store did not confirm it
    Replace  the new ETag, or None: the store did not confirm it
    Delete   None, also when there was nothing
    Page     the next entries below a prefix, in key order
    Wait     None, later

`Unavailable` thrown into a protocol means "perhaps": for a `Create` or `Replace` it says
nothing about whether the write happened, and neither does None, because something between
us and the store may have sent our request twice.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from penstock.ids import ETag, Key
from penstock.points import Point

__all__ = [
    "Create",
    "Delete",
    "Digest",
    "Digested",
    "Effect",
    "Entry",
    "Fetch",
    "Get",
    "Page",
    "Put",
    "Replace",
    "Steps",
    "Stored",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing asked of the world, and the name of the place it is asked from."""

    at: Point


@dataclass(frozen=True, slots=True)
class Get(Effect):
    """Read a small object whole."""

    key: Key


@dataclass(frozen=True, slots=True)
class Fetch(Effect):
    """Read an object that never changes, whole."""

    key: Key


@dataclass(frozen=True, slots=True)
class Digest(Effect):
    """Read an object of any size, keeping only its hash and length."""

    key: Key


@dataclass(frozen=True, slots=True)
class Put(Effect):
    """Write an object under a name nobody else uses."""

    key: Key
    body: bytes


@dataclass(frozen=True, slots=True)
class Create(Effect):
    """Write an object if there is none of that name."""

    key: Key
    body: bytes


@dataclass(frozen=True, slots=True)
class Replace(Effect):
    """Write an object if its version is still `etag`."""

    key: Key
    body: bytes
    etag: ETag


@dataclass(frozen=True, slots=True)
class Delete(Effect):
    """Remove an object. Removing what is not there is no error."""

    key: Key


@dataclass(frozen=True, slots=True)
class Page(Effect):
    """List at most a page of the entries whose key starts with `prefix` and is above `after`."""

    prefix: str
    after: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read."""

    body: bytes
    etag: ETag


@dataclass(frozen=True, slots=True)
class Digested:
    """What an object hashes to, and how long it is."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing."""

    key: Key
    size_bytes: int
    modified_s: float
    """When it was last written, by the store's own clock: comparable only with its siblings."""


R = TypeVar("R")
Steps: TypeAlias = Generator[Effect | Wait, Any, R]
"""A protocol: effects out, answers in, a result at the end."""
