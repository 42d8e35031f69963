"""Topics: what they can be, what they can become, and what is never said about them."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.perform import perform, store_handlers
from penstock.errors import Gone, Invalid, PenstockError
from penstock.sources import Batching, Log, Range
from penstock.sources.log_topic import PARTITIONS_MAX, create_topic
from tests.support.driving import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.logs import (
    AT_ONCE,
    EVENTS,
    append_each,
    column,
    new_log,
    new_url,
    numbered,
    objects,
    remove_all,
    rows,
    segments,
    spans,
    tail_of,
)

MORE = pa.field("more", pa.list_(pa.string()))
OTHER = pa.schema([("z", pa.float64())])


def test_a_topic_is_what_it_was_made() -> None:
    """To everybody who opens it, in this process or another."""
    url = new_url()
    Log.create(
        url,
        EVENTS,
        partitions=3,
        key=["user", "n"],
        event_time="n",
        compacted=True,
        keep=timedelta(hours=1),
        keep_bytes=1000,
        tombstone_grace=timedelta(minutes=1),
    )
    topic = Log(url).topic()

    assert topic.schema == Log(url).schema() == EVENTS
    assert (topic.partitions, topic.key, topic.event_time) == (3, ("user", "n"), "n")
    assert (topic.compacted, topic.retention_age_ms, topic.retention_bytes) == (
        True,
        3_600_000,
        1000,
    )
    assert topic.tombstone_grace_ms == 60_000


def test_a_topic_is_made_once() -> None:
    """The second maker may have meant something else: it is told, and nothing is changed."""
    log = new_log()
    append_each(log, numbered(1))
    before = log.topic()

    with pytest.raises(Invalid, match="exists already: open it, or choose another name"):
        Log.create(log.url, OTHER)
    assert (log.topic(), column(log)) == (before, [1])


def test_two_topics_of_one_url_are_one(tmp_path: Path) -> None:
    """A log is what is on the store, and nothing that a process remembers."""
    one = Log.create(str(tmp_path / "topic"), EVENTS)
    other = Log(f"file://{tmp_path}/topic")
    append_each(one, numbered(1))
    append_each(other, numbered(2))

    assert column(one) == column(other) == [1, 2]


@pytest.mark.parametrize("name", ["_meta", "_offset", "_at_ms"])
def test_names_that_are_ours_are_refused(name: str) -> None:
    """When a topic is made and when it grows."""
    log = new_log()
    with pytest.raises(Invalid) as caught:
        new_log(pa.schema([(name, pa.int64())]))
    assert caught.value.subject.endswith(f", column '{name}'")
    with pytest.raises(Invalid) as caught:
        log.change(schema=EVENTS.append(pa.field(name, pa.int64())))
    assert caught.value.subject == f"{log.name}, column '{name}'"


CREATED_WRONG = {
    "a column twice": ({"schema": pa.schema([("a", pa.int64())] * 2)}, ", column 'a'"),
    "no such key": ({"key": "usr"}, ", column 'usr'"),
    "no such key among others": ({"key": ("user", "x")}, ", column 'x'"),
    "no such event time": ({"event_time": "at"}, ", column 'at'"),
    "a word as event time": ({"event_time": "user"}, ", column 'user'"),
    "a number as event time": (
        {"schema": pa.schema([("at", pa.float64())]), "event_time": "at"},
        ", column 'at'",
    ),
    "a day as event time": (
        {"schema": pa.schema([("at", pa.date32())]), "event_time": "at"},
        ", column 'at'",
    ),
    "compacted without a key": ({"compacted": True}, ""),
    "no partition": ({"partitions": 0}, ""),
    "too many partitions": ({"partitions": PARTITIONS_MAX + 1}, ""),
    "a grace below nothing": ({"tombstone_grace": timedelta(-1)}, ""),
}


@pytest.mark.parametrize(("settings", "where"), CREATED_WRONG.values(), ids=CREATED_WRONG)
def test_a_topic_that_cannot_be_is_not_made(settings: dict[str, Any], where: str) -> None:
    """What is wrong is named, and nothing is left behind."""
    url = new_url()
    with pytest.raises(Invalid) as caught:
        new_log(settings.pop("schema", EVENTS), url=url, **settings)

    assert caught.value.subject == f"log {url}{where}"
    assert list(open_store(url).list("")) == []


def test_a_column_that_is_added_is_null_in_older_rows() -> None:
    """Old segments are not touched; they say themselves which columns they have."""
    log = new_log()
    with log.producer(batching=AT_ONCE) as old:
        old.append(numbered(1)).wait()
        log.change(schema=pa.schema([MORE, *EVENTS]))
        append_each(log, {"user": "bob", "n": 2, "more": ["x"]})
        old.append(numbered(3)).wait()

    assert log.schema() == EVENTS.append(MORE)
    assert rows(log) == {
        0: {"user": "ada", "n": 1, "more": None},
        1: {"user": "bob", "n": 2, "more": ["x"]},
        2: {"user": "ada", "n": 3, "more": None},
    }


def test_a_reading_has_the_columns_it_began_with() -> None:
    """Batches of one range fit together, also if the topic grows meanwhile."""
    log = new_log()
    append_each(log, numbered(1), numbered(2))
    reading = log.read("0", Range(start=0, stop=2))
    first = next(reading)
    log.change(schema=EVENTS.append(MORE))

    assert [batch.schema for batch in reading] == [first.schema]


CHANGED_WRONG = {
    "left out": (pa.schema([EVENTS.field("n")]), "user"),
    "another type": (pa.schema([("user", pa.string()), ("n", pa.int32())]), "n"),
    "no longer null": (
        pa.schema([("user", pa.string()), pa.field("n", pa.int64(), nullable=False)]),
        "n",
    ),
    "new and not null": (EVENTS.append(pa.field("more", pa.int64(), nullable=False)), "more"),
    "twice": (EVENTS.append(pa.field("n", pa.int64())), "n"),
    "renamed": (pa.schema([("user", pa.string()), ("number", pa.int64())]), "n"),
}


@pytest.mark.parametrize(("schema", "column"), CHANGED_WRONG.values(), ids=CHANGED_WRONG)
def test_a_change_that_older_rows_do_not_fit_is_refused(schema: pa.Schema, column: str) -> None:
    """By the name of the column."""
    log = new_log()
    before = log.topic()
    with pytest.raises(Invalid) as caught:
        log.change(schema=schema)

    assert caught.value.subject == f"{log.name}, column '{column}'"
    assert log.topic() == before


def test_partitions_become_more_and_never_fewer() -> None:
    """Rows stay where they are; who opens the topic from then on uses the new ones too."""
    log = new_log(partitions=2)
    with log.producer(batching=AT_ONCE) as old:
        old.append(numbered(1), 1).wait()
        assert log.change(partitions=4).partitions == 4
        with pytest.raises(Invalid, match="does not exist: there are 2"):
            old.append(numbered(2), 3)
    append_each(log, numbered(3), partition=3)

    assert spans(log) == {"0": (0, 0), "1": (0, 1), "2": (0, 0), "3": (0, 1)}
    for fewer in (3, 0, -1):
        with pytest.raises(Invalid, match=f"has 4 partitions and cannot have {fewer}"):
            log.change(partitions=fewer)
    with pytest.raises(Invalid, match="cannot have 257 partitions"):
        log.change(partitions=PARTITIONS_MAX + 1)


def test_a_change_to_what_it_is_changes_nothing() -> None:
    """A deployment may say what it wants on every start."""
    log = new_log(keep_bytes=5)
    before = log.topic()

    assert log.change(schema=EVENTS, partitions=1, retention_bytes=5) == before
    assert log.change(retention_bytes=6, retention_age_ms=7).version == before.version + 1


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "another"},
        {"key": ("n",)},
        {"event_time": "n"},
        {"version": 9},
        {"columns": "x"},
        {"nonsense": 1},
        {"partitions": "3"},
        {"retention_bytes": -1},
        {"compacted": True},
    ],
    ids=str,
)
def test_what_cannot_be_changed_is_refused(fields: Mapping[str, Any]) -> None:
    """Whose topic it is, where its rows go and when they happened is settled for good."""
    log = new_log()
    append_each(log, numbered(1))
    before = log.topic()

    with pytest.raises(Invalid):
        log.change(**fields)
    assert (log.topic(), column(log)) == (before, [1])


def test_a_removed_topic_is_gone() -> None:
    """To readers and to producers that are still at work."""
    log = new_log()
    append_each(log, numbered(1))
    reading = log.read("0", Range(start=0, stop=1))
    remove_all(log)

    with pytest.raises(Gone, match="does not exist"):
        log.spans()
    with pytest.raises(Gone, match="does not exist"):
        list(reading)


def made_anew(log: Log, appends: int) -> Log:
    """Remove a topic, and make another at the same place with so many rows."""
    remove_all(log)
    new = new_log(OTHER, url=log.url)
    for number in range(appends):
        append_each(new, {"z": float(number)})
    return new


def each_past() -> pytest.MarkDecorator:
    """Every kind of producer that may be left of an old topic, and of new topic it may meet."""
    cases = [
        (name, before, after) for name in (None, "ada") for before in (0, 2) for after in (0, 1, 9)
    ]
    ids = [f"{name or 'nameless'}, {before} before, {after} after" for name, before, after in cases]
    return pytest.mark.parametrize(("name", "before", "after"), cases, ids=ids)


def append_to_the_past(
    name: str | None, before: int, after: int
) -> tuple[Log, PenstockError | None]:
    """A topic that was made anew, and what a producer of the old one was told by it."""
    log = new_log()
    old = log.producer(name, Batching(rows=1, give_up_s=1.0))
    for number in range(before):
        old.append(numbered(number)).wait()
    new = made_anew(log, after)
    try:
        old.append(numbered(7)).wait()
    except PenstockError as error:
        return new, error
    return new, None


@each_past()
def test_a_topic_that_was_made_anew_gets_no_rows_of_the_old_one(
    name: str | None, before: int, after: int
) -> None:
    """They have other columns; and a producer that lives on must not spoil it for all others."""
    new, _ = append_to_the_past(name, before, after)
    append_each(new, {"z": -1.0})

    assert column(new, "z") == [*(float(number) for number in range(after)), -1.0]


@each_past()
def test_a_producer_of_a_topic_that_was_made_anew_is_told_so(
    name: str | None, before: int, after: int
) -> None:
    """Not that the store is slow, nor that it was away for too long."""
    _, told = append_to_the_past(name, before, after)

    assert isinstance(told, Invalid)
    assert "made anew" in str(told)


def test_what_is_left_of_a_removed_topic_is_told() -> None:
    """Whoever removed TOPIC and not the rest must finish the work, not read old rows as new."""
    log = new_log()
    append_each(log, numbered(1))
    store = open_store(log.url)
    store.delete(next(entry.key for entry in store.list("TOPIC")))
    new = new_log(OTHER, url=log.url)

    for attempt in (new.spans, lambda: append_each(new, {"z": 1.0}), new.sweep, new.compact):
        with pytest.raises(Invalid, match="belongs to another topic"):
            attempt()


SECRETS = ["s3://key:hunter2@bucket/topic", "s3://key:hun/ter2@bucket/topic"]


@pytest.mark.parametrize("url", SECRETS)
def test_no_secret_is_told(url: str) -> None:
    """People put keys into URLs; they must not meet them again in a log file."""
    told = [Log(url).name]
    for attempt in (
        lambda: Log.create(url, EVENTS),
        lambda: Log.create(url, pa.schema([("_meta", pa.int64())])),
        lambda: Log(url).spans(),
        lambda: Log(url).producer(),
    ):
        with pytest.raises(Invalid) as caught:
            attempt()
        told.append(str(caught.value))

    assert [text for text in told if "ter2" in text] == []


def test_a_topic_whose_making_was_not_confirmed_is_made_once() -> None:
    """The answer to its first request is lost; it is there, and is the one that was meant."""
    log = new_log()
    topic = log.topic()
    remove_all(log)
    faulty = FaultyStore(open_store(log.url), answers={"create": {1}})

    made = perform(create_topic(log.name, topic), store_handlers(faulty, ManualClock()))

    assert made == topic
    append_each(log, numbered(1))
    assert (len(segments(log)), tail_of(log).topic, len(objects(log))) == (1, topic.id, 3)
