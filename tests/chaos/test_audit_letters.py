"""The audit of dead letters: no event counts twice, and each way in which it could is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.chaos.audit import Audited, audit
from penstock.chaos.findings import Verdict
from penstock.checkpoint.formats import ref_to
from penstock.checkpoint.layout import table_key
from penstock.checkpoint.manifest import Manifest, Output, Range
from penstock.ids import Epoch
from penstock.runtime import processing, replay_choice
from penstock.runtime.dead_letters import dead_letters_table, find_letters, replay_letters
from penstock.runtime.inbox import Gathered
from penstock.sinks.table import arrow_file, open_file
from tests.support.audits import assert_valid, check_of, forge, unknown
from tests.support.in_process import SETTINGS, no_spark
from tests.support.letters import Letters, mended, old_root

Row = dict[str, Any]


def look(job: Letters, *, known: bool = True) -> Audited:
    """What an audit finds; of a job that is known, or not."""
    topology = job.local().job.topology(job.url, no_spark)
    return audit(job.root, topology if known else None).audited


def said_of(found: Audited) -> list[tuple[str, int | None, str]]:
    """What is wrong with the letters: the promise, the epoch, the words."""
    check = check_of(found, "letters sum")
    return [(each.invariant, each.epoch, str(each)) for each in check.violations]


@pytest.fixture
def job(tmp_path: Path) -> Letters:
    """Epoch 1 sums 3, epochs 2 and 3 set 100 and 200 aside, epoch 4 replays 100."""
    made = Letters.begun(tmp_path, 3, 100, 200)
    made.replay("--letter", "sum/2/0/0")
    made.run(mended)
    assert made.total() == 103
    return made


def rewrite(
    job: Letters, epoch: int, table: str, change: Callable[[list[Row]], list[Row]]
) -> Callable[[Manifest], Manifest]:
    """A manifest with the rows of a table changed; they are numbered anew."""

    def changed(manifest: Manifest) -> Manifest:
        (output,) = manifest.sinks[table]
        stored = job.root.store.get(output.ref.key)
        assert stored is not None
        schema, batches = open_file(output.ref.key, stored.body)
        rows = change(pa.Table.from_batches(batches, schema).to_pylist())
        rows = [{**row, "_sequence": n, "_epoch": epoch} for n, row in enumerate(rows)]
        body = arrow_file(pa.Table.from_pylist(rows, schema))
        key = table_key(table, Epoch(epoch), "0-forged.arrow")
        job.root.store.put(key, body)
        forged = Output(partition=0, ref=ref_to(key, body), rows=len(rows))
        sinks = {**manifest.sinks, table: (forged,)}
        return msgspec.structs.replace(manifest, sinks=sinks)

    return changed


def reading(letters: int, change: Callable[[Manifest], Manifest]) -> Callable[[Manifest], Manifest]:
    """The same with so many letters read."""

    def changed(manifest: Manifest) -> Manifest:
        progress = manifest.sources["sum.replays"]
        told = msgspec.structs.replace(
            progress,
            ranges={"letters": Range(start=0, stop=letters)},
            resume_at={"letters": letters},
        )
        sources = {**manifest.sources, "sum.replays": told}
        return change(msgspec.structs.replace(manifest, sources=sources))

    return changed


def at_offset(row: Row, offset: int, **columns: Any) -> Row:
    """A replayed letter at another offset, with other columns."""
    origin = {"from": "sum.replays/letters", "first": offset, "last": offset}
    return {**row, **columns, "_input": [origin]}


def test_letters_and_their_replays_are_valid_and_counted(job: Letters) -> None:
    """So that "valid" cannot mean that nothing was looked at."""
    found = look(job)

    assert_valid(found)
    check = check_of(found, "letters sum")
    assert check.counted == {"replayed": 1, "letters": 2}
    assert check_of(found, "table sum.replayed").counted["inputs"] == 1
    assert check_of(look(job, known=False), "letters sum").notes == (
        "Whether an event of a letter was also processed is told with --job only.",
    )


def test_a_replay_that_was_rewound_and_one_that_failed_are_valid(
    job: Letters, tmp_path: Path
) -> None:
    """In the root and in a fork of it."""
    job.replay()
    job.run()
    job.restore(3)
    job.replay()
    job.run()
    job.replay()
    job.run(mended)
    assert job.total() == 303

    assert_valid(look(job))
    there = job.forked(tmp_path / "there")
    there.send(1)
    there.run()
    assert_valid(look(there))


def test_a_letter_that_was_replayed_twice_is_named(job: Letters) -> None:
    """In one epoch, with every hash and every count as it should be."""

    def doubled(rows: list[Row]) -> list[Row]:
        return [rows[0], at_offset(rows[0], 1)]

    forge(job.root, 4, reading(2, rewrite(job, 4, "sum.replayed", doubled)))
    found = look(job)

    assert found.verdict is Verdict.INVALID
    assert said_of(found) == [
        ("I2", 4, "operator sum, letter sum/2/0/0, source clicks, partition 0, offset 1, in epoch 4"
         " was replayed in epoch 4 already: it is counted twice"),
    ]  # fmt: skip


def test_a_letter_that_two_epochs_have_replayed_is_named(
    job: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a leader that forgot what was replayed: it reads real letters, and says what it did."""

    def forgets(*given: Any) -> Any:
        yield from ()
        return {}

    monkeypatch.setattr(replay_choice, "_replayed", forgets)
    replay_letters(job.url, "sum", find_letters(job.url, "sum")[:1])
    job.local(mended).run(replace(SETTINGS, epochs_max=5))  # it would go on for ever
    assert job.total() == 203

    ((invariant, epoch, words),) = said_of(look(job))
    assert (invariant, epoch) == ("I2", 5)
    assert words == (
        "operator sum, letter sum/2/0/0, source clicks, partition 0, offset 1, in epoch 5"
        " was replayed in epoch 4 already: it is counted twice"
    )


STRANGE = "tables/sum.dead-letters/000000000002/0-strange.arrow"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"_letter_file": STRANGE},
            "letter sum/2/0/0, source clicks, partition 0, offset 1, in epoch 4 was replayed, and "
            "is not a dead letter of this history",
        ),
        (
            {"_letter_sequence": 5},
            "letter sum/2/0/5, source clicks, partition 0, offset 1, in epoch 4 was replayed, and "
            "is not a dead letter of this history",
        ),
        (
            {"_event_offset": 0},
            "letter sum/2/0/0, source clicks, partition 0, offset 0, in epoch 4 holds source "
            "clicks, partition 0, offset 1, and was replayed as another event",
        ),
    ],
)
def test_a_replay_of_what_is_no_letter_is_named(job: Letters, columns: Row, words: str) -> None:
    """Of a file of no epoch, of a row that is not there, of another event."""

    def strange(rows: list[Row]) -> list[Row]:
        return [{**rows[0], **columns}]

    forge(job.root, 4, rewrite(job, 4, "sum.replayed", strange))
    found = look(job)

    assert found.verdict is Verdict.INVALID
    assert said_of(found) == [("I2", 4, f"operator sum, {words}")]


def test_a_letter_that_was_replayed_before_it_was_one_is_named(job: Letters) -> None:
    """It names the file of a later epoch."""
    job.send(300)
    job.run()
    later = job.root.newest()
    assert later is not None
    file = later.sinks["sum.dead-letters"][0].ref.key

    def early(rows: list[Row]) -> list[Row]:
        return [{**rows[0], "_letter_file": file, "_event_offset": 3}]

    forge(job.root, 4, rewrite(job, 4, "sum.replayed", early))

    ((invariant, epoch, words),) = said_of(look(job))
    assert (invariant, epoch) == ("I2", 4)
    assert words.endswith("was replayed before it was set aside, in epoch 5")


def processed_besides(folder: Path) -> Letters:
    """A job whose task has set the event aside that it has processed, in the same commit."""
    honest = processing.dead_letter_rows

    def with_all(gathered: Gathered, *given: Any) -> pa.Table:
        every = np.arange(gathered.table.num_rows)
        also = dead_letters_table(gathered, every, "planted", "'ada'")
        return pa.concat_tables([honest(gathered, *given), also])

    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(processing, "dead_letter_rows", with_all)
        return Letters.begun(folder, 3)


def test_a_letter_whose_event_was_processed_is_named(tmp_path: Path) -> None:
    """The task that set it aside has emitted a row of it all the same."""
    found = look(processed_besides(tmp_path))

    assert found.verdict is Verdict.INVALID
    ((invariant, epoch, words),) = said_of(found)
    assert (invariant, epoch) == ("I2", 1)
    assert words.startswith(
        "operator sum, letter sum/1/0/0, source clicks, partition 0, offset 0, in epoch 1 is of an "
        "event that was processed as well: tables/sum.out/000000000001/0-"
    )


def test_an_event_that_a_transform_made_several_of_is_no_finding(tmp_path: Path) -> None:
    """An offset stands for several events there, and one of them may fail alone."""
    job = processed_besides(tmp_path)
    topology = job.local().job.topology(job.url, no_spark)
    behind = replace(topology, transformed=frozenset({"clicks"}))

    assert check_of(audit(job.root, behind).audited, "letters sum").verdict is Verdict.VALID


def test_letters_that_were_read_and_not_recorded_are_named(job: Letters) -> None:
    """And offsets of replays that leave a gap."""
    forge(job.root, 4, reading(2, lambda manifest: manifest))
    assert ("I5", 4, "source sum.replays, partition letters, in epoch 4 reads 2 letters, and 1 are "
            "recorded as replayed") in said_of(look(job))  # fmt: skip

    def later(rows: list[Row]) -> list[Row]:
        return [at_offset(rows[0], 1)]

    forge(job.root, 4, rewrite(job, 4, "sum.replayed", later))
    assert (
        "I5",
        4,
        "source sum.replays, partition letters, in epoch 4 has 1, where 0 follows",
    ) in (said_of(look(job)))


def test_an_old_root_is_valid(tmp_path: Path) -> None:
    """What it has replayed from a topic, it has replayed once."""
    job = old_root(tmp_path, "applied")
    found = look(job)

    assert_valid(found)
    assert check_of(found, "letters sum").counted == {"replayed": 2, "letters": 4}
    job.replay()
    job.run(mended)
    assert_valid(look(job))


def test_an_old_root_that_has_counted_an_event_twice_is_invalid(tmp_path: Path) -> None:
    """203 where 103 is right: the letter is of a line of history that was rewound."""
    found = look(old_root(tmp_path, "twice"))

    assert found.verdict is Verdict.INVALID
    ((invariant, epoch, words),) = said_of(found)
    assert (invariant, epoch) == ("I2", 2)
    assert words.startswith(
        "operator sum, letter sum/2/0/0, source sum.replays, partition 0, offset 0, in epoch 2 "
        "was replayed, and is not a dead letter of this history"
    )


def test_an_old_fork_that_has_lost_a_replay_is_invalid(tmp_path: Path) -> None:
    """101 where 1101 is right; and what was replayed before the fork is not known."""
    found = look(old_root(tmp_path, "forked"))

    assert found.verdict is Verdict.INVALID
    ((invariant, epoch, words),) = said_of(found)
    assert (invariant, epoch) == ("I1", 3)
    assert "letter sum/4/0/0" in words and "it counts as replayed and was not" in words
    assert any("which letters of operator sum were replayed" in each for each in unknown(found))


def test_the_tables_of_letters_can_be_read(job: Letters) -> None:
    """What was replayed says which letter and which event it was."""
    rows = ps.read_table(job.url, "sum.replayed").to_pylist()

    names = ("n", "_letter_epoch", "_letter_sequence", "_event_source", "_event_offset", "_epoch")
    assert [tuple(row[name] for name in names) for row in rows] == [(100, 2, 0, "clicks", 1, 4)]
