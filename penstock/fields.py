"""The rules of stored fields: the texts and numbers that a document from a store may hold.

A store is outside this process, and so is every name, hash and number in it: a name becomes a file
of this host, a size becomes memory. Each field of a stored document therefore has a type of this
module or of `penstock.ids`, and decoding refuses what breaks its rule before any code uses it.
tests/checkpoint/test_stored_fields.py walks all stored documents and fails for a field without one.

Patterns name ASCII characters: `\\d` and `\\w` would let digits and letters of other scripts pass.
"""

from typing import Annotated

from msgspec import Meta

__all__ = [
    "INT64_MAX",
    "KEY_LENGTH_MAX",
    "NAME_LENGTH_MAX",
    "NAME_PATTERN",
    "ORDINAL_MAX",
    "SEGMENT_LENGTH_MAX",
    "TIME_MS_MAX",
    "TIME_MS_MIN",
    "Count",
    "DatabaseFile",
    "FormatNumber",
    "HexHash",
    "Int64",
    "KeyText",
    "Name",
    "Ordinal",
    "PartitionNumber",
    "Printable",
    "SchemaText",
    "Sha256",
    "SizeBytes",
    "Text",
    "TimeMs",
]

INT64_MAX = (1 << 63) - 1
ORDINAL_MAX = 10**12 - 1
"""Epochs and tokens stand in names of objects with twelve digits."""

TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: beyond them no clock of ours tells a time, and no function is told one."""

SIZE_BYTES_MAX = 50 << 40
"""The largest object of any store."""

PARTITIONS_MAX = 1_000_000
NAME_LENGTH_MAX = 200
SEGMENT_LENGTH_MAX = 240
KEY_LENGTH_MAX = 700
TEXT_LENGTH_MAX = 1 << 20
SCHEMA_LENGTH_MAX = 64 << 20

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.=-]*"
_SEGMENT = rf"[A-Za-z0-9_][A-Za-z0-9_.=-]{{0,{SEGMENT_LENGTH_MAX - 1}}}"
_DATABASE_FILE = (
    r"[0-9]{6,20}\.sst|CURRENT|(?:MANIFEST|OPTIONS)-[0-9]{6,20}|IDENTITY|rocksdict-config\.json"
)

Int64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""A time in milliseconds, an offset, a mark."""

TimeMs = Annotated[int, Meta(ge=TIME_MS_MIN, le=TIME_MS_MAX)]
"""A time by a leader's clock, in milliseconds since 1970."""

Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""How many of something there are."""

SizeBytes = Annotated[int, Meta(ge=0, le=SIZE_BYTES_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX)]
FormatNumber = Annotated[int, Meta(ge=0, le=1_000_000)]

Ordinal = Annotated[int, Meta(ge=0, le=ORDINAL_MAX)]
"""An epoch, a token, a generation."""

Name = Annotated[str, Meta(pattern=rf"\A{NAME_PATTERN}\Z", max_length=NAME_LENGTH_MAX)]
"""One segment of a key, and a name on this host's disk: no slash, no leading dot."""

KeyText = Annotated[
    str, Meta(pattern=rf"\A{_SEGMENT}(?:/{_SEGMENT})*\Z", max_length=KEY_LENGTH_MAX)
]
"""The name of an object: segments joined by slashes."""

DatabaseFile = Annotated[str, Meta(pattern=rf"\A(?:{_DATABASE_FILE})\Z", max_length=40)]
"""The name that RocksDB gives to a file of a database."""

Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", max_length=64)]
HexHash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{0,64}\Z", max_length=64)]
"""A shorter hash, or none."""

Printable = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]*\Z", max_length=1000)]
"""Shown to people: without characters that move a terminal's cursor."""

Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
"""Shown, compared, or handed to a source that checks it; never a path of this host."""

SchemaText = Annotated[str, Meta(max_length=SCHEMA_LENGTH_MAX)]
"""An Arrow schema in base 64."""
