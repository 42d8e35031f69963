"""The same sink by another way: through a port of this machine, where somebody may cut the line.

Of a sink only its server's address changes. Its name, its target and its key stay, and with them
its cursor, which is named after these and never after an address: whoever comes by the other way
finds the sink where it was. Credentials stay references. A host or port that is one is looked up;
where one reference stands for all of the address, that is when the sink is opened and not before,
so no description holds a password that the job's own does not.

An address has who has one server that is reached by TCP. A socket in a folder, several servers, and
TLS whose certificate would be held against the wrong host have none, and are left alone. Postgres
is told where to go beside the name of its host, so its certificate is still the right one. A
password file that names a port is the one thing that does not work by another.
"""

import re
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.secrets import is_reference, resolved
from penstock.sinks import Guarantee, Holding, Http, Postgres, Redis, Sink, Target, Writer

__all__ = ["Address", "Rerouted", "address_of", "rerouted"]

HERE = "127.0.0.1"
PORT_MAX = 65_535
POSTGRES_PORT = "5432"
REDIS_ADDRESS = ("localhost", "6379")

Address: TypeAlias = tuple[str, int]
"""Host and port."""

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]*)(?::(?P<port>[0-9]*))?")
_END_OF_HOST = re.compile(r"[/?#]")
_HOST_ELSEWHERE = re.compile(r"[?&](?:host|port|path)=")
"""Settings in the URL of a Redis that would say again what stands before them."""


def address_of(sink: Sink) -> Address | None:
    """Where the one server of a sink listens; None if there is no such server, or nothing can be
    put before it."""
    where = f"sink {sink.name}"
    match sink:
        case Rerouted():
            return HERE, sink.port
        case Http():
            return _http_address(where, sink.url)
        case Postgres():
            return _postgres_address(where, _known(sink))
        case Redis():
            return _redis_address(where, _known(sink))
    return None


def rerouted(sink: Sink, port: int) -> Sink:
    """The same sink, by way of a port of this machine."""
    match sink:
        case Rerouted():
            return replace(sink, port=port)
        case Postgres() | Redis() if _stands_for_all(sink):
            _check_address(sink)
            return Rerouted(sink, port)
        case Postgres() | Redis():
            return _by(sink, port)
    _check_address(sink)
    assert isinstance(sink, Http), "nothing else has an address"
    return _http_by(sink, port)


def _check_address(sink: Sink) -> None:
    if address_of(sink) is None:
        found = "has no server that another port could lead to"
        raise Invalid(f"sink {sink.name}", found, "leave it as it is")


@dataclass(frozen=True, slots=True)
class Rerouted:
    """A sink of whose address nothing is known before it is looked up."""

    sink: Postgres | Redis
    port: int

    @property
    def name(self) -> str:
        """The sink's own."""
        return self.sink.name

    @property
    def guarantee(self) -> Guarantee:
        """The sink's own: the way does not count."""
        return self.sink.guarantee

    def shards(self, partitions: int) -> int:
        """As many as it has anyway."""
        return self.sink.shards(partitions)

    def check(self, rows: pa.Table) -> None:
        """Refuse what the sink refuses."""
        self.sink.check(rows)

    def open(self, target: Target) -> Writer:
        """Look the address up, and connect by the other way. What was found stays here."""
        return _by(self.sink, self.port).open(target)

    def read_back(self, target: Target) -> Holding:
        """The same, to look."""
        return _by(self.sink, self.port).read_back(target)


def _by(sink: Postgres | Redis, port: int) -> Postgres | Redis:
    _check_address(sink)
    text = _known(sink) or ""
    if isinstance(sink, Postgres):
        return replace(sink, connection=_postgres_by(text, port))
    return replace(sink, url=_Url.of_redis(text).by(port))


def _stands_for_all(sink: Postgres | Redis) -> bool:
    """Whether the sink looks its address up before it takes it apart."""
    if isinstance(sink, Redis):
        return "://" not in sink.url
    text = sink.connection.strip()
    return text.startswith("${") and text.endswith("}") and text.count("${") == 1


def _known(sink: Postgres | Redis) -> str | None:
    """The text that the address is in; None if a sink cannot be given it."""
    text = sink.connection if isinstance(sink, Postgres) else sink.url
    if not _stands_for_all(sink):
        return text
    known = resolved(f"sink {sink.name}", text.strip())
    # What only looks like a reference would be looked up once it is written into a sink.
    return None if is_reference(unquote(known)) else known


def _checked(host: str, port: str) -> Address | None:
    if not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        return None
    return host.strip("[]"), int(port)


def _postgres_address(where: str, connection: str | None) -> Address | None:
    told = None if connection is None else _settings(connection)
    if told is None or "service" in told:
        return None
    known = _defaults() | told
    host = resolved(where, known.get("hostaddr") or known.get("host") or "")
    port = resolved(where, known.get("port") or POSTGRES_PORT)
    if host.startswith(("/", "@")) or "," in host:
        return None
    return _checked(host, port)


def _postgres_by(connection: str, port: int) -> str:
    """The host keeps its name, which certificates and password files go by."""
    from psycopg.conninfo import make_conninfo

    told = _settings(connection) or {}
    return make_conninfo("", **(told | {"hostaddr": HERE, "port": str(port)}))


def _settings(connection: str) -> dict[str, str] | None:
    """What a connection says, its references as they are; None if it says nothing that is known,
    which it will be told when it is opened."""
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return None
    try:
        told = conninfo_to_dict(connection)
    except Error:
        return None
    return {name: str(value) for name, value in told.items() if value is not None}


def _defaults() -> dict[str, str]:
    """What is used where a connection says nothing: PGHOST and its like, and what is built in."""
    from psycopg.pq import Conninfo

    known = {each.keyword.decode(): each.val for each in Conninfo.get_defaults()}
    return {name: value.decode() for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Url:
    """A URL in three: the host with its port, and what stands around it."""

    before: str
    host: str
    after: str

    @classmethod
    def of_redis(cls, url: str) -> "_Url":
        """As the sink reads it: what stands before the last @ is credentials, whatever it is."""
        scheme, slashes, rest = url.partition("://")
        credentials, at, rest = rest.rpartition("@")
        host = _END_OF_HOST.split(rest, maxsplit=1)[0]
        return cls(f"{scheme}{slashes}{credentials}{at}", host, rest[len(host) :])

    @classmethod
    def of_http(cls, url: str) -> "_Url":
        """As everybody reads it."""
        scheme, slashes, rest = url.partition("://")
        authority = _END_OF_HOST.split(rest, maxsplit=1)[0]
        credentials, at, host = authority.rpartition("@")
        return cls(f"{scheme}{slashes}{credentials}{at}", host, rest[len(authority) :])

    def address(self, where: str, otherwise: tuple[str, str]) -> Address | None:
        """Its host and port, with what is meant where there is none."""
        found = _HOST.fullmatch(resolved(where, self.host))
        if found is None:
            return None
        return _checked(found["host"] or otherwise[0], found["port"] or otherwise[1])

    def by(self, port: int) -> str:
        """The same URL by another way."""
        return f"{self.before}{HERE}:{port}{self.after}"


def _redis_address(where: str, url: str | None) -> Address | None:
    parts = _Url.of_redis(url or "")
    if not parts.before.startswith("redis://") or _HOST_ELSEWHERE.search(parts.after):
        return None
    return parts.address(where, REDIS_ADDRESS)


def _http_address(where: str, url: str) -> Address | None:
    parts = _Url.of_http(url)
    if not parts.before.lower().startswith("http://"):
        return None
    return parts.address(where, ("", "80"))


def _http_by(sink: Http, port: int) -> Http:
    """The server is still called by its name, by which it may tell its sites apart."""
    parts, headers = _Url.of_http(sink.url), dict(sink.headers)
    if not any(name.lower() == "host" for name in headers):
        headers["Host"] = parts.host
    return replace(sink, url=parts.by(port), headers=headers)
