"""Planted bugs of deltas, snapshots and restores."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from penstock.checkpoint import MemoryStore, manifest, restore, snapshots
from penstock.checkpoint.formats import Ref
from penstock.state import database, delta, host
from penstock.state.workspace import Cell
from tests.checkpoint import test_restore
from tests.mutants.mutant import Mutant, by, by_folder
from tests.state import test_survival
from tests.support.small_job import SmallJob

honest_write = delta._write
honest_upload = snapshots._upload_one


def by_restore(test: Callable[[SmallJob], None]) -> Callable[[], str | None]:
    """Caught by a test of restoring, on a host of its own."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(SmallJob(MemoryStore(), Path(folder) / "host"))

    run.__name__ = test.__name__
    return by(run)


def by_moving(test: Callable[[SmallJob, Path], None]) -> Callable[[], str | None]:
    """The same, for tests that need a second host."""

    def run(job: SmallJob) -> None:
        test(job, job.host.parent)

    run.__name__ = test.__name__
    return by_restore(run)


def trusts_names(self: Any, ref: Ref, path: Path) -> None:
    if not path.exists():
        honest_fetch(self, ref, path)


honest_fetch = restore._Opening._fetch


def names_by_size(store: Any, path: Path, known: Any, folder: Any, place: Any) -> Ref:
    """Takes a file of the same size for the same file."""
    alike = {ref.size_bytes: ref for ref in known.values()}
    size = path.stat().st_size
    return alike[size] if size in alike else honest_upload(store, path, known, folder, place)


def names_no_old_files(self: Any) -> Any:
    """The collector is not told of files and deltas that a snapshot names again."""
    for partitions in self.operators.values():
        yield from (state.delta.ref for state in partitions.values() if state.delta is not None)
    for outputs in self.sinks.values():
        yield from (output.ref for output in outputs)


def delta_without_attempt(self: Any, epoch: Any, attempt: Any) -> Path:
    return Path(self.path / "deltas" / f"{epoch:012d}.sst")


def locks_nothing(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def omits_removals(path: Path, marker: Any, changes: Any, schemas: bytes, settings: Any) -> None:
    kept = {key: value for key, value in changes.items() if value is not None}
    honest_write(path, marker, kept, schemas, settings)


def trusts_what_is_here(marker: Any, identity: Any, lineage: Any) -> Any:
    """Takes a local database for committed, whatever its marker says."""
    return [each for each in lineage.deltas if marker is None or each[0] > marker.epoch]


def at_whatever(database: Any, lineage: Any) -> bool:
    return True


def forgets_timers(self: Any, section: bytes, place: bytes, body: bytes | None) -> None:
    pass


def opens_without_options(folder: Path, settings: Any) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return Rdict(str(folder), Options(raw_mode=True))


MUTANTS = (
    Mutant(
        "B9 name",
        "a local file is trusted by its name",
        ((restore._Opening, "_fetch", trusts_names),),
        by_restore(test_restore.test_an_altered_local_delta_is_fetched_again),
    ),
    Mutant(
        "B9 size",
        "a snapshot file is reused by its size",
        ((snapshots, "_upload_one", names_by_size),),
        by_moving(test_restore.test_files_of_the_same_size_are_not_mixed_up),
    ),
    Mutant(
        "B10",
        "reused files are collected",
        ((manifest.Manifest, "refs", names_no_old_files),),
        by_moving(test_restore.test_collection_keeps_what_a_restore_needs),
    ),
    Mutant(
        "B11",
        "attempts share a delta's name",
        ((host.PartitionFolder, "delta", delta_without_attempt),),
        by_restore(test_restore.test_two_attempts_keep_their_own_deltas),
    ),
    Mutant(
        "B12",
        "a database is shared with whoever has it open",
        ((host, "_try_lock", locks_nothing),),
        by_restore(test_restore.test_a_second_attempt_does_not_wait_for_the_first),
    ),
    Mutant(
        "B13",
        "the changelog omits removals",
        ((delta, "_write", omits_removals),),
        by_moving(test_restore.test_a_new_host_restores_from_the_store),
    ),
    Mutant(
        "B20",
        "dirty local state is trusted",
        ((restore, "_missing", trusts_what_is_here), (restore, "_is_at", at_whatever)),
        by_restore(test_restore.test_an_epoch_that_never_became_real_is_thrown_away),
    ),
    Mutant(
        "B24",
        "options are lost on reopening",
        ((database, "_open", opens_without_options),),
        by_folder(test_survival.test_our_options_are_in_force_on_every_open),
    ),
    Mutant(
        "B27",
        "timers are not in the delta",
        ((Cell, "write_index", forgets_timers),),
        by_folder(test_survival.test_timers_fire_on_another_host),
    ),
)
