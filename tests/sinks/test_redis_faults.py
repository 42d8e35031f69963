"""A Redis that refuses, dies or is written to by somebody else: what is said, and what is there."""

import pickle  # noqa: TID251 - errors are pickled by Spark on their way to the driver
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis as redis_client
from redis import exceptions

from penstock.chaos.tcp_proxy import TcpProxy, Way
from penstock.checkpoint import MemoryStore
from penstock.errors import Fenced, Invalid, PenstockError, Unavailable
from penstock.sinks import Apply, Target
from penstock.sinks.redis import Redis
from penstock.sinks.redis_server import explained
from penstock.sinks.redis_writer import RedisWriter
from tests.support import databases
from tests.support.redis_case import hashes_in, plain_client, rows_in, start_again
from tests.support.servers import free_port
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, cursor, in_order, people

WRONG = "hunter2"


@pytest.fixture
def own(passwords: None) -> Iterator[databases.Redis]:
    """A server that may be spoilt."""
    with databases.redis() as server:
        yield server


@pytest.fixture
def client(own: databases.Redis) -> Iterator[redis_client.Redis]:
    with plain_client(own) as made:
        yield made


def opened(server: databases.Redis, port: int | None = None, url: str = "") -> RedisWriter:
    sink = Redis("people", url or server.url(port), key="user")
    return sink.open(Target(job=JOB, columns=PEOPLE, partitions=2, store=MemoryStore()))


def place(server: databases.Redis) -> str:
    return f"sink people at redis://127.0.0.1:{server.port}/0"


def refused_with(kind: type[PenstockError], call: Callable[[], object]) -> str:
    """The sentence with which a call is refused. It names no secret, on its trip either."""
    with pytest.raises(kind) as caught:
        call()
    for shown in (str(caught.value), repr(caught.value), str(pickle.dumps(caught.value))):
        assert databases.PASSWORD not in shown
        assert WRONG not in shown
    return str(caught.value)


@pytest.mark.parametrize("credentials", ["", f":{WRONG}@", f"nobody:{WRONG}@", "${WRONG}"])
def test_a_wrong_password_is_not_repeated(
    credentials: str, own: databases.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person must correct it; a log must not hold it."""
    monkeypatch.setenv("WRONG", WRONG)
    secret = f":{credentials}@" if credentials.startswith("$") else credentials
    url = f"redis://{secret}127.0.0.1:{own.port}/0"

    assert refused_with(Invalid, lambda: opened(own, url=url)) == (
        f"{place(own)} does not let us in: check the user and the password of its URL."
    )


def test_a_password_that_was_changed_is_invalid(
    own: databases.Redis, client: redis_client.Redis
) -> None:
    """Also for a writer that was let in before, once it has to connect anew."""
    writer = opened(own)
    client.config_set("requirepass", "another")
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert refused_with(Invalid, lambda: writer.apply(apply(1, people(1)))) == (
        f"{place(own)} does not let us in: check the user and the password of its URL."
    )


def test_a_user_that_may_too_little_is_told_what_it_needs(
    own: databases.Redis, client: redis_client.Redis
) -> None:
    """Whoever keeps the server wants to allow no more than that."""
    client.execute_command("ACL", "SETUSER", "few", "on", f">{WRONG}", "~*", "+ping", "+info")
    writer = opened(own, url=f"redis://few:{WRONG}@127.0.0.1:{own.port}/0")

    assert refused_with(Invalid, lambda: writer.apply(apply(1, people(1)))) == (
        f"{place(own)} does not let this user do all that the sink needs: allow it PING, INFO, "
        "EVALSHA, SCRIPT, HMGET, HSET, DEL and PEXPIRE on the sink's keys."
    )


def test_what_a_user_is_told_to_need_is_enough(
    own: databases.Redis, client: redis_client.Redis
) -> None:
    """Or else the advice would be given twice."""
    commands = [f"+{name}" for name in ("ping", "info", "evalsha", "script")]
    commands += [f"+{name}" for name in ("hmget", "hset", "del", "pexpire")]
    keys = ["~people:*", "~penstock-cursor:*"]
    client.execute_command("ACL", "SETUSER", "few", "on", f">{WRONG}", *keys, *commands)
    writer = opened(own, url=f"redis://few:{WRONG}@127.0.0.1:{own.port}/0")
    writer.apply(apply(1, people(1)))
    writer.accept(0, cursor(0), apply(1, []).token)

    assert in_order(rows_in(client, "people:", PEOPLE)) == in_order(people(1))


def test_a_cluster_is_refused(passwords: None) -> None:
    """A script's keys would be on several servers; better said at the start."""
    with databases.redis("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server:
        assert refused_with(Invalid, lambda: opened(server)) == (
            f"{place(server)} is a cluster, which this sink cannot write to: use a single server."
        )


@dataclass
class Trouble:
    """Something that keeps a server from writing, and goes away."""

    begins: Callable[[redis_client.Redis, Path], object]
    ends: Callable[[redis_client.Redis, Path], object]
    said: str


def full_disk(client: redis_client.Redis, folder: Path) -> None:
    """A snapshot that cannot be written, because there is something in its place."""
    (folder / "dump.rdb" / "in the way").mkdir(parents=True)
    client.config_set("save", "3600 1")
    snapshot(client)


def room_again(client: redis_client.Redis, folder: Path) -> None:
    shutil.rmtree(folder / "dump.rdb")
    snapshot(client)


def snapshot(client: redis_client.Redis) -> None:
    client.bgsave()
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        pass


TROUBLES = {
    "full memory": Trouble(
        lambda client, _: client.config_set("maxmemory", 1),
        lambda client, _: client.config_set("maxmemory", 0),
        "has no memory left for rows: give it more, and raise its maxmemory.",
    ),
    "full disk": Trouble(
        full_disk, room_again, "cannot write to its disk: make room on its disk, or repair it."
    ),
    "replica": Trouble(
        lambda client, _: client.execute_command("REPLICAOF", "127.0.0.1", "1"),
        lambda client, _: client.execute_command("REPLICAOF", "NO", "ONE"),
        "is a read-only replica: let the URL lead to the primary.",
    ),
    "stale replica": Trouble(
        lambda client, _: [
            client.config_set("replica-serve-stale-data", "no"),
            client.execute_command("REPLICAOF", "127.0.0.1", "1"),
        ],
        lambda client, _: client.execute_command("REPLICAOF", "NO", "ONE"),
        "is a replica whose primary is away: bring the primary back.",
    ),
    "too few replicas": Trouble(
        lambda client, _: client.config_set("min-replicas-to-write", 1),
        lambda client, _: client.config_set("min-replicas-to-write", 0),
        "has fewer replicas than it must have: bring them back.",
    ),
}


@pytest.mark.parametrize("kind", TROUBLES)
def test_a_server_that_cannot_write_is_waited_for(
    kind: str, own: databases.Redis, client: redis_client.Redis
) -> None:
    """Nothing of the epoch is there, not even the gap where a row was; then it goes on."""
    trouble, writer = TROUBLES[kind], opened(own)
    writer.apply(apply(1, [{"user": "ada", "n": 1}, {"user": "bob", "n": 1}]))
    before = hashes_in(client, "")
    asked = apply(2, [{"user": "ada", "n": 2}, {"user": "eve", "n": 2}], token=2)

    trouble.begins(client, own.folder)
    said = refused_with(Unavailable, lambda: writer.apply(asked))
    trouble.ends(client, own.folder)

    assert said == f"{place(own)} {trouble.said}"
    assert hashes_in(client, "") == before
    writer.apply(asked)
    assert in_order(rows_in(client, "people:", PEOPLE)) == in_order(
        [{"user": "ada", "n": 2}, {"user": "bob", "n": 1}, {"user": "eve", "n": 2}]
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
            "Unavailable: redis://x is still loading its data: wait until it has.",
        ),
        (
            exceptions.ResponseError("BUSY Redis is busy running a script."),
            "Unavailable: redis://x is busy with a script: let it end.",
        ),
        (
            exceptions.ResponseError("Error running script: @user_script: 3: -OOM command not"),
            "Unavailable: redis://x has no memory left for rows: "
            "give it more, and raise its maxmemory.",
        ),
        (
            exceptions.NoScriptError("No matching script."),
            "Unavailable: redis://x has forgotten the script it was given: let the job try again.",
        ),
        (
            exceptions.TimeoutError("Timeout reading from socket"),
            "Unavailable: redis://x did not answer in time: see what keeps it or the network busy.",
        ),
        (
            exceptions.InvalidResponse("Protocol Error: b'HTTP/1.1 400'"),
            "Unavailable: redis://x could not be reached: start it, or correct the URL.",
        ),
        (
            exceptions.ResponseError("NOTSEEN hunter2"),
            "Invalid: redis://x refused what it was asked (NOTSEEN): "
            "look at its version and settings.",
        ),
        (
            exceptions.ResponseError("unknown command hunter2"),
            "Invalid: redis://x refused what it was asked (ResponseError): "
            "look at its version and settings.",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else repr(str(given)),
)
def test_what_no_server_says_on_demand_is_sorted(error: Exception, said: str) -> None:
    """What may pass is waited for, what will not is for a person, and nothing is quoted."""
    with pytest.raises(PenstockError) as caught, explained("redis://x"):
        raise error

    assert f"{type(caught.value).__name__}: {caught.value}" == said


def test_a_key_of_another_type_is_left_alone(
    own: databases.Redis, client: redis_client.Redis
) -> None:
    """It is somebody's. Nothing of the epoch is written before a person has decided."""
    client.set("people:ada", "mine")
    writer = opened(own)
    asked = apply(1, [{"user": "bob", "n": 1}, {"user": "ada", "n": 1}])

    assert refused_with(Invalid, lambda: writer.apply(asked)) == (
        f"{place(own)}, key 'people:ada' holds something else than a hash: "
        "remove it, or give the sink another prefix."
    )
    assert (client.get("people:ada"), client.keys("*")) == (b"mine", [b"people:ada"])
    client.delete("people:ada")
    writer.apply(asked)
    assert writer.read_cursor(0) == cursor(1)


def test_something_else_in_the_place_of_a_cursor_is_left_alone(
    own: databases.Redis, client: redis_client.Redis
) -> None:
    """It does not look like a shard that has no cursor yet."""
    client.set("penstock-cursor:contract:people:0:people:", "mine")
    writer = opened(own)
    said = f"{place(own)} has something else than a hash where a cursor should be: remove that key."

    assert refused_with(Invalid, lambda: writer.read_cursor(0)) == said
    assert refused_with(Invalid, lambda: writer.apply(apply(1, people(1)))) == said


def test_a_server_that_has_forgotten_its_scripts_is_given_them_again(
    own: databases.Redis, client: redis_client.Redis
) -> None:
    """As after a restart."""
    writer = opened(own)
    writer.apply(apply(1, people(1)))
    client.script_flush()
    writer.apply(apply(2, people(2)))
    client.script_flush()
    writer.accept(0, cursor(1), apply(1, []).token)

    assert writer.read_cursor(0) == cursor(1)


@dataclass
class At:
    """Does something before the n-th piece passes that way, once; the line itself holds."""

    way: Way
    number: int
    act: Callable[[], object]
    seen: int = 0

    def __call__(self, way: Way, piece: bytes) -> bool:
        del piece
        self.seen += way is self.way
        if way is self.way and self.seen == self.number:
            self.act()
        return False

    @property
    def is_done(self) -> bool:
        return self.seen >= self.number


@pytest.fixture(params=[1, 8], ids=["one by one", "at once"])
def in_small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of a few rows takes several scripts, sent one by one or together."""
    monkeypatch.setattr("penstock.sinks.redis_rows.CHUNK_ROWS_MAX", 2)
    monkeypatch.setattr("penstock.sinks.redis_writer.CHUNKS_AT_ONCE", request.param)


FIRST = [{"user": user, "n": 1} for user in "abcdef"]
SECOND = [{"user": user, "n": 2} for user in "abcdef"]


def test_an_epoch_that_was_cut_short_is_finished(
    own: databases.Redis, client: redis_client.Redis, in_small_chunks: None
) -> None:
    """A cursor that moved before the last chunk would leave its rows out for good."""
    client.set("people:f", "in the way")
    writer = opened(own)
    with pytest.raises(Invalid):
        writer.apply(apply(1, FIRST))
    client.delete("people:f")
    there = rows_in(client, "people:", PEOPLE)
    assert (in_order(there), writer.read_cursor(0)) == (in_order(FIRST[:4]), None)
    writer.apply(apply(1, FIRST))

    assert in_order(rows_in(client, "people:", PEOPLE)) == in_order(FIRST)
    assert writer.read_cursor(0) == cursor(1)


def test_a_leader_deposed_between_two_chunks_is_refused(
    own: databases.Redis, client: redis_client.Redis, in_small_chunks: None
) -> None:
    """From the first chunk of the new leader on, before that has moved any cursor."""
    new = opened(own)

    def take_over() -> None:
        client.set("people:d", "in the way")
        with suppress(Invalid):  # its first chunk is there, its second is not
            new.apply(apply(1, FIRST, token=2))
        client.delete("people:d")

    refusals = 0
    with TcpProxy(own.port) as proxy:
        for number in range(1, 20):
            client.flushall()
            old = opened(own, proxy.port)
            at = At(Way.TO_SERVER, number, take_over)
            proxy.arm(at)
            try:
                old.apply(apply(1, FIRST, token=1))
                assert new.read_cursor(0) == cursor(1)
            except Fenced as fenced:
                assert (fenced.held, fenced.newest) == (1, 2)
                assert new.read_cursor(0) is None
                refusals += 1
            proxy.arm(None)
            new.apply(apply(1, FIRST, token=2))
            assert in_order(rows_in(client, "people:", PEOPLE)) == in_order(FIRST)
            if not at.is_done:
                break
    assert refusals >= 3


def test_a_deposed_leader_does_not_undo_what_the_new_one_did(
    own: databases.Redis, client: redis_client.Redis, in_small_chunks: None
) -> None:
    """It goes on with its epoch after the new one has finished that and another."""
    new = opened(own)

    def take_over() -> None:
        new.apply(apply(1, FIRST, token=2))
        new.apply(apply(2, SECOND, token=2))

    with TcpProxy(own.port) as proxy:
        old = opened(own, proxy.port)
        proxy.arm(At(Way.TO_SERVER, 4, take_over))
        with pytest.raises(Fenced):
            old.apply(apply(1, FIRST, token=1))

    assert in_order(rows_in(client, "people:", PEOPLE)) == in_order(SECOND)
    assert new.read_cursor(0) == cursor(2)


@pytest.mark.parametrize("way", Way)
def test_a_server_killed_at_any_point_loses_nothing(
    way: Way, own: databases.Redis, in_small_chunks: None
) -> None:
    """It writes everything down before it answers: what the cursor says is there again."""
    expected: dict[str, int] = {}
    kills = 0
    with TcpProxy(own.port) as proxy:
        writer = opened(own, proxy.port)
        for number in range(1, 40):
            rows: list[Row] = [{"user": str(n), "n": number} for n in range(number, number + 5)]
            asked = apply(number, rows)
            at = At(way, number, own.kill)
            proxy.arm(at)
            with suppress(Unavailable):
                writer.apply(asked)
            proxy.arm(None)
            if at.is_done:
                kills += 1
                start_again(own)
            written = expected | {row["user"]: row["n"] for row in rows}
            with plain_client(own) as client:
                at_once = {row["user"]: row["n"] for row in rows_in(client, "people:", PEOPLE)}
                if opened(own).read_cursor(0) == asked.cursor:
                    assert at_once == written
                until_it_is_heard(writer, asked)
                found = {row["user"]: row["n"] for row in rows_in(client, "people:", PEOPLE)}
            assert (found, opened(own).read_cursor(0)) == (written, asked.cursor)
            expected = written
            if not at.is_done:
                break
    assert kills >= 3


def until_it_is_heard(writer: RedisWriter, asked: Apply) -> None:
    """As the runtime does: the first call may meet a connection of the server that was killed."""
    with suppress(Unavailable):
        writer.apply(asked)
        return
    writer.apply(asked)


def test_a_server_killed_between_epochs_loses_nothing(own: databases.Redis) -> None:
    """The same writer goes on from where it was."""
    writer = opened(own)
    for epoch in range(1, 4):
        until_it_is_heard(writer, apply(epoch, people(epoch)))
        own.kill()
        with pytest.raises(Unavailable):
            writer.read_cursor(0)
        start_again(own)
        assert writer.read_cursor(0) == cursor(epoch)

    with plain_client(own) as client:
        found = rows_in(client, "people:", PEOPLE)
    assert in_order(found) == in_order(people(1) + people(2) + people(3))
