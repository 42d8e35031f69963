"""The heartbeat: a leader's sign of life, which proves nothing and only saves waiting.

Each token has an object of its own, so an old leader that wakes up cannot speak for the new
one. Losing every heartbeat costs a needless take-over, never a wrong result.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from penstock.effects import Put, Steps, Wait
from penstock.errors import PenstockError
from penstock.fencing.register import Led, Register, read
from penstock.fencing.tenure import Tenure
from penstock.fields import Count, Text
from penstock.ids import Holder, Key, Token
from penstock.points import Point

__all__ = [
    "HEARTBEAT_PREFIX",
    "Beat",
    "decode_beat",
    "heartbeat_key",
    "heartbeats",
    "release",
]

HEARTBEAT_PREFIX = "heartbeats/"

BEAT_BYTES_MAX = 64 << 10
"""A longer heartbeat is not read: notes of any length would be memory of whoever looks."""

D = TypeVar("D", bound=Led)


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat says. Only that it changes matters, and `released`."""

    holder: Holder
    count: Count
    released: bool = False
    notes: dict[Text, Any] = {}
    """What the leader would have others know of its work. Nobody decides anything by it."""


def decode_beat(body: bytes) -> Beat | None:
    """The heartbeat in `body`; None if it cannot be read, for nothing is decided by it."""
    if len(body) > BEAT_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(body, type=Beat)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def heartbeat_key(token: Token) -> Key:
    """Where the holder of `token` shows that it lives."""
    return Key(f"{HEARTBEAT_PREFIX}{token:012d}.json")


def heartbeats(
    register: Register[D],
    tenure: Tenure,
    every_s: float,
    stopped: Callable[[], bool],
    notes: Mapping[str, Any] = MappingProxyType({}),
) -> Steps[None]:
    """Beat until stopped or fenced. `notes` are shown as they are at each beat.

    1. Look at the register: a larger token ends the tenure now rather than at the next commit.
    2. Show a sign of life.
    3. Wait. A store that is out of reach or refuses us is no reason to give up, for it may let
       us in again: the lease will tell, and so will the next commit.
    """
    count = 0
    while not (stopped() or tenure.over):
        try:
            seen = yield from read(register, Point.HEARTBEAT_LOOK)  # 1
            if seen is not None and seen.document.token > tenure.token:
                tenure.fence(seen.document.token, seen.document.holder)
                return
            count += 1
            beat = Beat(holder=tenure.holder, count=count, notes=dict(notes))
            yield _put(Point.HEARTBEAT_BEAT, tenure, beat)  # 2
        except PenstockError:
            pass
        yield Wait(every_s)  # 3


def release(tenure: Tenure, notes: Mapping[str, Any] = MappingProxyType({})) -> Steps[None]:
    """Say that this leader is done, so that the next one need not wait for the lease."""
    beat = Beat(holder=tenure.holder, count=0, released=True, notes=dict(notes))
    yield _put(Point.HEARTBEAT_RELEASE, tenure, beat)


def _put(at: Point, tenure: Tenure, beat: Beat) -> Put:
    body = msgspec.json.encode(beat)
    if len(body) > BEAT_BYTES_MAX:  # whether it is released must be readable; notes need not be
        body = msgspec.json.encode(msgspec.structs.replace(beat, notes={}))
    return Put(at, heartbeat_key(tenure.token), body)
