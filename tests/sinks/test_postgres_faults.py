"""`Postgres` on bad days: locks, full disks, lost answers, dead and silent servers."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.chaos.tcp_proxy import Answers, TcpProxy, Way
from penstock.checkpoint import Chain, Draft, MemoryStore, Output, Root, perform, stage
from penstock.checkpoint.layout import output_key
from penstock.clock import SystemClock
from penstock.effects import Wait
from penstock.errors import Fenced, PenstockError, Unavailable
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.sinks import Apply, Cursor, ReadCursor, Shard, Writer, postgres_lines, roll_forward
from penstock.sinks.postgres import Postgres
from penstock.sinks.postgres_lines import start
from penstock.sinks.postgres_table import MAKING
from tests.support import databases
from tests.support.driving import ManualClock
from tests.support.postgres_case import (
    Client,
    new_table,
    own_database,
    plain_client,
    rows_in,
    target,
    within,
)
from tests.support.sink_cases import PEOPLE, Row, apply, cursor, in_order, people, staged

pytestmark = pytest.mark.usefixtures("passwords")

EPOCHS = 12
POLL_S = 0.02
WAIT_S_MAX = 60.0
NAMES = ["user", "n"]


@pytest.fixture
def client(postgres_server: databases.Postgres) -> Iterator[Client]:
    with plain_client(postgres_server) as opened:
        yield opened


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    """A name for a table that is gone after the test."""
    name = new_table()
    yield name
    client.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def mortal() -> Iterator[databases.Postgres]:
    """A server of this module's own, which may be killed."""
    with databases.postgres() as server:
        yield server


def refusal(writer: Writer, asked: Apply) -> PenstockError:
    """Why an epoch is not applied now."""
    with pytest.raises(PenstockError) as caught:
        writer.apply(asked)
    assert type(caught.value) is Unavailable
    return caught.value


def until(is_so: Callable[[], bool]) -> None:
    """Come back when something that another process does is done."""
    clock = SystemClock()
    deadline_s = clock.monotonic() + WAIT_S_MAX
    while not is_so():
        assert clock.monotonic() < deadline_s
        clock.sleep(POLL_S)


@dataclass
class History:
    """Committed epochs of a job with two partitions, and what its sink is to hold then."""

    root: Root
    rows: list[Row]

    @classmethod
    def of(cls, epochs: int, sink: str) -> "History":
        root, every = Root(MemoryStore(), ManualClock()), []
        with root.lead("contract") as session:
            for number in range(1, epochs + 1):
                outputs = []
                for partition in range(2):
                    rows = people(number, shard=partition)
                    every += rows
                    (body,) = staged(number, rows, PEOPLE, partition)
                    key = output_key(sink, Epoch(number), partition, Attempt(root.chance.unique()))
                    ref = perform(stage(key, body, Point.STAGE_OUTPUT), root.handlers)
                    outputs.append(Output(partition=partition, ref=ref, rows=len(rows)))
                draft = Draft(rows_in=6, sources={}, operators={}, sinks={sink: tuple(outputs)})
                session.commit(draft)
        return cls(root, every)

    def roll_forward(self, writer: Writer, sink: str) -> list[Cursor | None]:
        """The production protocol, for both shards; where they are then."""
        session = self.root.lead("contract")
        handlers = {
            **self.root.handlers,
            ReadCursor: lambda asked: writer.read_cursor(asked.shard),
            Apply: writer.apply,
            Wait: lambda asked: None,
        }
        return [
            perform(
                roll_forward(
                    Chain(session.tenure), session.tenure, session.head, Shard(sink, number, 2)
                ),
                handlers,
            )
            for number in range(2)
        ]


@pytest.mark.parametrize("key", [(), "user"], ids=["append", "upsert"])
def test_the_answer_to_every_commit_may_be_lost(
    key: Any, postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Each epoch of each shard is there, and nobody was ever told so: none is written twice."""
    history = History.of(EPOCHS, "people")
    with TcpProxy(postgres_server.port) as proxy:
        dsn = postgres_server.dsn(proxy.port)
        writer = Postgres("people", dsn, table=table, key=key, create=True).open(target())
        proxy.arm(Answers(containing=b"COMMIT\x00"))
        reached = history.roll_forward(writer, "people")
        assert proxy.cuts == EPOCHS * 2

        proxy.arm(None)
        assert history.roll_forward(writer, "people") == reached
        writer.close()
    newest = history.root.newest()
    assert newest is not None
    assert reached == [Cursor.at(newest)] * 2
    assert in_order(rows_in(client, table, NAMES)) == in_order(history.rows)


def test_a_zombie_that_holds_the_cursor_is_not_waited_for_for_ever(
    postgres_server: databases.Postgres,
    table: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that was given up for dead may have a transaction open: the job is held, and told
    why; when the zombie is gone it goes on."""
    monkeypatch.setattr(postgres_lines, "LOCK_MS_MAX", 50)
    writer = Postgres("people", postgres_server.dsn(), table=table, create=True).open(target())
    writer.apply(apply(1, people(1)))
    with plain_client(postgres_server) as zombie, zombie.transaction():
        zombie.execute("SELECT FROM penstock_cursors WHERE target = %s FOR UPDATE", (table,))

        assert str(refusal(writer, apply(2, people(2)))) == (
            f"sink people, table public.{table} is locked by another session (canceling statement "
            "due to lock timeout): wait, or end that session (see pg_stat_activity): the job "
            "tries again."
        )
        assert writer.read_cursor(0) == cursor(1)
    writer.apply(apply(2, people(2)))
    writer.close()
    assert in_order(rows_in(client, table, NAMES)) == in_order(people(1) + people(2))


def test_a_lock_on_a_row_of_the_table_holds_the_job(
    postgres_server: databases.Postgres,
    table: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody's open transaction is no reason to stop, and none to write half an epoch."""
    monkeypatch.setattr(postgres_lines, "LOCK_MS_MAX", 50)
    sink = Postgres("people", postgres_server.dsn(), table=table, key="user", create=True)
    writer = sink.open(target())
    writer.apply(apply(1, [{"user": "ada", "n": 1}]))
    after = [{"user": "bob", "n": 2}, {"user": "ada", "n": 3}]
    with plain_client(postgres_server) as other, other.transaction():
        other.execute(sql.SQL("SELECT FROM {} FOR UPDATE").format(sql.Identifier(table)))
        refusal(writer, apply(2, after))
        assert rows_in(client, table, NAMES) == [{"user": "ada", "n": 1}]
    writer.apply(apply(2, after))
    writer.close()
    assert in_order(rows_in(client, table, NAMES)) == in_order(after)


def test_a_deadlock_is_tried_again(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Two sessions that want each other's rows: the server ends one, and that may be us."""
    sink = Postgres("people", postgres_server.dsn(), table=table, key="user", create=True)
    writer = sink.open(target())
    writer.apply(apply(1, [{"user": "ada", "n": 1}, {"user": "bob", "n": 1}]))
    asked = apply(2, [{"user": "ada", "n": 2}, {"user": "bob", "n": 2}])
    change = sql.SQL('UPDATE {} SET n = 7 WHERE "user" = {}')
    with plain_client(postgres_server) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET deadlock_timeout = '1min'")  # so that it is not the other who gives up
        with other.transaction():
            other.execute(change.format(sql.Identifier(table), "bob"))
            applying = pool.submit(refusal, writer, asked)
            until(lambda: is_waiting(client))
            other.execute(change.format(sql.Identifier(table), "ada"))
        assert str(applying.result()) == (
            f"sink people, table public.{table} was not written in time (deadlock detected): "
            "wait: the job tries again; see pg_stat_activity."
        )
    assert [row["n"] for row in rows_in(client, table, NAMES)] == [7, 7]
    writer.apply(asked)
    writer.close()
    assert [row["n"] for row in rows_in(client, table, NAMES)] == [2, 2]


def test_a_statement_that_takes_for_ever_is_ended(
    postgres_server: databases.Postgres,
    table: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trigger of somebody's sleeps: the job is held with a reason, and goes on without it."""
    writer = Postgres("people", postgres_server.dsn(), table=table, create=True).open(target())
    client.execute(
        f"CREATE FUNCTION sleep_{table}() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'; "
        f"CREATE TRIGGER sleeps BEFORE INSERT ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION sleep_{table}()"
    )
    try:
        with monkeypatch.context() as hurried:
            hurried.setattr(postgres_lines, "STATEMENT_MS_MAX", 50)
            assert str(refusal(writer, apply(1, people(1)))) == (
                f"sink people, table public.{table} was not written in time (canceling statement "
                "due to statement timeout): wait: the job tries again; see pg_stat_activity."
            )
    finally:
        client.execute(f"DROP FUNCTION sleep_{table} CASCADE")
    assert writer.read_cursor(0) is None
    writer.apply(apply(1, people(1)))
    writer.close()
    assert in_order(rows_in(client, table, NAMES)) == people(1)


@pytest.mark.parametrize("first", [True, False], ids=["first epoch", "later epoch"])
def test_a_commit_that_comes_late_is_found(
    first: bool, postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """The old leader's COMMIT is under way while the new one applies the same epoch: it waits for
    the lock, sees the cursor, and writes nothing."""
    sink = Postgres("people", postgres_server.dsn(), table=table, create=True)
    old, new = sink.open(target()), sink.open(target())
    epoch = 1 if first else 2
    if not first:
        old.apply(apply(1, people(1)))
    asked, again = apply(epoch, people(epoch)), apply(epoch, people(epoch), token=2)
    with old.lines.line() as line, ThreadPoolExecutor(1) as pool:
        held = old_leader_writes_and_pauses(line, old, asked)
        waiting = pool.submit(new.apply, again)
        until(lambda: is_waiting(client))
        line.run(sql.SQL("COMMIT"))
        if held:
            waiting.result()
        else:  # there was no row to wait for before the rows were copied, and the cursor was taken
            with pytest.raises(Unavailable, match="duplicate key value"):
                waiting.result()
    new.apply(again)
    assert new.read_cursor(0) == cursor(epoch)
    old.close()
    new.close()
    every = [row for n in range(1, epoch + 1) for row in people(n)]
    assert in_order(rows_in(client, table, NAMES)) == in_order(every)


def old_leader_writes_and_pauses(line: Any, writer: Any, asked: Apply) -> bool:
    """Everything of an epoch but its COMMIT; whether there was a cursor to lock."""
    from penstock.sinks.postgres_writer import lock_cursor, move_cursor

    held = lock_cursor(line, writer._cursors, asked.shard)
    writer.bulk.write(line, writer.changes(asked.outputs))
    line.run(move_cursor(writer._cursors, asked, held))
    return held is not None


def is_waiting(client: Client) -> bool:
    """Whether somebody waits for somebody else's transaction."""
    found = client.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    ).fetchone()
    return found != (0,)


def test_a_zombie_that_went_silent_loses_its_lock(
    postgres_server: databases.Postgres,
    table: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server ends a transaction whose client says nothing: nobody has to find the zombie."""
    sink = Postgres("people", postgres_server.dsn(), table=table, create=True)
    zombie, writer = sink.open(target()), sink.open(target())
    zombie.apply(apply(1, people(1)))
    with (
        pytest.raises(Unavailable, match="idle-in-transaction timeout"),
        zombie.lines.line() as line,
    ):
        monkeypatch.setattr(postgres_lines, "IDLE_MS_MAX", 50)
        line.run(start(sql.SQL("SELECT FROM penstock_cursors FOR UPDATE")))
        writer.apply(apply(2, people(2), token=2))
        line.run(sql.SQL("SELECT 1"))

    with pytest.raises(Fenced):
        zombie.apply(apply(3, people(3), token=1))
    zombie.close()
    writer.close()
    assert in_order(rows_in(client, table, NAMES)) == in_order(people(1) + people(2))


OPENING = """
import sys
from penstock.checkpoint import MemoryStore
from penstock.sinks import Target
from penstock.sinks.postgres import Postgres
import pyarrow as pa
dsn, schema, columns = sys.argv[1], sys.argv[2], pa.schema([("user", pa.string())])
sink = Postgres("people", dsn, schema=schema, key="user", create=True)
writer = sink.open(Target(job="job", columns=columns, partitions=1, store=MemoryStore()))
print(writer.read_cursor(0))
writer.close()
"""


def test_two_processes_may_make_the_same_tables_at_once(
    postgres_server: databases.Postgres, client: Client
) -> None:
    """A job and its standby start together on a new database; neither falls over the other."""
    schema = new_table()
    client.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    command = [sys.executable, "-c", OPENING, postgres_server.dsn(), schema]
    try:
        client.execute("SELECT pg_advisory_lock(%s)", (MAKING,))
        both = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        try:
            until(lambda: waiting_to_make(client) == 2)  # both have seen that nothing is there
        finally:
            client.execute("SELECT pg_advisory_unlock(%s)", (MAKING,))
            said = [each.communicate() for each in both]
        assert said == [("None\n", "")] * 2
    finally:
        client.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def waiting_to_make(client: Client) -> int:
    found = client.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    ).fetchone()
    assert found is not None
    return int(found[0])


def test_a_read_only_database_is_waited_for(postgres_server: databases.Postgres) -> None:
    """Somebody sets it so for a while: the job is held, also one that starts meanwhile."""
    with own_database(postgres_server) as name:
        sink = Postgres("people", within(postgres_server, name), create=True)
        writer = sink.open(target())
        writer.apply(apply(1, people(1)))
        with plain_client(postgres_server, dbname=name) as client:
            client.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            writer.close()
            assert str(refusal(writer, apply(2, people(2)))) == (
                "sink people, table public.people is read-only (cannot execute SELECT FOR UPDATE "
                "in a read-only transaction): let it be written again: the job goes on by itself."
            )
            with pytest.raises(Unavailable) as caught:
                sink.open(target())
            assert str(caught.value) == (
                "sink people, table public.people is in a database that is read-only now: "
                "let it be written again: the job goes on by itself."
            )
            assert (writer.read_cursor(0), in_order(rows_in(client, "people", NAMES))) == (
                cursor(1),
                people(1),
            )

            client.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            writer.close()
            writer.apply(apply(2, people(2)))
            found = rows_in(client, "people", NAMES)
            assert in_order(found) == in_order(people(1) + people(2))
        writer.close()


def test_a_standby_is_waited_for(mortal: databases.Postgres) -> None:
    """After a fail-over the address may lead to one that only follows, for a while."""
    table = new_table()
    writer = Postgres("people", mortal.dsn(), table=table, create=True).open(target())
    writer.apply(apply(1, people(1)))
    mortal.stop()
    standby = mortal.folder / "standby.signal"
    standby.touch()
    mortal.start()
    try:
        assert str(refusal(writer, apply(2, people(2)))) == (
            f"sink people, table public.{table} is read-only (cannot execute SELECT FOR UPDATE in "
            "a read-only transaction): let it be written again: the job goes on by itself."
        )
        assert writer.read_cursor(0) == cursor(1)
    finally:
        mortal.stop()
        standby.unlink()
        mortal.start()
    writer.apply(apply(2, people(2)))
    writer.close()
    with plain_client(mortal) as client:
        found = rows_in(client, table, NAMES)
    assert in_order(found) == in_order(people(1) + people(2))


FILE_BYTES_MAX = 20_000_000
"""More than a file of the server's own log has, and in the middle of a page."""


@contextmanager
def no_room(server: databases.Postgres) -> Iterator[None]:
    """Let no file of the server grow any further: it meets a write that falls short, as when a
    disk is full. New connections have the limit of the process that accepts them."""
    pid = postmaster_of(server)
    limit_files(pid, str(FILE_BYTES_MAX))
    try:
        yield
    finally:
        limit_files(pid, "unlimited")


def limit_files(pid: int, size: str) -> None:
    who = ["--reuid", databases.POSTGRES_USER, "--regid", databases.POSTGRES_USER, "--clear-groups"]
    before = ["setpriv", *who] if os.geteuid() == 0 else []
    subprocess.run([*before, "prlimit", "--pid", str(pid), f"--fsize={size}:"], check=True)


@pytest.mark.parametrize("key", [(), "user"], ids=["append", "upsert"])
def test_a_full_disk_is_waited_for(key: Any, mortal: databases.Postgres) -> None:
    """The server finds no room for a page: nothing of the epoch stays, and when there is room the
    same writer goes on."""
    table = new_table()
    columns = pa.schema([("user", pa.string())])
    fat: list[Row] = [{"user": f"{n:01000}"} for n in range(25_000)]
    writer = Postgres("people", mortal.dsn(), table=table, key=key, create=True).open(
        target(columns)
    )
    writer.apply(apply(1, [{"user": "ada"}], columns=columns))
    writer.close()
    with plain_client(mortal) as client:
        with no_room(mortal):
            assert re.fullmatch(
                rf"sink people, table public\.{table} cannot be written for want of room \("
                r'could not extend file "base/[\w/]+": wrote only \d+ of 8192 bytes at block \d+'
                r"\): make room: the job goes on by itself\.",
                str(refusal(writer, apply(2, fat, columns=columns))),
            )
            assert writer.read_cursor(0) == cursor(1)
            assert rows_in(client, table, ["user"]) == [{"user": "ada"}]
        writer.close()
        writer.apply(apply(2, fat, columns=columns))
        assert in_order(rows_in(client, table, ["user"])) == in_order([{"user": "ada"}, *fat])
    writer.close()


def test_a_server_that_was_killed_is_found_again(mortal: databases.Postgres) -> None:
    """Between two epochs: the writer has connections that nobody is at the other end of."""
    table = new_table()
    writer = Postgres("people", mortal.dsn(), table=table, create=True).open(target())
    with ThreadPoolExecutor(2) as pool:  # two connections, both spare afterwards
        list(pool.map(lambda n: writer.apply(apply(1, people(1, shard=n), shard=n)), range(2)))
    kill(mortal)
    try:
        assert str(refusal(writer, apply(2, people(2)))) == (
            f"sink people, table public.{table} cannot be reached (connection to server at "
            f'"127.0.0.1", port {mortal.port} failed: Connection refused): start its server or '
            "wait for it: the job goes on by itself."
        )
        with pytest.raises(Unavailable):
            writer.read_cursor(0)
    finally:
        mortal.start()
    assert writer.read_cursor(1) == cursor(1)
    writer.apply(apply(2, people(2)))
    writer.close()
    with plain_client(mortal) as client:
        found = rows_in(client, table, NAMES)
    every = people(1) + people(1, shard=1) + people(2)
    assert in_order(found) == in_order(every)


def kill(server: databases.Postgres) -> None:
    """kill -9, and come back when the server's other processes have noticed and gone: none of
    them may meet the next server, or answer once more."""
    others = psutil.Process(postmaster_of(server)).children(recursive=True)
    server.kill()
    assert psutil.wait_procs(others, WAIT_S_MAX)[1] == []


def postmaster_of(server: databases.Postgres) -> int:
    return int((server.folder / "postmaster.pid").read_text().splitlines()[0])


class Killing:
    """Kills the server instead of passing on the n-th piece, of either way, once."""

    def __init__(self, server: databases.Postgres, number: int) -> None:
        self._server = server
        self._number = number
        self._seen = 0

    def __call__(self, way: Way, piece: bytes) -> bool:
        del way, piece
        self._seen += 1
        if self._seen == self._number:
            kill(self._server)
        return self._seen == self._number


def test_a_server_may_be_killed_at_any_point_of_an_epoch(mortal: databases.Postgres) -> None:
    """All of the epoch is there or nothing of it, and the cursor tells which."""
    table = new_table()
    written: list[Row] = []
    with TcpProxy(mortal.port) as proxy:
        sink = Postgres("people", mortal.dsn(proxy.port), table=table, key="user", create=True)
        writer = sink.open(target())
        kills, settled = 0, set()
        for number in range(1, 100):
            epoch = number
            asked = apply(epoch, people(epoch))
            proxy.arm(Killing(mortal, number))
            try:
                writer.apply(asked)
            except Unavailable:
                mortal.start()
                kills += 1
            was_cut = bool(proxy.cuts)
            proxy.arm(None)
            done = writer.read_cursor(0) == asked.cursor
            settled.add(done)
            with plain_client(mortal) as client:
                found = in_order(rows_in(client, table, NAMES))
            assert found == in_order(written + people(epoch) * done)
            writer.apply(asked)
            written += people(epoch)
            if not was_cut:
                break
        writer.close()
    assert kills == number - 1 > 5
    assert settled == {True, False}
    with plain_client(mortal) as client:
        assert in_order(rows_in(client, table, NAMES)) == in_order(written)


def test_a_commit_outlives_the_server_whatever_it_is_set_to() -> None:
    """A server that promises too early would lose an epoch that nobody keeps any more."""
    with databases.postgres("synchronous_commit=off", "wal_writer_delay=10s") as server:
        writer = Postgres("people", server.dsn(), create=True).open(target())
        writer.apply(apply(1, people(1)))
        kill(server)
        server.start()

        assert writer.read_cursor(0) == cursor(1)
        writer.close()
        with plain_client(server) as client:
            assert in_order(rows_in(client, "people", NAMES)) == people(1)


def test_a_server_that_is_silent_is_given_up(
    postgres_server: databases.Postgres,
    table: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its machine confirms every packet, and nobody is at home."""
    dsn = f"{postgres_server.dsn()}?application_name={table}"
    writer = Postgres("people", dsn, table=table, create=True).open(target())
    writer.apply(apply(1, people(1)))
    found = client.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s", (table,)
    ).fetchall()
    ((pid,),) = found
    monkeypatch.setattr(postgres_lines, "SILENCE_S_MAX", 0.3)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert str(refusal(writer, apply(2, people(2)))) == (
            f"sink people, table public.{table} cannot be reached (the server does not answer): "
            "start its server or wait for it: the job goes on by itself."
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    writer.apply(apply(2, people(2)))
    writer.close()
    assert in_order(rows_in(client, table, NAMES)) == in_order(people(1) + people(2))


def test_a_spare_connection_that_was_ended_is_not_used(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Firewalls and administrators end idle connections: an epoch does not fail for that."""
    dsn = f"{postgres_server.dsn()}?application_name={table}"
    writer = Postgres("people", dsn, table=table, create=True).open(target())
    for epoch in range(1, 4):
        writer.apply(apply(epoch, people(epoch)))
        ended = client.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = %s",
            (table,),
        ).fetchall()
        assert ended == [(True,)]
    writer.close()
    assert len(rows_in(client, table, NAMES)) == 9


def test_threads_share_a_few_connections(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Each has one of its own while it writes; afterwards only a few stay."""
    dsn = f"{postgres_server.dsn()}?application_name={table}"
    sink = Postgres("people", dsn, table=table, create=True)
    writer = sink.open(target())
    count = postgres_lines.SPARE_MAX + 3
    together = threading.Barrier(count)

    def work(shard: int) -> None:
        with writer.lines.line():
            together.wait(WAIT_S_MAX)
        writer.apply(apply(1, people(1, shard=shard), shard=shard))

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    until(lambda: client.execute(mine, (table,)).fetchone() == (postgres_lines.SPARE_MAX,))
    writer.close()
    until(lambda: client.execute(mine, (table,)).fetchone() == (0,))
    assert len(rows_in(client, table, NAMES)) == 3 * count
