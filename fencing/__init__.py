"""Leadership: one register changed only by compare-and-swap, and the token inside it.

Promise: tokens strictly grow; from the moment a larger one is in the register, no write that
expects an older version of it can succeed, in any process, however long it was paused.
No clock is compared between hosts: a lease decides when to try, never who is right.

May import the lobby (`penstock.ids`, `errors`, `clock`, `effects`, `points`) and nothing else.
"""

from penstock.fencing.heartbeat import Beat, decode_beat, heartbeat_key, heartbeats, release
from penstock.fencing.register import Document, Landed, Led, Lost, Register, Seen, Won, read, swap
from penstock.fencing.standby import Silence, is_led, stand_by
from penstock.fencing.takeover import take_over
from penstock.fencing.tenure import Tenure

__all__ = [
    "Beat",
    "Document",
    "Landed",
    "Led",
    "Lost",
    "Register",
    "Seen",
    "Silence",
    "Tenure",
    "Won",
    "decode_beat",
    "heartbeat_key",
    "heartbeats",
    "is_led",
    "read",
    "release",
    "stand_by",
    "swap",
    "take_over",
]
