"""A fork: everything one epoch needs, copied to a root of its own.

The copy goes on by itself, with the same job, in a generation of its own. The source is only
read, but for a pin that keeps the epoch while it is being copied. HEAD is created last, so a
crash leaves objects that nothing names, and the same fork may be tried again.
"""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref, verify
from penstock.checkpoint.hashed_file import HashedFile
from penstock.checkpoint.head import HEAD_REGISTER, Head
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.recovery import LineageWalk
from penstock.checkpoint.rewind import Found, Target, find_epoch, is_table_file, keep, table_tail
from penstock.checkpoint.root import Root
from penstock.checkpoint.store import ObjectStore
from penstock.effects import Steps
from penstock.errors import Corrupt, Invalid
from penstock.fencing import Lost, swap
from penstock.ids import Epoch, Generation, Key, Token
from penstock.points import Point

__all__ = ["Further", "fork", "nothing_further"]

READS_MAX = 4
"""How often an object that is absent or does not hash is read again before it is believed."""

Further = Callable[[Manifest], Iterable[Ref]]
"""What a manifest leads to that only other rooms can read, such as the files of a table's index."""


def nothing_further(manifest: Manifest) -> Iterable[Ref]:
    """For jobs whose manifests name all there is."""
    return ()


def fork(source: Root, epoch: Target | None, target: Root, also: Further = nothing_further) -> Head:
    """Copy a retained or pinned epoch, by default the last, to an empty root; HEAD as it is there.

    1. Refuse a target that has a HEAD or a manifest.
    2. Find the epoch, and pin it in the source until all is copied.
    3. Copy what its state, its outputs and its tables are made of, each verified by its hash.
    4. Copy the manifests: its own, and those before it that say how its state came about.
    5. Create HEAD. Now the fork is real. Its token is above the manifest's, for tokens never
       fall along a chain; nothing below the epoch is promised.
    """
    _refuse_taken(target.store)  # 1
    head, chain = source.head(), Chain()
    wanted = head.epoch if epoch is None else epoch
    found = perform(find_epoch(chain, head, wanted), source.handlers)
    mark = source.chance.unique()
    name = f"fork-{mark[:12]}"
    perform(keep(chain, found, name, mark), source.handlers)  # 2
    try:
        needed = perform(_needed(chain, found, found.floor_under(head)), source.handlers)
        copy = _Copy(source.store, target.store)
        for ref in needed.objects:
            copy.copy(ref)
        for ref in also(found.manifest):
            copy.copy(ref)  # 3
        for ref in reversed(needed.manifests):  # 4
            copy.copy(ref)
        return _make_real(target, found, Generation(head.generation + 1))  # 5
    finally:
        source.unpin(name)


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
            hashed = HashedFile(file)
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
        outputs = (output for sink in earlier.sinks.values() for output in sink)
        needed.objects += (o.ref for o in outputs if is_table_file(o.ref))
    return needed


def _make_real(target: Root, found: Found, generation: Generation) -> Head:
    head = Head(
        job=found.manifest.job,
        generation=generation,
        token=Token(found.manifest.token + 1),
        holder=target.new_holder(),
        epoch=found.epoch,
        manifest=found.ref,
        recent=((found.epoch, found.manifest.commit),),
        floor=found.epoch,
    )
    changing = swap(HEAD_REGISTER, None, head, Point.TAKEOVER_SWAP, Point.TAKEOVER_SETTLE)
    outcome = perform(changing, target.handlers)
    if isinstance(outcome, Lost):
        raise _taken(HEAD_KEY)
    target.leave(head)
    return head


def _refuse_taken(store: ObjectStore) -> None:
    if store.get(HEAD_KEY) is not None:
        raise _taken(HEAD_KEY)
    for entry in store.list("manifests/"):
        raise _taken(entry.key)


def _taken(key: str) -> Invalid:
    return Invalid("the new root", f"has a {key} already", "give an empty one; nothing was changed")
