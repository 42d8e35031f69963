"""A partition's life with an object store and several hosts, against a dict.

Whatever is lost, moved, abandoned or collected: an opening shows exactly what was committed, or
says by name what is missing.
"""

import logging
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.checkpoint import Draft, MemoryStore, Retention
from penstock.checkpoint.restore import OpenPartition
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.errors import Corrupt
from tests.support.small_job import OPERATOR, SmallJob, totals

EXAMPLES = int(os.environ.get("PENSTOCK_MACHINE_EXAMPLES", "250"))
SHARDS = 4
FAST = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
KEYS = st.sampled_from([f"key{number}" for number in range(12)] + ["", "key", "한국"])
HOSTS = st.integers(0, 2)


class PartitionMachine(RuleBasedStateMachine):
    """One partition of one job."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(dir=FAST))
        self.pending: dict[str, int | None] = {}
        self.zombies: list[OpenPartition] = []
        self.collected = False

    @initialize(every=st.integers(1, 5), growth=st.sampled_from([0.0, 1.0, 100.0]))
    def begin(self, every: int, growth: float) -> None:
        policy = SnapshotPolicy(every_epochs=every, growth=growth)
        self.job = SmallJob(MemoryStore(), self.base / "0", policy)

    @rule(key=KEYS, value=st.integers(-5, 5))
    def set(self, key: str, value: int) -> None:
        self.pending[key] = value

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        self.pending[key] = None

    @rule()
    def commit(self) -> None:
        self.job.epoch(self.pending)
        self.pending = {}

    @precondition(lambda self: bool(self.pending))
    @rule()
    def abandon(self) -> None:
        """An attempt stages everything and is given up."""
        opened = self.job.open()
        self.job.attempt(opened, self.pending)
        opened.close()
        self.pending = {}

    @precondition(lambda self: len(self.zombies) < 2)
    @rule()
    def an_attempt_hangs(self) -> None:
        """Somebody has the database open from now on, and the next one must not wait."""
        self.zombies.append(self.job.open())

    @precondition(lambda self: bool(self.zombies))
    @rule()
    def a_hanging_attempt_goes_on(self) -> None:
        """It finishes its work on what it had opened; nothing comes of it."""
        opened = self.zombies.pop()
        self.job.attempt(opened, {"zombie": 1})
        opened.close()

    @rule(host=HOSTS)
    def move(self, host: int) -> None:
        self.job.host = self.base / str(host)

    @precondition(lambda self: not self.zombies)
    @rule()
    def lose_the_host(self) -> None:
        shutil.rmtree(self.job.host, ignore_errors=True)

    @precondition(lambda self: not self.collected)
    @rule()
    def lose_the_snapshot(self) -> None:
        """Its files are gone from the store; the changelog is all there is."""
        for file in self.job.lineage().files:
            self.job.store.delete(file.ref.key)

    @rule(epochs=st.integers(1, 4))
    def collect(self, epochs: int) -> None:
        before = self.job.root.check()
        if before.clean:  # a root that has lost something is for a person to mend first
            self.collected = True
            self.job.session.collect(Retention(epochs=epochs, age_s=0, grace_s=0), {})
            assert self.job.root.check().clean

    @rule()
    def look(self) -> None:
        opened = self.job.open()
        assert totals(opened) == self.job.expected
        opened.close()

    def teardown(self) -> None:
        for opened in self.zombies:
            opened.close()
        if hasattr(self, "job"):
            self._lose_a_delta()
        shutil.rmtree(self.base, ignore_errors=True)

    def _lose_a_delta(self) -> None:
        """At the end of each life: without it, and without a copy anywhere, it is named."""
        deltas = self.job.lineage().deltas
        if deltas:
            lost = deltas[-1][1].ref.key
            self.job.store.delete(lost)
            self.job.host = self.base / "new"
            with pytest.raises(Corrupt, match=lost):
                self.job.open()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_partition_is_what_was_committed_whatever_happens(shard: int) -> None:
    """The engine, the snapshots, the restores and the collector against a dict."""
    del shard  # so that several processes share the work
    logging.getLogger("penstock.restore").setLevel(logging.ERROR)
    run_state_machine_as_test(
        PartitionMachine,
        settings=settings(
            max_examples=max(1, EXAMPLES // SHARDS),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_an_empty_draft_is_refused_once_there_is_state(tmp_path: Path) -> None:
    """A partition that is left out would be forgotten."""
    job = SmallJob(MemoryStore(), tmp_path)
    job.epoch({"a": 1})
    with pytest.raises(Exception, match=f"partition 0 of operator {OPERATOR} is left out"):
        job.session.commit(Draft())
