"""Reading what HEAD reaches: every object verified, every absence explained.

An object that a manifest names and the store does not have is not yet a damage. Perhaps
another leader took over and collected it; perhaps retention gave it up, or history was rewound,
while we were reading. The object is read again, looked for in a listing, and HEAD is asked; only
if HEAD knows of none of these is it called missing. So a reader keeps one chain from the HEAD that
it begins with to the last object it reads: a new chain would take the HEAD of another line of
history for its own.
"""

import hashlib
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import TypeVar

from penstock.checkpoint.formats import Ref, verify
from penstock.checkpoint.head import HEAD_REGISTER, Head
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.manifest import Manifest, decode_manifest
from penstock.effects import Get, Page, Steps, Wait
from penstock.errors import Corrupt, Gone, Invalid, Unavailable
from penstock.fencing import Seen, Tenure, read
from penstock.ids import Epoch, Generation, Key
from penstock.points import Point

__all__ = ["Chain", "headless", "is_listed"]

READS_MAX = 4
"""How often an object that is absent or does not hash is read again before it is believed."""

PAUSE_S = 0.1

T = TypeVar("T")


class Chain:
    """A root as a reader sees it. With a tenure, it also notices that the tenure is over."""

    def __init__(
        self,
        tenure: Tenure | None = None,
        known: MutableMapping[Key, Manifest] | None = None,
        generation: Generation | None = None,
    ) -> None:
        """`known` are manifests that need not be read again, since they never change. What is
        read is added to it. `generation` is the line of history that the reader's names come
        from; by default, that of the first HEAD which this chain reads."""
        self._tenure = tenure
        self._known = known
        self._generation = generation

    @property
    def generation(self) -> Generation:
        """The line of history that the reader's names come from."""
        assert self._generation is not None, "known once HEAD was read"
        return self._generation

    def head(self, at: Point) -> Steps[Seen[Head]]:
        """HEAD now. `Invalid` if there is none: then this is no root. `Corrupt` if there is
        history all the same."""
        seen = yield from _look_for_head(at)
        if seen is not None:
            if self._generation is None:
                self._generation = seen.document.generation
            return seen
        history = yield Page(at, "manifests/", "")
        if history:
            # The job may have been started between our two looks: look once more.
            seen = yield from _look_for_head(at)
            if seen is not None:
                return seen
            raise headless(history[0].key)
        raise Invalid(
            HEAD_KEY,
            "is not there",
            "check the root's URL; a root has a HEAD from its job's first start on",
        )

    def manifest(self, ref: Ref, needed_by: Epoch, at: Point) -> Steps[Manifest]:
        """The manifest `ref` names. It is there as long as `needed_by` is retained."""
        if self._known is not None and ref.key in self._known:
            return self._known[ref.key]
        decoded = partial(decode_manifest, ref.key)
        found = yield from self._verified(ref, needed_by, at, decoded)
        if self._known is not None:
            self._known[ref.key] = found
        return found

    def payload(self, ref: Ref, needed_by: Epoch, at: Point) -> Steps[bytes]:
        """The small object `ref` names. It is there as long as `needed_by` is retained."""
        return (yield from self._verified(ref, needed_by, at, bytes))

    def explain(self, ref: Ref, needed_by: Epoch) -> Steps[None]:
        """Raise if there is a reason why the object was not found: it is there after all, we are
        fenced, or it has expired. A listing has the last word on what is there."""
        if (yield from is_listed(ref.key, Point.RECOVER_HEAD)):
            raise Unavailable(ref.key, "is listed and cannot be read", "look at the store")
        for _ in range(READS_MAX):  # an old HEAD explains nothing: look at it more than once
            head = (yield from self.head(Point.RECOVER_HEAD)).document
            if self._tenure is not None and head.token > self._tenure.token:
                raise self._tenure.fence(head.token, head.holder)
            if self._generation is not None and head.generation != self._generation:
                raise Gone(
                    ref.key,
                    f"belongs to generation {self._generation}, and HEAD is at generation "
                    f"{head.generation} now: history was rewound",
                    "look at HEAD again and go on from there",
                )
            if needed_by < head.floor:
                raise Gone(
                    ref.key,
                    f"was kept for epoch {needed_by}, and epochs below {head.floor} have been "
                    "given up",
                    f"read epoch {head.floor} or later, or pin an epoch before reading it",
                )
            yield Wait(PAUSE_S)

    def _verified(
        self, ref: Ref, needed_by: Epoch, at: Point, decoded: Callable[[bytes], T]
    ) -> Steps[T]:
        for remaining in reversed(range(READS_MAX)):
            stored = yield Get(at, ref.key)
            try:
                if stored is None:
                    raise _missing(ref, needed_by)
                verify(ref, hashlib.sha256(stored.body).hexdigest(), len(stored.body))
                return decoded(stored.body)
            except Corrupt:
                if not remaining:
                    if stored is None:
                        yield from self.explain(ref, needed_by)
                    raise
            yield Wait(PAUSE_S)
        raise AssertionError("unreachable: the last read returns or raises")


def _look_for_head(at: Point) -> Steps[Seen[Head] | None]:
    """HEAD, or None if it is not found however often one looks."""
    for _ in range(READS_MAX):
        seen = yield from read(HEAD_REGISTER, at)
        if seen is not None:
            return seen
        yield Wait(PAUSE_S)
    return None


def headless(example: Key) -> Corrupt:
    """What to say of history without a HEAD."""
    return Corrupt(
        HEAD_KEY,
        f"is missing, though there are manifests such as {example}",
        "restore HEAD from a copy, or use another root; nothing was changed",
    )


def is_listed(key: Key, at: Point) -> Steps[bool]:
    """Whether a listing shows the object."""
    page = yield Page(at, key, "")
    return any(entry.key == key for entry in page)


def _missing(ref: Ref, needed_by: Epoch) -> Corrupt:
    return Corrupt(
        ref.key,
        f"is missing, though epoch {needed_by} is retained and needs it",
        "restore it from a copy, or rewind to an epoch that does not need it",
    )
