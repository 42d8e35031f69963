"""The history an audit is about: the retained epochs as one HEAD names them, oldest first.

A job may be running. What it commits later is not looked at; what it gives up while we look is no
loss: the audit then begins at a later epoch, and says so. Objects are looked at oldest first,
because the oldest go first. If somebody goes back to an earlier epoch meanwhile, it is another
history, and the audit begins again: `Rewound`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from penstock.chaos.findings import Ledger
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.head import Head
from penstock.checkpoint.layout import HEAD_KEY, commit_of, epoch_of
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.effects import Fetch, Steps
from penstock.errors import Corrupt, Gone, Invalid, Unavailable
from penstock.ids import Epoch
from penstock.points import Point

__all__ = ["EPOCHS_MAX", "History", "Link", "Rewound", "read_history"]

EPOCHS_MAX = 100_000
"""How many manifests are held in memory. Retention keeps far fewer, unless it was told to."""


class Rewound(Unavailable):
    """Somebody went back to an earlier epoch while it was looked at."""


@dataclass(frozen=True, slots=True)
class Link:
    """A manifest, and what names it."""

    ref: Ref
    manifest: Manifest

    @property
    def epoch(self) -> Epoch:
        """Its number."""
        return self.manifest.epoch


@dataclass(slots=True)
class History:
    """Epochs that are audited."""

    root: Root
    chain: Chain
    head: Head
    links: list[Link]
    """Oldest first."""
    since: Epoch
    """The first epoch that is looked at. Grows when the job gives epochs up meanwhile."""

    @property
    def newest(self) -> Manifest | None:
        """What HEAD names; None if nothing is committed, or it cannot be read."""
        return self.links[-1].manifest if self.links else None

    @property
    def begins(self) -> bool:
        """Whether it reaches back to the very first epoch."""
        return bool(self.links) and self.links[0].epoch == self.since == 1

    def epochs(self) -> Iterator[Link]:
        """Those that are still kept, oldest first."""
        return (link for link in tuple(self.links) if link.epoch >= self.since)

    def body(self, ref: Ref, needed_by: Epoch) -> bytes:
        """An object, verified. `Corrupt` if it is not what was written; `Gone` if it is not
        promised any more, and the history is shorter now."""
        try:
            return perform(self._verified(ref, needed_by), self.root.handlers)
        except Gone:
            self.shorten()
            raise

    def shorten(self) -> None:
        """Begin where HEAD's floor is now."""
        self.since = max(self.since, self.now().floor)
        self.links = list(self.epochs())

    def follow(self) -> None:
        """Take in what was committed since."""
        now = self.now()
        found: list[Link] = []
        ref, epoch = now.manifest, now.epoch
        while ref is not None and epoch > self.head.epoch:
            reading = self.chain.manifest(ref, epoch, Point.READ_MANIFEST)
            found.append(Link(ref, perform(reading, self.root.handlers)))
            ref, epoch = found[-1].manifest.parent, Epoch(epoch - 1)
        self.links += reversed(found)
        self.head = now

    def now(self) -> Head:
        """HEAD at this moment; `Rewound` if it leads to another history."""
        now = perform(self.chain.head(Point.READ_HEAD), self.root.handlers).document
        if now.generation != self.head.generation:
            found = f"went from generation {self.head.generation} to {now.generation}"
            raise Rewound(HEAD_KEY, f"{found} while it was looked at", "look again")
        return now

    def _verified(self, ref: Ref, needed_by: Epoch) -> Steps[bytes]:
        found: bytes | None = yield Fetch(Point.READ_OBJECT, ref.key)
        if found is not None and hashlib.sha256(found).hexdigest() == ref.sha256:
            return found
        return (yield from self.chain.payload(ref, needed_by, Point.READ_OBJECT))


def read_history(root: Root, since: Epoch | None, ledger: Ledger) -> History:
    """Walk from HEAD back to its floor, or to `since`; every link is checked on the way."""
    chain = Chain()
    head = perform(chain.head(Point.READ_HEAD), root.handlers).document
    if since is not None and not 1 <= since <= max(head.epoch, 1):
        found = f"cannot be audited from: the last committed epoch is {head.epoch}"
        raise Invalid(f"epoch {since}", found, "choose a committed epoch")
    history = History(root, chain, head, [], max(head.floor, since or Epoch(1)))
    _walk(history, ledger)
    _check_head(history, ledger)
    return history


def _walk(history: History, ledger: Ledger) -> None:
    ref, epoch = history.head.manifest, history.head.epoch
    found: list[Link] = []
    while ref is not None and epoch >= history.since:
        if len(found) == EPOCHS_MAX:
            ledger.unknown(f"epochs below {epoch + 1}", f"more than {EPOCHS_MAX:,} are kept")
            history.since = Epoch(epoch + 1)
            break
        link = _read(history, ref, epoch, ledger)
        if link is None:
            break
        found.append(link)
        ledger.count("manifests")
        _check_link(history, link, found[-2] if len(found) > 1 else None, ledger)
        ref, epoch = link.manifest.parent, Epoch(epoch - 1)
    history.links = found[::-1]


def _read(history: History, ref: Ref, epoch: Epoch, ledger: Ledger) -> Link | None:
    """The manifest of an epoch; None if there is none to be had, and history begins above it."""
    try:
        reading = history.chain.manifest(ref, epoch, Point.READ_MANIFEST)
        return Link(ref, perform(reading, history.root.handlers))
    except Corrupt as wrong:
        ledger.wrong("I7", f"the manifest of epoch {epoch}, {ref.key},", wrong.found, epoch)
        if epoch > history.since:
            ledger.unknown(f"epochs below {epoch}", "only the manifest that is wrong names them")
    except Gone:
        history.shorten()
    except Unavailable as away:
        ledger.unknown(f"epoch {epoch} and those before it", str(away))
    history.since = Epoch(max(history.since, epoch + 1))
    return None


def _check_link(history: History, link: Link, later: Link | None, ledger: Ledger) -> None:
    """Whether a manifest is what its name says, and the one above it may follow it. Where sources
    were read is looked at by itself, so that each partition is named."""
    manifest, key = link.manifest, link.ref.key
    if manifest.job != history.head.job:
        ledger.wrong("I6", key, f"belongs to job {manifest.job!r}", manifest.epoch)
    if (epoch_of(key), commit_of(key)) != (manifest.epoch, manifest.commit):
        ledger.wrong("I6", key, "has the name of another commit", manifest.epoch)
    if later is not None:
        flaw = _bare(later.manifest).flaw_after(_bare(manifest))
        if flaw is not None:
            ledger.wrong("I6", later.ref.key, f"does not follow its parent: {flaw}", later.epoch)
        if later.manifest.at_ms < manifest.at_ms:
            ledger.wrong("I6", later.ref.key, "is earlier than its parent", later.epoch)
    if manifest.parent is None and manifest.epoch != 1:
        ledger.wrong("I6", key, f"is of epoch {manifest.epoch} and has no parent", manifest.epoch)


def _bare(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, sources={})


def _check_head(history: History, ledger: Ledger) -> None:
    head, newest = history.head, history.newest
    if newest is None or newest.epoch != head.epoch:
        return
    if head.token < newest.token:
        ledger.wrong("I6", HEAD_KEY, f"has token {head.token}, its manifest {newest.token}")
    commits = {link.epoch: link.manifest.commit for link in history.links}
    for epoch, commit in head.recent:
        if commits.get(epoch, commit) != commit:
            ledger.wrong("I6", HEAD_KEY, f"remembers another commit of epoch {epoch}", epoch)
