"""A job as it is written: what it becomes, and every mistake in it by name, before it runs."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.runtime.topology import Topology
from tests.support.in_process import CLICKS, no_spark
from tests.support.logs import new_log

Rows = Iterator[dict[str, Any]]


@ps.stateful(emits="user string, total long", sides={"late": "user string, by long"})
def count(user: str, events: ps.Events, total: ps.Value[int]) -> Rows:
    """Counts."""
    yield {"user": user, "total": len(events)}


@ps.stateful()
def quiet(user: str, events: ps.Events, total: ps.Value[int]) -> None:
    """Emits nothing."""


def read(job: ps.Job, name: str = "clicks", schema: pa.Schema = CLICKS, **how: Any) -> Any:
    """A stream of a topic in memory."""
    return job.read(new_log(schema), name=name, **how)


def checked(job: ps.Job, transformed: Any = no_spark) -> Topology:
    return job.topology("memory://root", transformed)


def wrong(write: Callable[[ps.Job], Any], transformed: Any = no_spark) -> str:
    """What is said of a job that somebody wrote."""
    with pytest.raises(ps.Invalid) as caught:
        job = ps.Job("clicks")
        write(job)
        checked(job, transformed)
    return str(caught.value)


def test_a_job_becomes_a_topology() -> None:
    """Operators in the order in which they feed each other, each with the columns it gets."""
    job = ps.Job("clicks", partitions=4, order="log")
    counted = read(job, event_time="at", delay="5 s", idle="1 min").key_by("user").process(count)
    counted.write(ps.Table("totals"))
    counted.side("late").key_by("by").process(quiet)
    topology = checked(job)

    assert (topology.job, topology.partitions, topology.order) == ("clicks", 4, "log")
    assert [(o.stage, o.name, o.key) for o in topology.operators] == [
        (1, "count", ("user",)),
        (2, "quiet", ("by",)),
    ]
    assert [(f.origin, f.output) for o in topology.operators for f in o.feeds] == [
        ("clicks", ""),
        ("count", "late"),
    ]
    source = topology.sources["clicks"]
    assert (source.event_time, source.delay_ms, source.idle_ms) == ("at", 5000, 60_000)
    assert [(s.name, s.operator, s.output) for s in topology.sinks] == [("totals", "count", "")]
    assert topology.sources_of(topology.operators[1]) == {"clicks"}


def test_a_source_can_be_written_as_it_is() -> None:
    """An operator that passes rows on stands between."""
    job = ps.Job("clicks")
    read(job).write(ps.Table("copies"))
    topology = checked(job)

    assert [o.name for o in topology.operators] == ["copies.rows"]
    assert topology.operators[0].wrapped.outputs == {"": CLICKS}
    assert topology.operators[0].key == ()


def test_a_quarantine_brings_a_table_and_a_source() -> None:
    """Dead letters go out, and come back when a person asks for it."""
    job = ps.Job("clicks")
    read(job).key_by("user").process(count, on_error="quarantine")
    topology = checked(job)

    assert [(s.name, s.output) for s in topology.sinks] == [
        ("count.dead-letters", "dead-letters"),
        ("count.replayed", "replayed-letters"),
    ]
    assert [f.origin for f in topology.operators[0].feeds] == ["clicks", "count.replays"]
    assert topology.sources["count.replays"].is_replay


def test_a_transform_makes_other_columns() -> None:
    """They are asked of Spark once, with `_meta` among those that go in."""
    asked = []

    def transformed(transform: Any, schema: pa.Schema) -> pa.Schema:
        asked.append(schema.names)
        return pa.schema([("country", pa.string()), schema.field("_meta")])

    job = ps.Job("clicks")
    read(job).transform(lambda df: df).key_by("country").process(quiet)
    topology = checked(job, transformed)

    assert asked == [["user", "n", "at", "_meta"]]
    assert topology.operators[0].schema == pa.schema([("country", pa.string())])
    assert topology.transformed == {"clicks"}


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda job: None, "job 'clicks' does nothing: process or write what it reads."),
        (
            lambda job: (
                read(job).key_by("user").process(quiet),
                read(job, "views"),
            ),
            "source 'views' is read and not used: process it, or leave it out.",
        ),
        (
            lambda job: (read(job), read(job)),
            "source 'clicks' has a name that is taken: give it one of its own: read(…, name='…').",
        ),
        (
            lambda job: (
                read(job).key_by("user").process(quiet),
                read(job, "b").key_by("user").process(quiet),
            ),
            "operator 'quiet' has a name that is taken: "
            "give it one of its own: process(…, name='…').",
        ),
        (
            lambda job: read(job).write(ps.Table("t")).write(ps.Table("t")),
            "sink 't' is there twice: give one another name.",
        ),
        (
            lambda job: read(job).write(ps.Table("Totals")).write(ps.Table("totals")),
            "sink 'totals' differs from 'Totals' only in upper and lower case: "
            "give one of them another name.",
        ),
        (
            lambda job: (
                read(job).key_by("user").process(quiet, name="Count"),
                read(job, "b").key_by("user").process(quiet, name="count"),
            ),
            "operator 'count' differs from 'Count' only in upper and lower case: "
            "give one of them another name.",
        ),
        (
            lambda job: read(job).key_by("uesr").process(quiet),
            "operator 'quiet' is keyed by 'uesr', which 'clicks' does not have: "
            "use one of user, n, at.",
        ),
        (
            lambda job: read(job).key_by().process(quiet),
            "stream 'clicks' is keyed by nothing: name a column.",
        ),
        (
            lambda job: (
                read(job, schema=pa.schema([("tags", pa.list_(pa.string()))]))
                .key_by("tags")
                .process(quiet)
            ),
            "operator 'quiet' is keyed by 'tags' of type list<item: string>: "
            "cast it to a type that can be a key.",
        ),
        (
            lambda job: read(job, event_time="when").key_by("user").process(quiet),
            "source 'clicks' has no column 'when': use one of user, n, at as event_time.",
        ),
        (
            lambda job: read(job, event_time="n").key_by("user").process(quiet),
            "source 'clicks' has int64 in its column 'n': choose a timestamp column as event_time.",
        ),
        (
            lambda job: read(job, delay="5 x").key_by("user").process(quiet),
            "source 'clicks' has delay='5 x', which is not a length of time: "
            "write '90 s' or '1 day'.",
        ),
        (
            lambda job: read(job, start="now").key_by("user").process(quiet),
            "source 'clicks' cannot start at 'now': "
            "use 'earliest', 'latest', a moment, or an offset per partition.",
        ),
        (
            lambda job: (
                read(job).key_by("user").process(count).side("early").key_by("user").process(quiet)
            ),
            "operator 'count' emits no side output 'early': declare it with `emits` or `sides`.",
        ),
        (
            lambda job: read(job).key_by("user").process(count).side("early").write(ps.Table("t")),
            "sink 't' writes what operator 'count' emits, which is no side output 'early': "
            "declare it with `emits` or `sides`.",
        ),
        (
            lambda job: read(job).key_by("user").process(quiet).write(ps.Table("t")),
            "sink 't' writes what operator 'quiet' emits, which is nothing: "
            "declare it with `emits` or `sides`.",
        ),
        (
            lambda job: read(job).side("late").key_by("user").process(quiet),
            "source 'clicks' has no side output 'late': side outputs are of functions.",
        ),
        (
            lambda job: ps.merge(read(job).key_by("user"), read(job, "b").key_by("n")).process(
                quiet
            ),
            "operator 'quiet' is keyed by string of 'clicks' and by int64 of 'b': "
            "cast one of them.",
        ),
        (
            lambda job: ps.merge(
                read(job).key_by("user"), read(ps.Job("other"), "b").key_by("user")
            ).process(quiet),
            "merge was given streams of the jobs 'clicks' and 'other': "
            "read both sources in one job.",
        ),
        (
            lambda job: ps.merge(
                read(job).key_by("user"),
                read(job, "b", pa.schema([("user", pa.string()), ("n", pa.string())])).key_by(
                    "user"
                ),
            ).process(quiet),
            "operator 'quiet', column 'n' is int64 in one of its inputs and string in another: "
            "cast one of them in a transform.",
        ),
        (
            lambda job: read(job).key_by("user").process(quiet, on_error="ignore"),
            "operator 'quiet' has the policy 'ignore': use 'fail', 'quarantine' or "
            "ps.quarantine(at_most='1 %').",
        ),
        (
            lambda job: read(job, on_undecodable="skip").key_by("user").process(quiet),
            "source 'clicks' has on_undecodable='skip': use 'fail' or 'quarantine'.",
        ),
        (
            lambda job: read(job).key_by("user").process(print),
            "function 'print' is a plain builtin_function_or_method: "
            'wrap it: @ps.stateful(emits="user string, clicks long").',
        ),
        (
            lambda job: read(job).key_by("user").process(count).transform(lambda df: df),
            "operator 'count' is followed by a transform: "
            "transform right after `read`, or do it in the function.",
        ),
        (
            lambda job: read(job, "count.replays").key_by("user").process(count),
            "source 'count.replays' has a name that ends with '.replays', as those of dead letters "
            "do: give it another name.",
        ),
        (
            lambda job: read(job).key_by("user").process(count).write(ps.Table("X.Undecodable")),
            "sink 'X.Undecodable' has a name that ends with '.undecodable', as those of dead "
            "letters do: give it another name.",
        ),
        (
            lambda job: read(job).key_by("user").process(count, name="x.dead-letters"),
            "operator 'x.dead-letters' has a name that ends with '.dead-letters', as those of dead "
            "letters do: give it another name.",
        ),
    ],
    ids=range(28),
)
def test_a_mistake_is_named(write: Callable[[ps.Job], Any], said: str) -> None:
    """In one sentence, before anything is started or changed."""
    assert wrong(write) == said


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            [("user", pa.string())],
            "the transform of source 'clicks' drops the column '_meta', which says where a row "
            "comes from: select it too: df.select('user', '_meta').",
        ),
        (
            [("user", pa.string()), ("_group", pa.int64()), ("_meta", pa.int64())],
            "the transform of source 'clicks' has a column '_group', and a leading '_' is for "
            "Penstock's own: give it another name.",
        ),
    ],
)
def test_a_transform_keeps_what_is_ours(columns: list[Any], said: str) -> None:
    """Without `_meta` no row can be put in order, and no output says where it is from."""

    def write(job: ps.Job) -> None:
        read(job).transform(lambda df: df).key_by("user").process(quiet)

    assert wrong(write, lambda transform, schema: pa.schema(columns)) == said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partitions": 0}, "job 'clicks' has 0 partitions: use 1 to 256."),
        ({"partitions": 257}, "job 'clicks' has 257 partitions: use 1 to 256."),
        ({"order": "any"}, "job 'clicks' has the order 'any': use 'event-time' or 'log'."),
    ],
)
def test_a_job_that_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    """Both are fixed for the life of a root, so they are looked at first."""
    with pytest.raises(ps.Invalid) as caught:
        ps.Job("clicks", **settings)

    assert str(caught.value) == said


def test_merging_nothing_is_refused() -> None:
    """There is no job it could belong to."""
    with pytest.raises(ps.Invalid, match="merge was given no stream: give it two or more"):
        ps.merge()


def test_a_plain_write_does_not_take_the_place_of_an_operator() -> None:
    """Its own operator is named after the sink, and one of that name would be lost."""

    def write(job: ps.Job) -> None:
        read(job).write(ps.Table("t")).key_by("user").process(quiet, name="t.rows")

    assert wrong(write) == (
        "sink 't' needs the name 't.rows' for itself, and something has it: rename that."
    )
