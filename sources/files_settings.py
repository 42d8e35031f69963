"""What a source of files was told, checked when it is said, and what it is given to work with.

Both can be sent to another process as they are: nothing is open in them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import open_store, without_secrets
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Chance, Clock, SystemChance, SystemClock
from penstock.errors import Invalid
from penstock.sources.files_listing import Folder, Listing
from penstock.sources.files_names import FORMATS, Names, is_compressed
from penstock.sources.files_shape import check_columns

__all__ = ["PARTITIONS_MAX", "FilesSettings", "Poison", "World", "open_listing", "where"]

Poison: TypeAlias = Literal["fail", "quarantine"]

PARTITIONS_MAX = 256
"""The record keeps an offset for each of them with every chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """Everything that sets one source of files apart from another."""

    folder: str
    record: str
    names: Names
    columns: pa.Schema | None
    """None: inferred from the first file that has any."""
    partitions: int
    settle_s: float
    poison: Poison
    event_time: str | None
    newlines_in_values: bool

    def __post_init__(self) -> None:
        """`Invalid` for what no source could keep to."""
        self._check(bool(self.folder), "needs a folder", "give a folder or s3://bucket/prefix")
        self._check(bool(self.record), "needs a record", "give a store's URL, such as a folder")
        kind, pattern = self.names.format, self.names.pattern
        known = f"use one of {', '.join(FORMATS)}, or None to go by the suffix"
        self._check(kind in (None, *FORMATS), f"cannot have format {kind!r}", known)
        self._check(pattern != "", "cannot have an empty pattern", "leave it out, or use '*'")
        self._check(
            self.poison in ("fail", "quarantine"),
            f"cannot have poison={self.poison!r}",
            "use 'fail' or 'quarantine'",
        )
        self._check_numbers()
        self._check_columns()

    @property
    def name(self) -> str:
        """How messages call the source."""
        return f"files {without_secrets(self.folder)}"

    def by_rows(self, path: str) -> bool:
        """Whether the offsets of a file are rows."""
        kind = self.names.format_of(path)
        return (
            kind == "parquet" or is_compressed(path) or (kind == "csv" and self.newlines_in_values)
        )

    def _check_numbers(self) -> None:
        whole = type(self.partitions) is int and 1 <= self.partitions <= PARTITIONS_MAX
        found = f"cannot have {self.partitions!r} partitions"
        self._check(whole, found, f"use a number from 1 to {PARTITIONS_MAX}")
        settling = isfinite(self.settle_s) and self.settle_s >= 0
        found = f"cannot let a file settle for {self.settle_s!r} seconds"
        self._check(settling, found, "use 0 or more")

    def _check_columns(self) -> None:
        if self.columns is None:
            return
        try:
            check_columns(self.columns, self.event_time)
        except ValueError as error:
            raise Invalid(self.name, f"cannot have this schema ({error})", "correct it") from error

    def _check(self, holds: bool, found: str, advice: str) -> None:
        if not holds:
            raise Invalid(self.name, found, advice)


def open_listing(folder: str, clock: Clock, chance: Chance) -> Listing:
    """The files that a folder's path or URL names. Nothing is asked before its first use."""
    parts = urlsplit(folder)
    if "://" not in folder or parts.scheme == "file":
        return Folder(Path(where(folder)))
    if (
        parts.scheme != "s3"
        or not parts.netloc
        or "@" in parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise Invalid(
            f"folder {without_secrets(folder)!r}",
            "is not something that can be opened",
            "give a folder, file:///folder or s3://bucket/prefix",
        )
    # Imported here so that a job on a folder need not load boto3 in every worker.
    from penstock.sources.files_s3 import Bucket

    return Bucket(parts.netloc, parts.path, clock, chance)


def where(folder: str) -> str:
    """The same text for the same place: whole paths, and prefixes without a slash at their end."""
    if "://" not in folder:
        return str(Path(folder).expanduser().absolute())
    if folder.startswith("file://"):
        return str(Path(unquote(urlsplit(folder).path)))
    return without_secrets(folder).rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a source of files finds outside itself."""

    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=SystemChance)
    open_listing: Callable[[str, Clock, Chance], Listing] = open_listing
    open_store: Callable[[str], ObjectStore] = open_store
