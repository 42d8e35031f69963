"""Sinks led to another port: the same sink, the same cursor, and no secret that was not there."""

import pickle  # noqa: TID251 - sinks are sent to other processes as Spark does it
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

import pytest

import penstock as ps
from penstock.chaos.rerouting import Rerouted, address_of, rerouted
from penstock.chaos.tcp_proxy import Away, TcpProxy
from penstock.errors import Invalid, Unavailable
from penstock.sinks import AppliedSink, Http, KafkaSink, Postgres, ReadableSink, Redis, Sink
from penstock.sinks.postgres_lines import settings_of
from tests.support import databases
from tests.support.http_case import Shelf, http_server
from tests.support.postgres_case import new_table, plain_client, rows_in, target
from tests.support.redis_case import plain_client as redis_client
from tests.support.redis_case import rows_in as redis_rows
from tests.support.sink_cases import PEOPLE, apply, cursor, in_order, people

URL = "postgresql://etl:${PG_PASSWORD}@db.example"
ENVIRONMENT = {
    "PG_HOST": "db.example",
    "PG_PORT": "6000",
    "DATABASE_URL": "postgresql://etl:se%20cret@db.example:6000/shop",
    "DATABASE_SETTINGS": "host=db.example port=6000 password='se cret'",
    "SOCKET_SETTINGS": "host=/var/run/postgresql dbname=shop",
    "ODD_URL": "postgresql://etl:%24%7BPG_PORT%7D@db.example/shop",
    "REDIS_URL": "redis://:se%20cret@cache.example:6400/3",
    "HOOK_URL": "http://hooks.example/in",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Some references; not those of passwords, which nobody may look up here."""
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PG_PASSWORD", "REDIS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("connection", "address"),
    [
        (f"{URL}:6000/shop", ("db.example", 6000)),
        (f"{URL}/shop", ("db.example", 5432)),
        (f"{URL}/shop?sslmode=verify-full", ("db.example", 5432)),
        ("postgres://etl:${PG_PASSWORD}@[::1]:6000/shop", ("::1", 6000)),
        ("postgresql://etl@${PG_HOST}:${PG_PORT}/shop", ("db.example", 6000)),
        ("host=db.example dbname=shop password=${PG_PASSWORD}", ("db.example", 5432)),
        ("host=${PG_HOST} port=${PG_PORT} user=etl", ("db.example", 6000)),
        ("host=db.example hostaddr=10.0.0.9", ("10.0.0.9", 5432)),
        ("${DATABASE_URL}", ("db.example", 6000)),
        (" ${DATABASE_SETTINGS} ", ("db.example", 6000)),
        ("${SOCKET_SETTINGS}", None),
        ("${ODD_URL}", None),
        ("host=/var/run/postgresql dbname=shop", None),
        ("host=@penstock", None),
        ("postgresql://%2Fvar%2Frun/shop", None),
        ("dbname=shop", None),
        ("postgresql:///shop", None),
        ("host=one,two", None),
        ("postgresql://one:1,two:2/shop", None),
        ("service=shop", None),
        ("host=db.example port=none", None),
        ("what is this", None),
    ],
)
def test_a_connection_tells_its_server(connection: str, address: tuple[str, int] | None) -> None:
    """In every form that libpq knows; what is no one server by TCP has no address."""
    assert address_of(Postgres("people", connection)) == address


def test_a_host_may_be_told_by_the_environment(environment: pytest.MonkeyPatch) -> None:
    """As libpq does it, where a connection says nothing."""
    environment.setenv("PGHOST", "elsewhere.example")
    environment.setenv("PGPORT", "7000")

    assert address_of(Postgres("people", "dbname=shop")) == ("elsewhere.example", 7000)
    assert address_of(Postgres("people", "host=db port=1")) == ("db", 1)


def test_a_host_that_nobody_knows_is_named(environment: pytest.MonkeyPatch) -> None:
    """By its reference."""
    environment.delenv("PG_HOST")
    with pytest.raises(Invalid) as caught:
        address_of(Postgres("people", "host=${PG_HOST}"))

    assert str(caught.value).startswith("sink people refers to ${PG_HOST}, which is not set")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://:${REDIS_PASSWORD}@cache.example:6400/3", ("cache.example", 6400)),
        ("redis://cache.example", ("cache.example", 6379)),
        ("redis://:a/b@cache.example/0?protocol=2", ("cache.example", 6379)),
        ("redis://[::1]:6400", ("::1", 6400)),
        ("redis://", ("localhost", 6379)),
        ("redis://${PG_HOST}:${PG_PORT}/0", ("db.example", 6000)),
        ("${REDIS_URL}", ("cache.example", 6400)),
        ("${DATABASE_URL}", None),
        ("rediss://cache.example:6400", None),
        ("unix:///tmp/redis.sock", None),
        ("redis://cache.example?port=6400", None),
    ],
)
def test_the_url_of_a_redis_tells_its_server(url: str, address: tuple[str, int] | None) -> None:
    """A socket has none, and neither has a server whose certificate names it."""
    assert address_of(Redis("people", url, key="user")) == address


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://hooks.example/in?key=${HOOK_KEY}", ("hooks.example", 80)),
        ("http://me:${HOOK_KEY}@hooks.example:8080", ("hooks.example", 8080)),
        ("http://${PG_HOST}:${PG_PORT}/in", ("db.example", 6000)),
        ("https://hooks.example/in", None),
        ("${HOOK_URL}", None),
        ("http://${HOOK_URL}", None),
    ],
)
def test_the_url_of_an_http_sink_tells_its_server(
    url: str, address: tuple[str, int] | None
) -> None:
    """If it is not encrypted, and can be seen before it is looked up."""
    assert address_of(Http("people", url)) == address


OTHERS: list[Sink] = [
    ps.Table("people"),
    ps.Memory("people"),
    ps.DynamoDB("people", key="user"),
    ps.LogSink("people", "memory://people"),
    KafkaSink("people", "127.0.0.1:9092", "people"),
    ps.ForEachEpoch(print, name="people"),
    Postgres("people", "host=/var/run/postgresql"),
]


@pytest.mark.parametrize("sink", OTHERS, ids=lambda sink: type(sink).__name__)
def test_other_sinks_have_no_address(sink: Sink) -> None:
    """And are not led anywhere."""
    assert address_of(sink) is None
    with pytest.raises(Invalid, match="has no server that another port could lead to"):
        rerouted(sink, 7000)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "connection",
    [
        f"{URL}:6000/shop?sslmode=verify-full&application_name=a%20b",
        "host=${PG_HOST} port=${PG_PORT} dbname=shop user=etl password='${PG_PASSWORD}'",
        "host=db.example password='it\\'s \\\\ ${PG_PASSWORD}'",
    ],
)
def test_nothing_but_the_address_changes(connection: str, environment: pytest.MonkeyPatch) -> None:
    """The host keeps its name, and the password is the reference it was."""
    sink = Postgres("people", connection, table="folk", key="user", create=True, provenance=True)
    found = rerouted(sink, 7000)

    assert isinstance(found, Postgres)
    assert replace(found, connection=connection) == sink
    assert address_of(found) == ("127.0.0.1", 7000)
    assert "${PG_PASSWORD}" in found.connection
    environment.setenv("PG_PASSWORD", "it's a \\ 'secret'")
    before, after = (settings_of("sink people", s.connection).given for s in (sink, found))
    assert after == {**before, "hostaddr": "127.0.0.1", "port": "7000"}


@pytest.mark.usefixtures("environment")
def test_nothing_but_the_address_of_a_url_changes() -> None:
    """Credentials stay as they are written; a web server is called by the name it had."""
    cache = Redis("people", "redis://me:${X}@cache.example/3?protocol=2", key="user", prefix="p:")
    hook = Http("people", "http://me:${X}@hooks.example:80/in?k=${Y}", headers={"A": "${Z}"})

    by_cache = "redis://me:${X}@127.0.0.1:7000/3?protocol=2"
    by_hook = "http://me:${X}@127.0.0.1:7000/in?k=${Y}"
    assert rerouted(cache, 7000) == replace(cache, url=by_cache)
    assert rerouted(hook, 7000) == replace(
        hook, url=by_hook, headers={"A": "${Z}", "Host": "hooks.example:80"}
    )
    named = replace(hook, headers={"host": "mine"})
    assert rerouted(named, 7000) == replace(named, url=by_hook)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "sink", [Postgres("people", "${DATABASE_URL}"), Redis("people", "${REDIS_URL}", key="user")]
)
def test_a_reference_to_all_of_it_is_not_looked_up_before_it_is_used(
    sink: Postgres | Redis,
) -> None:
    """What is sent to other processes and shown to people holds the reference alone."""
    found = rerouted(sink, 7000)

    assert found == Rerouted(sink, 7000)
    assert (found.name, found.guarantee) == ("people", sink.guarantee)
    assert isinstance(found, ReadableSink)
    assert (found.shards(4), address_of(found)) == (4, ("127.0.0.1", 7000))
    assert rerouted(found, 7001) == Rerouted(sink, 7001)
    assert b"se cret" not in pickle.dumps(found) and b"se%20cret" not in pickle.dumps(found)
    assert pickle.loads(pickle.dumps(found)) == found
    assert "cret" not in repr(found)


@contextmanager
def through(server: databases.Server) -> Iterator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


def whole_url(server: databases.Postgres | databases.Redis) -> str:
    """What an environment has that holds all of it."""
    text = server.dsn() if isinstance(server, databases.Postgres) else server.url()
    for name in ("PG_PASSWORD", "REDIS_PASSWORD"):
        text = text.replace(f"${{{name}}}", quote(databases.PASSWORD))
    return text


@pytest.mark.usefixtures("passwords")
@pytest.mark.parametrize("form", ["url", "settings", "${DATABASE_URL}"])
def test_a_postgres_goes_on_by_another_way(
    postgres_server: databases.Postgres, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its own cursor, and back again."""
    monkeypatch.setenv("DATABASE_URL", whole_url(postgres_server))
    settings = f"host=127.0.0.1 port={postgres_server.port} dbname=shop user=etl"
    forms = {"url": postgres_server.dsn(), "settings": f"{settings} password=${{PG_PASSWORD}}"}
    table = new_table()
    sink = Postgres("people", forms.get(form, form), table=table, create=True)
    with through(postgres_server) as proxy:
        other = rerouted(sink, proxy.port)
        assert isinstance(other, AppliedSink)
        for epoch, way in ((1, sink), (2, other), (3, sink)):
            writer = way.open(target())
            assert writer.read_cursor(0) == (cursor(epoch - 1) if epoch > 1 else None)
            writer.apply(apply(epoch, people(epoch)))
            writer.close()
        proxy.arm(Away())
        with pytest.raises(Unavailable):
            other.open(target())
        assert proxy.cuts > 0

    expected = [row for epoch in (1, 2, 3) for row in people(epoch)]
    with plain_client(postgres_server) as client:
        assert in_order(rows_in(client, table, PEOPLE.names)) == in_order(expected)
        made = client.execute("SELECT count(*) FROM penstock_cursors WHERE target = %s", [table])
        assert made.fetchall() == [(1,)]


@pytest.mark.usefixtures("passwords")
@pytest.mark.parametrize("form", ["url", "${REDIS_URL}"])
def test_a_redis_goes_on_by_another_way(
    redis_server: databases.Redis, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same keys, the same cursor."""
    monkeypatch.setenv("REDIS_URL", whole_url(redis_server))
    prefix = f"{new_table()}:"
    text = redis_server.url() if form == "url" else form
    sink = Redis("people", text, key="user", prefix=prefix)
    with through(redis_server) as proxy:
        other = rerouted(sink, proxy.port)
        assert isinstance(other, AppliedSink)
        for epoch, way in ((1, sink), (2, other)):
            writer = way.open(target())
            assert writer.read_cursor(0) == (cursor(epoch - 1) if epoch > 1 else None)
            writer.apply(apply(epoch, people(epoch)))
            writer.close()
        proxy.arm(Away())
        with pytest.raises(Unavailable):
            other.open(target())
        assert proxy.cuts > 0

    with redis_client(redis_server) as client:
        assert in_order(redis_rows(client, prefix, PEOPLE)) == in_order([*people(1), *people(2)])


@pytest.mark.usefixtures("passwords")
@pytest.mark.parametrize("form", ["url", "${DATABASE_URL}"])
def test_no_error_on_the_other_way_tells_the_password(
    postgres_server: databases.Postgres, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a server that is away nor of one that does not let us in."""
    monkeypatch.setenv("DATABASE_URL", whole_url(postgres_server))
    text = postgres_server.dsn() if form == "url" else form
    with through(postgres_server) as proxy:
        sink = rerouted(Postgres("people", text, table=new_table(), create=True), proxy.port)
        assert isinstance(sink, AppliedSink)
        proxy.arm(Away())
        with pytest.raises(Unavailable) as away:
            sink.open(target())
        proxy.arm(None)
        monkeypatch.setenv("PG_PASSWORD", "wrong secret")
        wrong = whole_url(postgres_server).replace(quote(databases.PASSWORD), "wrong%20secret")
        monkeypatch.setenv("DATABASE_URL", wrong)
        with pytest.raises(Invalid, match="cannot be opened") as refused:
            sink.open(target())

    shown = f"{away.value!r} {away.value} {refused.value!r} {refused.value} {sink!r}"
    assert databases.PASSWORD not in shown and quote(databases.PASSWORD) not in shown
    assert "secret" not in shown


def test_a_web_server_is_called_by_its_name() -> None:
    """One that has several sites tells them apart by that."""
    shelf = Shelf()
    with http_server(shelf) as port, TcpProxy(port) as proxy:
        sink = rerouted(Http("people", f"http://127.0.0.1:{port}/in"), proxy.port)
        assert isinstance(sink, AppliedSink)
        writer = sink.open(target())
        writer.apply(apply(1, people(1)))
        writer.close()

    assert shelf.rows == people(1)
    assert [each["Host"] for each in shelf.headers] == [f"127.0.0.1:{port}"]
