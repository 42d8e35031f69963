"""What messages call a table and its columns, and which names Postgres can hold.

Postgres cuts a longer name off and says so only to those who listen: two columns would become one.
"""

import re
from dataclasses import dataclass

from penstock.errors import Invalid

__all__ = ["CURSORS", "NAME_BYTES_MAX", "Place", "check_identifier"]

CURSORS = "penstock_cursors"
"""The table of cursors, one in each schema that a sink writes to."""

NAME_BYTES_MAX = 63
_SIMPLE = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Place:
    """A sink's table, as messages call it."""

    sink: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"sink {self.sink}, table {_shown(self.schema)}.{_shown(self.table)}"

    def column(self, name: str) -> str:
        """One of its columns."""
        return f"{self}, column {name!r}"


def check_identifier(where: str, name: str) -> None:
    """Raise `Invalid` unless Postgres can hold the name as it is."""
    # A lone surrogate is no character; it counts as too long rather than as an error of its own.
    size = len(name.encode(errors="surrogatepass"))
    if not 0 < size <= NAME_BYTES_MAX or "\0" in name or not _is_unicode(name):
        raise Invalid(
            where,
            "has a name that Postgres cannot hold",
            f"use 1 to {NAME_BYTES_MAX} bytes of UTF-8 without NUL",
        )


def _is_unicode(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _shown(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) else repr(name)
