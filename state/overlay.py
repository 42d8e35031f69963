"""The overlay: what an attempt has changed, laid over what is committed.

Reads see the changes first, then what was fetched beforehand, then the database, which is never
written. Throwing the overlay away undoes everything.
"""

from collections.abc import Iterator
from typing import Protocol

__all__ = ["Committed", "Overlay"]

ENTRY_BYTES = 200
"""What an entry takes beside its value: its key, the objects of both, its place in the table."""


class Committed(Protocol):
    """Promise: shows one committed version, and goes on showing it."""

    def get(self, key: bytes) -> bytes | None:
        """The value of one key."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries from `start` up to `stop`, in order."""


class Overlay:
    """Changes of one attempt over one committed version."""

    def __init__(self, committed: Committed, fetched_bytes_max: int = 64 << 20) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        """New values by key; None for a removed one."""
        self._committed = committed
        self._fetched_bytes = 0
        self._fetched_bytes_max = fetched_bytes_max
        self._fetched: dict[bytes, bytes | None] = {}
        self._scoped: dict[bytes, dict[bytes, bytes | None]] = {}
        self._journal: list[tuple[bytes | None, bytes, bool, bytes | None]] | None = None
        self.is_noting = False
        """Whether changes must be told to `put`, because they may be undone."""

    def begin(self) -> None:
        """Remember what is changed from here on, so that `undo` can take it back."""
        self._journal = []
        self.is_noting = True

    def undo(self) -> None:
        """Take back every change since `begin`."""
        journal, self._journal = self._journal or [], None
        for scope, key, was_changed, before in reversed(journal):
            changed = self.changes if scope is None else self._scoped[scope]
            if was_changed:
                changed[key] = before
            else:
                changed.pop(key, None)

    def committed(self, keys: list[bytes]) -> list[bytes | None]:
        """The committed values of many keys, which are not kept here. Sorted keys are fetched
        fastest."""
        return self._committed.get_many(keys)

    def prefetch(self, keys: list[bytes]) -> None:
        """Fetch what will be asked for with one request. Sorted keys are fetched fastest.

        What was fetched before is forgotten when all of it together takes more than allowed.
        """
        values = self._committed.get_many(keys)
        size_bytes = sum(map(len, filter(None, values))) + ENTRY_BYTES * len(keys)
        if self._fetched_bytes + size_bytes > self._fetched_bytes_max:
            self._fetched.clear()
            self._fetched_bytes = 0
        self._fetched.update(zip(keys, values, strict=True))
        self._fetched_bytes += size_bytes

    def get(self, key: bytes) -> bytes | None:
        """The value as this attempt sees it."""
        if key in self.changes:
            return self.changes[key]
        if key not in self._fetched:
            self.prefetch([key])
        return self._fetched[key]

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, with one request for those that are not known yet."""
        known = {
            key: self.changes[key] if key in self.changes else self._fetched[key]
            for key in keys
            if key in self.changes or key in self._fetched
        }
        if missing := [key for key in keys if key not in known]:
            self.prefetch(missing)  # which may forget what was fetched before
        return [known[key] if key in known else self._fetched[key] for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Change a value, or remove it. What is set back to what is committed is no change."""
        if self._journal is not None:
            self._note(None, key)
        if key in self._fetched and self._fetched[key] == value:
            self.changes.pop(key, None)
        else:
            self.changes[key] = value

    def put_scoped(self, scope: bytes, key: bytes, value: bytes | None) -> None:
        """Change a value that scans of `scope`, a prefix of its key, must find."""
        if self._journal is not None:
            self._note(None, key)
            self._note(scope, key)
        self.changes[key] = value
        self._scoped.setdefault(scope, {})[key] = value

    def _note(self, scope: bytes | None, key: bytes) -> None:
        """Write down what `key` was before it is changed."""
        assert self._journal is not None
        changed = self.changes if scope is None else self._scoped.setdefault(scope, {})
        self._journal.append((scope, key, key in changed, changed.get(key)))

    def scan(self, scope: bytes, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries from `start` up to `stop` as this attempt sees them, in order.

        The entries are those of the moment the scan began; changing while scanning is fine.
        """
        changed = self._scoped.get(scope, {})
        mine = sorted(key for key in changed if start <= key < stop)
        found = {key: value for key, value in self._committed.scan(start, stop)}
        if not mine:
            return iter(found.items())
        merged: dict[bytes, bytes | None] = {**found, **{key: changed[key] for key in mine}}
        return iter([(k, v) for k, v in sorted(merged.items()) if v is not None])
