"""What is on a host's disk after a run: what the chain vouches for holds what it should (I14).

Each partition is opened as a task would open it, from the disk as it was left, and compared entry
by entry with what the root alone gives. A database that is not on the chain is discarded by that
very opening, and nothing is said against it.
"""

import shutil
from contextlib import closing
from pathlib import Path

from penstock.chaos.findings import Check, Ledger
from penstock.chaos.state_at import SETTINGS, all_entries
from penstock.checkpoint.restore import Identity, Restorer, Way
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt
from penstock.state.database import PartitionDatabase
from penstock.state.host import HostFolder

__all__ = ["check_local_state"]


def check_local_state(root: Root, job_folder: Path, scratch: Path) -> Check:
    """Compare the disk below `job_folder`, which is one job's on one host, with the root."""
    ledger = Ledger("local state", "A database that the chain vouches for is what the chain says.")
    newest = root.newest()
    if newest is None:
        return ledger.check()
    restorer = Restorer(root.store, SETTINGS, root.clock)
    kept = HostFolder(job_folder.parent, root.chance)
    fresh = HostFolder(scratch, root.chance)
    for (operator, partition), lineage in sorted(root.lineages().items()):
        who = Identity(newest.job, operator, partition, newest.generation)
        with closing(
            restorer.open(who, lineage, kept.partition(job_folder.name, operator, partition))
        ) as local:
            ledger.count(f"opened by: {local.restore.way}")
            if local.restore.way is not Way.LOCAL_DATABASE:
                continue
            place = fresh.partition("fresh", operator, partition)
            with closing(restorer.open(who, lineage, place)) as other:
                subject = f"operator {operator}, partition {partition}"
                _compare(ledger, subject, (local.database, other.database), newest.epoch)
    shutil.rmtree(scratch, ignore_errors=True)
    if any(lineage.version for lineage in root.lineages().values()):
        _check_looked(ledger)
    return ledger.check()


def _check_looked(ledger: Ledger) -> None:
    if not ledger.counted("partitions"):
        ledger.unknown("local state", "no database of the job was left on this host's disk")


def _compare(
    ledger: Ledger, subject: str, databases: tuple[PartitionDatabase, PartitionDatabase], epoch: int
) -> None:
    ledger.count("partitions")
    try:
        mine = all_entries(databases[0])
    except Corrupt as damage:
        if damage.subject != databases[0].name:
            raise
        ledger.count("found damaged when read")  # as a task finds it, which then restores it
        return
    its = all_entries(databases[1])
    ledger.count("entries", len(mine))
    unlike = sum(mine.get(key) != its.get(key) for key in mine.keys() | its.keys())
    if unlike:
        found = f"differs from what its changelog gives in {unlike} entries"
        ledger.wrong("I14", subject, found, epoch, times=unlike)
