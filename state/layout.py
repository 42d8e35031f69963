"""Where things are inside a partition's database.

    00 'm'                                           the marker: which version this is
    00 's'                                           the schemas of the states
    01 group(2) 01 key state(1) sub                  a state's entry
    01 group(2) 02 state(1) until(8) key state(1) sub     when an entry with a time to live may go
    01 group(2) 03 clock(1) due(8) key state(1)      a timer; its value: when it was set, if later
    02 't'                                           what the last delta removed

Everything of a key group is one range, so a group can be cut out and moved; everything of a key
is one range within it, so a key can be found, shown or removed whole.
"""

import struct
from functools import cache

__all__ = [
    "DATA",
    "EVERYTHING",
    "EXPIRY",
    "GROUPS_MAX",
    "MARKER_KEY",
    "REMOVED_KEY",
    "SCHEMA_KEY",
    "TIMER",
    "after_prefix",
    "group_of_entry",
    "group_prefix",
    "section_prefix",
    "time_bytes",
    "time_from",
]

MARKER_KEY = b"\x00m"
SCHEMA_KEY = b"\x00s"
REMOVED_KEY = b"\x02t"
EVERYTHING = (b"\x00", REMOVED_KEY)
"""Where the marker, the schemas and all entries lie. What a delta removed is its own affair."""
GROUPS_MAX = 1 << 15
DATA, EXPIRY, TIMER = b"\x01", b"\x02", b"\x03"

_ENTRY = b"\x01"
_GROUP = struct.Struct(">H")
_TIME = struct.Struct(">Q")
_TIME_ZERO = 1 << 63


def group_prefix(group: int) -> bytes:
    """What every entry of a key group starts with."""
    return _ENTRY + _GROUP.pack(group)


@cache
def section_prefix(group: int, section: bytes) -> bytes:
    """What every entry of one section of a key group starts with. There are few, and each is asked
    for with every key."""
    return _ENTRY + _GROUP.pack(group) + section


def group_of_entry(entry: bytes) -> int:
    """The key group of an entry."""
    group: int = _GROUP.unpack_from(entry, 1)[0]
    return group


def time_bytes(time_ms: int) -> bytes:
    """A time that sorts as it should, also before 1970."""
    return _TIME.pack(time_ms + _TIME_ZERO)


def time_from(entry: bytes, start: int) -> int:
    """The time that begins at `start`."""
    packed: int = _TIME.unpack_from(entry, start)[0]
    return packed - _TIME_ZERO


def after_prefix(prefix: bytes) -> bytes:
    """The first key greater than everything that starts with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
