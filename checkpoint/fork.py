"""A fork: everything one epoch needs, copied to a root of its own.

The copy goes on by itself, with the same job, in a generation of its own. The source is only
read, but for a pin that keeps the epoch while it is being copied. HEAD is created last, so a
crash leaves objects that nothing names, and the same fork may be tried again.
"""

import tempfile
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain as chain_of
from typing import TypeVar

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref, not_longer, verify
from penstock.checkpoint.hashed_file import HashedFile
from penstock.checkpoint.head import HEAD_REGISTER, Head, next_ordinal
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import Handlers, perform
from penstock.checkpoint.recovery import LineageWalk
from penstock.checkpoint.rewind import Found, Target, find_epoch, keep, table_files_of, table_tail
from penstock.checkpoint.root import Root
from penstock.checkpoint.store import ObjectStore
from penstock.effects import Effect, Get, Page, Steps, Wait
from penstock.errors import Corrupt, Invalid, PenstockError
from penstock.fencing import Lost, swap
from penstock.ids import Epoch, Generation, Holder, Key, Token
from penstock.points import Point

__all__ = [
    "Copy",
    "Further",
    "FurtherSteps",
    "Held",
    "InFork",
    "copy_epoch",
    "fork",
    "hold_epoch",
    "nothing_further",
    "refuse_taken",
]

READS_MAX = 4
"""How often an object that is absent or does not hash is read again before it is believed."""

Further = Callable[[Manifest], Iterable[Ref]]
"""What a manifest leads to that only other rooms can read, such as the files of a table's index."""

FurtherSteps = Callable[[Manifest], Steps[Iterable[Ref]]]
"""The same as a protocol."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Copy(Effect):
    """Copy an object, verified by its hash, to the root that is being made. Answer: None."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class InFork(Effect):
    """Ask something of the root that is being made. Answer: the answer to that effect."""

    effect: Effect


def nothing_further(manifest: Manifest) -> Iterable[Ref]:
    """For jobs whose manifests name all there is."""
    return ()


def fork(source: Root, epoch: Target | None, target: Root, also: Further = nothing_further) -> Head:
    """Copy a retained or pinned epoch, by default the last, to an empty root; HEAD as it is there.

    1. Refuse a target that has a HEAD.
    2. Find the epoch, and pin it in the source until all is copied.
    3. to 5. Copy it, and make the copy real: see `copy_epoch`.
    """
    copy = _Copy(source.store, target.store)
    handlers: Handlers = {
        **source.handlers,
        Copy: lambda asked: copy.copy(asked.ref),
        InFork: lambda asked: target.handlers[type(asked.effect)](asked.effect),
    }

    def further(manifest: Manifest) -> Steps[Iterable[Ref]]:
        yield from ()
        return also(manifest)

    perform(refuse_taken(), handlers)  # 1
    mark = source.chance.unique()
    name = f"fork-{mark[:12]}"
    held = perform(hold_epoch(epoch, name, mark), handlers)  # 2
    try:
        head = perform(copy_epoch(held, target.new_holder(), further), handlers)  # 3 to 5
    finally:
        source.unpin(name)
    target.leave(head)
    return head


def refuse_taken() -> Steps[None]:
    """Raise if the root that is to be made is one already."""
    found = yield InFork(Point.FORK_EMPTY, Get(Point.FORK_EMPTY, HEAD_KEY))
    if found is not None:
        raise _taken(HEAD_KEY)


def _refuse_strangers(manifests: Collection[Ref]) -> Steps[None]:
    """Raise if the root that is to be made has a history of its own. What an earlier try of the
    same fork has copied is no other history."""
    mine, after = {ref.key for ref in manifests}, ""
    while page := (yield InFork(Point.FORK_EMPTY, Page(Point.FORK_EMPTY, "manifests/", after))):
        for entry in page:
            if entry.key not in mine:
                raise _taken(entry.key)
        after = page[-1].key


@dataclass(frozen=True, slots=True)
class Held:
    """An epoch that is pinned while it is being copied."""

    chain: Chain
    head: Head
    """HEAD when it was found."""
    found: Found


def hold_epoch(epoch: Target | None, name: str, mark: str) -> Steps[Held]:
    """Find a retained or pinned epoch, by default the last, and pin it."""
    chain = Chain()
    head = (yield from chain.head(Point.READ_HEAD)).document
    found = yield from find_epoch(chain, head, head.epoch if epoch is None else epoch)
    yield from keep(chain, found, name, mark)
    return Held(chain, head, found)


def copy_epoch(held: Held, holder: Holder, also: FurtherSteps) -> Steps[Head]:
    """Copy an epoch that is held; HEAD as it is in the fork.

    3. Refuse a target that has manifests of another history. Copy what its state, its outputs
       and its tables are made of, each verified by its hash.
    4. Copy the manifests: its own, and those before it that say how its state came about.
    5. Create HEAD. Now the fork is real. Its token is above the manifest's, for tokens never
       fall along a chain; nothing below the epoch is promised.
    """
    found = held.found
    needed = yield from _needed(held.chain, found, found.floor_under(held.head))
    yield from _refuse_strangers(needed.manifests.keys())
    further = yield from also(found.manifest)
    for ref in chain_of(needed.objects, further):  # 3
        yield Copy(Point.FORK_COPY, ref)
    for ref in reversed(needed.manifests):  # 4
        yield Copy(Point.FORK_COPY, ref)
    head = _first_head(found, Generation(next_ordinal("generation", held.head.generation)), holder)
    making = swap(HEAD_REGISTER, None, head, Point.FORK_SWAP, Point.FORK_SETTLE)
    outcome = yield from _in_fork(making)  # 5
    if isinstance(outcome, Lost):
        raise _taken(HEAD_KEY)
    return head


@dataclass(slots=True)
class _Needed:
    """What an epoch is made of."""

    manifests: dict[Ref, Manifest]
    """Newest first."""
    objects: list[Ref] = field(default_factory=list)


@dataclass(slots=True)
class _Copy:
    """Objects on their way from one store to another, each once."""

    source: ObjectStore
    target: ObjectStore
    done: set[Key] = field(default_factory=set)

    def copy(self, ref: Ref) -> None:
        """Copy one object through a file, so that none has to fit in memory."""
        if ref.key in self.done:
            return
        for remaining in reversed(range(READS_MAX)):
            try:
                self._copy(ref)
                break
            except Corrupt:  # a wire may flip a bit, once
                if not remaining:
                    raise
        self.done.add(ref.key)

    def _copy(self, ref: Ref) -> None:
        with tempfile.TemporaryFile() as file:
            hashed = HashedFile(file, not_longer(ref))
            if not self.source.download(ref.key, hashed):
                raise Corrupt(
                    ref.key, "is missing, though the epoch needs it", "fork another epoch"
                )
            verify(ref, hashed.hexdigest(), hashed.size_bytes)
            file.seek(0)
            self.target.upload(ref.key, file)


def _needed(chain: Chain, found: Found, floor: Epoch) -> Steps[_Needed]:
    """The manifests that recovery will walk, and all that they lead to."""
    walk, manifest = LineageWalk(), found.manifest
    needed = _Needed({found.ref: manifest}, list(manifest.refs()))
    walk.add(manifest)
    while manifest.parent is not None and walk.needs(Epoch(manifest.epoch - 1)):
        ref = manifest.parent
        manifest = yield from chain.manifest(ref, found.epoch, Point.READ_MANIFEST)
        needed.manifests[ref] = manifest
        walk.add(manifest)
    for lineage in walk.lineages().values():
        needed.objects += lineage.refs()
    tail = yield from table_tail(chain, found.manifest, floor)
    for ref, earlier in tail:
        needed.manifests.setdefault(ref, earlier)
        needed.objects += table_files_of(earlier)
    return needed


def _first_head(found: Found, generation: Generation, holder: Holder) -> Head:
    return Head(
        job=found.manifest.job,
        generation=generation,
        token=Token(next_ordinal("token", found.manifest.token)),
        holder=holder,
        epoch=found.epoch,
        manifest=found.ref,
        recent=((found.epoch, found.manifest.commit),),
        floor=found.epoch,
    )


def _in_fork(steps: Steps[R]) -> Steps[R]:
    """The same protocol, with everything asked of the root that is being made."""
    try:
        effect = next(steps)
        while True:
            try:
                asked = effect if isinstance(effect, Wait) else InFork(effect.at, effect)
                answer = yield asked
            except PenstockError as failure:
                effect = steps.throw(failure)
            else:
                effect = steps.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


def _taken(key: str) -> Invalid:
    return Invalid("the new root", f"has a {key} already", "give an empty one; nothing was changed")
