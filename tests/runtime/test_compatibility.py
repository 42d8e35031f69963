"""Everything that a root remembers of a job, compared in one place and told in one form."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.chaos.sink_faults import unsteady
from penstock.runtime.compatibility import (
    Difference,
    Incompatible,
    adopted,
    check_same_job,
    differences,
)
from penstock.runtime.description import JobDescription, KnownSink, KnownSource, describe
from tests.support.in_process import LocalRun, append, no_spark

SALES = pa.schema(
    [
        ("user", pa.string()),
        ("shop", pa.string()),
        ("n", pa.int64()),
        ("small", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("told", pa.timestamp("us", tz="UTC")),
    ]
)
TOTALS = "key string, total long"
TABLE = ps.Table("totals")
FOLDER = Path("/nowhere")


@ps.stateful(emits=TOTALS, name="total")
def total(key: Any, events: ps.Events, sums: ps.Value[int]) -> Iterator[Any]:
    """Sums."""
    sums.set(sums.get(0) + len(events))
    yield {"key": str(key), "total": sums.get()}


@ps.stateful(emits=TOTALS, name="total")
def totalled_otherwise(key: Any, event: ps.Events, sums: ps.Value[float], seen: ps.Timer) -> Any:
    """The same operator by another function, with a wider state and one more."""
    yield {"key": str(key), "total": round(sums.get(0.0))}


@ps.stateful(emits=TOTALS, name="total")
def text_total(key: Any, events: ps.Events, sums: ps.Value[str]) -> Any:
    """The same state as a text."""
    yield {"key": str(key), "total": 0}


@ps.stateful(emits=TOTALS, name="total")
def listed_total(key: Any, events: ps.Events, sums: ps.List[int]) -> Any:
    """The same state as a list."""
    yield {"key": str(key), "total": 0}


@ps.stateful(emits=TOTALS, name="total")
def ageing(key: Any, events: ps.Events, sums: Annotated[ps.Value[int], ps.ttl("1 d")]) -> Any:
    """The same state for a day."""
    yield {"key": str(key), "total": 0}


@ps.stateful(emits=TOTALS, name="total")
def ageing_longer(
    key: Any, events: ps.Events, sums: Annotated[ps.Value[int], ps.ttl("9 d")]
) -> Any:
    """The same state for longer."""
    yield {"key": str(key), "total": 0}


@ps.stateful(emits=TOTALS, name="total")
def stateless(key: Any, events: ps.Events) -> Any:
    """Nothing is kept."""
    yield {"key": str(key), "total": len(events)}


@ps.stateful(emits="user string, shop string, n long", name="clean")
def clean(user: str, events: ps.Events) -> Any:
    """An operator before the one that keeps state."""
    yield {"user": user, "shop": user, "n": len(events)}


def emitting(columns: str) -> Any:
    """A stateless operator that emits these columns."""

    def rows(key: Any, events: ps.Events) -> Any:
        yield {}

    return ps.stateful(emits=columns, name="rows")(rows)


@dataclass(frozen=True)
class Shape:
    """A job, but for its topic."""

    partitions: int = 2
    order: str = "event-time"
    source: Any = None
    """None: the topic of sales."""
    name: str = "sales"
    read: dict[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ("user",)
    also_by: tuple[str, ...] = ()
    after_clean: bool = False
    function: Any = total
    sink: Any = TABLE
    on_error: str = "fail"
    more: tuple[Any, ...] = ()

    def job(self, log: ps.Log) -> ps.Job:
        """The job."""
        made = ps.Job("sales", partitions=self.partitions, order=self.order)
        stream = made.read(self.source or log, name=self.name, **self.read)
        if self.after_clean:
            stream = stream.key_by("user").process(clean)
        keyed = stream.key_by(*self.key)
        if self.also_by:
            keyed = ps.merge(keyed, stream.key_by(*self.also_by))
        rows = keyed.process(self.function, on_error=self.on_error)
        for sink in (self.sink, *self.more):
            rows.write(sink)
        return made


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> ps.Log:
    """A topic of sales."""
    return ps.Log.create(str(tmp_path_factory.mktemp("topics") / "sales"), SALES)


def described(shape: Shape, log: ps.Log) -> JobDescription:
    """What a root would remember of a job."""
    return describe(shape.job(log).topology(str(FOLDER), no_spark))


def kafka(topic: Any, columns: pa.Schema = SALES, **settings: Any) -> ps.Kafka:
    """A source that no broker is asked for."""
    return ps.Kafka("127.0.0.1:1", topic, value="json", columns=columns, **settings)


def rate(**settings: Any) -> ps.Rate:
    """A made-up source."""
    columns = {"user": pa.string(), "shop": pa.string(), "at": SALES.field("at").type}
    return ps.Rate(columns=columns, rows=1, **settings)


def postgres(key: Any = ()) -> ps.Postgres:
    """A sink that no server is asked for."""
    return ps.Postgres("totals", "host=127.0.0.1", key=key)


ROOT = "give the job a new root"
SOURCE = f"read the new one under a name of its own beside it (`name=`), or {ROOT}"
KEY = f"process the new key in an operator of another name beside this one, or {ROOT}"
SINK = f"set it back, or give the new one a name of its own beside it, or {ROOT}"
COLUMN = (
    "set it back, or give the new column another name, or write it to another table beside this "
    f"one, or {ROOT}"
)
STATE = "declare it as it was, or give the new one another name and fill it from the old"
REFUSED: dict[str, tuple[Shape, Shape, list[Difference]]] = {
    "partitions": (
        Shape(),
        Shape(partitions=4),
        [
            Difference(
                "the number of partitions",
                "2",
                "4",
                f"run it with partitions=2, or {ROOT} and let it read its sources again",
            )
        ],
    ),
    "order": (
        Shape(),
        Shape(order="log"),
        [
            Difference(
                "the order of a key's events",
                "event-time",
                "log",
                f"set order='event-time' again, or {ROOT}",
            )
        ],
    ),
    "source gone": (
        Shape(),
        Shape(name="views"),
        [
            Difference("source 'sales'", "Log", "gone", f"put the source back, or {ROOT}"),
            # Its key came from the source that is gone, and is the same in the new one.
        ],
    ),
    "source of another kind": (
        Shape(),
        Shape(source=rate()),
        [Difference("source 'sales'", "Log", "Rate", SOURCE)],
    ),
    "one topic of Kafka to another": (
        Shape(source=kafka("a")),
        Shape(source=kafka("b")),
        [Difference("source 'sales', topic", "a", "b", f"set it back, or {SOURCE}")],
    ),
    "one topic of Kafka to several": (
        Shape(source=kafka("a")),
        Shape(source=kafka(["a", "b"])),
        [Difference("source 'sales', topic", "a", "one of several", f"set it back, or {SOURCE}")],
    ),
    "seed of made-up rows": (
        Shape(source=rate()),
        Shape(source=rate(seed=1, partitions=2)),
        [
            Difference("source 'sales', partitions", "1", "2", f"set it back, or {SOURCE}"),
            Difference("source 'sales', seed", "0", "1", f"set it back, or {SOURCE}"),
        ],
    ),
    "folder of files": (
        Shape(source=ps.Files("/one", record="/order", schema=SALES)),
        Shape(source=ps.Files("/two", record="/order", schema=SALES)),
        [Difference("source 'sales', folder", "/one", "/two", f"set it back, or {SOURCE}")],
    ),
    "event time": (
        Shape(read={"event_time": "at"}),
        Shape(read={"event_time": "told"}),
        [Difference("source 'sales', event_time", "at", "told", f"set it back, or {SOURCE}")],
    ),
    "event time of the source's own": (
        Shape(),
        Shape(read={"event_time": "at"}),
        [
            Difference(
                "source 'sales', event_time",
                "the source's own",
                "at",
                f"set it back, or {SOURCE}",
            )
        ],
    ),
    "state gone": (
        Shape(),
        Shape(function=stateless),
        [
            Difference(
                "the state of operator 'total'",
                "kept",
                "gone",
                f"put the operator back, or {ROOT}",
            )
        ],
    ),
    "key": (
        Shape(),
        Shape(key=("shop",)),
        [
            Difference(
                "operator 'total', key of 'sales'",
                "user",
                "shop",
                f"key it by user again (a transform can rename a column), or {KEY}",
            )
        ],
    ),
    "one more column in the key": (
        Shape(),
        Shape(key=("user", "shop")),
        [
            Difference(
                "operator 'total', key of 'sales'",
                "user",
                "user, shop",
                f"key it by user again (a transform can rename a column), or {KEY}",
            ),
            Difference(
                "operator 'total', type of its key",
                "string",
                "string, string",
                f"cast it back in a transform, or {KEY}",
            ),
        ],
    ),
    "key of another operator before it": (
        Shape(),
        Shape(after_clean=True, key=("shop",)),
        [
            Difference(
                "operator 'total', key of 'clean'",
                "user",
                "shop",
                f"key it by user again (a transform can rename a column), or {KEY}",
            )
        ],
    ),
    "wider key": (
        Shape(key=("small",)),
        Shape(key=("n",)),
        [
            Difference(
                "operator 'total', key of 'sales'",
                "small",
                "n",
                f"key it by small again (a transform can rename a column), or {KEY}",
            ),
            Difference(
                "operator 'total', type of its key",
                "int32",
                "int64",
                f"cast it back in a transform, or {KEY}",
            ),
        ],
    ),
    "state of another type": (
        Shape(),
        Shape(function=text_total),
        [
            Difference(
                "state 'sums' of operator 'total'",
                "Value[int]",
                "Value[str] (int cannot be read as str)",
                STATE,
            )
        ],
    ),
    "state of another kind": (
        Shape(),
        Shape(function=listed_total),
        [
            Difference(
                "state 'sums' of operator 'total'",
                "Value[int]",
                "List[int] (another kind of state)",
                STATE,
            )
        ],
    ),
    "sink gone": (
        Shape(),
        Shape(sink=ps.Table("others")),
        [Difference("sink 'totals'", "Table", "gone", f"put the sink back, or {ROOT}")],
    ),
    "sink of another kind": (
        Shape(),
        Shape(sink=postgres()),
        [Difference("sink 'totals'", "Table", "Postgres", SINK)],
    ),
    "key of a sink": (
        Shape(sink=postgres()),
        Shape(sink=postgres("key")),
        [Difference("sink 'totals', key", "no key", "key", SINK)],
    ),
    "column": (
        Shape(function=emitting("user string, n long"), more=(ps.Table("other"),)),
        Shape(function=emitting("user string, n double"), more=(ps.Table("other"),)),
        [
            Difference("table 'totals', column 'n'", "int64", "double", COLUMN),
            Difference("table 'other', column 'n'", "int64", "double", COLUMN),
        ],
    ),
    "column of dead letters": (
        Shape(source=kafka("a"), on_error="quarantine"),
        Shape(source=kafka("a", SALES.set(2, pa.field("n", pa.float64()))), on_error="quarantine"),
        [
            Difference(
                "table 'total.dead-letters', column 'n'",
                "int64",
                "double",
                f"cast it back in a transform, or {ROOT}",
            )
        ],
    ),
    "quarantine of a source off": (
        Shape(source=kafka("a", on_undecodable="quarantine")),
        Shape(source=kafka("a")),
        [
            Difference(
                "the quarantine of source 'sales'",
                "on",
                "off",
                f"read it with on_undecodable='quarantine', or {ROOT}",
            )
        ],
    ),
    "quarantine off": (
        Shape(on_error="quarantine"),
        Shape(),
        [
            Difference(
                "the quarantine of operator 'total'",
                "on",
                "off",
                f"process it with on_error='quarantine', or {ROOT}",
            )
        ],
    ),
}


@pytest.mark.parametrize(("was", "now", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_a_difference_is_told_by_name_with_what_was_and_what_is(
    log: ps.Log, was: Shape, now: Shape, told: list[Difference]
) -> None:
    """Each kind of them, and nothing else beside it."""
    assert differences(described(was, log), described(now, log)) == told


ALLOWED: dict[str, tuple[Shape, Shape]] = {
    "delay, idle and start": (
        Shape(read={"event_time": "at"}),
        Shape(read={"event_time": "at", "delay": "5 s", "idle": "1 min", "start": "latest"}),
    ),
    "another function, a wider state and one more": (Shape(), Shape(function=totalled_otherwise)),
    "a longer time to live": (Shape(function=ageing), Shape(function=ageing_longer)),
    "a quarantine": (Shape(), Shape(on_error="quarantine")),
    "one more sink": (Shape(), Shape(more=(ps.Table("copies"),))),
    "one more way in": (Shape(), Shape(also_by=("shop",))),
    "an operator before it": (Shape(), Shape(after_clean=True)),
    "one more topic of several": (Shape(source=kafka(["a"])), Shape(source=kafka(["a", "b"]))),
    "the key of what keeps no state": (
        Shape(function=stateless),
        Shape(function=stateless, key=("shop",)),
    ),
    "one more column": (
        Shape(function=emitting("user string")),
        Shape(function=emitting("user string, n long")),
    ),
    "a column left out": (
        Shape(function=emitting("user string, n long")),
        Shape(function=emitting("user string")),
    ),
    "files of another format": (Shape(), Shape(sink=ps.Table("totals", format="parquet"))),
    "a sink with something before it": (
        Shape(sink=postgres("key")),
        Shape(sink=unsteady(postgres("key"), "/orders")),
    ),
}


@pytest.mark.parametrize(("was", "now"), ALLOWED.values(), ids=ALLOWED.keys())
def test_what_changes_no_meaning_is_allowed(log: ps.Log, was: Shape, now: Shape) -> None:
    """A job is mended and grows; only what would spoil its root is in the way."""
    assert differences(described(was, log), described(now, log)) == []


def test_what_is_left_out_is_not_forgotten(log: ps.Log) -> None:
    """Old rows and old state are still there: a column or a state that comes back is the same."""
    wide = described(Shape(function=emitting("user string, n long")), log)
    narrow = described(Shape(function=emitting("user string")), log)
    other = described(Shape(function=emitting("user string, n double")), log)
    text = described(Shape(function=text_total), log)
    known = described(Shape(function=totalled_otherwise), log)

    back = differences(adopted(wide, narrow), other)
    assert [str(each) for each in back] == [
        "table 'totals', column 'n' was int64 and is double now"
    ]
    kept = adopted(known, described(Shape(), log)).operators["total"].states
    assert sorted(kept) == ["seen", "sums"]
    assert differences(adopted(known, text), text) == []


def test_what_is_not_known_fits_anything(log: ps.Log) -> None:
    """A root of an earlier version is gone on with as it is declared."""
    old = JobDescription(sources={"sales": KnownSource()}, sinks={"totals": KnownSink()})
    now = described(Shape(), log)

    assert differences(old, now) == []
    assert adopted(old, now) == now


def test_key_groups_belong_to_a_root(log: ps.Log) -> None:
    """They say where a key's state is."""
    topology = Shape().job(log).topology(str(FOLDER), no_spark)
    fewer = JobDescription(groups=8, sinks={"totals": KnownSink()})

    (found,) = differences(fewer, describe(topology))
    assert str(found) == f"the number of key groups was 8 and is {topology.groups} now"


def test_a_class_of_the_users_own_may_be_renamed(log: ps.Log) -> None:
    """What it is called says nothing of what it reads; a refined one of ours is still that."""

    class Mine(ps.Log):
        """A topic, refined."""

    mine = Mine(log.url)
    assert described(Shape(source=mine), log) == described(Shape(), log)


def test_a_topic_made_anew_is_another_one(tmp_path: Path) -> None:
    """Offsets of the first mean nothing in the second."""
    first = ps.Log.create(str(tmp_path / "one"), SALES)
    second = ps.Log.create(str(tmp_path / "two"), SALES)

    (found,) = differences(described(Shape(), first), described(Shape(), second))
    assert (found.subject, found.was, found.now) == (
        "source 'sales', topic",
        first.topic().id,
        second.topic().id,
    )


def test_all_differences_are_one_error(tmp_path: Path) -> None:
    """A changed job is mended once, and not as often as it differs."""
    log = ps.Log.create(str(tmp_path / "sales"), SALES)
    append(log, [{"user": "ada", "shop": "x", "n": 1}])
    run = LocalRun(Shape().job(log), tmp_path)
    run.run()
    changed = Shape(order="log", key=("shop",)).job(log).topology(run.url, no_spark)

    with pytest.raises(Incompatible) as caught:
        check_same_job(changed, run.root, run.root.newest(), "root")
    assert str(caught.value) == (
        "root remembers another job, in 2 places: (1) the order of a key's events was event-time "
        "and is log now; (2) operator 'total', key of 'sales' was user and is shop now: (1) set "
        f"order='event-time' again, or {ROOT}; (2) key it by user again (a transform can rename a "
        f"column), or {KEY}."
    )
    assert [each.now for each in caught.value.differences] == ["log", "shop"]
