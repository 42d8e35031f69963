"""Going back: HEAD names an earlier epoch again, in a new generation.

A rewind is a take-over whose HEAD has the next token, the next generation, and an earlier epoch.
Nothing is removed by it. The epochs above it stay where they are, named by nothing, and are
garbage once HEAD has passed their numbers again; a pin keeps its own, whatever line it is on.

Why that is safe beside everybody who has not heard of it:

- **A deposed leader.** Its swap expects a version of HEAD that is gone, and `rank` puts the token
  before the epoch, so the rewound HEAD is greater than any of an older token: its swap is lost,
  never sent again, and its token is too small for ever. What it still stages has names of its own.
- **A collector under way.** It looks at HEAD after each page that it lists and before it removes
  anything of that page, and stops at another generation. A page listed before the rewind shows no
  object made after it, and what the target needs is in the collector's reach: the target was
  retained or pinned when it looked, and is pinned by us until HEAD names it.
- **A pin being written.** Whoever pins looks at HEAD after writing: a pin that was confirmed
  stands since before the rewind, so every collector of the new generation lists it; one that
  was not sees the new generation and is taken back.
- **A reader.** `View` compares ranks, so a stale HEAD of the old line never replaces the new one.
"""

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from penstock.checkpoint.chain import Chain, is_listed
from penstock.checkpoint.formats import Ref, seal
from penstock.checkpoint.head import HEAD_REGISTER, Head, next_ordinal
from penstock.checkpoint.layout import HEAD_KEY, is_table_key, pin_key, pin_name_of
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.pins import Pin, Pins, list_pins, pin, unpin
from penstock.checkpoint.recovery import recover
from penstock.clock import Chance
from penstock.effects import Put, Steps
from penstock.errors import Corrupt, Invalid
from penstock.fencing import take_over
from penstock.ids import Epoch, Generation, Holder, JobName
from penstock.points import Point

__all__ = [
    "Found",
    "Target",
    "find_epoch",
    "is_table_file",
    "keep",
    "rewind",
    "table_files_of",
    "table_tail",
]

Target: TypeAlias = Epoch | str
"""An epoch by its number, or by the name of a pin."""


@dataclass(frozen=True, slots=True)
class Found:
    """An epoch that is kept, and by what."""

    ref: Ref
    manifest: Manifest
    pin: Pin | None = None
    """The pin that alone keeps it; None if HEAD does."""

    @property
    def epoch(self) -> Epoch:
        """Its number."""
        return self.manifest.epoch

    def floor_under(self, head: Head) -> Epoch:
        """The oldest epoch of its line that is sure to be there: where HEAD's own history goes on
        unbroken, HEAD's floor; of anything that a pin keeps, only the epoch itself."""
        is_whole = self.pin is None and head.floor <= self.epoch
        return head.floor if is_whole else self.epoch


def find_epoch(chain: Chain, head: Head, target: Target) -> Steps[Found]:
    """A retained epoch of HEAD's own line, or else a pinned one; `Invalid` if it is neither."""
    if isinstance(target, str):
        named = yield from _pin_named(target)
        if head.floor <= named.epoch <= head.epoch:
            found = yield from _on_line(chain, head, named.epoch)
            if found.ref == named.manifest:
                return found
    elif head.floor <= target <= head.epoch:
        return (yield from _on_line(chain, head, target))
    else:
        named = yield from _pin_of(head, target)
    manifest = yield from chain.manifest(named.manifest, named.epoch, Point.PIN_TARGET)
    return Found(named.manifest, manifest, named)


def keep(chain: Chain, found: Found, name: str, mark: str) -> Steps[Pin]:
    """Pin what was found under a name of our own, also where only another's pin keeps it.

    1. What HEAD keeps is pinned as ever.
    2. What a pin keeps gets a second pin; then the first is looked for. If it is still there, every
       collector that looked before ours was written has seen the first, and every later one sees
       ours: there is no moment at which neither was.
    """
    if found.pin is None:
        kept = yield from pin(chain, name, mark, found.epoch)  # 1
        if kept.manifest == found.ref:
            return kept
        yield from unpin(name, mark)
        raise _rewound_meanwhile(found.epoch)
    second = msgspec.structs.replace(found.pin, name=name, mark=mark)
    yield Put(Point.PIN_WRITE, pin_key(name, mark), seal(second))  # 2
    if (yield from is_listed(pin_key(found.pin.name, found.pin.mark), Point.PIN_CHECK)):
        return second
    yield from unpin(name, mark)
    raise Invalid(f"pin {found.pin.name}", "was removed meanwhile", "choose another epoch")


def rewind(job: JobName, holder: Holder, target: Target, chance: Chance) -> Steps[Head]:
    """Take the root over, whoever led it, with HEAD at an earlier epoch; HEAD as it is then.

    1. Find the target: retained, or pinned.
    2. Pin it for the time being: HEAD may give it up, or its pin be removed, while we look.
    3. See that all it needs is there: what comes after a rewind cannot be gone back from.
    4. Swap HEAD. Lost: others went on or took over, which changes nothing for us, unless they
       went back themselves.
    5. Let go of our pin. A crash before that, or a swap whose outcome stays unknown, leaves
       it: it keeps one epoch too many until somebody removes it by its name.
    """
    chain, mark = Chain(), chance.unique()
    name = f"rewind-{mark[:12]}"
    head = (yield from chain.head(Point.PIN_TARGET)).document
    head.claimed(job, holder)  # refuses another job's root before anything is written
    found = yield from find_epoch(chain, head, target)  # 1
    yield from keep(chain, found, name, mark)  # 2
    try:
        yield from _see_that_all_is_there(chain, found, found.floor_under(head))  # 3
        claim = _Return(job, holder, found, head.generation)
        seen = yield from take_over(HEAD_REGISTER, claim.make, chance)  # 4
    except (Corrupt, Invalid):
        yield from unpin(name, mark)
        raise
    yield from unpin(name, mark)  # 5
    return seen.document


def table_tail(chain: Chain, manifest: Manifest, floor: Epoch) -> Steps[list[tuple[Ref, Manifest]]]:
    """The manifests before this one that a table needs: its index lists only what came earlier.

    A table without an index needs all that added to it. A sink of which nothing tells whether it
    is such a table is followed as far back as is promised.
    """
    starts = [index.epoch + 1 for index in manifest.tables.values()]
    unlisted = [outputs for sink, outputs in manifest.sinks.items() if sink not in manifest.tables]
    if any(not outputs or is_table_file(outputs[0].ref) for outputs in unlisted):
        starts.append(floor)
    found: list[tuple[Ref, Manifest]] = []
    while manifest.parent is not None and (
        manifest.epoch > min(starts, default=manifest.epoch) or manifest.follows_unlisted_files()
    ):
        ref, epoch = manifest.parent, Epoch(manifest.epoch - 1)
        manifest = yield from chain.manifest(ref, epoch, Point.READ_MANIFEST)
        found.append((ref, manifest))
    return found


def table_files_of(manifest: Manifest) -> list[Ref]:
    """The files that an epoch added to tables."""
    outputs = (output for sink in manifest.sinks.values() for output in sink)
    return [output.ref for output in outputs if is_table_file(output.ref)]


def is_table_file(ref: Ref) -> bool:
    """Whether an output is a file of a table, which stays, and not one that is to be applied."""
    return is_table_key(ref.key)


@dataclass(frozen=True, slots=True)
class _Return:
    """What HEAD shall be."""

    job: JobName
    holder: Holder
    found: Found
    generation: Generation
    """In which the target was found."""

    def make(self, head: Head | None) -> Steps[Head]:
        yield from ()  # whatever had to be looked at has been
        if head is None or head.generation != self.generation:
            raise _rewound_meanwhile(self.found.epoch)
        epoch, mine = self.found.epoch, (self.found.epoch, self.found.manifest.commit)
        known = mine in head.recent
        return msgspec.structs.replace(
            head.claimed(self.job, self.holder),
            generation=Generation(next_ordinal("generation", head.generation)),
            epoch=epoch,
            manifest=self.found.ref,
            recent=head.recent[: head.recent.index(mine) + 1] if known else (mine,),
            floor=self.found.floor_under(head),
        )


def _see_that_all_is_there(chain: Chain, found: Found, floor: Epoch) -> Steps[None]:
    """By listing, not by reading: a state may be large, and opening it verifies every byte."""
    lineages = yield from recover(chain, found.manifest)
    tail = yield from table_tail(chain, found.manifest, floor)
    refs = [*found.manifest.refs(), *(ref for line in lineages.values() for ref in line.refs())]
    refs += (ref for _, earlier in tail for ref in table_files_of(earlier))
    for key in sorted({ref.key for ref in refs}):
        if not (yield from is_listed(key, Point.READ_OBJECT)):
            raise Corrupt(
                key, f"is missing, though epoch {found.epoch} needs it", "choose another epoch"
            )


def _on_line(chain: Chain, head: Head, epoch: Epoch) -> Steps[Found]:
    """The manifest of a committed epoch, from HEAD back."""
    ref, at = head.manifest, head.epoch
    while ref is not None:
        manifest = yield from chain.manifest(ref, at, Point.PIN_TARGET)
        if at == epoch:
            return Found(ref, manifest)
        ref, at = manifest.parent, Epoch(at - 1)
    if head.manifest is None:
        raise Invalid(f"epoch {epoch}", "does not exist: nothing is committed yet", "run the job")
    raise Corrupt(HEAD_KEY, f"leads to no epoch {epoch}", "run `penstock fsck`")


def _pin_named(name: str) -> Steps[Pin]:
    pins = yield from list_pins(Point.PIN_TARGET, Point.PIN_TARGET)
    for found in pins.pins:
        if found.name == name:
            return found
    for unreadable in pins.unreadable:
        if pin_name_of(unreadable.subject) == name:
            raise unreadable
    raise Invalid(f"pin {name}", f"does not exist: {_spelt(pins)}", "choose one that does")


def _pin_of(head: Head, epoch: Epoch) -> Steps[Pin]:
    """The pin that keeps an epoch which HEAD does not."""
    pins = yield from list_pins(Point.PIN_TARGET, Point.PIN_TARGET)
    found = {each.manifest.key: each for each in pins.pins if each.epoch == epoch}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        names = " and ".join(sorted(each.name for each in found.values()))
        raise Invalid(
            f"epoch {epoch}",
            f"is pinned on several lines of history, as {names}",
            "say which by the name of its pin",
        )
    kept = f"epochs {head.floor} to {head.epoch} are" if head.manifest else "nothing is committed"
    raise Invalid(
        f"epoch {epoch}", f"is not kept: {kept}, and {_spelt(pins)}", "choose one that is kept"
    )


def _spelt(pins: Pins) -> str:
    named = ", ".join(f"{each.name} (epoch {each.epoch})" for each in pins.pins)
    others = ", ".join(each.subject for each in pins.unreadable)
    told = f"there are the pins {named}" if named else "there are no pins"
    return f"{told}, and {others} cannot be read" if others else told


def _rewound_meanwhile(epoch: Epoch) -> Invalid:
    return Invalid(
        f"epoch {epoch}",
        "may be of another line of history now: somebody went back meanwhile",
        "look at `penstock checkpoints`, and choose again",
    )
