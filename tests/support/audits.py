"""A job with tables and sinks, run in this process on a real folder: to be audited, and damaged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.chaos.audit import Audit, Audited, Scope, audit
from penstock.chaos.findings import Check, Verdict
from penstock.checkpoint.formats import encode, ref_to, seal
from penstock.checkpoint.layout import HEAD_KEY, manifest_key
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.root import Root
from penstock.checkpoint.store import ObjectStore
from penstock.ids import CommitId, Epoch, Key
from penstock.runtime.settings import RunSettings
from penstock.runtime.topology import Topology
from penstock.sinks.protocol import Sink
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log, no_spark

USERS = 5
EPOCHS, ROWS = 4, 6
"""What a job has done that was `ran`."""

JOB_FILE = """
import penstock as ps

@ps.stateful(emits="user string, n long")
def count(user: str, events: ps.Events, seen: ps.Value[int]):
    seen.set(seen.get(0) + len(events))
    yield {"user": user, "n": seen.get()}

job = ps.Job("counts", partitions=2)
counts = job.read(ps.Log("LOG"), name="clicks").key_by("user").process(count)
"""
"""A job as a file, which writes nowhere yet; its topic is LOG."""


@ps.stateful(emits="user string, n long, gone boolean")
def count(user: str, events: ps.Events, seen: ps.Value[int]) -> Any:
    """Every click of a user, counted; with each seventh, the user is forgotten."""
    for _ in events:
        seen.set(seen.get(0) + 1)
        yield {"user": user, "n": seen.get(), "gone": seen.get() % 7 == 0}


def counting_job(log: ps.Log, *sinks: Sink, **settings: Any) -> ps.Job:
    """Clicks of users, into these sinks."""
    job = ps.Job("counts", partitions=2)
    counts = job.read(log, name="clicks", **settings).key_by("user").process(count)
    for sink in sinks:
        counts.write(sink)
    return job


@dataclass
class Scene:
    """A job, its log and its root."""

    folder: Path
    make: Callable[[ps.Log], ps.Job]
    log: ps.Log = field(init=False)
    local: LocalRun = field(init=False)
    clicks: int = 0

    def __post_init__(self) -> None:
        self.log = clicks_log(self.folder, partitions=2)
        self.local = LocalRun(self.make(self.log), self.folder)

    @property
    def root(self) -> Root:
        """The root, to look at."""
        return self.local.root

    @property
    def store(self) -> ObjectStore:
        """Its store, to damage it."""
        return self.root.store

    @property
    def topology(self) -> Topology:
        """The job as an audit knows it."""
        return self.local.job.topology(self.local.url, no_spark)

    def epochs(self, count: int = 1, rows: int = 6, settings: RunSettings = SETTINGS) -> None:
        """So many epochs of so many clicks."""
        for _ in range(count):
            self.append(rows)
            self.local.run(settings)

    def append(self, rows: int) -> None:
        """So many clicks, in turn to one partition of the log and to the other."""
        numbers = range(self.clicks, self.clicks + rows)
        for partition in range(2):
            mine = [click(f"u{n % USERS}", n, n) for n in numbers if n % 2 == partition]
            append(self.log, mine, partition)
        self.clicks += rows

    def look(self, *, job: bool = True, **scope: Any) -> Audited:
        """What an audit finds."""
        return self.done(job=job, **scope).audited

    def done(self, *, job: bool = True, **scope: Any) -> Audit:
        """The same, with its story."""
        return audit(self.root, self.topology if job else None, Scope(**scope))

    def outputs(self, sink: str, epoch: int) -> list[Key]:
        """The objects that an epoch has for a sink."""
        return [each.ref.key for each in self.manifest(epoch).sinks[sink]]

    def manifest(self, epoch: int) -> Manifest:
        """The manifest of an epoch."""
        return next(each for each in self.root.history() if each.epoch == epoch)

    def flip(self, key: Key) -> None:
        """Change one bit in the middle of an object."""
        stored = self.store.get(key)
        assert stored is not None
        body = bytearray(stored.body)
        body[len(body) // 2] ^= 1
        self.store.put(key, bytes(body))

    def forge(self, epoch: int, change: Callable[[Manifest], Manifest]) -> None:
        """Change a manifest as somebody would who knows how: every hash up to HEAD fits again."""
        forge(self.root, epoch, change)

    def contents(self) -> dict[str, bytes]:
        """Every object of the root."""
        found: dict[str, bytes] = {}
        after = ""
        while page := self.store.list("", after):
            for entry in page:
                stored = self.store.get(entry.key)
                assert stored is not None
                found[entry.key] = stored.body
            after = page[-1].key
        return found


def forge(root: Root, epoch: int, change: Callable[[Manifest], Manifest]) -> None:
    """Change the manifest of an epoch of a root, and every hash from there up to HEAD."""
    ref = None
    manifests = [each for each in root.history() if each.epoch >= epoch]
    for manifest in reversed(manifests):
        changed = change(manifest) if manifest.epoch == epoch else manifest
        if ref is not None:
            changed = msgspec.structs.replace(changed, parent=ref)
        commit = CommitId(f"forged{manifest.epoch}")
        changed = msgspec.structs.replace(changed, commit=commit)
        key = manifest_key(changed.epoch, commit)
        ref = ref_to(key, encode(changed))
        root.store.put(key, encode(changed))
    head = root.head()
    recent = tuple((Epoch(n), CommitId(f"forged{n}")) for n in range(epoch, head.epoch + 1))
    forged = msgspec.structs.replace(head, manifest=ref, recent=recent)
    root.store.put(HEAD_KEY, seal(forged))


def check_of(found: Audited, name: str) -> Check:
    """One of the checks."""
    return next(check for check in found.checks if check.name == name)


def wrong(found: Audited) -> list[str]:
    """Every violation, in words."""
    return [str(each) for check in found.checks for each in check.violations]


def unknown(found: Audited) -> list[str]:
    """Everything that could not be looked at, in words."""
    return [str(each) for check in found.checks for each in check.unknown]


def assert_valid(found: Audited) -> None:
    """Nothing is wrong, and everything was looked at."""
    assert (wrong(found), unknown(found)) == ([], [])
    assert found.verdict is Verdict.VALID


def ran(folder: Path, *sinks: Any, epochs: int = EPOCHS) -> Scene:
    """A job that has written to these sinks."""
    scene = Scene(folder, lambda log: counting_job(log, *sinks))
    scene.epochs(epochs, rows=ROWS)
    return scene
