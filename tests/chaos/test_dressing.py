"""A job in other clothes: what changes, what stays, and that the job itself knows nothing of it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.chaos.dressing import dressed
from penstock.errors import Invalid
from penstock.runtime.topology import Topology
from penstock.sinks import Sink
from tests.support.in_process import LocalRun, append, click, clicks_log, no_spark


@ps.stateful(emits="user string, total long", sides={"odd": "user string, n long"})
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Iterator[Any]:
    """Sums per user; what is odd goes aside too."""
    for event in events:
        so_far.set(so_far.get(0) + event.n)
        if event.n % 2:
            yield ps.to("odd", {"user": user, "n": event.n})
    yield {"user": user, "total": so_far.get()}


@ps.stateful(emits="user string, rows long")
def rows_of(user: str, events: ps.Events) -> Iterator[dict[str, Any]]:
    """How many came."""
    yield {"user": user, "rows": len(list(events))}


def two_inputs(folder: Path, **settings: Any) -> ps.Job:
    """Two sources merged, a second function after the first, a side output, rows as they are."""
    job = ps.Job("clicks", partitions=2, **settings)
    clicks = job.read(
        clicks_log(folder), event_time="at", delay="3 s", idle="1 minute", start="latest"
    )
    late = job.read(
        clicks_log(folder, "late"), event_time="at", start=datetime(2026, 1, 1, tzinfo=UTC)
    )
    counted = ps.merge(clicks.key_by("user"), late.key_by("user")).process(count)
    counted.write(ps.Table("totals"))
    counted.side("odd").key_by("user").process(rows_of).write(ps.Memory("odd-rows"))
    late.write(ps.Memory("as-they-are"))
    return job


def built(job: ps.Job, folder: Path) -> Topology:
    """The job as the runtime sees it. Two logs at one place are one, to compare them."""
    found = job.topology(str(folder / "root"), no_spark)
    sources = {name: replace(node, source=at(node.source)) for name, node in found.sources.items()}
    return replace(found, sources=sources)


def at(log: Any) -> Any:
    return str(log.url)


def test_a_job_in_no_other_clothes_is_the_same(tmp_path: Path) -> None:
    """Every part of its topology."""
    job = two_inputs(tmp_path)

    assert built(dressed(job), tmp_path) == built(job, tmp_path)


def test_a_source_is_replaced_by_its_name(tmp_path: Path) -> None:
    """What the job says of its time stays; where to begin is no place in another log."""
    job, other = two_inputs(tmp_path), clicks_log(tmp_path, "other")
    found = dressed(job, sources={"clicks": other})
    before, after = built(job, tmp_path), built(found, tmp_path)

    changed = replace(before.sources["clicks"], source=at(other.located()), start="earliest")
    assert (changed.delay_ms, changed.idle_ms, changed.event_time) == (3_000, 60_000, "at")
    assert after == replace(before, sources={**before.sources, "clicks": changed})


def test_an_unknown_source_is_refused(tmp_path: Path) -> None:
    """With those there are."""
    with pytest.raises(Invalid) as caught:
        dressed(two_inputs(tmp_path), sources={"click": clicks_log(tmp_path, "other")})

    assert str(caught.value) == (
        "job 'clicks' reads no source 'click': use one of its sources: clicks, late."
    )


def test_every_sink_goes_through_the_tailor(tmp_path: Path) -> None:
    """Those of functions, of side outputs, and of sources that are written as they are."""
    seen: list[str] = []

    def as_table(sink: Sink) -> Sink:
        seen.append(sink.name)
        return ps.Table(sink.name)

    found = built(dressed(two_inputs(tmp_path), sinks=as_table), tmp_path)

    assert seen == ["totals", "odd-rows", "as-they-are"]
    assert [node.sink for node in found.sinks] == [ps.Table(name) for name in seen]
    assert found.applied == []


def test_the_job_that_was_given_is_not_changed(tmp_path: Path) -> None:
    """Not by dressing it, and not by what is done with the copy."""
    job = two_inputs(tmp_path)
    described = job.described
    inputs, operators = dict(described.inputs), dict(described.operators)
    sinks = list(described.sinks)
    found = dressed(
        job, sources={"late": clicks_log(tmp_path, "other")}, sinks=lambda s: ps.Table(s.name)
    )
    found.read(clicks_log(tmp_path, "third")).write(ps.Table("third"))

    assert job.described is described
    assert (described.inputs, described.operators, described.sinks) == (inputs, operators, sinks)
    assert {stream.job for each in operators.values() for stream, _ in each.parts} == {job}
    fed = found.described.operators.values()
    assert {stream.job for each in fed for stream, _ in each.parts} == {found}


def test_a_changelog_may_be_left_out(tmp_path: Path) -> None:
    """A run on a root of its own must not write over what the job's own state is kept in."""
    job = two_inputs(tmp_path, changelog=ps.KafkaChangelog("127.0.0.1:1"))

    with_it, without = dressed(job), dressed(job, changelog=False)
    assert built(with_it, tmp_path).changelog_of("count") is not None
    assert built(without, tmp_path).changelog_of("count") is None
    assert (without.changelog, job.changelog) == (None, with_it.changelog)


def test_a_transform_comes_along(tmp_path: Path) -> None:
    """Of a stream that is keyed, and of one that is written as it is."""
    job = ps.Job("clicks", order="log")
    log = clicks_log(tmp_path)
    job.read(log).transform(str).key_by("user").process(rows_of).write(ps.Table("rows"))
    job.read(log, name="again").transform(repr).write(ps.Table("again"))
    asked: list[pa.Schema] = []

    def as_they_were(transform: Any, schema: pa.Schema) -> pa.Schema:
        del transform
        asked.append(schema)
        return schema

    found = dressed(job).topology(str(tmp_path / "root"), as_they_were)

    assert (found.transformed, found.order) == (frozenset({"clicks", "again"}), "log")
    feeds = [feed for each in found.operators for feed in each.feeds]
    assert [feed.transform("x") for feed in feeds if feed.transform] == ["x", "'x'"]
    assert len(asked) == 2


def test_a_dressed_job_runs(tmp_path: Path) -> None:
    """It reads what it was given instead, from the beginning, and nothing of its own."""
    job = two_inputs(tmp_path)
    append(ps.Log(str(tmp_path / "clicks")), [click("ann", 100)])
    other = clicks_log(tmp_path, "other")
    append(other, [click("bob", n, n) for n in range(1, 5)])
    shelves = {name: ps.Memory(f"dressed-{name}") for name in ("odd-rows", "as-they-are")}
    clothes = dressed(
        job,
        sources={"clicks": other, "late": other},
        sinks=lambda sink: shelves.get(sink.name, sink),
    )
    run = LocalRun(clothes, tmp_path)
    run.run()

    assert run.rows("totals", "user", "total") == [("bob", 20)]
    assert shelves["odd-rows"].rows() == [{"user": "bob", "rows": 4}]
    assert sorted(row["n"] for row in shelves["as-they-are"].rows()) == [1, 2, 3, 4]
    for shelf in shelves.values():
        shelf.clear()
