"""What is on a host's disk after a run: what the chain vouches for holds what it should (I14).

Each partition is opened as a task would open it, from the disk as it was left, and compared entry
by entry with what the root alone gives. A database that is not on the chain is discarded by that
very opening, and nothing is said against it.
"""

import shutil
from pathlib import Path

from penstock.chaos.findings import Check, Ledger
from penstock.chaos.state_at import SETTINGS, all_entries
from penstock.checkpoint.restore import Identity, Restorer
from penstock.checkpoint.root import Root
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
        local = restorer.open(who, lineage, kept.partition(job_folder.name, operator, partition))
        try:
            other = restorer.open(who, lineage, fresh.partition("fresh", operator, partition))
            try:
                ledger.count("partitions")
                ledger.count(f"opened by: {local.restore.way}")
                _compare(ledger, f"operator {operator}, partition {partition}",
                         (local.database, other.database), newest.epoch)  # fmt: skip
            finally:
                other.close()
        finally:
            local.close()
    shutil.rmtree(scratch, ignore_errors=True)
    return ledger.check()


def _compare(
    ledger: Ledger, subject: str, databases: tuple[PartitionDatabase, PartitionDatabase], epoch: int
) -> None:
    mine, its = (all_entries(each) for each in databases)
    ledger.count("entries", len(mine))
    unlike = sum(mine.get(key) != its.get(key) for key in mine.keys() | its.keys())
    if unlike:
        found = f"differs from what its changelog gives in {unlike} entries"
        ledger.wrong("I14", subject, found, epoch, times=unlike)
