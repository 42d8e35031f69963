import json
import threading

import pytest

from penstock.checkpoint import MemoryStore, Retention
from penstock.checkpoint.root import Lease, Root, Session
from penstock.effects import Stored
from penstock.errors import Fenced, Gone, Invalid, Unavailable
from penstock.fencing import heartbeat_key
from penstock.ids import Epoch, Key, Token
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import JOB, OPERATOR, SINK, commit_epochs, contents

LAST = Retention(epochs=1, age_s=0.0, grace_s=0.0)
LEASE = Lease(length_s=15.0, beat_every_s=3.0, poll_every_s=1.0)
WAIT_S_MAX = 60.0


def new_root(store: MemoryStore | None = None) -> Root:
    clock = ManualClock()
    return Root(store or MemoryStore(clock), clock, CountingChance())


def clock_of(root: Root) -> ManualClock:
    assert isinstance(root.clock, ManualClock)
    return root.clock


def collected(session: Session) -> None:
    """Collect for a job whose sink has applied everything."""
    session.collect(LAST, {SINK: Epoch(session.head.epoch + 1)})


def test_a_root_that_does_not_exist_says_so() -> None:
    """A mistyped URL, and nothing is created for it."""
    root = new_root()

    with pytest.raises(Invalid, match="HEAD is not there: check the root's URL"):
        root.head()
    assert contents(root.store) == {}


def test_history_is_told_newest_first() -> None:
    """As far back as it is promised."""
    root = new_root()
    session = root.lead(JOB, "one")
    commit_epochs(root, session, 4)
    assert [manifest.epoch for manifest in root.history()] == [4, 3, 2, 1]

    collected(session)
    commit_epochs(root, session, 1)

    assert [manifest.epoch for manifest in root.history()] == [5, 4]


def test_history_ends_where_it_was_given_up_meanwhile() -> None:
    """A reader that is overtaken sees less, not an error."""
    root = new_root()
    session = root.lead(JOB, "one")
    commit_epochs(root, session, 4, snapshot_every=1)
    telling = root.history()
    assert next(telling).epoch == 4
    for _ in range(2):
        collected(session)
        commit_epochs(root, session, 1, snapshot_every=1)
    collected(session)

    assert list(telling) == []


def test_the_lineages_of_a_root_are_those_of_its_head() -> None:
    """What a restarted task loads."""
    root = new_root()
    commit_epochs(root, root.lead(JOB, "one"), 7, snapshot_every=5)

    lineage = root.lineages()[OPERATOR, 0]

    assert [file.name for file in lineage.files] == ["000009.sst"]
    assert [epoch for epoch, _ in lineage.deltas] == [5, 6, 7]


def test_a_root_can_be_checked_and_pinned_without_leading() -> None:
    """Somebody with a terminal must not depose the job to look at it."""
    root = new_root()
    session = root.lead(JOB, "one")
    commit_epochs(root, session, 2)

    kept = root.pin("kept", Epoch(1))
    assert root.pins() == [kept]
    assert root.check().clean
    root.unpin("kept")

    assert root.pins() == []
    commit_epochs(root, session, 1)
    assert (root.head().token, root.head().epoch) == (1, 3)


def test_leaving_a_session_lets_the_next_one_in_at_once() -> None:
    """A restart in order costs no lease."""
    root = new_root()
    with root.lead(JOB, "one") as session:
        commit_epochs(root, session, 1)
    before_s = clock_of(root).now_s

    root.wait_for_turn(LEASE)

    assert clock_of(root).now_s == before_s


def test_a_session_that_just_vanishes_is_waited_for() -> None:
    """It may be alive and slow: the lease says how long that is believed."""
    root = new_root()
    root.lead(JOB, "one")
    before_s = clock_of(root).now_s

    root.wait_for_turn(LEASE)

    assert clock_of(root).now_s - before_s == LEASE.length_s


def test_a_session_releases_the_job_on_an_error_too() -> None:
    """Whatever ended it, the next leader need not wait."""
    root = new_root()
    with pytest.raises(ZeroDivisionError), root.lead(JOB, "one"):
        _ = 1 / 0
    before_s = clock_of(root).now_s

    root.wait_for_turn(LEASE)

    assert clock_of(root).now_s == before_s


def test_a_deposed_session_refuses_everything_and_releases_nothing() -> None:
    """It must not speak for the leader that has taken over."""
    root = new_root()
    with root.lead(JOB, "old") as old:
        root.lead(JOB, "new")
        for _ in range(2):
            with pytest.raises(Fenced):
                commit_epochs(root, old, 1)
        with pytest.raises(Fenced):
            collected(old)
    assert contents(root.store).keys() & {heartbeat_key(Token(1)), heartbeat_key(Token(2))} == set()
    before_s = clock_of(root).now_s

    root.wait_for_turn(LEASE)

    assert clock_of(root).now_s - before_s == LEASE.length_s


def test_a_collection_raises_the_floor_with_the_next_commit() -> None:
    """The leader promises less before anything is removed."""
    root = new_root()
    session = root.lead(JOB, "one")
    commit_epochs(root, session, 3)

    collected(session)
    assert root.head().floor == 1
    commit_epochs(root, session, 1)
    assert root.head().floor == 3
    collected(session)

    with pytest.raises(Gone):
        root.pin("late", Epoch(2))


class Noticing(MemoryStore):
    """A store that tells when a heartbeat came in, and may refuse to take one."""

    def __init__(self) -> None:
        super().__init__()
        self.beat = threading.Event()
        self.down = False

    def get(self, key: Key) -> Stored | None:
        if self.down:
            raise Unavailable(key, "did not answer", "try again")
        return super().get(key)

    def put(self, key: Key, body: bytes) -> None:
        if self.down:
            raise Unavailable(key, "did not answer", "try again")
        super().put(key, body)
        if key.startswith("heartbeats/"):
            self.beat.set()


def test_a_session_beats_from_a_thread_until_it_is_left() -> None:
    """An epoch may take longer than a lease; the leader is alive all the same."""
    store = Noticing()
    root = Root(store)
    with root.lead(JOB, "one") as session:
        session.beat(every_s=0.001)
        for _ in range(3):
            assert store.beat.wait(WAIT_S_MAX)
            store.beat.clear()
        assert "penstock-heartbeat" in names_of_threads()
    stored = store.get(heartbeat_key(Token(1)))

    assert "penstock-heartbeat" not in names_of_threads()
    assert stored is not None
    assert json.loads(stored.body) == {
        "holder": session.tenure.holder,
        "count": 0,
        "released": True,
        "notes": {},
    }


def test_a_session_can_say_something_with_its_signs_of_life() -> None:
    """Whoever looks at the job learns what its leader is waiting for."""
    store = Noticing()
    root = Root(store)
    with root.lead(JOB, "one") as session:
        session.note("sinks", {"ledger": 7})
        session.beat(every_s=0.001)
        assert store.beat.wait(WAIT_S_MAX)
        living = store.get(heartbeat_key(Token(1)))
    released = store.get(heartbeat_key(Token(1)))

    assert living is not None and released is not None
    assert [json.loads(each.body)["notes"] for each in (living, released)] == [
        {"sinks": {"ledger": 7}},
        {"sinks": {"ledger": 7}},
    ]


def test_a_beating_session_notices_that_it_was_deposed() -> None:
    """Between commits, and without anybody asking."""
    store = Noticing()
    root = Root(store)
    with root.lead(JOB, "old") as old:
        new = root.lead(JOB, "new")
        old.beat(every_s=0.001)
        for thread in threading.enumerate():
            if thread.name == "penstock-heartbeat":
                thread.join(WAIT_S_MAX)
        with pytest.raises(Fenced) as caught:
            old.tenure.check()

    assert (caught.value.held, caught.value.newest, caught.value.by) == (1, 2, new.tenure.holder)


def test_a_release_that_does_not_arrive_is_no_error() -> None:
    """It costs the next leader a lease, nothing else, and must not hide what ended the job."""
    store = Noticing()
    with Root(store).lead(JOB, "one"):
        store.down = True
    store.down = False

    assert store.get(heartbeat_key(Token(1))) is None


def test_holders_have_names_of_their_own() -> None:
    """Two processes on one host, or one that starts twice, are told apart."""
    root = new_root()
    holders = [root.lead(JOB, name).tenure.holder for name in ("one", "one", None, None)]

    assert len(set(holders)) == 4
    assert holders[0].startswith("one-")


def test_a_session_that_was_left_does_nothing_more() -> None:
    """The next leader was told that it need not wait."""
    root = new_root()
    with root.lead(JOB, "one") as session:
        commit_epochs(root, session, 1)

    with pytest.raises(Invalid, match="job clicks was released: lead it again first"):
        commit_epochs(root, session, 1)
    assert root.head().epoch == 1


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]
