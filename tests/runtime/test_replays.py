"""Replayed dead letters are part of history: rewound, forked and kept with everything else."""

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import penstock as ps
from penstock.chaos.audit import audit
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.formats import seal
from penstock.checkpoint.layout import request_key
from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.perform import perform
from penstock.checkpoint.signature import CHAIN_KEY, plain_body
from penstock.errors import Invalid
from penstock.ids import Epoch, Generation, Key
from penstock.runtime.checking import Outcome
from penstock.runtime.dead_letters import find_letters, replay_letters
from penstock.runtime.letters import FileLetters, Request
from penstock.runtime.loop import Runner
from penstock.runtime.replay_choice import Memory, Standing, decide, offer
from penstock.runtime.replay_requests import open_requests
from penstock.runtime.wire import Plan
from penstock.sinks.table_index import TableFile
from tests.support.audits import assert_valid
from tests.support.in_process import SETTINGS, append, click, no_spark
from tests.support.letters import Letters, mended, old_root, picky


def test_a_letter_is_replayed_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    """Also by two requests that do not know of each other."""
    job = Letters.begun(tmp_path, 3, 100)
    letters = find_letters(job.url, "sum")
    assert replay_letters(job.url, "sum", letters) == replay_letters(job.url, "sum", letters) == 1
    again = job.replay()
    assert (again.exit_code, again.stdout.splitlines()) == (
        0,
        ["0 letters will be processed again.",
         "1 letter was asked for already, and not yet processed."],
    )  # fmt: skip
    job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True])
    assert job.replay().stdout.splitlines()[1:] == ["1 letter was replayed already."]
    job.send(1)
    job.run(mended)
    assert (job.total(), job.requests()) == (104, [])


def test_a_restore_to_before_a_letter_takes_its_replay_back(tmp_path: Path) -> None:
    """The mended function reads the event itself, and an old replay must not count it twice."""
    job = Letters.begun(tmp_path, 3, 100)
    job.replay()
    job.run(mended)
    assert job.total() == 103
    job.restore(1)
    job.run(mended)

    assert (job.total(), job.listed()) == (103, [])


def test_a_restore_to_between_a_letter_and_its_replay_makes_it_dead_again(tmp_path: Path) -> None:
    """The replay is of epochs that are no more, and so is the request for it."""
    job = Letters.begun(tmp_path, 3, 100)
    job.replay()
    job.run(mended)
    job.restore(2)
    assert job.replayed() == [False]
    job.run(mended)
    assert (job.total(), job.replayed()) == (3, [False])
    job.replay()
    job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True])


def test_a_letter_that_is_reborn_after_a_restore_is_a_new_one(tmp_path: Path) -> None:
    """It has the place of one that was replayed, and its event is not lost."""
    job = Letters.begun(tmp_path, 3, 100)
    before = job.names()
    job.replay()
    job.run(mended)
    job.restore(1)
    job.run()
    assert (job.replayed(), len(job.names())) == ([False], 1)
    assert job.names()[0].startswith(f"{before[0]}@")
    job.replay()
    job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True])


def test_a_request_does_not_act_on_another_line_of_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was made before the restore, for a letter that was born anew since."""
    job = Letters.begun(tmp_path, 3, 100)
    job.replay()
    job.restore(1)
    job.run()
    with caplog.at_level(logging.WARNING):
        job.run(mended)

    assert (job.total(), job.replayed(), job.requests()) == (3, [False], [])


def test_a_restore_while_letters_are_chosen_takes_the_request_back(tmp_path: Path) -> None:
    """The person is told, and chooses again."""
    job = Letters.begun(tmp_path, 3, 100)
    seen = find_letters(job.url, "sum")
    job.restore(1)

    with pytest.raises(Invalid, match="went from generation 1 to 2 meanwhile"):
        replay_letters(job.url, "sum", seen)
    assert job.requests() == []


def test_a_fork_knows_which_letters_were_replayed(tmp_path: Path) -> None:
    """Those are not replayed again, new ones are, and the source notices nothing."""
    job = Letters.begun(tmp_path / "here", 1, 100)
    job.replay()
    job.run(mended)
    there = job.forked(tmp_path / "there")
    assert there.replayed() == [True]
    there.send(1000)
    there.run()
    there.replay()
    there.run(mended)

    assert (there.total(), there.replayed()) == (1101, [True, True])
    assert (job.total(), job.replayed()) == (101, [True])


def test_a_fork_carries_letters_and_not_requests(tmp_path: Path) -> None:
    """What was asked of one root is not done in another, and can be asked there."""
    job = Letters.begun(tmp_path / "here", 1, 100)
    job.replay()
    there = job.forked(tmp_path / "there")
    there.run(mended)
    assert (there.total(), there.replayed()) == (1, [False])
    there.replay()
    there.run(mended)
    job.run(mended)

    assert (there.total(), job.total()) == (101, 101)


def test_a_fork_of_before_the_replay_has_an_open_letter(tmp_path: Path) -> None:
    """The replay is of a later epoch."""
    job = Letters.begun(tmp_path / "here", 1, 100)
    job.replay()
    job.run(mended)
    there = job.forked(tmp_path / "there", epoch=2)
    assert there.replayed() == [False]
    there.replay()
    there.run(mended)

    assert there.total() == 101


class Dying:
    """A runner whose driver dies: before its tasks run, or when they have."""

    def __init__(self, runner: Runner, *, after: bool) -> None:
        self._runner, self._after = runner, after

    def run(self, plan: Plan) -> Outcome:
        """Do the work, or not; nobody hears of it."""
        if self._after:
            self._runner.run(plan)
        raise KeyboardInterrupt

    def is_alive(self) -> bool:
        """Not for long."""
        return True


@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_dies_replays_a_letter_once(tmp_path: Path, *, after: bool) -> None:
    """The request outlives it, and what it had staged is named by nothing."""
    job = Letters.begun(tmp_path, 3, 100)
    job.replay()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            job.local(mended).run(around=lambda runner: Dying(runner, after=after))
    assert [letter["state"] for letter in job.listed()] == ["requested"]
    job.run(mended)
    job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True])


def test_letters_of_two_operators_are_told_apart(tmp_path: Path) -> None:
    """A place alone may name both; then nothing is done, and the choices are named."""
    job = Letters.begun(tmp_path, 3, 100, operators=("left", "right"))
    both = job.replay("--letter", "2/0/0")
    assert (both.exit_code, job.requests()) == (2, [])
    assert "is one of several: choose left/2/0/0 or right/2/0/0." in both.stderr
    one = job.replay("--letter", "right/2/0/0")
    assert (one.exit_code, one.stdout) == (0, "1 letter will be processed again.\n")
    job.run(mended)

    assert (job.total("left"), job.total("right")) == (3, 103)
    assert job.replay("--operator", "left", "--letter", "2/0/0").exit_code == 0
    job.run(mended)
    assert job.total("left") == 103


@pytest.mark.parametrize("name", ["sum/9/0/0", "9/0/0", "sum/2/0/1", "other/2/0/0", "nonsense", ""])
def test_an_unknown_letter_is_refused(tmp_path: Path, name: str) -> None:
    """And nothing else is replayed in its place."""
    job = Letters.begun(tmp_path, 3, 100)
    done = job.replay("--letter", "sum/2/0/0", "--letter", name)

    assert (done.exit_code, job.requests()) == (2, [])
    assert "is not a dead letter in the present history of the job" in done.stderr
    assert "such as sum/2/0/0" in done.stderr


def test_a_name_from_before_a_restore_is_refused(tmp_path: Path) -> None:
    """It may mean a letter of the other line: the one that has its place now is named."""
    job = Letters.begun(tmp_path, 3, 100)
    (name,) = job.names()
    job.restore(1)
    job.run()
    done = job.replay("--letter", name)

    assert (done.exit_code, job.requests()) == (2, [])
    assert f"use {job.names()[0]}" in done.stderr
    assert job.replay("--letter", job.names()[0]).exit_code == 0


def test_a_letter_that_is_older_than_all_kept_epochs_is_replayed(tmp_path: Path) -> None:
    """Tables outlive the epochs that wrote them, and so do letters and what was replayed."""
    job = Letters.begun(tmp_path, 3, 100, 200)
    job.replay("--letter", "sum/2/0/0")
    job.run(mended)
    keeps = Retention(epochs=2, age_s=0.0, grace_s=0.0)
    brief = replace(SETTINGS, retention=keeps, collect_every=1)
    job.send(*[0] * 60)
    job.local().run(replace(brief, limits=ps.Limits(records=1)))
    assert job.root.head().floor > 50
    assert job.replayed() == [True, False]
    job.replay()
    job.local(mended).run(brief)

    assert (job.total(), job.replayed()) == (303, [True, True])


def test_a_letter_that_fails_again_is_a_new_letter(tmp_path: Path) -> None:
    """The old one stays replayed, and the new one can be."""
    job = Letters.begun(tmp_path, 3, 100)
    job.replay()
    job.run()
    assert [(each["letter"], each["event"], each["replayed"]) for each in job.listed()] == [
        ("sum/2/0/0", "clicks/0@1", True),
        ("sum/3/0/0", "sum.replays/letters@0", False),
    ]
    job.replay()
    job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True, True])


def test_many_letters_keep_the_limits_of_an_epoch(tmp_path: Path) -> None:
    """They share them with the events that are read beside, and none is left out."""
    job = Letters.begun(tmp_path)
    job.send(*range(100, 130))
    job.run()
    assert job.replay().stdout == "30 letters will be processed again.\n"
    job.send(*[1] * 30)
    local = job.local(mended)
    local.run(replace(SETTINGS, limits=ps.Limits(records=8)))

    rows = [manifest.rows_in for manifest in reversed(list(job.root.history()))][1:]
    assert (max(rows), sum(rows)) == (8, 60)
    assert job.total() == sum(range(100, 130)) + 30
    assert job.replayed() == [True] * 30


def test_a_replayed_event_keeps_its_time(tmp_path: Path) -> None:
    """It happened when it happened, whenever it is processed."""

    def job_of(*, raises: bool) -> ps.Job:
        @ps.stateful(emits="at timestamp, n long", each=True)
        def shown(user: str, event: ps.Event) -> object:
            if raises and event.n == 100:
                raise ValueError("too large")
            yield {"at": event.meta.event_time, "n": event.n}

        job = ps.Job("sums", partitions=1)
        rows = job.read(made.log, name="clicks", event_time="at").key_by("user")
        rows.process(shown, on_error="quarantine").write(ps.Table("out"))
        return job

    made = Letters.begun(tmp_path)
    append(made.log, [click("ada", 100, 50), click("ada", 1, 70)])
    local = made.local()
    local.job = job_of(raises=True)
    local.run()
    assert made.replay().exit_code == 0
    local.job = job_of(raises=False)
    local.run()

    found = [(at.timestamp(), n) for at, n in local.rows("out", "at", "n")]
    assert found == [(50.0, 100), (70.0, 1)]


def forged(job: Letters, operator: str, letters: tuple[FileLetters, ...]) -> Key:
    """A request that no command would make."""
    key = request_key("sum", Generation(1), "forged")
    asked = Request(operator=operator, generation=Generation(1), letters=letters)
    job.root.store.put(key, seal(asked))
    return key


@pytest.mark.parametrize("body", [b"", b"{}", b"nonsense", b"\xff"])
def test_a_request_that_cannot_be_read_is_left_alone(tmp_path: Path, body: bytes) -> None:
    """The job goes on, and so do other requests."""
    job = Letters.begun(tmp_path, 3, 100)
    job.root.store.put(Key("requests/sum/000000000001-foreign.json"), body)
    job.replay()
    job.run(mended)

    assert job.total() == 103


def test_a_request_for_more_letters_than_memory_holds_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A few forged bytes must not end a job at every start."""
    job = Letters.begun(tmp_path, 3, 100)
    (letter,) = find_letters(job.url, "sum")
    key = forged(job, "sum", (FileLetters(letter.place[0], ((0, 10**12),)),))
    asked = perform(open_requests("sum", Generation(1), {}), job.root.handlers)
    assert asked == {}
    job.replay()
    with caplog.at_level(logging.WARNING):
        job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True])
    assert f"{key} names 1,000,000,000,000 letters" in caplog.text


def test_many_letters_are_asked_for_by_several_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request stays within what a leader takes; together they name every letter."""
    monkeypatch.setattr("penstock.runtime.dead_letters.LETTERS_MAX", 2)
    job = Letters.begun(tmp_path, 3)
    job.send(100, 200, 300)
    job.run()
    job.replay()
    assert len(job.requests()) == 2
    job.run(mended)

    assert (job.total(), job.replayed()) == (603, [True] * 3)


def test_requests_beyond_what_memory_holds_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many requests together are bounded too, and those that wait are not lost."""
    monkeypatch.setattr("penstock.runtime.dead_letters.LETTERS_MAX", 1)
    monkeypatch.setattr("penstock.runtime.replay_choice.OPEN_LETTERS_MAX", 1)
    job = Letters.begun(tmp_path, 3)
    job.send(100, 200)
    job.run()
    job.replay()
    job.run(mended)
    for n in (1, 1):
        job.send(n)
        job.run(mended)

    assert (job.total(), job.replayed()) == (305, [True] * 2)


def test_a_request_that_the_job_cannot_verify_replays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key, a request decides what the next epoch processes only if it is signed."""
    monkeypatch.setenv(CHAIN_KEY, "a-secret-of-32-characters-or-more")
    job = Letters.begun(tmp_path, 3, 100)
    job.replay()
    (key,) = job.requests()
    plain = open_store(job.url)
    stored = plain.get(Key(key))
    assert stored is not None
    plain.put(Key(key), plain_body(stored.body))
    job.run(mended)
    assert (job.total(), job.replayed()) == (3, [False])
    plain.put(Key(key), stored.body)
    job.run(mended)

    assert (job.total(), job.replayed()) == (103, [True])


def test_a_request_for_what_is_no_letter_is_ignored_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a file that is not there, of a row that is not there, of another operator."""
    job = Letters.begun(tmp_path, 3, 100)
    (letter,) = find_letters(job.url, "sum")
    strange = Key("tables/sum.dead-letters/000000000002/0-strange.arrow")
    forged(job, "sum", (FileLetters(strange, ((0, 1),)), FileLetters(letter.place[0], ((7, 8),))))
    with caplog.at_level(logging.WARNING):
        job.run(mended)

    assert job.total() == 3
    assert "sum/2/0/0@strange was asked for and is not a dead letter of this" in caplog.text
    assert f"{letter.name}"[:-1] + "7" in caplog.text
    forged(job, "other", ())
    job.run(mended)
    assert job.total() == 3


def damage(job: Letters, prefix: str) -> None:
    """Alter the one object that is there."""
    (entry,) = job.root.store.list(prefix, "")
    job.root.store.put(entry.key, b"damaged")


def test_a_letter_that_is_damaged_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Others are replayed in its place, in an epoch that has room for one, and the job goes on."""
    job = Letters.begun(tmp_path, 3, 100, 200)
    job.replay()
    damage(job, "tables/sum.dead-letters/000000000002/0-")
    with caplog.at_level(logging.WARNING):
        job.local(mended).run(replace(SETTINGS, limits=ps.Limits(records=1)))

    assert job.total() == 203
    assert "dead letter sum/2/0/0@" in caplog.text


def test_nothing_is_replayed_while_it_is_not_known_what_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Better none than one twice; and the job goes on."""
    job = Letters.begun(tmp_path, 3, 100, 200)
    job.replay("--letter", "sum/2/0/0")
    job.run(mended)
    (letter,) = find_letters(job.url, "sum")[1:]
    replay_letters(job.url, "sum", [letter])
    damage(job, "tables/sum.replayed/000000000004/0-")
    job.send(1)
    with caplog.at_level(logging.WARNING):
        job.run(mended)

    assert job.total() == 104
    assert "no dead letters are replayed, for it is not known which were" in caplog.text


def offered(job: Letters, **columns: pa.DataType) -> pa.Table | None:
    """What is offered to an operator whose events have these columns by now."""
    newest = job.root.newest()
    assert newest is not None
    files = [TableFile(newest.epoch, each) for each in newest.sinks["sum.dead-letters"]]
    standing = Standing(
        epoch=newest.epoch,
        generation=newest.generation,
        tables={},
        unlisted={"sum.dead-letters": tuple(files)},
    )
    memory = Memory("sum", pa.schema(columns.items()))
    return perform(offer(memory, standing, 10), job.root.handlers)


def test_a_letter_has_the_columns_that_its_operator_has_by_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new column is null; where one cannot be cast, the letter is left alone."""
    job = Letters.begun(tmp_path, 100)
    job.replay()
    rows = offered(job, n=pa.int32(), new=pa.string())
    assert rows is not None
    assert rows.select(["n", "new", "_event_offset"]).to_pylist() == [
        {"n": 100, "new": None, "_event_offset": 0}
    ]
    with caplog.at_level(logging.WARNING):
        assert offered(job, n=pa.date32()) is None

    assert "cannot be replayed: table sum.dead-letters has files whose columns" in caplog.text


def test_what_is_decided_follows_from_the_chain() -> None:
    """Pure: requests, files of this line, what was replayed in which epoch."""
    mine, other = Key("mine"), Key("other")
    requests = {
        Key("a"): Request(
            operator="sum", generation=Generation(1), letters=(FileLetters(mine, ((0, 2),)),)
        ),
        Key("b"): Request(
            operator="sum",
            generation=Generation(1),
            letters=(FileLetters(mine, ((1, 4),)), FileLetters(other, ((0, 1),))),
        ),
    }
    replayed = {(mine, 0): Epoch(4), (mine, 1): Epoch(5)}
    now = decide(requests, [mine], replayed, Epoch(5), 1)
    later = decide(requests, [mine], replayed, Epoch(6), 9)

    assert (now.letters, now.fulfilled, now.strangers) == (((mine, 2),), (), ((other, 0),))
    assert (later.letters, later.fulfilled) == (((mine, 2), (mine, 3)), (Key("a"),))


def test_an_old_root_keeps_what_it_has_replayed(tmp_path: Path) -> None:
    """No letter twice and none lost: what was asked for and not done is to be asked for again."""
    job = old_root(tmp_path, "applied")
    assert job.replayed() == [True, True, False, False]
    job.run(mended)
    assert job.total() == 301
    assert job.replay().stdout.splitlines() == [
        "2 letters will be processed again.",
        "2 letters were replayed already.",
    ]
    job.run(mended)

    assert (job.total(), job.replayed()) == (1001, [True] * 4)
    assert job.root.check().clean
    there = job.forked(tmp_path / "there")
    assert there.replayed() == [True] * 4


def test_a_fork_of_an_old_root_knows_what_was_replayed(tmp_path: Path) -> None:
    """The topic that says so is copied along."""
    job = old_root(tmp_path, "applied")
    there = job.forked(tmp_path / "there")
    assert there.replayed() == [True, True, False, False]
    there.replay()
    there.run(mended)

    assert there.total() == 1001


def test_an_old_fork_does_not_say_what_was_replayed(tmp_path: Path) -> None:
    """Only a person can know; what came after the fork is as good as ever."""
    job = old_root(tmp_path, "forked")
    assert [letter["state"] for letter in job.listed()] == ["unknown", "dead"]
    done = job.replay()
    assert done.stdout.startswith("1 letter will be processed again.\n1 letter was left alone")
    job.run(mended)
    assert (job.total(), job.replayed()) == (1101, [False, True])
    assert job.replay("--letter", job.names()[0]).stdout == "1 letter will be processed again.\n"
    job.run(mended)
    assert (job.total(), job.replayed()) == (1201, [True, True])


def act(job: Letters, random: Random, sent: list[int], folder: Path) -> Letters:
    """One thing that a person may do to a job; the job to go on with."""
    match random.choice(("send", "send", "ask", "ask", "restore", "fork", "die")):
        case "send":
            numbers = [random.choice((1, 2, 100, 200)) for _ in range(2)]
            job.send(*numbers)
            sent += numbers
        case "ask":
            assert job.replay().exit_code == 0
        case "restore":
            head = job.root.head()
            job.restore(random.randint(head.floor, head.epoch))
        case "fork":
            return job.forked(folder)
        case "die":
            with suppress(KeyboardInterrupt):
                job.local(mended).run(around=lambda runner: Dying(runner, after=True))
    return job


@pytest.mark.parametrize("seed", range(4))
def test_no_event_is_lost_or_counted_twice_whatever_is_done(tmp_path: Path, seed: int) -> None:
    """After every life of the job each event is in the sum, or is a letter that is yet to be
    replayed; by the function as it was, and as it is mended."""
    random, sent = Random(seed), [1, 100]
    job = Letters.begun(tmp_path / "first", 1, 100)
    for number in range(8):
        job = act(job, random, sent, tmp_path / f"fork-{number}")
        job.run(random.choice((picky, mended)))
        left = [letter["columns"]["n"] for letter in job.listed() if not letter["replayed"]]
        assert job.total() + sum(left) == sum(sent), f"after {number + 1} steps of seed {seed}"

    topology = job.local().job.topology(job.url, no_spark)
    assert_valid(audit(job.root, topology).audited)


def test_without_quarantine_the_job_is_refused_by_name(tmp_path: Path) -> None:
    """Its letters would be forgotten."""
    job = Letters.begun(tmp_path, 3, 100)
    plain = ps.Job("sums", partitions=1)
    clicks = plain.read(job.log, name="clicks").key_by("user")
    clicks.process(mended, name="sum").write(ps.Table("sum.out"))
    local = job.local()
    local.job = plain

    with pytest.raises(Invalid, match="quarantine"):
        local.run()
