"""Tables that a sink meets: which it takes, which it refuses, and what it says of each."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock.errors import Corrupt, Invalid, PenstockError, Unavailable
from penstock.sinks.delta import Delta
from penstock.sinks.delta_writer import DeltaWriter
from tests.support.delta_case import rows_at, target
from tests.support.scripts import run_script
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, in_order, people
from tests.support.versity import out_of_reach

PROTOCOL = """
{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":%s}}
"""


def opened(folder: Path, **settings: Any) -> DeltaWriter:
    return Delta("lake", str(folder), **settings).open(target())


def refusal(act: Callable[[], object], kind: type[PenstockError] = Invalid) -> str:
    """What is said when something is refused."""
    with pytest.raises(kind) as caught:
        act()
    assert (type(caught.value), caught.value.__cause__) == (kind, None)
    return str(caught.value)


def made(folder: Path, *columns: Any, **settings: Any) -> DeltaTable:
    return DeltaTable.create(str(folder), pa.schema(columns or PEOPLE), **settings)


def test_a_table_is_made_once_and_found_again(tmp_path: Path) -> None:
    """Opening what is there commits nothing."""
    for _ in range(3):
        opened(tmp_path, partition_by="user")

    table = DeltaTable(str(tmp_path))
    assert (table.version(), table.metadata().partition_columns) == (0, ["user"])
    assert pa.schema(table.schema().to_arrow()) == PEOPLE


def test_a_table_can_be_asked_for_that_somebody_else_makes(tmp_path: Path) -> None:
    """A mistake in its place must not look like a new table."""
    folder = tmp_path / "none"

    assert refusal(lambda: opened(folder, create=False)) == (
        f"sink lake, table {folder} is not there: make it, or let the sink do so by `create=True`."
    )
    assert not folder.exists()


def test_columns_of_others_stay_empty(tmp_path: Path) -> None:
    """A table may have more columns, and in another order, as long as they need no value."""
    columns = [("note", pa.string()), ("n", pa.int64()), ("user", pa.string())]
    appended, merged = tmp_path / "appended", tmp_path / "merged"
    for folder, settings in ((appended, {}), (merged, {"key": "user"})):
        made(folder, *columns)
        old = pa.table({"note": ["kept"], "n": [1], "user": ["ada"]}, pa.schema(columns))
        write_deltalake(str(folder), old, mode="append")
        opened(folder, **settings).apply(apply(1, [{"user": "ada", "n": 2}]))

    ada = {"note": "kept", "n": 2, "user": "ada"}
    assert rows_at(str(merged), pa.schema(columns)) == [ada]
    assert in_order(rows_at(str(appended), pa.schema(columns))) == in_order(
        [{**ada, "n": 1}, {**ada, "note": None}]
    )


def test_a_table_without_one_of_the_columns_is_refused(tmp_path: Path) -> None:
    """With the names of sink, table and column."""
    made(tmp_path, ("user", pa.string()), ("N", pa.int64()))

    assert refusal(lambda: opened(tmp_path)) == (
        f"sink lake, table {tmp_path}, column 'n' is not in the table: "
        "add it to the table, or emit rows without it."
    )


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.list_(pa.int64())], ids=str)
def test_a_column_of_another_type_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """Rather than cut or turn into a text."""
    made(tmp_path, ("user", pa.string()), ("n", kind))
    kept = pa.list_(pa.field("element", pa.int64())) if pa.types.is_list(kind) else kind

    assert refusal(lambda: opened(tmp_path)).replace("item", "element") == (
        f"sink lake, table {tmp_path}, column 'n' is {kept} in the table, and the rows have int64: "
        "cast it, or name another column."
    )


def test_other_partitions_are_refused(tmp_path: Path) -> None:
    """Whoever declares a layout relies on it."""
    made(tmp_path, partition_by=["user"])

    assert refusal(lambda: opened(tmp_path)) == (
        f"sink lake, table {tmp_path} is parted by user, and the sink says nothing: "
        "give the sink `partition_by` as the table has it."
    )


def test_a_column_that_must_have_a_value_is_refused_unless_it_is_a_key(tmp_path: Path) -> None:
    """A row without one would be committed, and never be written."""
    user = pa.field("user", pa.string(), nullable=False)
    made(tmp_path / "own", user, ("n", pa.int64()))
    made(tmp_path / "other", *PEOPLE, pa.field("note", pa.string(), nullable=False))

    assert "column 'user' must have a value" in refusal(lambda: opened(tmp_path / "own"))
    assert "column 'note' must have a value there, and rows have none" in refusal(
        lambda: opened(tmp_path / "other")
    )
    writer = opened(tmp_path / "own", key="user")
    writer.apply(apply(1, people(1)))
    assert rows_at(str(tmp_path / "own"), PEOPLE) == people(1)


def test_a_constraint_is_refused_also_one_that_comes_later(tmp_path: Path) -> None:
    """A row that breaks it would hold the job for ever."""
    writer = opened(tmp_path)
    DeltaTable(str(tmp_path)).alter.add_constraint({"many": "n > 0"})

    for act in (lambda: opened(tmp_path), lambda: writer.apply(apply(1, people(1)))):
        assert "has the constraint 'many', which a row could break" in refusal(act)


def test_a_table_that_forgets_cursors_is_refused(tmp_path: Path) -> None:
    """After a quiet week the job would begin again, and write everything twice."""
    made(tmp_path, configuration={"delta.setTransactionRetentionDuration": "interval 7 days"})

    assert refusal(lambda: opened(tmp_path)) == (
        f"sink lake, table {tmp_path} forgets cursors, because its "
        "delta.setTransactionRetentionDuration is 'interval 7 days': "
        "unset that property, or use another table."
    )


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    """Not every reader of ours follows it."""
    made(tmp_path, configuration={"delta.columnMapping.mode": "name"})

    assert "gives its columns other names in its files" in refusal(lambda: opened(tmp_path))


def test_a_table_that_only_grows_takes_appends_and_no_merge(tmp_path: Path) -> None:
    """A merge takes rows out of files, even if all it does is add."""
    made(tmp_path, configuration={"delta.appendOnly": "true"})
    opened(tmp_path).apply(apply(1, people(1)))

    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(people(1))
    assert "takes no row back, and the sink has a key" in refusal(
        lambda: opened(tmp_path, key="user")
    )


def test_features_that_the_client_does_not_know_are_refused_by_name(tmp_path: Path) -> None:
    """When the sink is opened, not when an epoch is already decided."""
    made(tmp_path)
    entry = tmp_path / "_delta_log" / f"{1:020}.json"
    entry.write_text(PROTOCOL.strip() % '["tableOfTomorrow"]')

    said = refusal(lambda: opened(tmp_path))
    assert said.startswith(f"sink lake, table {tmp_path} has features that deltalake cannot write")
    assert "tableOfTomorrow" in said
    assert DeltaTable(str(tmp_path)).version() == 1


def test_a_folder_with_something_else_is_no_place_for_a_table(tmp_path: Path) -> None:
    """Its files would be taken for rows by nobody, and be vacuumed."""
    (tmp_path / "letter.txt").write_text("dear")

    assert refusal(lambda: opened(tmp_path)) == (
        f"sink lake, table {tmp_path} holds something that is no Delta table: "
        "give the sink a place of its own."
    )
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


def test_what_a_killed_creation_has_left_is_no_obstacle(tmp_path: Path) -> None:
    """The next leader makes the table."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json#1").write_text('{"half')

    opened(tmp_path).apply(apply(1, people(1)))
    assert in_order(rows_at(str(tmp_path), PEOPLE)) == in_order(people(1))


def test_a_file_in_the_way_is_said_to_be_in_the_way(tmp_path: Path) -> None:
    """Also where a folder above the table should be."""
    (tmp_path / "file").write_text("")

    for folder in (tmp_path / "file", tmp_path / "file" / "table"):
        said = refusal(lambda folder=folder: opened(folder))
        assert said.startswith(f"sink lake, table {folder} cannot be a file because")


@pytest.mark.parametrize("entry", ['{"add": garbage', "not json"])
def test_a_log_that_cannot_be_read_is_for_somebody_to_repair(tmp_path: Path, entry: str) -> None:
    """Trying again would not make it whole."""
    writer = opened(tmp_path)
    writer.apply(apply(1, people(1)))
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(entry)

    for act in (lambda: opened(tmp_path), lambda: writer.apply(apply(2, people(2)))):
        said = refusal(act)
        assert said.startswith(f"sink lake, table {tmp_path} cannot be read or written (Kernel ")
        assert said.endswith("): repair the table, or use another.")
        assert "\n" not in said


def test_a_table_that_is_gone_stops_the_job(tmp_path: Path) -> None:
    """Making it again would hide that every row is lost."""
    folder = tmp_path / "table"
    writer = opened(folder)
    writer.apply(apply(1, people(1)))
    folder.rename(tmp_path / "away")

    assert "is not there" in refusal(lambda: writer.apply(apply(2, people(2))))
    (tmp_path / "away").rename(folder)
    writer.apply(apply(2, people(2)))
    assert writer.read_cursor(0) == cursor(2)


def test_another_table_in_its_place_is_not_taken_for_it(tmp_path: Path) -> None:
    """Its versions have the same numbers; its cursor is what counts."""
    folder = tmp_path / "table"
    writer = opened(folder)
    writer.apply(apply(1, people(1)))
    folder.rename(tmp_path / "away")
    opened(folder).apply(apply(1, [], at=cursor(1, commit="another")))

    assert "is at epoch 1" in refusal(lambda: writer.apply(apply(2, people(2))))
    assert writer.read_cursor(0) == cursor(1, commit="another")


def test_half_a_cursor_is_for_somebody_to_look_at(tmp_path: Path) -> None:
    """Nobody but a person can have written it."""
    writer = opened(tmp_path)
    half = CommitProperties(app_transactions=[Transaction(f"penstock/{JOB}/lake/epoch", 1)])
    rows = PEOPLE.empty_table()
    write_deltalake(str(tmp_path), rows, mode="append", commit_properties=half)

    assert "has lost a part of its cursor" in refusal(lambda: writer.read_cursor(0), Corrupt)
    writer.accept(0, cursor(4), apply(4, []).token)
    assert writer.read_cursor(0) == cursor(4)


SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from penstock.errors import PenstockError
from penstock.sinks.delta import Delta
from deltalake import DeltaTable
from tests.support.delta_case import target
from tests.support.sink_cases import apply, cursor, people
folder = sys.argv[1]

def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", folder], check=True)

def attempt(asked):
    try:
        writer.apply(asked)
        print("applied")
    except PenstockError as error:
        print(type(error).__name__, error)

mount("-o", "size=512k")
writer = Delta("lake", folder + "/table").open(target())
attempt(apply(1, people(1)))
with open(folder + "/filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(1024)):
            pass
    except OSError:
        pass
attempt(apply(2, people(2, 20_000)))
print(writer.read_cursor(0) == cursor(1), DeltaTable(folder + "/table").count())
Path(folder, "filler").unlink()
attempt(apply(2, people(2)))
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
attempt(apply(3, people(3)))
subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
attempt(apply(3, people(3)))
print(writer.read_cursor(0) == cursor(3), DeltaTable(folder + "/table").count())
"""


def on_a_small_disk(folder: Path) -> list[str]:
    """Run on a file system that only the script sees."""
    for namespace in (("unshare", "--mount"), ("unshare", "-r", "--mount")):
        probe = [*namespace, "mount", "-t", "tmpfs", "none", str(folder)]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return run_script(SMALL_DISK, folder, before=namespace).splitlines()
    return out_of_reach("mounting a small file system needs unshare and the right to mount")


def test_a_disk_that_is_full_or_read_only_is_waited_for(tmp_path: Path) -> None:
    """Nothing is half written, and the same writer goes on as soon as it can."""
    where = f"{Unavailable.__name__} sink lake, table {tmp_path}/table"

    assert on_a_small_disk(tmp_path) == [
        "applied",
        f"{where} could not be written because the disk is full: "
        f"free space in {tmp_path}/table and try again.",
        "True 3",
        "applied",
        f"{where} is read-only: let it be written again: the job goes on then.",
        "applied",
        "True 9",
    ]


NO_PERMISSION = """
import os, sys
from penstock.errors import PenstockError
from penstock.sinks.delta import Delta
from tests.support.delta_case import target
from tests.support.sink_cases import apply, people
writer = Delta("lake", sys.argv[1]).open(target())
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
else:
    os.chmod(sys.argv[1] + "/_delta_log", 0o500); os.chmod(sys.argv[1], 0o500)
try:
    writer.apply(apply(1, people(1)))
except PenstockError as error:
    print(type(error).__name__, error)
"""


def test_a_folder_without_permission_is_the_users_to_fix(tmp_path: Path) -> None:
    """As somebody else than root, who may do everything."""
    folder = tmp_path / "table"
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)

    assert run_script(NO_PERMISSION, folder) == (
        f"Invalid sink lake, table {folder} cannot be reached because this process has no "
        f"permission: give this user access to {folder}."
    )
