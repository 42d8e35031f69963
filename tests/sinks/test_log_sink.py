"""`LogSink`: each row is in the topic once, wherever its leader dies, whoever else would lead."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import Fenced, Invalid
from penstock.ids import Token
from penstock.sinks import Apply
from penstock.sinks.log_sink import LogSink
from penstock.sinks.log_sink_writer import LogWriter, producer_of
from penstock.sinks.roll_forward import CHOICES
from penstock.sources import Log
from tests.support.log_sink_case import parts_of
from tests.support.log_sinking import (
    PARTS,
    Died,
    Mortal,
    Sleeper,
    expected,
    held,
    log_of,
    opened,
    rows_for,
    sinking,
    spread,
)
from tests.support.logs import AT_ONCE, new_url, remove_all
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, people

ALL = range(PARTS)
REQUESTS_MAX = 60


@pytest.mark.parametrize("heard", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("first", [False, True], ids=["on", "first"])
def test_a_leader_may_die_at_any_request(heard: bool, first: bool) -> None:
    """The next one finds half an epoch or a whole one, and leaves each row there once."""
    for number in range(1, REQUESTS_MAX):
        sink, epochs = sinking(), [(1, ALL), (2, ALL)]
        if not first:
            opened(sink).apply(spread(1))
        fate = Mortal(number, heard=heard)
        asked = spread(1 if first else 2)
        doomed = opened(sink, fate)
        if not dies(doomed, asked):
            break
        late = opened(sink)
        late.apply(dataclasses.replace(asked, token=Token(2)))
        if first:
            late.apply(spread(2, token=2))

        assert held(sink) == expected(*epochs)
        assert late.read_cursor(0) == cursor(2)
    else:
        pytest.fail(f"an epoch takes more than {REQUESTS_MAX} requests")
    assert number > 8, "there were too few requests to die at"


def dies(writer: LogWriter, asked: Apply) -> bool:
    """Whether the process does not live to see the end of it."""
    try:
        writer.apply(asked)
    except Died:
        return True
    return False


def refused(writer: LogWriter, asked: Apply) -> Fenced | None:
    """By whom a leader is told that it is none any more, if it is."""
    try:
        writer.apply(asked)
    except Fenced as fenced:
        return fenced
    return None


@pytest.mark.parametrize("partitions", [ALL, [0], [1], [0, 2], []], ids=str)
def test_a_leader_may_wake_up_deposed_at_any_request(partitions: list[int]) -> None:
    """While it slept another has applied its epoch and the next; it adds nothing to them."""
    for number in range(1, REQUESTS_MAX):
        sink = sinking()
        opened(sink).apply(spread(1))

        def meanwhile(sink: LogSink = sink) -> None:
            other = opened(sink)
            other.apply(spread(2, partitions, token=2))
            other.apply(spread(3, token=2))

        fate = Sleeper(number, meanwhile)
        refusal = refused(opened(sink, fate), spread(2, partitions))
        if not fate.has_slept:
            break
        assert refusal is not None
        assert (refusal.held, refusal.newest) == (1, 2)
        assert held(sink) == expected((1, ALL), (2, partitions), (3, ALL))
    else:
        pytest.fail(f"an epoch takes more than {REQUESTS_MAX} requests")
    assert number > 6, "there were too few requests to sleep at"


def test_a_deposed_leader_is_refused_where_it_never_wrote() -> None:
    """It has claimed all partitions, has had rows for one, and is told by each of the others."""
    sink = sinking()
    old = opened(sink)
    old.apply(spread(1, [0]))
    opened(sink).apply(spread(2, [], token=2))

    for partitions in ([1], [2], [0]):
        with pytest.raises(Fenced) as caught:
            old.apply(spread(2, partitions, follows=cursor(1)))
        assert (caught.value.held, caught.value.newest) == (1, 2)
    assert held(sink) == expected((1, [0]))


def test_a_later_leader_that_has_written_nothing_yet_is_known() -> None:
    """Its claim is in the topic before its first row, also where there is no cursor yet."""
    sink = sinking()
    later = opened(sink, Mortal(8, heard=True))
    assert dies(later, spread(1, token=5))
    assert (held(sink), opened(sink).read_cursor(0)) == (expected(), None)

    with pytest.raises(Fenced) as caught:
        opened(sink).apply(spread(1, token=4))

    assert (caught.value.held, caught.value.newest) == (4, 5)
    assert held(sink) == expected()


def test_half_an_epoch_of_another_history_is_found_out() -> None:
    """A leader dies in the middle, and the job goes back: its rows must not pass for ours."""
    sink = sinking()
    opened(sink).apply(spread(1))
    half_of_an_epoch(sink, 2)
    there = held(sink)
    other = cursor(2, generation=2, commit="of the new line")

    for partitions in (ALL, [0], []):
        with pytest.raises(Invalid) as caught:
            opened(sink).apply(spread(2, partitions, at=other, token=2))
        assert caught.value.advice == CHOICES
        assert "epoch 2 of generation 1" in caught.value.found
        assert "epoch 2 of generation 2" in caught.value.found
    assert (held(sink), opened(sink).read_cursor(0)) == (there, cursor(1))


def test_half_an_epoch_may_be_accepted() -> None:
    """Whoever has seen to it says so, and the sink goes on."""
    sink = sinking()
    opened(sink).apply(spread(1))
    half_of_an_epoch(sink, 2)
    half = held(sink)
    other = cursor(2, generation=2, commit="of the new line")

    opened(sink).accept(0, cursor(1), Token(2))
    writer = opened(sink)
    writer.apply(spread(2, at=other, token=2))

    assert writer.read_cursor(0) == other
    assert held(sink) == [rows + more for rows, more in zip(half, expected((2, ALL)), strict=True)]


def half_of_an_epoch(sink: LogSink, epoch: int, partitions: Sequence[int] = ALL) -> None:
    """Let a leader die when some partitions have its rows, and home has not."""
    before = held(sink)
    for number in range(1, REQUESTS_MAX):
        if dies(opened(sink, Mortal(number, heard=True)), spread(epoch, partitions)):
            now = held(sink)
            if now != before:
                assert now[0] == before[0]
                return
    pytest.fail("there was never half of it")


def test_accept_lowers_the_token_and_silences_those_before_it() -> None:
    """Another root's tokens begin at one again; a leader of the old root is refused everywhere."""
    sink = sinking()
    old = opened(sink)
    old.apply(spread(1, token=7))
    new = cursor(0, generation=2, commit="nothing yet")
    opened(sink).accept(0, new, Token(1))

    for partitions in (ALL, [1], [2], [0]):
        with pytest.raises(Invalid, match="epoch 0 of generation 2 and was given epoch 2"):
            old.apply(spread(2, partitions, token=7))
    writer = opened(sink)
    writer.apply(spread(1, follows=new, at=cursor(1, 2, "its first"), token=1))
    assert held(sink) == expected((1, ALL), (1, ALL))


def test_a_writer_that_was_left_behind_takes_its_place_back() -> None:
    """Of one leader, which opened the sink anew: it is no other leader, and is not fenced."""
    sink = sinking()
    first, second = opened(sink), opened(sink)
    first.apply(spread(1))
    second.apply(spread(2))
    first.apply(spread(2))
    first.apply(spread(3))
    second.apply(spread(4))

    assert held(sink) == expected((1, ALL), (2, ALL), (3, ALL), (4, ALL))


@pytest.mark.parametrize("dead", [True, False])
def test_a_topic_that_grows_gets_the_next_epoch_whole(dead: bool) -> None:
    """An epoch that was begun is spread over as many partitions as before, or rows are lost."""
    sink = sinking(partitions=None)
    writer = opened(sink)
    writer.apply(spread(1, range(6)))
    if dead:
        half_of_an_epoch(sink, 2, range(6))
    log_of(sink).change(partitions=5)

    late = opened(sink)
    late.apply(spread(2, range(6), token=2))
    late.apply(spread(3, range(6), token=2))

    first = expected((1, range(6)), (2, range(6)))
    after = expected((3, range(6)), of=5)
    assert held(sink) == [rows + more for rows, more in zip([*first, [], []], after, strict=True)]


def test_a_partition_without_rows_costs_nothing() -> None:
    """Only home is written to when there is nothing for the others."""
    sink = sinking()
    writer = opened(sink)
    writer.apply(spread(1))
    before = [tail.version for tail in log_of(sink).tails()]
    writer.apply(spread(2, []))
    writer.apply(spread(3, [1]))

    after = [tail.version for tail in log_of(sink).tails()]
    assert [now - then for then, now in zip(before, after, strict=True)] == [2, 1, 0]
    assert held(sink) == expected((1, ALL), (3, [1]))


def test_sweeps_between_two_epochs_cost_no_row() -> None:
    """A partition that was quiet for long is looked at again before rows are staged for it."""
    sink = sinking()
    writer = opened(sink)
    writer.apply(spread(1))
    for _ in range(3):
        log_of(sink).sweep()
    writer.apply(spread(2))

    assert held(sink) == expected((1, ALL), (2, ALL))


def test_others_may_write_to_the_topic_meanwhile() -> None:
    """A producer of the sink's own name as well: it cannot have the same one."""
    sink = sinking()
    writer = opened(sink)
    writer.apply(spread(1))
    with log_of(sink).producer("people", AT_ONCE) as producer:
        producer.append([{"user": "other", "n": 7}], 1)
    writer.apply(spread(2))

    one, two = expected((1, ALL)), expected((2, ALL))
    assert held(sink) == [one[0] + two[0], [*one[1], {"user": "other", "n": 7}, *two[1]],
                          one[2] + two[2]]  # fmt: skip
    assert set(log_of(sink).tails()[1].marks) == {"people", producer_of(JOB, "people")}


def test_rows_go_where_any_producer_would_put_them() -> None:
    """By key: whoever joins the topic with another finds equal keys in equal partitions."""
    sink = LogSink("people", new_url(), partitions=4, key="user")
    rows = people(1, 200)
    opened(sink).apply(apply(1, rows))
    by_hand = Log.create(new_url(), PEOPLE, partitions=4, key="user")
    with by_hand.producer(batching=AT_ONCE) as producer:
        producer.append(rows)

    assert held(sink) == parts_of(by_hand.url)
    assert min(len(part) for part in held(sink)) > 0


def test_a_large_epoch_is_several_segments() -> None:
    """Readers hold a segment in memory; they need not hold an epoch."""
    sink = sinking(partitions=1)
    columns = pa.schema([*PEOPLE, ("text", pa.string())])
    rows = [{"user": "ada", "n": n, "text": "x" * 1000} for n in range(20_000)]
    writer = opened(sink, columns=columns)
    asked = apply(1, rows, columns=columns)
    writer.apply(asked)
    writer.apply(asked)

    assert [row["n"] for row in held(sink)[0]] == list(range(20_000))
    assert len(log_of(sink).tails()[0].pieces) == 3


def test_event_times_are_known_to_the_topic() -> None:
    """A job that reads it has its watermark from them."""
    columns = pa.schema([("user", pa.string()), ("at", pa.int64())])
    sink = LogSink("people", new_url(), event_time="at")
    rows = [{"user": "ada", "at": 5_000}, {"user": "bob", "at": 7_000}]
    opened(sink, columns=columns).apply(apply(1, rows, columns=columns))

    assert log_of(sink).topic().event_time == "at"
    assert [piece.event_max_ms for piece in log_of(sink).tails()[0].pieces] == [7_000]


def test_a_column_that_the_rows_lack_is_null() -> None:
    """Topics grow columns; a job that does not know them goes on."""
    log = Log.create(new_url(), pa.schema([("more", pa.float64()), *PEOPLE]))
    sink = sinking(log.url, partitions=1)
    opened(sink).apply(spread(1, [0]))

    assert held(sink) == [[{"more": None, **row} for row in rows_for(1, 0)]]


NOT_NULL = pa.schema([pa.field("user", pa.string(), nullable=False), ("n", pa.int64())])
MOMENTS = pa.schema([*PEOPLE, ("at", pa.timestamp("ms"))])


@pytest.mark.parametrize(
    ("topic", "settings", "said", "found"),
    [
        (PEOPLE, {"partitions": 2}, {"partitions": 3}, "has 2 partitions, and the sink says 3"),
        (PEOPLE, {"key": "user"}, {"key": "n"}, "has the key user, and the sink says n"),
        (PEOPLE, {}, {"key": "n"}, "has the key none, and the sink says n"),
        (PEOPLE, {}, {"event_time": "n"}, "has the event time None, and the sink says n"),
        (
            pa.schema([("user", pa.string())]),
            {},
            {},
            "column 'n' is not in the topic, which has user",
        ),
        (
            pa.schema([("user", pa.string()), ("n", pa.int32())]),
            {},
            {},
            "column 'n' is int32 in the topic, and the rows have int64",
        ),
        (NOT_NULL, {}, {}, "column 'user' may not be null in the topic, and may be in the rows"),
        (
            pa.schema([*PEOPLE, pa.field("more", pa.int64(), nullable=False)]),
            {},
            {},
            "column 'more' may not be null in the topic, and the rows do not have it",
        ),
        (
            pa.schema([*PEOPLE, ("more", pa.string())]),
            {"key": ["user", "more"]},
            {},
            "column 'more' is the key of the topic, and the rows do not have it",
        ),
        (
            MOMENTS,
            {"event_time": "at"},
            {},
            "column 'at' is the event time of the topic, and the rows do not have it",
        ),
        (
            PEOPLE,
            {"event_time": "n"},
            {},
            "column 'n' is the event time of the topic, and can hold what that cannot be",
        ),
    ],
)
def test_a_topic_that_cannot_take_every_row_is_refused(
    topic: pa.Schema, settings: dict[str, object], said: dict[str, object], found: str
) -> None:
    """When the job starts: after an epoch is decided it would be too late."""
    log = Log.create(new_url(), topic, **settings)  # type: ignore[arg-type]
    sink = LogSink("people", log.url, **said)  # type: ignore[arg-type]

    with pytest.raises(Invalid) as caught:
        opened(sink)

    assert str(caught.value).startswith(f"sink people, log {log.url}")
    assert found in str(caught.value)


def test_what_the_topic_says_is_taken_over() -> None:
    """Its key, where nothing else is said."""
    log = Log.create(new_url(), PEOPLE, partitions=4, key="user")
    sink = LogSink("people", log.url)
    opened(sink).apply(apply(1, people(1, 100)))

    assert min(len(part) for part in held(sink)) > 0


@pytest.mark.parametrize(
    ("columns", "settings", "found"),
    [
        (pa.schema([("_meta", pa.string())]), {}, "column '_meta' cannot be"),
        (PEOPLE, {"key": "nobody"}, "column 'nobody' does not exist"),
        (pa.schema([("tags", pa.list_(pa.string()))]), {"key": "tags"}, "is no key"),
        (PEOPLE, {"event_time": "user"}, "column 'user' is string and cannot be the event time"),
        (PEOPLE, {"partitions": 0}, "cannot have 0 partitions"),
    ],
)
def test_what_no_topic_can_hold_is_refused_when_a_job_is_loaded(
    columns: pa.Schema, settings: dict[str, object], found: str
) -> None:
    """Nothing is asked of the store for it: tasks call this too."""
    sink = LogSink("people", "s3://no-such-bucket/topic", **settings)  # type: ignore[arg-type]

    with pytest.raises(Invalid) as caught:
        sink.check(columns.empty_table())

    assert found in str(caught.value)


def test_rows_that_could_never_be_written_are_refused_before_they_are_staged() -> None:
    """A moment beyond all counting would hold the job for ever."""
    sink = LogSink("people", new_url(), event_time="n")
    rows = pa.Table.from_pylist([{"user": "ada", "n": 5}, {"user": "bob", "n": 2**60}], PEOPLE)

    sink.check(rows.slice(0, 1))
    with pytest.raises(Invalid, match="row 1, column 'n'"):
        sink.check(rows)

    keyed = LogSink("people", new_url(), key="at")
    far = pa.table({"at": pa.array([2**62], pa.timestamp("s"))})
    with pytest.raises(Invalid, match="outside the years"):
        keyed.check(far)


def test_a_topic_that_is_not_there_is_made_only_if_that_was_asked_for() -> None:
    """A mistyped URL must not become a topic where there is one already."""
    sink = LogSink("people", new_url(), create=False)

    with pytest.raises(Invalid, match="does not exist: make it with `penstock topic create`"):
        opened(sink)

    topic = opened(dataclasses.replace(sink, create=True, key="user")).topic
    assert (topic.partitions, topic.key, topic.schema) == (PARTS, ("user",), PEOPLE)


def test_a_topic_that_was_made_anew_is_not_written_to_as_if_it_were_the_old() -> None:
    """The cursor went with it; only the job's start can say from where to go on."""
    sink = sinking()
    writer = opened(sink)
    writer.apply(spread(1))
    remove_all(log_of(sink))
    opened(sink)

    with pytest.raises(Invalid, match="was removed and made anew"):
        dataclasses.replace(writer, _hold=None).apply(spread(2))
    assert opened(sink).read_cursor(0) is None


def test_a_sink_shows_no_secret() -> None:
    """Its description is logged when a job starts."""
    sink = LogSink("people", "s3://key:secret@bucket/topic")

    assert repr(sink) == "LogSink('people', 's3://bucket/topic')"
    with pytest.raises(Invalid) as caught:
        opened(sink)
    assert "secret" not in str(caught.value)


def test_a_folder_means_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader may be started from another folder than the one the job was written in."""
    monkeypatch.chdir(tmp_path)

    assert LogSink("people", "topic").url == str(tmp_path / "topic")
