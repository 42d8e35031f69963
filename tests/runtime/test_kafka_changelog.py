"""State changes as a compacted topic: whole versions only, and enough to rebuild everything."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import pytest

import penstock as ps
from penstock.chaos.audit import audit
from penstock.chaos.findings import Verdict
from penstock.checkpoint.restore import Way
from penstock.clock import SystemChance
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.state import Marker, PartitionDatabase, StateSettings
from penstock.state.layout import EVERYTHING, MARKER_KEY
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log, no_spark
from tests.support.kafka import Cluster

Rows = Iterator[dict[str, Any]]
PARTITIONS = 2
SMALL_EPOCHS = replace(SETTINGS, limits=ps.Limits(records=40))


@ps.stateful(emits="user string, total long")
def spend(
    user: str,
    events: ps.Events,
    total: ps.Value[int],
    seen: Annotated[ps.Map[int, int], ps.ttl("60 s")],
    wake: ps.Timer,
) -> Rows:
    """Keeps values, entries that end, timers, and forgets a user now and then."""
    if wake.fired is not None:
        total.clear()
        return
    for event in events:
        total.set(total.get(0) + event.n)
        seen.set(event.n % 5, event.n)
        if event.n % 7 == 0:
            wake.set(event.n * 1000 + 20_000)
    yield {"user": user, "total": total.get(0)}


def some_clicks(count: int, first: int = 0) -> list[dict[str, Any]]:
    random = Random(first)
    return [click(f"user {random.randrange(25)}", n, n) for n in range(first, first + count)]


def make_run(folder: Path, changelog: ps.KafkaChangelog | None) -> LocalRun:
    job = ps.Job("spending", partitions=PARTITIONS, changelog=changelog)
    stream = job.read(ps.Log(str(folder / "clicks")), event_time="at").key_by("user")
    stream.process(spend).write(ps.Table("totals"))
    return LocalRun(job, folder)


@pytest.fixture
def log(tmp_path: Path) -> ps.Log:
    return clicks_log(tmp_path)


@pytest.fixture
def changelog(kafka_broker: Cluster) -> ps.KafkaChangelog:
    """Topics of the test's own."""
    unique = SystemChance().unique()[:8]
    return ps.KafkaChangelog(
        kafka_broker.bootstrap,
        prefix=unique,
        transaction_prefix=f"changes-{unique}",
        timeout_s=3,
    )


def topic_of(changelog: ps.KafkaChangelog) -> Any:
    return changelog.sink("spending", "spend")


def in_topic(changelog: ps.KafkaChangelog, partition: int) -> dict[bytes, bytes]:
    """What a reader of the topic knows of a partition."""
    found: dict[bytes, bytes | None] = {}
    for piece in topic_of(changelog).entries(partition):
        found |= piece
    return {entry: value for entry, value in found.items() if value is not None}


def in_state(run: LocalRun, partition: int, scratch: Path) -> dict[bytes, bytes]:
    """What the root says that the state is, at HEAD, without the topic."""
    topology = run.job.topology(run.url, no_spark)
    lineage = run.root.lineages()["spend", partition]
    store = run.root.store
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for file in lineage.files:
        with (scratch / file.name).open("w+b") as target:
            assert store.download(file.ref.key, target)
    with PartitionDatabase(scratch, StateSettings()) as database:
        for epoch, delta in lineage.deltas:
            path = scratch.with_name(f"{epoch}.sst")
            with path.open("w+b") as target:
                assert store.download(delta.ref.key, target)
            database.ingest([path])
        assert isinstance(database.marker, Marker) and topology.partitions == PARTITIONS
        return dict(database.scan(*EVERYTHING))


def lose_state(run: LocalRun) -> None:
    """Delete the root's changelog and snapshots, and all that is kept on this host."""
    for kind in ("changelog", "snapshots"):
        shutil.rmtree(Path(run.url) / kind, ignore_errors=True)
    shutil.rmtree(run.folder / "state", ignore_errors=True)


def ways(run: LocalRun) -> set[Way]:
    """How the last life of the job brought its state up."""
    return set(run.runners[-1].shop.restorer.ways)


def test_the_topic_holds_the_state_of_head(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """Entry by entry, marker and schemas too: removals, timers and what has ended as well."""
    append(log, some_clicks(300))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)

    for partition in range(PARTITIONS):
        expected = in_state(run, partition, tmp_path / "scratch" / "db")
        assert len(expected) > 20
        assert in_topic(changelog, partition) == expected


def test_records_say_which_epoch_and_leader_they_are_of(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog, kafka_broker: Cluster
) -> None:
    """Somebody who reads them as a stream can tell one version from the next."""
    append(log, some_clicks(60))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)

    expected = {
        (partition, manifest.epoch)
        for manifest in run.root.history()
        for partition in range(PARTITIONS)
    }
    messages = kafka_broker.read(topic_of(changelog).topic)
    told = [(message.partition(), dict(message.headers() or [])) for message in messages]
    assert {(partition, int(each["penstock.epoch"])) for partition, each in told} == expected
    assert {each["penstock.token"] for _, each in told} == {b"1"}
    markers = [message for message in messages if message.key() == MARKER_KEY]
    assert len(markers) == len(expected) > PARTITIONS


def test_state_is_rebuilt_from_the_topic_alone(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """The root has lost every delta and every snapshot; the job goes on as if nothing was."""
    untroubled, troubled = tmp_path / "a", tmp_path / "b"
    for folder in (untroubled, troubled):
        folder.mkdir()
        append(clicks_log(folder), some_clicks(200))
    other = replace(changelog, prefix=f"{changelog.prefix}-b")
    first, second = make_run(untroubled, changelog), make_run(troubled, other)
    for run in (first, second):
        run.run(SMALL_EPOCHS)
    lose_state(second)
    for run, folder in ((first, untroubled), (second, troubled)):
        append(ps.Log(str(folder / "clicks")), some_clicks(200, 200))
        run.run(SMALL_EPOCHS)

    assert Way.ELSEWHERE in ways(second) and Way.ELSEWHERE not in ways(first)
    assert second.rows("totals", "user", "total") == first.rows("totals", "user", "total")


def test_what_was_rebuilt_is_kept_in_the_root_again(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """The topic is read once, and not whenever a partition moves."""
    append(log, some_clicks(200))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)
    lose_state(run)
    append(log, some_clicks(80, 200))
    run.run(SMALL_EPOCHS)
    shutil.rmtree(tmp_path / "state")
    append(log, some_clicks(40, 280))
    run.run(SMALL_EPOCHS)

    assert Way.STORE_FILES in ways(run) and Way.ELSEWHERE not in ways(run)
    for partition in range(PARTITIONS):
        expected = in_state(run, partition, tmp_path / "scratch" / "db")
        assert in_topic(changelog, partition) == expected


def test_a_changelog_that_comes_later_begins_with_everything(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """Else a part of the state would be in no record."""
    append(log, some_clicks(200))
    make_run(tmp_path, None).run(SMALL_EPOCHS)
    append(log, some_clicks(3, 200))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)

    for partition in range(PARTITIONS):
        expected = in_state(run, partition, tmp_path / "scratch" / "db")
        assert in_topic(changelog, partition) == expected


def test_a_changelog_can_be_given_up_and_another_begun(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """State needs none; another topic is another changelog, and begins with everything."""
    append(log, some_clicks(100))
    make_run(tmp_path, changelog).run(SMALL_EPOCHS)
    append(log, some_clicks(40, 100))
    make_run(tmp_path, None).run(SMALL_EPOCHS)
    append(log, some_clicks(40, 140))
    other = replace(changelog, prefix=f"{changelog.prefix}-2")
    run = make_run(tmp_path, other)
    run.run(SMALL_EPOCHS)

    for partition in range(PARTITIONS):
        expected = in_state(run, partition, tmp_path / "scratch" / "db")
        assert in_topic(other, partition) == expected
    with pytest.raises(Invalid, match="was given up and is to go on now"):
        make_run(tmp_path, changelog).run(SMALL_EPOCHS)


def test_a_topic_that_is_behind_is_brought_up_first(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog, kafka_broker: Cluster
) -> None:
    """A leader died between the commit and the topic; the next one gives it what it lacks."""
    append(log, some_clicks(80))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)
    before = [in_topic(changelog, partition) for partition in range(PARTITIONS)]
    append(log, some_clicks(40, 80))
    sink = topic_of(changelog)
    shards = [f"{changelog.transaction_prefix}/spending/{sink.name}/{n}" for n in range(PARTITIONS)]
    kafka_broker.settle(sink.topic, *shards)
    kafka_broker.brokers[0].kill()
    seen: list[int] = []

    def stopped() -> bool:
        seen.append(1)
        return len(seen) > 1

    try:
        with pytest.raises(Unavailable):  # or it stops while it waits for the broker
            run.run(SMALL_EPOCHS, stopped=stopped)
            raise Unavailable("the job", "was stopped", "")
    finally:
        kafka_broker.brokers[0].start()
    run.run(SMALL_EPOCHS)

    after = [in_topic(changelog, partition) for partition in range(PARTITIONS)]
    assert after != before
    assert after == [
        in_state(run, partition, tmp_path / "scratch" / "db") for partition in range(PARTITIONS)
    ]


def test_a_version_that_the_topic_does_not_have_is_not_made_up(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """After a rewind the topic is ahead: what the root has lost must come from elsewhere."""
    append(log, some_clicks(200))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)
    run.root.rewind("spending", 2)
    lose_state(run)
    job = make_run(tmp_path, None)
    job.job.changelog = _Unchanged(changelog)

    with pytest.raises(Corrupt):
        job.run(SMALL_EPOCHS)


class _Unchanged:
    """A changelog that can be read and takes nothing: the sink would refuse to go on."""

    def __init__(self, changelog: ps.KafkaChangelog) -> None:
        self._changelog = changelog

    def sink(self, job: str, operator: str) -> Any:
        return replace(topic_of(self._changelog), name="spend.changelog=other")


def test_a_topic_that_forgets_is_refused(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog, kafka_broker: Cluster
) -> None:
    """With retention, entries that have not changed for a week would be gone."""
    kafka_broker.topic(topic_of(changelog).topic, partitions=PARTITIONS, cleanup_policy="delete")
    append(log, some_clicks(3))

    with pytest.raises(Invalid, match=r"cleanup\.policy"):
        make_run(tmp_path, changelog).run(SMALL_EPOCHS)


def test_a_topic_with_too_few_partitions_is_refused(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog, kafka_broker: Cluster
) -> None:
    """Partition n of the state has nowhere to go."""
    kafka_broker.topic(topic_of(changelog).topic, partitions=1, cleanup_policy="compact")
    append(log, some_clicks(3))

    with pytest.raises(Invalid, match="has 1 partitions"):
        make_run(tmp_path, changelog).run(SMALL_EPOCHS)


@ps.stateful(emits="user string")
def hoard(user: str, events: ps.Events, all_of_it: ps.Value[str]) -> Rows:
    """Keeps more than fits into a message."""
    all_of_it.set("x" * 2_000_000)
    yield {"user": user}


def test_an_entry_that_no_message_can_hold_stops_the_job_before_it_is_committed(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """After the decision the topic could never be brought up again."""
    append(log, some_clicks(1))
    job = ps.Job("spending", partitions=1, changelog=changelog)
    job.read(log, name="clicks").key_by("user").process(hoard).write(ps.Table("out"))
    run = LocalRun(job, tmp_path)

    with pytest.raises(Invalid, match=r"takes 2,000,\d+ bytes, and at most 1,000,000 are sent"):
        run.run(SMALL_EPOCHS)
    assert run.root.newest() is None


def test_an_audit_says_that_it_has_not_read_the_topic(
    tmp_path: Path, log: ps.Log, changelog: ps.KafkaChangelog
) -> None:
    """Changes are no rows: they are not taken for damaged ones, and the rest is found sound."""
    append(log, some_clicks(60))
    run = make_run(tmp_path, changelog)
    run.run(SMALL_EPOCHS)

    audited = audit(run.root, run.job.topology(run.url, no_spark)).audited

    assert audited.verdict is Verdict.UNKNOWN
    unsure = [check.name for check in audited.checks if check.verdict is not Verdict.VALID]
    assert unsure == [f"changelog {topic_of(changelog).name}"]
