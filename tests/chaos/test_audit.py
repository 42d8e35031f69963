"""The audit of what a root holds: sound runs are valid, and each damage is found and named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import penstock as ps
from penstock.chaos.audit import Scope
from penstock.chaos.findings import Verdict
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.formats import ref_to
from penstock.checkpoint.layout import output_key, table_key
from penstock.checkpoint.manifest import Manifest, Range
from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch, Key
from penstock.sinks.table import open_file
from tests.support.audits import (
    Scene,
    assert_valid,
    check_of,
    counting_job,
    unknown,
    wrong,
)
from tests.support.in_process import SETTINGS


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Four epochs of a job with two tables."""
    tables = (ps.Table("totals"), ps.Table("again", format="parquet"))
    made = Scene(tmp_path, lambda log: counting_job(log, *tables))
    made.epochs(4)
    return made


def test_a_sound_job_is_valid_and_says_what_was_looked_at(scene: Scene) -> None:
    """So that "valid" cannot mean that nothing was looked at."""
    found = scene.look()

    assert_valid(found)
    assert [check.name for check in found.checks] == [
        "chain", "sources", "objects", "table again", "table totals", "leftovers",
    ]  # fmt: skip
    assert check_of(found, "chain").counted == {"manifests": 4}
    assert check_of(found, "sources").counted == {"partitions": 2, "ranges": 8, "offsets": 24}
    for table in ("totals", "again"):
        counted = check_of(found, f"table {table}").counted
        assert (counted["rows"], counted["inputs"] >= 24) == (24, True)
        assert (found.tables[table].rows, found.tables[table].files) == (24, counted["files"])
    head = scene.root.head()
    assert (found.epochs, found.head, found.job) == ((1, 4), head.manifest, "counts")


def test_looking_changes_nothing(scene: Scene) -> None:
    """Not even a pin: whoever may read may audit."""
    before = scene.contents()
    scene.look()

    assert scene.contents() == before


def test_a_job_need_not_be_known(scene: Scene) -> None:
    """Tables and everything else in the root are audited without its file."""
    assert_valid(scene.look(job=False))


def test_nothing_committed_is_nothing_wrong(tmp_path: Path) -> None:
    """A job that has just been started."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    with scene.root.lead("counts"):
        pass
    found = scene.look()

    assert_valid(found)
    assert (found.epochs, found.head) == (None, None)
    assert check_of(found, "chain").notes == ("Nothing has been committed yet.",)


def test_no_root_is_an_error(tmp_path: Path) -> None:
    """And not a verdict."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))

    with pytest.raises(Invalid, match="HEAD is not there"):
        scene.look()


def test_a_job_without_event_time_and_one_without_sinks(tmp_path: Path) -> None:
    """Neither is anything to complain about."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    timed = Scene(
        tmp_path / "one", lambda log: counting_job(log, ps.Table("totals"), event_time="at")
    )
    sinkless = Scene(tmp_path / "two", counting_job)
    for scene in (timed, sinkless):
        scene.epochs(3)
        assert_valid(scene.look())
    assert [check.name for check in sinkless.look().checks] == [
        "chain", "sources", "objects", "leftovers",
    ]  # fmt: skip


@pytest.mark.parametrize("table", ["totals", "again"])
def test_an_output_file_that_is_gone_is_named(scene: Scene, table: str) -> None:
    """With the epoch that wrote it."""
    lost = scene.outputs(table, 2)[0]
    scene.store.delete(lost)
    found = scene.look()

    assert found.verdict is Verdict.INVALID
    (said,) = check_of(found, f"table {table}").violations
    assert (said.invariant, said.subject, said.epoch) == ("I7", lost, 2)
    assert said.found.startswith("is missing, though epoch 4 is retained and needs it")


@pytest.mark.parametrize("table", ["totals", "again"])
def test_a_byte_that_was_flipped_is_named(scene: Scene, table: str) -> None:
    """However well the rest of the file reads."""
    hurt = scene.outputs(table, 3)[0]
    scene.flip(hurt)
    found = scene.look()

    assert found.verdict is Verdict.INVALID
    (said,) = check_of(found, f"table {table}").violations
    assert (said.invariant, said.subject, said.epoch) == ("I7", hurt, 3)
    assert "hashes to" in said.found


def state_object(manifest: Manifest) -> Any:
    return next(manifest.state_refs()).key


def index_object(manifest: Manifest) -> Any:
    return manifest.tables["totals"].ref.key


@pytest.mark.parametrize("which", [state_object, index_object])
@pytest.mark.parametrize("how", ["gone", "flipped"])
def test_state_and_indexes_are_looked_at_too(
    scene: Scene, which: Callable[[Manifest], Any], how: str
) -> None:
    """Whatever a manifest names."""
    key = which(scene.manifest(3))
    if how == "gone":
        scene.store.delete(key)
    else:
        scene.flip(key)
    found = scene.look()

    assert found.verdict is Verdict.INVALID
    assert key in {said.subject for said in check_of(found, "objects").violations}


def test_a_manifest_that_is_gone_is_named(scene: Scene) -> None:
    """What is below it cannot be reached, and is unknown on top of that."""
    parent = scene.manifest(3).parent
    assert parent is not None
    scene.store.delete(parent.key)
    found = scene.look()

    assert found.verdict is Verdict.INVALID
    (said,) = check_of(found, "chain").violations
    assert (said.invariant, said.epoch) == ("I7", 2)
    assert said.subject == f"the manifest of epoch 2, {parent.key},"
    assert unknown(found)[0].startswith("epochs below 2: only the manifest")
    assert found.epochs == (3, 4)


def test_a_manifest_that_was_altered_is_named(scene: Scene) -> None:
    """Its child names its hash."""
    parent = scene.manifest(4).parent
    assert parent is not None
    scene.flip(parent.key)

    assert f"the manifest of epoch 3, {parent.key}, hashes to" in wrong(scene.look())[0]


def skipping(manifest: Manifest) -> Manifest:
    """An epoch that begins one offset too late."""
    progress = manifest.sources["clicks"]
    partition, read = sorted(progress.ranges.items())[0]
    later = {**progress.ranges, partition: Range(start=read.start + 1, stop=read.stop)}
    sources = {"clicks": msgspec.structs.replace(progress, ranges=later)}
    return msgspec.structs.replace(manifest, sources=sources)


def test_a_source_range_that_was_skipped_is_named(scene: Scene) -> None:
    """By partition, epoch and offsets; though every hash fits."""
    read = sorted(scene.manifest(3).sources["clicks"].ranges.items())[0]
    scene.forge(3, skipping)
    found = scene.look()

    assert found.verdict is Verdict.INVALID
    (said,) = check_of(found, "sources").violations
    start = read[1].start
    assert (said.invariant, said.epoch) == ("I5", 3)
    assert str(said) == (
        f"source clicks, partition {read[0]}, in epoch 3 skips offsets {start} up to {start + 1}, "
        "which were never read"
    )
    assert check_of(found, "chain").verdict is Verdict.VALID


def rereading(manifest: Manifest) -> Manifest:
    """An epoch that begins one offset too early."""
    progress = manifest.sources["clicks"]
    partition, read = sorted(progress.ranges.items())[0]
    later = {**progress.ranges, partition: Range(start=read.start - 1, stop=read.stop)}
    sources = {"clicks": msgspec.structs.replace(progress, ranges=later)}
    return msgspec.structs.replace(manifest, sources=sources)


def leaping(manifest: Manifest) -> Manifest:
    """An epoch after which the next one begins too late."""
    progress = manifest.sources["clicks"]
    resume = {partition: offset + 2 for partition, offset in progress.resume_at.items()}
    sources = {"clicks": msgspec.structs.replace(progress, resume_at=resume)}
    return msgspec.structs.replace(manifest, sources=sources)


def forgetting(manifest: Manifest) -> Manifest:
    """An epoch that does not know a partition any more."""
    progress = manifest.sources["clicks"]
    some = {"ranges": {"0": progress.ranges["0"]}, "resume_at": {"0": progress.resume_at["0"]}}
    sources = {"clicks": msgspec.structs.replace(progress, **some)}
    return msgspec.structs.replace(manifest, sources=sources)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rereading, "a second time"),
        (leaping, "and resumes at"),
        (forgetting, "is not spoken of any more"),
    ],
)
def test_other_breaks_in_a_source_are_named(
    scene: Scene, change: Callable[[Manifest], Manifest], words: str
) -> None:
    """Overlaps, leaps, and partitions that are forgotten."""
    scene.forge(3, change)

    assert any(words in str(said) for said in check_of(scene.look(), "sources").violations)


def test_a_source_that_was_begun_too_late_is_named(tmp_path: Path) -> None:
    """Only the job's file says where it was to begin."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(2)
    scene.forge(1, skipping)

    (said,) = check_of(scene.look(), "sources").violations
    assert "in epoch 1 was begun at offset 1, and 0 is its first" in str(said)
    assert check_of(scene.look(job=False), "sources").violations == ()


def test_a_source_may_be_begun_where_the_job_says(tmp_path: Path) -> None:
    """At its end, or at offsets of one's choice."""
    for name, start in (("latest", "latest"), ("chosen", {"0": 2, "1": 1})):
        (tmp_path / name).mkdir()
        made = partial(beginning_at, start)
        scene = Scene(tmp_path / name, made)
        scene.append(20)
        scene.epochs(3)
        assert_valid(scene.look())


def beginning_at(start: Any, log: ps.Log) -> ps.Job:
    return counting_job(log, ps.Table("totals"), start=start)


def renumbered(column: str, value: int) -> Callable[[Any], Any]:
    """A change of one column of a file's rows."""

    def change(rows: Any) -> Any:
        at = rows.column_names.index(column)
        new = pa.array([value] * rows.num_rows, rows.schema.field(column).type)
        return rows.set_column(at, rows.schema.field(column), new)

    return change


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("_epoch", "have _epoch 99 in row 0, where it must be 3"),
        ("_partition", "have _partition 99 in row 0"),
        ("_sequence", "have _sequence 99 in row 0, where it must be 0"),
    ],
)
def test_rows_that_are_misnumbered_are_named(scene: Scene, column: str, words: str) -> None:
    """A row is unique by these three; a hash that fits does not make them so."""
    replace_rows(scene, 3, renumbered(column, 99))
    found = scene.look()

    assert any(words in said for said in wrong(found)), wrong(found)


def replace_rows(scene: Scene, epoch: int, change: Callable[[Any], Any]) -> None:
    """Change the rows of the last table's files of an epoch, with hashes that fit."""
    table = ps.Table("totals")

    def forged(manifest: Manifest) -> Manifest:
        outputs = []
        for output in manifest.sinks["totals"]:
            stored = scene.store.get(output.ref.key)
            assert stored is not None
            rows = change(pa.Table.from_batches(list(open_file(output.ref.key, stored.body)[1])))
            body = table.encode(rows)
            scene.store.put(output.ref.key, body)
            ref = ref_to(output.ref.key, body)
            outputs.append(msgspec.structs.replace(output, ref=ref))
        return msgspec.structs.replace(manifest, sinks={**manifest.sinks, "totals": tuple(outputs)})

    scene.forge(epoch, forged)


def test_rows_from_offsets_that_nobody_read_are_named(scene: Scene) -> None:
    """Each is traced to the range that its epoch read of that partition."""

    def change(rows: Any) -> Any:
        field = rows.schema.field("_input")
        far = [[{"from": "clicks/0", "first": 7000, "last": 7001}]] * rows.num_rows
        at = rows.column_names.index("_input")
        return rows.set_column(at, field, pa.array(far, field.type))

    replace_rows(scene, 4, change)
    said = wrong(scene.look())

    assert any("from clicks/0 at offset 7000 to 7001, of which its epoch read" in s for s in said)


def test_rows_too_few_are_named(scene: Scene) -> None:
    """The manifest says how many there are."""
    replace_rows(scene, 4, lambda rows: rows.slice(1))
    said = wrong(scene.look())

    assert any("rows, and its manifest says" in each for each in said)
    assert any("have _sequence 1 in row 0, where it must be 0" in each for each in said)


def test_what_nothing_names_is_listed_and_no_violation(scene: Scene) -> None:
    """What is above HEAD is somebody's work; what is below, the collector's."""
    scene.store.put(output_key("x", Epoch(9), 0, Attempt("a")), b"going on")
    scene.store.put(output_key("x", Epoch(2), 0, Attempt("a")), b"left")
    scene.store.put(table_key("totals", Epoch(3), "7-left.arrow"), b"left")
    found = scene.look()

    assert_valid(found)
    leftovers = check_of(found, "leftovers")
    assert leftovers.counted["above HEAD"] == 1
    assert "outputs/x/000000000009/0-a.arrow" in leftovers.notes[0]
    assert "tables/totals/000000000003/7-left.arrow" in leftovers.notes[1]
    assert "outputs/x/000000000002/0-a.arrow" in leftovers.notes[1]


SHORT_LIVED = replace(
    SETTINGS,
    retention=Retention(epochs=2, age_s=0.0, grace_s=0.0),
    collect_every=1,
    limits=ps.Limits(records=2),
)
"""A job that keeps two epochs, each of two clicks, and collects after every one."""


def test_tables_are_audited_whole_though_history_is_not_kept(tmp_path: Path) -> None:
    """Their index outlives the manifests; the report says from which epoch on was audited."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(1, rows=120, settings=SHORT_LIVED)
    found = scene.look()

    assert_valid(found)
    assert found.epochs is not None
    assert (found.epochs[0] > 2, found.epochs[1]) == (True, 60)
    assert found.tables["totals"].rows == 120
    lost = next(iter(scene.store.list("tables/totals/000000000002/0")))
    scene.store.delete(lost.key)
    assert any(lost.key in said for said in wrong(scene.look()))


def test_an_audit_can_begin_later(scene: Scene) -> None:
    """Then nothing before it is judged."""
    parent = scene.manifest(3).parent
    assert parent is not None
    scene.store.delete(parent.key)
    found = scene.look(since=Epoch(3))

    assert found.epochs == (3, 4)
    assert check_of(found, "chain").verdict is Verdict.VALID


@pytest.mark.parametrize("since", [0, 5, -1])
def test_an_audit_cannot_begin_where_nothing_is(scene: Scene, since: int) -> None:
    """Said in a sentence."""
    with pytest.raises(Invalid, match="the last committed epoch is 4"):
        scene.look(since=Epoch(since))


@pytest.mark.parametrize("sample", [0.0, -0.1, 1.5])
def test_a_sample_is_a_share(sample: float) -> None:
    """More than nothing, at most all."""
    with pytest.raises(Invalid, match="the sample"):
        Scope(sample=sample)


def test_a_foreign_object_among_pins_is_unknown_and_ends_no_audit(scene: Scene) -> None:
    """It may be a pin: what it keeps cannot be told, and all the rest still can."""
    scene.store.put(Key("pins/kept/mark.json"), b"not json")

    found = scene.look()

    (told,) = unknown(found)
    assert "pins/kept/mark.json: cannot be read as a Pin" in told
    assert (wrong(found), check_of(found, "objects").verdict) == ([], Verdict.UNKNOWN)
