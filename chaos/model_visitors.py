"""Those who come by while the model job runs: readers, operators with a terminal, inspectors.

An operator makes a savepoint and looks at it later, goes back to an earlier epoch or to a
savepoint, forks the root, starts another version of the job, or asks for dead letters.
"""

from penstock.chaos.actions import Action
from penstock.chaos.host import Host
from penstock.chaos.model_job import Program
from penstock.chaos.model_requests import Requester
from penstock.chaos.model_workload import JOB, Row, Workload
from penstock.checkpoint import Chain, Manifest, View, collect, pin, unpin
from penstock.checkpoint.fork import copy_epoch, hold_epoch, refuse_taken
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.fsck import check
from penstock.checkpoint.pins import Pin, read_pins
from penstock.checkpoint.rewind import Target, rewind
from penstock.effects import Steps, Wait
from penstock.errors import Gone, Invalid, PenstockError
from penstock.ids import CommitId, Epoch, Holder
from penstock.points import Point
from penstock.sinks.table_index import read_index, read_page

__all__ = ["Visitor"]


class Visitor:
    """The programs of everybody but the leader."""

    def __init__(self, host: Host, workload: Workload) -> None:
        self._host = host
        self._workload = workload
        self._program = Program(host, workload)

    def program(self, role: str) -> Steps[None]:
        """What a visitor of that role does."""
        programs = {
            "reader": self.reader,
            "operator": self.operator,
            "inspector": self.inspector,
            "returner": self.returner,
            "forker": self.forker,
            "deployer": self.deployer,
            "requester": Requester(self._host, self._workload).rounds,
            "janitor": self.janitor,
        }
        return programs[role]()

    def reader(self) -> Steps[None]:
        """Read the committed outputs again and again."""
        view = View(Chain())
        for _ in range(3):
            yield Wait(self._host.rng.random())
            try:
                head = yield from view.refresh()
                rows: dict[CommitId, list[Row]] = {}
                ref, epoch = head.manifest, head.epoch
                chain = Chain(generation=head.generation)
                while ref is not None and epoch >= head.floor:
                    manifest = yield from chain.manifest(ref, epoch, Point.READ_MANIFEST)
                    rows[manifest.commit] = yield from self._program.read_outputs(chain, manifest)
                    ref, epoch = manifest.parent, Epoch(epoch - 1)
                self._host.report("read", head.rank, rows)
                self._host.did(Action.READ)
            except Gone:
                self._host.report("reader fell behind")

    def operator(self, name: str = "keep") -> Steps[None]:
        """Pin an epoch, look at it later, let it go, again."""
        retention = self._workload.retention
        for _ in range(2):
            yield Wait(self._host.rng.random() * 2)
            try:
                kept = yield from pin(Chain(), name, self._host.chance.unique())
            except Invalid as refusal:
                self._host.report("pin refused", str(refusal))
                continue
            self._host.report("pinned", kept.mark, kept.manifest.key)
            self._host.did(Action.PIN)
            yield from collect(Chain(), retention)
            yield Wait(self._host.rng.random() * 2)
            manifest = yield from Chain().manifest(kept.manifest, kept.epoch, Point.READ_MANIFEST)
            yield from self._program.load(Chain(), manifest)
            self._host.report("unpinning", kept.mark)
            yield from unpin(name, kept.mark)
            self._host.did(Action.UNPIN)
        yield from collect(Chain(), retention)

    def inspector(self) -> Steps[None]:
        """Check the root while the job runs. Nothing is ever wrong with it."""
        for _ in range(2):
            yield Wait(self._host.rng.random() * 2)
            found = yield from check(Chain())
            self._host.did(Action.INSPECT)
            if found.wrong:
                self._host.report("alarm", "; ".join(found.wrong))
            for pin_ in found.broken_pins:
                self._host.report("broken pin", pin_.mark)

    def returner(self) -> Steps[None]:
        """Go back to an epoch of those that are kept, or to a savepoint, once or twice."""
        for _ in range(self._host.rng.choice((1, 1, 2))):
            yield Wait(self._host.rng.random() * 4)
            target = yield from self._target()
            try:
                head = yield from rewind(
                    JOB, Holder(self._host.chance.unique()), target, self._host.chance
                )
            except Invalid as refusal:
                self._host.report("rewind refused", str(refusal))
                continue
            self._host.did(Action.RETURN if isinstance(target, str) else Action.REWIND)
            self._host.report("rewound", head.epoch)

    def forker(self) -> Steps[None]:
        """Fork an epoch, by default the last."""
        yield Wait(self._host.rng.random() * 4)
        target = (yield from self._target()) if self._host.rng.random() < 0.5 else None
        mark = self._host.chance.unique()
        name = f"fork-{mark}"
        try:
            yield from refuse_taken()
            held = yield from hold_epoch(target, name, mark)
        except Invalid as refusal:
            self._host.report("fork refused", str(refusal))
            return
        try:
            yield from copy_epoch(held, Holder(self._host.name), _further)
        except PenstockError:
            yield from unpin(name)
            raise
        self._host.did(Action.FORK)
        yield from unpin(name)

    def deployer(self) -> Steps[None]:
        """Start the next version of the job, whoever leads."""
        yield Wait(self._host.rng.random() * 3)
        self._workload.job.next_version()
        yield from self._program.leader(patient=False)

    def janitor(self) -> Steps[None]:
        """The last process of a run: lets go of every savepoint, and empties the bins."""
        for kept in (yield from read_pins(Point.READ_HEAD, Point.READ_HEAD)):
            self._host.report("unpinning", kept.mark)
            yield from unpin(kept.name, kept.mark)
        yield from self._program.closer()

    def _target(self) -> Steps[Target]:
        """Some epoch that may be kept, or some savepoint."""
        head = (yield from Chain().head(Point.READ_HEAD)).document
        pins: list[Pin] = []
        if self._host.rng.random() < 0.5:
            pins = yield from read_pins(Point.READ_HEAD, Point.READ_HEAD)
        if pins:
            return self._host.rng.choice(pins).name
        return Epoch(self._host.rng.randint(head.floor, max(head.epoch, head.floor)))


def _further(manifest: Manifest) -> Steps[list[Ref]]:
    """What the indexes that a manifest names lead to."""
    found: list[Ref] = []
    chain = Chain()  # the manifest is pinned
    for named in manifest.tables.values():
        index = yield from read_index(chain, named, manifest.epoch, Point.READ_OBJECT)
        for page in index.pages:
            files = yield from read_page(chain, page, Point.READ_OBJECT)
            found += [page, *(file.output.ref for file in files)]
        found += [file.output.ref for file in index.files]
    return found
