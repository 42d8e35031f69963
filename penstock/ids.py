"""The small words that must not be mixed up: numbers and names with a meaning each.

An epoch is not a token and a commit id is not an attempt, though all are ints or strings
underneath. The type checker keeps them apart; at run time they cost nothing. Where one is read
from a store, the rule of `penstock.fields` behind it is checked.
"""

import re
from typing import NewType

from penstock.errors import Invalid
from penstock.fields import NAME_LENGTH_MAX, NAME_PATTERN, KeyText, Name, Ordinal, Printable

__all__ = [
    "Attempt",
    "CommitId",
    "ETag",
    "Epoch",
    "Generation",
    "Holder",
    "JobName",
    "Key",
    "Token",
    "check_name",
]

Epoch = NewType("Epoch", Ordinal)
"""The number of one micro-batch. Dense: the first is 1, and 0 means "nothing committed yet"."""

Token = NewType("Token", Ordinal)
"""The fencing token. Grows by one with every take-over; a lower one is refused everywhere."""

Generation = NewType("Generation", Ordinal)
"""Which line of history an epoch belongs to. Grows by one with every rewind."""

CommitId = NewType("CommitId", Name)
"""The unique name of one attempt to make an epoch real."""

Attempt = NewType("Attempt", Name)
"""The unique name of one attempt to process a partition's share of an epoch."""

Holder = NewType("Holder", Printable)
"""The unique name of one process that leads or tries to."""

JobName = NewType("JobName", Name)
"""What the user calls the job. One root belongs to one job for ever."""

Key = NewType("Key", KeyText)
"""The name of an object below a root: segments joined by slashes."""

ETag = NewType("ETag", str)
"""What the store calls one version of one object. Opaque; equal means the same version."""

_NAME = re.compile(NAME_PATTERN)


def check_name(what: str, name: str) -> str:
    """`name`, if it can stand as one segment of a key on every store; else `Invalid`."""
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise Invalid(
            f"{what} {name[:NAME_LENGTH_MAX]!r}",
            "is not a name that every store can hold",
            "use letters, digits, '_', '.', '=' and '-', starting with a letter, digit or '_', "
            f"at most {NAME_LENGTH_MAX} characters",
        )
    return name
