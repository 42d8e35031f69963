"""What sinks hold against what was committed: real servers, real rows, each damage by its name."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock as ps
from penstock.chaos.findings import Verdict
from penstock.checkpoint.collector import Retention
from penstock.clock import SystemChance
from penstock.ids import Epoch
from penstock.sinks.cursors import mark_of
from tests.support import databases
from tests.support.audits import (
    Scene,
    assert_valid,
    check_of,
    counting_job,
    ran,
    unknown,
    wrong,
)
from tests.support.in_process import SETTINGS
from tests.support.postgres_case import new_table, plain_client
from tests.support.redis_case import plain_client as redis_client
from tests.support.servers import Endpoint

LATEST: dict[str, Any] = {"key": "user", "deletes": "gone"}

SHORT_LIVED = replace(
    SETTINGS,
    retention=Retention(epochs=2, age_s=0.0, grace_s=0.0),
    collect_every=1,
    limits=ps.Limits(records=2),
)
"""A job that keeps two epochs, each of two clicks, and collects after every one."""

Sql = Callable[..., Any]


@pytest.fixture
def sql(postgres_server: databases.Postgres, passwords: None) -> Iterator[Sql]:
    """Statements of somebody else's, each a transaction."""
    del passwords
    with plain_client(postgres_server) as client:
        yield client.execute


@pytest.fixture
def table() -> str:
    return new_table()


@pytest.fixture
def history(tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str) -> Scene:
    """Rows appended to Postgres, with where each comes from."""
    settings: dict[str, Any] = {"table": table, "create": True, "provenance": True}
    return ran(tmp_path, ps.Postgres("history", postgres_server.dsn(), **settings))


@pytest.fixture
def nameless(tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str) -> Scene:
    """Rows appended to Postgres, and nothing more."""
    return ran(tmp_path, ps.Postgres("nameless", postgres_server.dsn(), table=table, create=True))


@pytest.fixture
def latest(tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str) -> Scene:
    """The last row of each user in Postgres."""
    settings: dict[str, Any] = {"table": table, "create": True, **LATEST}
    return ran(tmp_path, ps.Postgres("latest", postgres_server.dsn(), **settings))


def test_rows_that_were_committed_are_found_one_by_one(history: Scene) -> None:
    """By epoch, partition and sequence, and by all that is in them."""
    found = history.look()

    assert_valid(found)
    counted = check_of(found, "sink history").counted
    assert (counted["rows"], counted["rows in the sink"], counted["rows compared"]) == (24, 24, 24)
    assert (found.sinks["history"].rows, found.sinks["history"].upto) == (24, 4)


def test_rows_without_a_name_are_counted(nameless: Scene) -> None:
    """All that was ever committed is there, and nothing else."""
    found = nameless.look()

    assert_valid(found)
    assert check_of(found, "sink nameless").counted["rows compared"] == 24


def test_the_last_row_of_each_key_is_there(latest: Scene) -> None:
    """And of those that were taken back, none."""
    assert_valid(latest.look())


def test_a_postgres_row_that_was_deleted_is_named(history: Scene, sql: Sql, table: str) -> None:
    """With what was in it."""
    sql(f"DELETE FROM {table} WHERE (_epoch, _partition, _sequence) = (3, 0, 1)")
    found = history.look()

    assert found.verdict is Verdict.INVALID
    (said,) = check_of(found, "sink history").violations
    assert (said.invariant, said.epoch) == ("I4", 3)
    assert said.subject == "sink history, the row of epoch 3, partition 0, sequence 1,"
    assert said.found.startswith("is missing: {'user': 'u")


def test_a_postgres_row_that_is_doubled_is_named(history: Scene, sql: Sql, table: str) -> None:
    """To the letter the same row, twice."""
    row = "(_epoch, _partition, _sequence) = (2, 0, 0)"
    sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE {row}")
    found = history.look()

    assert found.verdict is Verdict.INVALID
    (said,) = check_of(found, "sink history").violations
    assert (said.invariant, said.epoch) == ("I2", 2)
    assert said.subject == "sink history, the row of epoch 2, partition 0, sequence 0,"
    assert said.found.startswith("is there 2 times, and was committed once: {'user': 'u")


def test_a_postgres_row_that_was_altered_is_named(history: Scene, sql: Sql, table: str) -> None:
    """With what it is and what it was."""
    sql(f"UPDATE {table} SET n = 4711 WHERE (_epoch, _partition, _sequence) = (2, 0, 0)")
    (said,) = check_of(history.look(), "sink history").violations

    assert said.found.startswith("is there with other values: {'user': 'u")
    assert "in the sink" in said.found
    assert "4711" in said.found


def test_a_postgres_row_of_nobody_is_named(history: Scene, sql: Sql, table: str) -> None:
    """Whether or not it says where it comes from."""
    sql(f"INSERT INTO {table} (\"user\", n) VALUES ('mallory', 1)")
    sql(f"INSERT INTO {table} VALUES ('eve', 1, false, 2, 0, 77)")
    sql(f"INSERT INTO {table} VALUES ('zoe', 1, false, 9, 0, 0)")
    said = {each.subject: each for each in check_of(history.look(), "sink history").violations}

    assert said.keys() == {
        "sink history, a row,",
        "sink history, the row of epoch 2, partition 0, sequence 77,",
        "sink history, the row of epoch 9, partition 0, sequence 0,",
    }
    kinds = [(each.invariant, each.found.partition(":")[0]) for each in said.values()]
    assert sorted(kinds) == [
        ("I13", "is there, and is of an epoch that the sink has not taken"),
        ("I8", "is there, and does not say where it comes from"),
        ("I8", "is there, and nobody committed it"),
    ]
    assert "mallory" in said["sink history, a row,"].found


def test_rows_without_a_name_are_named_by_what_is_in_them(
    nameless: Scene, sql: Sql, table: str
) -> None:
    """Deleted, doubled, made up."""
    sql(f"DELETE FROM {table} WHERE \"user\" = 'u1' AND n = 2")
    sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE \"user\" = 'u2' AND n = 1")
    sql(f"INSERT INTO {table} VALUES ('mallory', 1, false)")
    said = {each.found.partition(":")[0]: str(each) for each in
            check_of(nameless.look(), "sink nameless").violations}  # fmt: skip

    assert said.keys() == {
        "is missing",
        "is there 2 times, and was committed once",
        "is there, and nobody committed it",
    }
    assert "{'user': 'u1', 'n': 2" in said["is missing"]
    assert "mallory" in said["is there, and nobody committed it"]


def test_keys_that_are_gone_altered_or_come_back_are_named(
    latest: Scene, sql: Sql, table: str
) -> None:
    """By the row that should be there."""
    users = [user for (user,) in sql(f'SELECT "user" FROM {table} ORDER BY 1')]
    sql(f"DELETE FROM {table} WHERE \"user\" = '{users[0]}'")
    sql(f"UPDATE {table} SET n = 4711 WHERE \"user\" = '{users[1]}'")
    sql(f"INSERT INTO {table} VALUES ('mallory', 1)")
    said = [str(each) for each in check_of(latest.look(), "sink latest").violations]

    assert len(said) == 3
    assert any("is missing" in each and users[0] in each for each in said)
    assert any("with other values" in each and "4711" in each for each in said)
    assert any("nobody committed it" in each and "mallory" in each for each in said)


def test_many_differences_are_counted_and_some_are_named(
    history: Scene, sql: Sql, table: str
) -> None:
    """Whoever empties a table is told once, not ten thousand times."""
    sql(f"TRUNCATE {table}")
    check = check_of(history.look(), "sink history")

    assert check.violations_total == 24
    assert len(check.violations) == 21
    assert str(check.violations[-1]) == "sink history has 4 more rows, of which each is missing"


def test_a_cursor_of_another_history_is_named(history: Scene, sql: Sql, table: str) -> None:
    """Then nothing else can be said of the sink."""
    sql(f"UPDATE penstock_cursors SET mark = mark + 1 WHERE target = '{table}' AND shard = 1")
    sql(f"UPDATE penstock_cursors SET epoch = 40 WHERE target = '{table}' AND shard = 0")
    said = [str(each) for each in check_of(history.look(), "sink history").violations]

    assert said == [
        "sink history, shard 0 has taken epoch 40 of generation 1, and HEAD is at epoch 4",
        "sink history, shard 1 has taken epoch 4 of generation 1 of another history than HEAD's",
    ]


def test_a_sink_that_lags_is_compared_as_far_as_it_is(history: Scene, sql: Sql, table: str) -> None:
    """What it lacks is applied at the next start; until then it is unknown."""
    sql(f"DELETE FROM {table} WHERE _epoch > 2")
    mark = mark_of(history.manifest(2).commit)
    sql(f"UPDATE penstock_cursors SET epoch = 2, mark = {mark} WHERE target = '{table}'")
    found = history.look()

    assert found.verdict is Verdict.UNKNOWN
    assert unknown(found) == [
        "sink history: it is 2 epochs behind HEAD, and what it lacks was not compared"
    ]
    assert check_of(found, "sink history").counted["rows compared"] == 12


def test_a_table_that_two_sinks_write_to_is_judged_with_care(
    tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str
) -> None:
    """A row too many may be the other's; one too few is nobody else's."""
    both = [
        ps.Postgres(name, postgres_server.dsn(), table=table, create=True, provenance=True)
        for name in ("one", "two")
    ]
    scene = ran(tmp_path, *both)
    assert scene.look().verdict is Verdict.UNKNOWN
    assert wrong(scene.look()) == []
    sql(f"DELETE FROM {table} WHERE (_epoch, _partition, _sequence) = (3, 0, 1)")

    assert all("is missing" in said for said in wrong(scene.look()))
    assert len(wrong(scene.look())) == 2


def test_rows_of_epochs_that_are_not_kept_are_not_judged(
    tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str
) -> None:
    """But those of the epochs that are."""
    settings: dict[str, Any] = {"table": table, "create": True, "provenance": True}
    sink = ps.Postgres("history", postgres_server.dsn(), **settings)
    scene = Scene(tmp_path, lambda log: counting_job(log, sink))
    scene.epochs(1, rows=16, settings=SHORT_LIVED)
    found = scene.look()

    assert_valid(found)
    assert found.epochs is not None
    counted = check_of(found, "sink history").counted
    kept = 8 - found.epochs[0] + 1
    assert (kept < 8, counted["rows compared"]) == (True, 2 * kept)
    assert counted["rows of earlier epochs"] == 16 - 2 * kept
    sql(f"DELETE FROM {table} WHERE _epoch = 8 AND _sequence = 0")
    sql(f"DELETE FROM {table} WHERE _epoch = 1")
    assert all("epoch 8" in said for said in wrong(scene.look()))


def test_rows_without_a_name_of_a_part_of_history_are_unknown(
    tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str
) -> None:
    """A row too many cannot be told from an old one; one too few can."""
    sink = ps.Postgres("nameless", postgres_server.dsn(), table=table, create=True)
    scene = Scene(tmp_path, lambda log: counting_job(log, sink))
    scene.epochs(1, rows=16, settings=SHORT_LIVED)
    found = scene.look()

    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])
    assert "whether one is there twice cannot be told" in unknown(found)[0]
    sql(f"DELETE FROM {table} WHERE (\"user\", n) = (SELECT \"user\", n FROM {table} "
        "ORDER BY n DESC LIMIT 1)")  # fmt: skip
    assert "is missing" in wrong(scene.look())[0]


def test_a_sample_looks_at_a_share_of_the_keys(history: Scene, sql: Sql, table: str) -> None:
    """By their hash: the same ones on both sides."""
    found = history.look(sample=0.5)

    assert_valid(found)
    assert 0 < check_of(found, "sink history").counted["rows compared"] < 24
    assert "Sampled: 50.00% of the keys, by their hash." in check_of(found, "sink history").notes
    sql(f"TRUNCATE {table}")
    damaged = check_of(history.look(sample=0.5), "sink history")
    assert damaged.violations_total == check_of(found, "sink history").counted["rows compared"]


def test_a_server_that_is_away_leaves_its_sink_unknown(tmp_path: Path, passwords: None) -> None:
    """Everything else is audited all the same, and no secret is told."""
    del passwords
    with databases.postgres() as server:
        sink = ps.Postgres("history", server.dsn(), create=True, provenance=True)
        scene = ran(tmp_path, sink, ps.Table("totals"), epochs=2)
    found = scene.look()

    assert found.verdict is Verdict.UNKNOWN
    assert check_of(found, "table totals").verdict is Verdict.VALID
    (said,) = unknown(found)
    assert said.startswith("sink history: sink history, table public.history cannot be reached")
    assert databases.PASSWORD not in said


def test_a_user_who_may_not_read_leaves_the_sink_unknown(
    tmp_path: Path, postgres_server: databases.Postgres, sql: Sql, table: str
) -> None:
    """Appending needs no SELECT; looking does."""
    user = f"writer_{SystemChance().unique()[:8]}"
    sql(f"CREATE ROLE {user} LOGIN PASSWORD '{databases.PASSWORD}'")
    sql(f'CREATE TABLE {table} ("user" text, n bigint, gone boolean)')
    sql("CREATE TABLE IF NOT EXISTS penstock_cursors (job text, sink text, target text, "
        "shard integer, generation bigint NOT NULL, epoch bigint NOT NULL, mark bigint NOT NULL, "
        "token bigint NOT NULL, PRIMARY KEY (job, sink, target, shard))")  # fmt: skip
    sql(f"GRANT INSERT ON {table} TO {user}")
    sql(f"GRANT SELECT, INSERT, UPDATE ON penstock_cursors TO {user}")
    dsn = postgres_server.dsn().replace("//etl:", f"//{user}:")
    scene = ran(tmp_path, ps.Postgres("writing", dsn, table=table), epochs=1)
    try:
        assert unknown(scene.look()) == [
            f"sink writing: sink writing, table public.{table} does not let this user read it: "
            "GRANT SELECT ON it."
        ]
    finally:
        sql(f"REVOKE ALL ON penstock_cursors, {table} FROM {user}")
        sql(f"DROP ROLE {user}")


def test_sinks_that_cannot_be_read_back_are_unknown(tmp_path: Path) -> None:
    """Never valid; what was staged for them is looked at all the same."""
    scene = ran(tmp_path, ps.ForEachEpoch(lambda epoch, batches: None, name="own"), epochs=2)
    found = scene.look()

    assert found.verdict is Verdict.UNKNOWN
    assert unknown(found) == ["sink own: what a ForEachEpoch sink holds cannot be read"]
    assert check_of(found, "sink own").counted["rows"] == 12
    scene.flip(scene.outputs("own", 1)[0])
    assert scene.look().verdict is Verdict.INVALID


def test_without_the_job_nobody_knows_where_its_sinks_are(tmp_path: Path) -> None:
    """So what they hold is unknown, and what was staged is not."""
    scene = ran(tmp_path, ps.Memory(f"shelf-{tmp_path.name}"), epochs=2)
    found = scene.look(job=False)

    assert found.verdict is Verdict.UNKNOWN
    assert "only the job's file says where it is: name it with --job" in unknown(found)[0]


def test_staged_rows_that_are_gone_leave_their_sink_unknown(history: Scene) -> None:
    """The object is named; what the sink should hold cannot be told without it."""
    lost = history.outputs("history", 2)[0]
    history.store.delete(lost)
    check = check_of(history.look(), "sink history")

    assert check.verdict is Verdict.INVALID
    assert [said.subject for said in check.violations] == [lost]
    assert [str(each) for each in check.unknown] == [
        "sink history: what was staged for it in epoch 2 cannot be read"
    ]


def test_a_redis_is_compared_key_by_key(
    tmp_path: Path, redis_server: databases.Redis, passwords: None
) -> None:
    """By the version that each key has."""
    del passwords
    prefix = f"{SystemChance().unique()}:"
    sink = ps.Redis("cache", redis_server.url(), prefix=prefix, **LATEST)
    scene = ran(tmp_path, sink)
    assert_valid(scene.look())
    with redis_client(redis_server) as client:
        keys = sorted(
            key
            for key in client.scan_iter(f"{prefix}*", count=10_000)
            if not client.hexists(key, "_deleted")
        )
        client.delete(keys[0])
        client.hset(keys[1], "n", "4711")
        client.hset(keys[2], "more", "1")
        client.set(f"{prefix}stranger", "no hash")
        client.hset(f"{prefix}other", mapping={"user": "x", "_writer": "other/cache"})
    said = wrong(scene.look())

    assert sorted(each.partition("is ")[2].partition(":")[0] for each in said) == [
        "missing", "there with other values", "there with other values",
    ]  # fmt: skip


def test_a_dynamodb_table_is_compared_item_by_item(
    tmp_path: Path, atomic_moto: Endpoint, use: Callable[[Endpoint], None]
) -> None:
    """By the version that each item has."""
    use(atomic_moto)
    name = f"items-{SystemChance().unique()}"
    sink = ps.DynamoDB("items", table=name, create=True, cursors=f"{name}-cursors", **LATEST)
    scene = ran(tmp_path, sink, epochs=2)
    assert_valid(scene.look())
    client = boto3.client("dynamodb", region_name="us-east-1")
    items = [each for each in client.scan(TableName=name)["Items"] if "_deleted" not in each]
    client.delete_item(TableName=name, Key={"user": items[0]["user"]})
    client.put_item(TableName=name, Item={**items[1], "n": {"N": "4711"}})
    said = wrong(scene.look())

    assert sorted(each.partition("is ")[2].partition(":")[0] for each in said) == [
        "missing", "there with other values",
    ]  # fmt: skip


def test_a_delta_table_is_compared_by_place_and_by_key(tmp_path: Path) -> None:
    """A version of it, however it is compacted; somebody else's rows are somebody else's."""
    lake, last = str(tmp_path / "lake"), str(tmp_path / "last")
    scene = ran(tmp_path, ps.Delta("lake", lake, provenance=True), ps.Delta("last", last, **LATEST))
    DeltaTable(lake).optimize.compact()
    assert_valid(scene.look())
    rows = DeltaTable(lake).to_pyarrow_table()
    strange = rows.slice(0, 1).to_pylist()[0] | dict.fromkeys(
        ("_epoch", "_partition", "_sequence", "_input")
    )
    write_deltalake(lake, pa.Table.from_pylist([strange], rows.schema), mode="append")
    assert_valid(scene.look())
    assert check_of(scene.look(), "sink lake").counted["rows of others"] == 1
    write_deltalake(lake, rows.slice(3, 1), mode="append")
    DeltaTable(last).delete("user = 'u1'")
    said = wrong(scene.look())

    assert sorted(each.partition("is ")[2].partition(":")[0] for each in said) == [
        "missing", "there 2 times, and was committed once",
    ]  # fmt: skip


def test_a_topic_is_compared_row_by_row(tmp_path: Path) -> None:
    """Others may append to it too: then a row too many may be theirs."""
    url = str(tmp_path / "topic")
    scene = ran(tmp_path, ps.LogSink("topic", url, key="user"))
    assert_valid(scene.look())
    with ps.Log(url).producer() as producer:
        producer.append([{"user": "x", "n": 1, "gone": False}])
    found = scene.look()
    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])


def test_a_compacted_topic_forgets_and_is_not_blamed(tmp_path: Path) -> None:
    """What retention or compaction has taken cannot be told from what was lost."""
    url = str(tmp_path / "topic")
    schema = pa.schema([("user", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])
    ps.Log.create(url, schema, partitions=2, key="user", compacted=True)
    scene = ran(tmp_path, ps.LogSink("topic", url, key="user"))
    ps.Log(url).compact()
    found = scene.look()

    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])
    assert "the topic is compacted" in unknown(found)[0]


def test_an_audit_may_begin_behind_what_was_accepted(history: Scene) -> None:
    """After `penstock sinks accept` nobody knows whose the older rows are."""
    found = history.look(since=Epoch(3))

    assert_valid(found)
    counted = check_of(found, "sink history").counted
    assert (counted["rows compared"], counted["rows of earlier epochs"]) == (12, 12)
