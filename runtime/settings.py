"""How a job is run: everything a person may set, with defaults that do for most."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.checkpoint.collector import Retention
from penstock.checkpoint.root import Lease
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.errors import Invalid
from penstock.sinks.guarantee import parse_guarantee
from penstock.sources.protocol import Limits
from penstock.state import StateSettings

__all__ = ["RunSettings"]

EPOCH_RECORDS = 1_000_000
EPOCH_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a job is run."""

    master: str = "local[*]"
    until: str | None = None
    """'caught-up': stop when everything that is there is processed. None: when told to."""
    require: str | None = None
    """The least guarantee that every sink must give."""
    limits: Limits = field(
        default_factory=lambda: Limits(records=EPOCH_RECORDS, size_bytes=EPOCH_BYTES)
    )
    """What one epoch reads at most."""
    every_s: float = 0.0
    """Epochs begin at least so far apart."""
    poll_s: float = 0.2
    """How often sources are asked while there is nothing to do."""
    epochs_max: int | None = None
    """Stop after the epoch of this number."""
    retries_max: int = 5
    """How often an epoch is tried again before the run gives up."""
    backoff_s: float = 0.5
    """How long to wait before the first retry; twice as long before each further one."""
    read_tasks: int | None = None
    """How many tasks read; None: as many as the master has cores."""
    standby: bool = False
    """Wait while another process leads, instead of refusing."""
    lease: Lease = field(default_factory=Lease)
    retention: Retention = field(default_factory=Retention)
    collect_every: int = 50
    """Garbage is collected every so many epochs."""
    snapshots: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    state: StateSettings = field(default_factory=StateSettings)
    state_folder: str | None = None
    """Where hosts keep state; None: PENSTOCK_STATE_DIR, or a folder of the user alone below their
    temporary folder."""
    py_files: tuple[str, ...] = ()
    """Wheels, archives and modules to send to the executors."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark's own."""

    def __post_init__(self) -> None:
        if self.until not in (None, "caught-up"):
            raise Invalid(f"until={self.until!r}", "is unknown", "use 'caught-up', or leave it out")
        if self.require is not None:
            parse_guarantee(self.require)
        for name, least in (("retries_max", 0), ("collect_every", 1)):
            if getattr(self, name) < least:
                found = f"{name}={getattr(self, name)}"
                raise Invalid(found, "is too small", f"use {least} or more")

    def with_options(
        self, *, until: str | None = None, master: str | None = None, require: str | None = None
    ) -> "RunSettings":
        """The same with some of them changed."""
        given = {"until": until, "master": master, "require": require}
        return replace(self, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
