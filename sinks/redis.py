"""`Redis`: the last row of each key, as a hash, in one Redis server.

Redis cannot change many keys and a cursor in one step without holding up everybody else, so each
key carries the version of the row it holds. A row is written by a script, which compares versions
where the row is: an older one never takes the place of a newer one, whatever arrives late. A row
that is taken back leaves a tombstone with its version, for a while. So whatever is sent again, the
keys come to hold the same.

What a script may write it is told by the shard's cursor, a hash of its own: a token that is smaller
than the one there, or a cursor that is elsewhere, and nothing is written. The last script of an
epoch moves the cursor; an epoch of few rows is one script, and changes as a whole.

Rows and cursor last as long as Redis keeps them. With `appendonly yes` a crash of it loses nothing
that `appendfsync` lets it answer for; a replica that takes over may lack what was answered last.
A row of another job or sink at the same key gives way, because their epochs do not compare. A Redis
Cluster is not supported: a script's keys must be on one server.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import without_secrets
from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import Keyed, as_key
from penstock.sinks.protocol import Target
from penstock.sinks.redis_rows import CURSORS, RedisRows
from penstock.state import ttl

if TYPE_CHECKING:
    from penstock.sinks.redis_holding import RedisHolding
    from penstock.sinks.redis_writer import RedisWriter

__all__ = ["Redis"]

_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class Redis:
    """Rows as hashes at `{prefix}{key}`: a field per column that has a value, and `_version`."""

    name: str
    url: str = field(repr=False)
    """`redis://:${REDIS_PASSWORD}@host:6379/0`; `rediss://` for TLS, `unix://` for a socket."""
    _: KW_ONLY
    key: str | Sequence[str]
    """The columns that tell rows apart. Several are joined by colons; a colon in one is `%3A`."""
    prefix: str | None = None
    """What stands before each key; `{name}:` unless told."""
    deletes: str | None = None
    """A boolean column: a row in which it is true takes its key away."""
    tombstones: str = "1 day"
    """How long a key that was taken away is remembered."""

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        object.__setattr__(self, "key", as_key(self.key))
        if not self.key or len(set(self.key)) < len(self.key):
            found = f"has the key {self.key!r}, which tells no rows apart"
            raise Invalid(self._where, found, "name the columns of its key, each once")
        scheme, is_url, _ = self.url.partition("://")
        if is_url and "${" not in scheme and scheme not in _SCHEMES:
            found = f"has a URL that starts with {scheme}://"
            raise Invalid(self._where, found, f"use one of {', '.join(_SCHEMES)}")
        if CURSORS.startswith(self._prefix) or self._prefix.startswith(CURSORS):
            found = f"has the prefix {self._prefix!r}, and keys that start so may be cursors"
            raise Invalid(self._where, found, "give it another prefix")
        self._rows()

    @property
    def guarantee(self) -> Guarantee:
        """Keys change one after the other, and come to hold their last row."""
        return Guarantee.CONVERGES

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return as_key(self.key)

    def shards(self, partitions: int) -> int:
        """One per partition."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """Refuse rows without a key, of types without a text, or too large for Redis."""
        self._rows().check(rows)

    def open(self, target: Target) -> "RedisWriter":
        """Connect, and see what kind of server it is."""
        with self._needing_client():
            from penstock.sinks.redis_writer import RedisWriter
        self.check(target.columns.empty_table())
        return RedisWriter(self._place, self.url, self._rows(), target)

    def read_back(self, target: Target) -> "RedisHolding":
        """Connect, to look at the keys."""
        with self._needing_client():
            from penstock.sinks.redis_holding import RedisHolding
        self.check(target.columns.empty_table())
        return RedisHolding(self._place, self.url, self._rows(), target)

    @contextmanager
    def _needing_client(self) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as missing:
            if missing.name != "redis":
                raise
            found = "needs the package redis, which is not installed"
            raise Invalid(self._where, found, "pip install 'penstock[redis]'") from None

    @property
    def _place(self) -> str:
        return f"{self._where} at {without_secrets(self.url)}"

    @property
    def _where(self) -> str:
        return f"sink {self.name}"

    @property
    def _prefix(self) -> str:
        return f"{self.name}:" if self.prefix is None else self.prefix

    def _rows(self) -> RedisRows:
        return RedisRows(
            sink=self.name,
            prefix=self._prefix,
            keyed=Keyed(self._where, as_key(self.key), self.deletes),
            tombstones_ms=self._tombstones_ms(),
        )

    def _tombstones_ms(self) -> int:
        try:
            return ttl(self.tombstones).length_ms
        except Invalid as error:
            found = f"has tombstones={self.tombstones!r}, which {error.found}"
            raise Invalid(self._where, found, "write '90 s' or '1 day'") from None
