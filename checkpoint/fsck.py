"""fsck: every reference of every retained manifest exists and hashes. Changes nothing.

It reports all it finds rather than stopping at the first: a person deciding what to restore
wants the whole list.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.checkpoint.chain import READS_MAX, Chain, is_listed
from penstock.checkpoint.formats import Ref, verify
from penstock.checkpoint.layout import pin_key
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.pins import Pin, list_pins
from penstock.checkpoint.recovery import LineageWalk, recover
from penstock.effects import Digest, Digested, Steps
from penstock.errors import Corrupt, Gone
from penstock.ids import Epoch, Key
from penstock.points import Point

__all__ = ["Findings", "check", "look_at"]

STARTS_MAX = 10
"""How often a check of a running job begins again."""


@dataclass(slots=True)
class Findings:
    """What was looked at, and what is wrong, in words."""

    head_epoch: Epoch
    floor: Epoch
    manifests: int = 0
    objects: int = 0
    size_bytes: int = 0
    pins: int = 0
    wrong: list[str] = field(default_factory=list)
    broken_pins: list[Pin] = field(default_factory=list)
    """Pins whose epoch is not all there: damage, unless nobody was ever told that they hold."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong and not self.broken_pins


def check(chain: Chain) -> Steps[Findings]:
    """Walk from HEAD to its floor and from every pin, and verify everything on the way.

    A running job may give up epochs while we look. What HEAD has let go since is no finding,
    but the rest must still be looked at: so we begin again at the HEAD of now.
    """
    head = (yield from chain.head(Point.READ_HEAD)).document
    look = _Check(chain, Findings(head.epoch, head.floor))
    for _ in range(STARTS_MAX):
        try:
            if head.manifest is not None:
                yield from look.line(head.manifest, head.epoch, head.floor)
                yield from look.state(head.manifest, head.epoch)
            break
        except Gone:
            head = (yield from chain.head(Point.READ_HEAD)).document
    else:
        look.found.wrong.append("the job gave up epochs faster than they could be checked.")
    look.found.head_epoch, look.found.floor = head.epoch, head.floor
    yield from _check_pins(chain, look)
    return look.found


def _check_pins(chain: Chain, look: "_Check") -> Steps[None]:
    found = yield from list_pins(Point.READ_HEAD, Point.READ_HEAD)
    look.found.wrong += map(str, found.unreadable)
    for pin in found.pins:
        look.found.pins += 1
        try:
            yield from look.line(pin.manifest, pin.epoch, pin.epoch)
        except Gone:
            if (yield from is_listed(pin_key(pin.name, pin.mark), Point.READ_HEAD)):
                look.found.broken_pins.append(pin)


class _Check:
    """One look at a root: what was found, and what need not be looked at twice."""

    def __init__(self, chain: Chain, found: Findings) -> None:
        self.found = found
        self._chain = chain
        self._looked: set[Key] = set()

    def line(self, ref: Ref, epoch: Epoch, floor: Epoch) -> Steps[None]:
        """One line of history: all of it down to `floor`, below that only what state needs."""
        walk = LineageWalk()
        later: Manifest | None = None
        at: Ref | None = ref
        while at is not None:
            needed_by = max(epoch, floor)
            manifest = yield from self._manifest(at, needed_by, later)
            if manifest is None:
                return
            if manifest.epoch >= floor:
                yield from self._objects(manifest.refs(), needed_by)
            if manifest.epoch <= floor:
                walk.add(manifest)
                if not walk.needs(Epoch(manifest.epoch - 1)):
                    break
            later, at, epoch = manifest, manifest.parent, Epoch(manifest.epoch - 1)
        for lineage in walk.lineages().values():
            yield from self._objects(lineage.refs(), floor)

    def state(self, ref: Ref, epoch: Epoch) -> Steps[None]:
        """What the next start walks over to rebuild the state of the last epoch."""
        try:
            newest = yield from self._chain.manifest(ref, epoch, Point.READ_MANIFEST)
            lineages = yield from recover(self._chain, newest)
        except Corrupt as wrong:
            if not any(line.startswith(f"{wrong.subject} ") for line in self.found.wrong):
                self.found.wrong.append(str(wrong))
            return
        for lineage in lineages.values():
            yield from self._objects(lineage.refs(), epoch)

    def _manifest(
        self, ref: Ref, needed_by: Epoch, later: Manifest | None
    ) -> Steps[Manifest | None]:
        try:
            manifest = yield from self._chain.manifest(ref, needed_by, Point.READ_MANIFEST)
        except Corrupt as wrong:
            self.found.wrong.append(str(wrong))
            return None
        self.found.manifests += ref.key not in self._looked
        self._looked.add(ref.key)
        flaw = None if later is None else later.flaw_after(manifest)
        if flaw is not None:
            self.found.wrong.append(f"{ref.key} cannot be the parent it is named as: {flaw}.")
        return manifest

    def _objects(self, refs: Iterable[Ref], needed_by: Epoch) -> Steps[None]:
        for ref in refs:
            if ref.key not in self._looked:
                self._looked.add(ref.key)
                yield from self._object(ref, needed_by)

    def _object(self, ref: Ref, needed_by: Epoch) -> Steps[None]:
        seen = yield from look_at(self._chain, ref, needed_by)
        if isinstance(seen, str):
            self.found.wrong.append(seen)
        else:
            self.found.objects += 1
            self.found.size_bytes += seen.size_bytes


def look_at(chain: Chain, ref: Ref, needed_by: Epoch) -> Steps[Digested | str]:
    """Verify one object, or say what is wrong with it. What seems wrong is looked at again first;
    `Gone` if HEAD has let go of it."""
    wrong = ""
    digested: Digested | None = None
    for _ in range(READS_MAX):
        digested = yield Digest(Point.READ_OBJECT, ref.key)
        if digested is None:
            wrong = f"{ref.key} is missing, though epoch {needed_by} needs it."
            continue
        try:
            verify(ref, digested.sha256, digested.size_bytes)
        except Corrupt as altered:
            wrong = str(altered)
            continue
        return digested
    if digested is None:
        yield from chain.explain(ref, needed_by)
    return wrong
