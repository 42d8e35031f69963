"""What a driver of a chaos run is told, as a file: which job, which root, which traps.

The conductor writes one brief per driver it starts. A driver reads it once. So a driver that was
killed at any moment is started again by the same words, and a person can start one by hand.
"""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.errors import Invalid
from penstock.sources.protocol import Source
from penstock.sources.rate import Rate

__all__ = ["Brief", "Generated", "Recorded", "made_of", "read_brief", "write_brief"]

NUMBERS_BELOW = 1_000
"""Made-up numbers stay small: a job that adds them up is not to be broken by that."""


KEY_PREFIX = "key"
"""The same in every source, whatever it calls its column: a key of one is a key of all."""


class Generated(msgspec.Struct, frozen=True, kw_only=True, tag="generated"):
    """Events made up from the columns of the source whose place they take."""

    records: int
    partitions: int = 2
    seed: int = 0
    key: str | None = None
    keys: int = 500
    event_time: str | None = None
    rows_per_s: float | None = None
    """How many come; None: all are there from the beginning."""
    start_ms: int = 0
    """When the first of them happened."""
    key_with: tuple[str, ...] = ()
    """Further columns that the job keys by: they go with the key."""
    burst_rows: int | None = None
    """So many of a partition happen close together, and then none for a while; None: they come at a
    rate, and happen when they come."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True, tag="recorded"):
    """Events of a topic that was recorded before."""

    url: str


class Brief(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One driver's orders for its whole life."""

    driver: int
    """Its number in the run."""
    file: str
    name: str | None
    """Which job of the file; None: the only one."""
    root: str
    master: str
    state_folder: str
    folder: str
    """Where traps, jumps of the clock and faults of sinks are laid, and side effects written."""
    epoch_records: int
    epochs_max: int | None = None
    drains: bool = True
    """Whether it ends when all that is there is processed; else it runs until it is told to."""
    lease_s: float = 3.0
    standby: bool = False
    inputs: dict[str, Generated | Recorded] = {}
    """Sources that are replaced, by name; the others stay what the job says."""
    routes: dict[str, int] = {}
    """Sinks that are reached through a port of this host, by name."""
    follows: str | None = None
    """The root whose epochs are gone through again, without a fault; None: it plans its own."""


def write_brief(path: Path, brief: Brief) -> None:
    """Leave it for a driver."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(brief), indent=2))


def read_brief(path: Path) -> Brief:
    """What a driver was told."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Brief)
    except (OSError, msgspec.MsgspecError) as error:
        found = f"is no brief ({error})"
        raise Invalid(f"file {path}", found, "let `penstock chaos` write it") from error


def made_of(asked: Generated, source: Source) -> Source:
    """The generated stream that takes the place of a source."""
    share, rest = divmod(asked.records, asked.partitions)
    return Rate(
        columns=source.schema(),
        partitions=asked.partitions,
        rows=share + (1 if rest else 0),
        rows_per_s=asked.rows_per_s,
        start=datetime.fromtimestamp(asked.start_ms / 1000, tz=UTC),
        seed=asked.seed,
        key=asked.key,
        keys=asked.keys,
        key_with=asked.key_with,
        key_prefix=KEY_PREFIX,
        burst_rows=asked.burst_rows,
        event_time=asked.event_time,
        numbers_below=NUMBERS_BELOW,
        out_of_order=0.05,
        disorder=2.0,
    )
