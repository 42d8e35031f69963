from typing import Any

import msgspec
import pytest

from penstock.checkpoint import Chain, Collected, Leader, MemoryStore, Retention, collect
from penstock.checkpoint.formats import seal
from penstock.checkpoint.layout import HEAD_KEY, delta_key, epoch_of, manifest_key, output_key
from penstock.effects import Delete, Page
from penstock.errors import Gone, Invalid
from penstock.fencing import heartbeat_key, release
from penstock.ids import Attempt, CommitId, Epoch, Generation, Key, Token
from penstock.points import Point
from tests.support.driving import CountingChance, ManualClock, Stage
from tests.support.history import OPERATOR, SINK, contents, led, staged, work

LAST = Retention(epochs=1, age_s=0.0, grace_s=0.0)


def new_stage() -> Stage:
    """A stage whose store has the same clock."""
    clock = ManualClock()
    return Stage(MemoryStore(clock), clock)


class Job:
    """A leader on a stage: commits, collects, and raises the floor like a real one."""

    def __init__(self, stage: Stage, holder: str = "one") -> None:
        self.stage = stage
        self.leader: Leader
        self.chance: CountingChance
        self.leader, self.chance = led(stage, holder)

    def commit(self, epochs: int = 1, *, every_s: float = 0.0, snapshot: bool = False) -> None:
        for _ in range(epochs):
            self.stage.run(work(self.leader, self.chance, snapshot=snapshot))
            self.stage.clock.now_s += every_s

    def collect(self, retention: Retention = LAST, needed: int | None = None) -> Collected:
        """Collect; the sink has applied everything unless it is said what it needs."""
        oldest = Epoch(self.leader.head.epoch + 1 if needed is None else needed)
        steps = collect(Chain(self.leader.tenure), retention, {SINK: oldest})
        done: Collected = self.stage.run(steps)
        self.leader.raise_floor(done.next_floor)
        return done

    def epochs(self) -> list[int]:
        """Every epoch that has its output still."""
        found = {epoch_of(e.key) for e in self.stage.store.list(f"outputs/{SINK}/")}
        return sorted(epoch for epoch in found if epoch is not None)


def test_giving_up_and_deleting_are_two_steps_with_a_commit_between() -> None:
    """A reader that has just read HEAD finds everything its floor promises."""
    job = Job(new_stage())
    job.commit(3)

    first = job.collect()
    assert (first.floor, first.next_floor, first.removed) == (1, 3, 0)
    again = job.collect()
    assert (again.floor, again.removed) == (1, 0)
    job.commit()
    second = job.collect()

    assert (second.floor, second.next_floor, second.removed) == (3, 4, 2)
    assert job.epochs() == [3, 4]


def test_so_many_epochs_are_kept() -> None:
    """Retention by count, whatever their age."""
    job = Job(new_stage())
    job.commit(10, every_s=1000.0)

    done = job.collect(Retention(epochs=4, age_s=0.0, grace_s=0.0))

    assert done.next_floor == 7


def test_the_age_of_an_epoch_counts_from_when_it_was_superseded() -> None:
    """One that was the last for a week is a second old when the next one comes."""
    job = Job(new_stage())
    job.commit(1, every_s=7 * 86_400.0)
    job.commit(1, every_s=1.0)
    job.commit(1)

    assert job.collect(Retention(epochs=1, age_s=60.0, grace_s=0.0)).next_floor == 1
    assert job.collect(Retention(epochs=1, age_s=1.0, grace_s=0.0)).next_floor == 2


def test_both_rules_must_allow_it() -> None:
    """An epoch is given up only if it is old and there are enough newer ones."""
    job = Job(new_stage())
    job.commit(10, every_s=10.0)

    by_count = job.collect(Retention(epochs=2, age_s=35.0, grace_s=0.0)).next_floor
    by_age = job.collect(Retention(epochs=8, age_s=5.0, grace_s=0.0)).next_floor

    assert (by_count, by_age) == (6, 3)


def test_what_a_sink_has_yet_to_apply_is_kept() -> None:
    """Nothing is computed again after a commit, so the staged rows are the only ones."""
    job = Job(new_stage())
    job.commit(5)

    assert job.collect(LAST, needed=2).next_floor == 2


def test_a_sink_nobody_spoke_for_is_taken_to_need_everything() -> None:
    """Forgetting to ask a sink how far it is must not cost it its rows."""
    job = Job(new_stage())
    job.commit(5)

    assert job.stage.run(collect(Chain(), LAST, {"another": Epoch(6)})).next_floor == 1
    assert job.stage.run(collect(Chain(), LAST)).next_floor == 1


def test_the_floor_keeps_the_state_it_needs_from_below() -> None:
    """Without a snapshot, every delta since the first is part of today's state."""
    job = Job(new_stage())
    job.commit(4)
    job.collect()
    job.commit()
    job.collect()
    deltas = [epoch_of(entry.key) for entry in job.stage.store.list("changelog/")]

    assert (deltas, job.epochs()) == ([1, 2, 3, 4, 5], [4, 5])


def test_a_snapshot_frees_what_came_before_it() -> None:
    """Down to the snapshot's epoch and no further."""
    job = Job(new_stage())
    job.commit(3)
    job.commit(snapshot=True)
    job.collect()
    job.commit()
    job.collect()
    kept = {epoch_of(entry.key) for entry in job.stage.store.list("")} - {None}

    assert kept == {4, 5}


def test_garbage_is_left_alone_until_its_grace_is_over() -> None:
    """Readers that hold an old listing get some time, by the store's own clock."""
    job = Job(new_stage())
    job.commit(3)
    patient = Retention(epochs=1, age_s=0.0, grace_s=100.0)
    job.collect(patient)
    job.stage.clock.now_s += 99.0
    job.commit()
    assert job.collect(patient).removed == 0
    job.stage.clock.now_s += 1.0
    job.commit()

    assert job.collect(patient).removed == 3
    assert job.epochs() == [4, 5]


def test_a_running_upload_is_not_touched() -> None:
    """What is above HEAD is somebody's work in progress, however old it is."""
    job = Job(new_stage())
    job.commit(2)
    job.stage.run(staged(job.leader.parent, CountingChance("slow")))
    before = contents(job.stage.store)
    job.stage.clock.now_s += 1_000_000.0

    assert job.collect().removed == 0
    assert contents(job.stage.store) == before


def test_orphans_go_once_head_has_passed_their_epoch() -> None:
    """A task that was tried twice leaves one of its attempts behind."""
    job = Job(new_stage())
    job.stage.run(staged(job.leader.parent, CountingChance("dead")))
    job.stage.store.put(manifest_key(Epoch(1), CommitId("dead")), b"never decided")
    job.commit()

    done = job.collect()

    assert (done.removed, done.removed_bytes) == (3, len(b"delta 1output 1never decided"))
    assert [k for k in contents(job.stage.store) if "dead" in k] == []


def test_heartbeats_of_older_tokens_go() -> None:
    """Each take-over leaves one; the leader's own stays."""
    job = Job(new_stage())
    job.stage.run(release(job.leader.tenure))
    new = Job(job.stage, "two")
    new.stage.run(release(new.leader.tenure))
    new.stage.store.put(heartbeat_key(Token(9)), b"of a leader to come")

    assert new.collect().removed == 1
    assert [entry.key for entry in new.stage.store.list("heartbeats/")] == [
        heartbeat_key(Token(2)),
        heartbeat_key(Token(9)),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "manifests/README.md",
        "changelog/notes",
        "outputs/ledger/latest",
        "outputs/ledger/1/old-layout.arrow",
        "snapshots/totals/0/backup",
        "heartbeats/pulse.txt",
        "mine/000000000001-x.json",
        "000000000001",
    ],
)
def test_names_that_are_not_ours_are_not_touched(name: str) -> None:
    """People keep things beside a root; a name that says no epoch is nobody's garbage."""
    job = Job(new_stage())
    job.stage.store.put(Key(name), b"somebody's")
    job.commit(2)
    job.collect()
    job.commit()
    job.collect()

    assert name in contents(job.stage.store)


def test_a_deposed_leader_may_collect() -> None:
    """It obeys the floor it has read, so hours later it can do no harm."""
    old = Job(new_stage())
    old.commit(3)
    new = Job(old.stage, "two")
    new.commit(1, snapshot=True)
    new.collect()
    new.commit()
    before = new.leader.head
    assert before.manifest is not None

    done = old.stage.run(collect(Chain(), LAST))

    assert done.floor == before.floor
    found = old.stage.run(Chain().manifest(before.manifest, before.epoch, Point.READ_MANIFEST))
    assert {ref.key for ref in found.refs()} <= contents(old.stage.store).keys()


def test_a_collector_that_is_overtaken_by_a_newer_floor_stops() -> None:
    """The manifests it walks may go under its feet; then it knows too little to remove."""
    job = Job(new_stage())
    job.commit(2)
    job.commit(2, snapshot=True)
    job.collect()
    job.commit()

    def another_collects(effect: Any, perform_it: Any) -> Any:
        answer = perform_it()
        if effect.at is Point.COLLECT_HEAD:
            job.stage.interfere = None
            job.collect()
            job.commit(snapshot=True)
            job.collect()
            job.commit()
            job.collect()
        return answer

    job.stage.interfere = another_collects
    with pytest.raises(Gone):
        job.stage.run(collect(Chain(), LAST))


def test_a_rewind_stops_a_running_collection() -> None:
    """Epochs above the rewind are being written anew, under numbers it holds for garbage."""
    job = Job(new_stage())
    job.commit(2)
    job.collect()
    job.commit()

    def rewound(effect: Any, perform_it: Any) -> Any:
        answer = perform_it()
        if isinstance(effect, Page):
            job.stage.interfere = None
            put_next_generation(job)
        return answer

    job.stage.interfere = rewound
    done = job.stage.run(collect(Chain(), LAST))

    assert done.removed == 0
    assert [e for e in job.stage.seen if isinstance(e, Delete)] == []


def put_next_generation(job: Job) -> None:
    head = msgspec.structs.replace(job.leader.head, generation=Generation(2))
    job.stage.store.put(HEAD_KEY, seal(head))


def test_an_unfinished_collection_is_finished_by_the_next() -> None:
    """A crash between two deletions loses nothing: what is left is garbage still."""
    job = Job(new_stage())
    job.commit(6)
    job.collect()
    job.commit()
    left = 2

    def crash(effect: Any, perform_it: Any) -> Any:
        nonlocal left
        if isinstance(effect, Delete):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return perform_it()

    job.stage.interfere = crash
    with pytest.raises(KeyboardInterrupt):
        job.stage.run(collect(Chain(), LAST))
    job.stage.interfere = None

    assert job.collect().removed == 3
    assert job.epochs() == [6, 7]


def test_more_objects_than_a_page_holds_are_all_looked_at() -> None:
    """A listing comes in pages, and deleting between them must not skip any."""
    job = Job(new_stage())
    for number in range(2100):
        key = output_key(SINK, Epoch(1), number, Attempt("orphan"))
        job.stage.store.put(key, b"")
    job.commit()

    assert job.collect().removed == 2100


def test_a_retention_that_keeps_nothing_is_refused() -> None:
    """The last epoch is the job."""
    wrongs: list[dict[str, Any]] = [{"epochs": 0}, {"age_s": -1.0}, {"grace_s": -0.5}]
    for wrong in wrongs:
        with pytest.raises(Invalid, match="keep at least one epoch, and no negative times"):
            Retention(**wrong)


def test_an_object_may_be_put_again_after_its_epoch() -> None:
    """A request that was on its way for an hour leaves an orphan, and the next look finds it."""
    job = Job(new_stage())
    job.commit(2)
    late = delta_key(OPERATOR, 0, Epoch(1), Attempt("late"))
    job.stage.store.put(late, b"from the past")

    assert job.collect().removed == 1
    assert late not in contents(job.stage.store)
