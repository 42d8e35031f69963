"""Whether everything that retained epochs and pins are made of is there, and hashes.

Outputs of HEAD's line are not looked at here: their rows are verified file by file, and nothing is
read twice. The files that tables need as of a pin, and not as of HEAD, are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.chaos.audit_history import History
from penstock.chaos.findings import Ledger
from penstock.checkpoint.chain import is_listed
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.fsck import look_at
from penstock.checkpoint.layout import pin_key
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.pins import Pin, list_pins
from penstock.checkpoint.recovery import LineageWalk
from penstock.errors import Corrupt, Gone
from penstock.ids import Epoch, Key
from penstock.points import Point
from penstock.sinks.table_index import all_table_refs

__all__ = ["Objects"]


@dataclass(slots=True)
class Objects:
    """The objects of a root, each looked at once."""

    history: History
    ledger: Ledger
    reached: set[Key] = field(default_factory=set)
    """What retained epochs and pins name, outputs and manifests too."""
    pins: list[Pin] = field(default_factory=list)
    knows_all_pins: bool = True
    """Whether nothing else is in the place of pins, which might be one."""
    _looked: set[Key] = field(default_factory=set)
    _of_head: set[Key] | None = None
    """What HEAD's tables are made of, once it was asked for."""

    def check(self) -> None:
        """State and indexes of every epoch, what the oldest one's state is made of, and pins."""
        for link in self.history.epochs():
            self.reached.add(link.ref.key)
            self.reached.update(ref.key for ref in link.manifest.refs())
            try:
                self._look(_without_outputs(link.manifest), link.epoch)
            except Gone:  # given up meanwhile
                self.history.shorten()
        self._oldest()
        self._newest()
        handlers = self.history.root.handlers
        found = perform(list_pins(Point.READ_HEAD, Point.READ_HEAD), handlers)
        self.pins, self.knows_all_pins = found.pins, not found.unreadable
        for error in found.unreadable:
            self.ledger.unknown(error.subject, error.found)
        for pin in self.pins:
            self._pin(pin)

    def _oldest(self) -> None:
        """What came before the oldest epoch and its state is made of; of the next one, if that is
        given up meanwhile."""
        for link in self.history.epochs():
            try:
                self._lineage(link.manifest, link.epoch)
                return
            except Gone:
                self.history.shorten()

    def _newest(self) -> None:
        """What the next start needs: the state of the last epoch, and all that it is made of."""
        for link in self.history.links[-1:]:
            try:
                self._lineage(link.manifest, link.epoch)
            except Gone:
                self.history.shorten()

    def _look(self, refs: Iterable[Ref], needed_by: Epoch) -> None:
        handlers = self.history.root.handlers
        for ref in refs:
            self.reached.add(ref.key)
            if ref.key in self._looked:
                continue
            seen = perform(look_at(self.history.chain, ref, needed_by), handlers)
            self._looked.add(ref.key)
            if isinstance(seen, str):
                self.ledger.wrong("I7", ref.key, _tail(seen, ref.key), needed_by)
            else:
                self.ledger.count("objects")
                self.ledger.count("bytes", seen.size_bytes)

    def _lineage(self, manifest: Manifest, needed_by: Epoch) -> None:
        """What the state of an epoch is made of that came before it."""
        walk, handlers = LineageWalk(), self.history.root.handlers
        try:
            while True:
                walk.add(manifest)
                if manifest.parent is None or not walk.needs(Epoch(manifest.epoch - 1)):
                    break
                self.reached.add(manifest.parent.key)
                parent = self.history.chain.manifest(
                    manifest.parent, needed_by, Point.READ_MANIFEST
                )
                manifest = perform(parent, handlers)
        except Corrupt as wrong:
            self.ledger.wrong("I7", wrong.subject, wrong.found, needed_by)
            return
        for lineage in walk.lineages().values():
            self._look(lineage.refs(), needed_by)

    def _pin(self, pin: Pin) -> None:
        """All that a pin keeps. One that holds nothing was never confirmed, or is damaged."""
        self.ledger.count("pins")
        history = self.history
        self.reached.add(pin.manifest.key)
        try:
            reading = history.chain.manifest(pin.manifest, pin.epoch, Point.READ_MANIFEST)
            manifest = perform(reading, history.root.handlers)
            self._look(manifest.refs(), pin.epoch)
            self._lineage(manifest, pin.epoch)
            self._look(self._of_its_own(manifest), pin.epoch)
        except Gone:
            listed = is_listed(pin_key(pin.name, pin.mark), Point.READ_HEAD)
            if perform(listed, history.root.handlers):
                found = f"does not hold: epoch {pin.epoch} is not all there"
                self.ledger.wrong("I9", f"pin {pin.name}", found, pin.epoch)
        except Corrupt as wrong:
            found = f"does not hold: {wrong.subject} {wrong.found}"
            self.ledger.wrong("I9", f"pin {pin.name}", found, pin.epoch)

    def _of_its_own(self, manifest: Manifest) -> list[Ref]:
        """What tables need as of a pin and HEAD's tables do not: those are read row by row."""
        root = self.history.root
        if self._of_head is None:
            newest = [link.manifest for link in self.history.links[-1:]]
            self._of_head = {ref.key for each in newest for ref in all_table_refs(root, each)}
        known = self._of_head
        return [ref for ref in all_table_refs(root, manifest) if ref.key not in known]


def _without_outputs(manifest: Manifest) -> list[Ref]:
    indexes = [index.ref for index in manifest.tables.values()]
    described = [] if manifest.description is None else [manifest.description]
    return [*manifest.state_refs(), *indexes, *described]


def _tail(told: str, key: Key) -> str:
    """What is said of an object, without its name and the full stop."""
    return told.removeprefix(f"{key} ").removesuffix(".")
