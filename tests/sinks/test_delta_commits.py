"""Several writers of one table: leaders, zombies, strangers, and whoever keeps it tidy."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.errors import Fenced, Invalid, Unavailable
from penstock.sinks import delta_writer
from penstock.sinks.cursors import Apply
from penstock.sinks.delta import Delta
from penstock.sinks.delta_writer import DeltaWriter
from tests.support.delta_case import rows_at, target
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, cursor, in_order, people

EPOCHS = 12
RIVALS = 3
STRANGERS = 25


def opened(folder: Path, **settings: Any) -> DeltaWriter:
    return Delta("lake", str(folder), **settings).open(target())


def table(folder: Path) -> DeltaTable:
    return DeltaTable(str(folder))


def entry(folder: Path, version: int) -> list[dict[str, Any]]:
    """What a commit says."""
    lines = (folder / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def stranger(folder: Path, name: str, n: int = -1) -> None:
    """Somebody who knows nothing of us adds a row."""
    write_deltalake(str(folder), pa.table({"user": [name], "n": [n]}, PEOPLE), mode="append")


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Something that goes on at the same time; its own failures count."""
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(act)
        yield
        doing.result()


def test_rows_and_cursor_are_one_entry_of_the_log(tmp_path: Path) -> None:
    """A reader of the log sees both or neither."""
    writer = opened(tmp_path)
    writer.apply(apply(1, people(1), token=7))

    actions = entry(tmp_path, 1)
    numbers = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
    assert numbers == {
        f"penstock/{JOB}/lake/epoch": 1,
        f"penstock/{JOB}/lake/generation": 1,
        f"penstock/{JOB}/lake/mark": cursor(1).mark,
        f"penstock/{JOB}/lake/token": 7,
    }
    assert [list(each) for each in actions].count(["add"]) == 1
    assert table(tmp_path).version() == 1


def test_the_client_refuses_a_commit_behind_one_of_the_same_application(tmp_path: Path) -> None:
    """What an append relies on when others commit between our look and our commit."""
    opened(tmp_path)
    early, late = table(tmp_path), table(tmp_path)
    ours = CommitProperties(app_transactions=[Transaction("ours", 1)])
    stranger(tmp_path, "first")
    write_deltalake(early, PEOPLE.empty_table(), mode="append", commit_properties=ours)

    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        write_deltalake(late, PEOPLE.empty_table(), mode="append", commit_properties=ours)


@pytest.mark.parametrize("settings", [{}, {"key": "user"}], ids=["append", "merge"])
def test_of_rivals_one_wins_and_the_others_find_it_done(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Each offers every epoch at the same moment, and each epoch is there once."""
    writers = [opened(tmp_path, **settings) for _ in range(RIVALS)]
    start = threading.Barrier(RIVALS)

    def lead(writer: DeltaWriter) -> None:
        for epoch in range(1, EPOCHS + 1):
            start.wait()
            writer.apply(apply(epoch, people(epoch)))

    with ThreadPoolExecutor(RIVALS) as pool:
        list(pool.map(lead, writers))

    every = [row for epoch in range(1, EPOCHS + 1) for row in people(epoch)]
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(every)
    assert table(tmp_path).version() == EPOCHS
    assert [writer.read_cursor(0) for writer in writers] == [cursor(EPOCHS)] * RIVALS


def test_of_two_histories_one_wins_and_the_other_is_refused(tmp_path: Path) -> None:
    """A zombie with an epoch of the same number, at the same moment, for many epochs."""
    writer, zombie = opened(tmp_path), opened(tmp_path)
    start = threading.Barrier(2)
    refused: list[Exception] = []

    def offer(asked: tuple[DeltaWriter, Apply]) -> None:
        start.wait()
        try:
            asked[0].apply(asked[1])
        except (Fenced, Invalid) as error:
            refused.append(error)

    last = None
    every: list[Row] = []
    for epoch in range(1, EPOCHS + 1):
        old = apply(epoch, people(epoch, shard=1), token=epoch, follows=last, at=cursor(epoch, 1))
        new = apply(
            epoch, people(epoch, shard=2), token=epoch + 1, follows=last, at=cursor(epoch, 2)
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(offer, [(zombie, old), (writer, new)]))
        last = writer.read_cursor(0)
        assert last in (old.cursor, new.cursor)
        every += people(epoch, shard=1 if last == old.cursor else 2)
        assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(every)
        assert table(tmp_path).version() == epoch

    assert len(refused) == EPOCHS


@pytest.mark.parametrize("settings", [{}, {"key": "user"}], ids=["append", "merge"])
def test_strangers_that_append_meanwhile_lose_nothing_and_break_nothing(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """A table belongs to more people than one."""
    writer = opened(tmp_path, **settings)

    def append() -> None:
        for number in range(STRANGERS):
            stranger(tmp_path, f"stranger {number}")

    with meanwhile(append):
        for epoch in range(1, EPOCHS + 1):
            patiently(writer, apply(epoch, people(epoch)))

    every = [row for epoch in range(1, EPOCHS + 1) for row in people(epoch)]
    every += [{"user": f"stranger {number}", "n": -1} for number in range(STRANGERS)]
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(every)


def patiently(writer: DeltaWriter, asked: Apply) -> None:
    """As the runtime does: what may pass is asked for again."""
    for _ in range(100):
        try:
            return writer.apply(asked)
        except Unavailable:
            continue
    raise AssertionError("it never passes")


@pytest.mark.parametrize("settings", [{}, {"key": "user"}], ids=["append", "merge"])
def test_a_table_can_be_compacted_and_vacuumed_meanwhile(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Whoever owns it keeps it tidy; the job goes on, and no row is lost or there twice."""
    writer = opened(tmp_path, **settings)
    done = threading.Event()
    tidied: list[int] = []

    def tidy() -> None:
        while not done.is_set() or not tidied:
            try:
                tidied.append(table(tmp_path).optimize.compact()["numFilesRemoved"])
                table(tmp_path).vacuum(dry_run=False)
            except CommitFailedError:
                continue  # it is theirs to try again

    with meanwhile(tidy):
        try:
            for epoch in range(1, EPOCHS + 1):
                patiently(writer, apply(epoch, people(epoch)))
        finally:
            done.set()

    every = [row for epoch in range(1, EPOCHS + 1) for row in people(epoch)]
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(every)
    table(tmp_path).optimize.compact()
    writer.apply(apply(EPOCHS + 1, []))
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(every)
    assert opened(tmp_path, **settings).read_cursor(0) == cursor(EPOCHS + 1)


def test_a_merge_goes_on_top_of_what_it_was_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that somebody adds between the look and the commit is met by the next round."""
    writer = opened(tmp_path, key="user")
    merge = delta_writer._merge
    rounds: list[int] = []

    def late(at: DeltaTable, *rest: Any) -> None:
        rounds.append(at.version())
        if len(rounds) == 1:
            stranger(tmp_path, "ada", 1)
        merge(at, *rest)

    monkeypatch.setattr(delta_writer, "_merge", late)
    writer.apply(apply(1, [{"user": "ada", "n": 2}]))

    assert (rounds, rows_at(str(tmp_path), PEOPLE)) == ([0, 1], [{"user": "ada", "n": 2}])


def test_a_table_that_never_rests_holds_the_job_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many rounds somebody must hear of it; later the epoch is applied all the same."""
    writer = opened(tmp_path, key="user")
    merge = delta_writer._merge
    rounds: list[int] = []

    def late(at: DeltaTable, *rest: Any) -> None:
        rounds.append(at.version())
        stranger(tmp_path, f"stranger {len(rounds)}")
        merge(at, *rest)

    monkeypatch.setattr(delta_writer, "_merge", late)
    with pytest.raises(Unavailable, match="was changed by others 10 times"):
        writer.apply(apply(1, people(1)))
    assert (writer.read_cursor(0), len(rounds)) == (None, 10)

    monkeypatch.undo()
    writer.apply(apply(1, people(1)))
    strangers = [{"user": f"stranger {number}", "n": -1} for number in range(1, 11)]
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(people(1) + strangers)


def test_an_epoch_that_changes_nothing_is_a_commit_all_the_same(tmp_path: Path) -> None:
    """To the client a merge without effect is none; the cursor would stay where it was."""
    flagged = pa.schema([*PEOPLE, ("gone", pa.bool_())])
    sink = Delta("lake", str(tmp_path), key="user", deletes="gone")
    writer = sink.open(target(flagged))
    gone = [{"user": "nobody", "n": None, "gone": True}]
    writer.apply(apply(1, gone, columns=flagged))
    writer.apply(apply(2, [], columns=flagged))

    assert (table(tmp_path).version(), writer.read_cursor(0)) == (2, cursor(2))
    assert table(tmp_path).file_uris() == []


def test_leaders_that_make_the_table_at_once_make_one(tmp_path: Path) -> None:
    """The second creation must not replace what the first has made."""
    for number in range(10):
        folder = tmp_path / str(number)
        start = threading.Barrier(RIVALS)

        def make(_: int, folder: Path = folder, start: threading.Barrier = start) -> DeltaWriter:
            start.wait()
            return opened(folder)

        with ThreadPoolExecutor(RIVALS) as pool:
            writers = list(pool.map(make, range(RIVALS)))
        assert table(folder).version() == 0
        writers[0].apply(apply(1, people(1)))
        assert [writer.read_cursor(0) for writer in writers] == [cursor(1)] * RIVALS


def test_the_log_is_checkpointed_and_the_cursor_with_it(tmp_path: Path) -> None:
    """A long log is not read from its beginning; the cursor outlives the entries it came in."""
    writer = opened(tmp_path)
    for epoch in range(1, 26):
        writer.apply(apply(epoch, people(epoch, 1)))
    log = tmp_path / "_delta_log"
    last: int = json.loads((log / "_last_checkpoint").read_text())["version"]
    for version in range(last + 1):
        (log / f"{version:020}.json").unlink()
    for path in log.glob("*.json"):
        assert path.name > f"{last:020}.json"

    assert last >= 15
    assert opened(tmp_path).read_cursor(0) == cursor(25)
    writer.apply(apply(26, people(26, 1)))
    every = [row for epoch in range(1, 27) for row in people(epoch, 1)]
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(every)


def test_a_cursor_that_only_a_checkpoint_knows_is_found(tmp_path: Path) -> None:
    """Others have committed so often since that our last entry is long gone."""
    writer = opened(tmp_path)
    writer.apply(apply(1, people(1)))
    for number in range(15):
        stranger(tmp_path, f"stranger {number}")
    log = tmp_path / "_delta_log"
    last: int = json.loads((log / "_last_checkpoint").read_text())["version"]
    for version in range(last + 1):
        (log / f"{version:020}.json").unlink()

    assert last > 1
    assert opened(tmp_path).read_cursor(0) == cursor(1)


def test_a_restored_table_keeps_its_cursor(tmp_path: Path) -> None:
    """Rows go and the cursor stays, as the sink says: whoever restores it moves the cursor."""
    writer = opened(tmp_path)
    for epoch in (1, 2):
        writer.apply(apply(epoch, people(epoch)))
    table(tmp_path).restore(1)

    assert writer.read_cursor(0) == cursor(2)
    writer.accept(0, cursor(1), apply(1, []).token)
    writer.apply(apply(2, people(2)))
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(people(1) + people(2))


def test_an_applied_epoch_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged for it goes soon, so the disk must have the rows before that: ours, or those
    of a leader that died between its commit and here."""
    synced: set[Path] = set()
    wholes: list[None] = []
    fsync, sync = os.fsync, os.sync

    def fsync_seen(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def sync_seen() -> None:
        wholes.append(sync())

    monkeypatch.setattr(os, "fsync", fsync_seen)
    monkeypatch.setattr(os, "sync", sync_seen)
    settings = {"key": "user", "partition_by": ("n", "user")}
    columns = pa.schema([*PEOPLE, ("x", pa.int64())])
    rows = [[{**row, "x": None} for row in people(epoch, 2)] for epoch in range(14)]
    writer = Delta("lake", str(tmp_path), **settings).open(target(columns))
    assert len(wholes) == 1
    wholes.clear()
    for epoch in range(1, 13):
        synced.clear()
        before = set(tmp_path.rglob("*"))
        writer.apply(apply(epoch, rows[epoch], columns=columns))
        new = set(tmp_path.rglob("*")) - before
        assert new | {path.parent for path in new} <= synced
        assert len(new) > 2 * len(rows[epoch])
    assert (wholes, len(list(tmp_path.glob("_delta_log/*.parquet")))) == ([], 1)

    late = Delta("lake", str(tmp_path), **settings).open(target(columns))
    wholes.clear()
    for epoch in (12, 13):
        late.apply(apply(epoch, rows[epoch], columns=columns))
        assert len(wholes) == 1
