"""What is where below a root.

    HEAD                                                       the only object ever replaced
    manifests/<epoch>-<commit>.json
    changelog/<operator>/<partition>/<epoch>-<attempt>.sst
    snapshots/<operator>/<partition>/<epoch>-<attempt>/<sha256>.sst
    outputs/<sink>/<epoch>/<partition>-<attempt>.arrow
    tables/<table>/<epoch>/<partition>-<attempt>.<arrow or parquet>
    tables/<table>/<epoch>/index-<attempt>.json, page-<number>-<attempt>.json
    descriptions/<epoch>-<attempt>.json                        what a root remembers of its job
    pins/<name>/<mark>.json
    requests/<operator>/<generation>-<mark>.json               dead letters to be replayed
    heartbeats/<token>.json
    cursors/<job>/<sink>/<shard>.json                          of sinks that can keep none

Invariant: but for HEAD, a leader's heartbeat and such a cursor no name is ever used twice, and
every name of an object that an epoch may publish says which epoch (`penstock sign` adds a signature
to an object and leaves its document as it is). An object of an epoch that HEAD
has passed is either named by the chain or never will be, so the collector needs neither a clock nor
the word of a running upload. It never looks below `tables/`: what a table is made of outlives the
epochs that added it, and `penstock.sinks.table_sweep` judges it by the table's own index.
"""

import re

from penstock.fencing.heartbeat import HEARTBEAT_PREFIX
from penstock.ids import Attempt, CommitId, Epoch, Generation, Key, Token, check_name

__all__ = [
    "EPOCH_PREFIXES",
    "HEAD_KEY",
    "PIN_PREFIX",
    "commit_of",
    "delta_key",
    "description_key",
    "epoch_of",
    "is_table_key",
    "manifest_key",
    "output_key",
    "pin_key",
    "pin_name_of",
    "pin_prefix",
    "request_key",
    "request_prefix",
    "snapshot_key",
    "table_key",
    "table_prefix",
    "token_of",
]

HEAD_KEY = Key("HEAD")
TABLES_PREFIX = "tables/"
PIN_PREFIX = "pins/"
EPOCH_PREFIXES = ("changelog/", "descriptions/", "manifests/", "outputs/", "snapshots/")
"""Everything below these belongs to one epoch, and is garbage once that epoch does not name it."""

_EPOCH = re.compile(
    r"(?:(?:manifests|descriptions)/|(?:changelog|snapshots)/[^/]+/[^/]+/|(?:outputs|tables)/[^/]+/)"
    r"(\d{12})(?:[-/]|$)"
)
_COMMIT = re.compile(r"manifests/\d{12}-(.+)\.json")
_PIN = re.compile(rf"{PIN_PREFIX}([^/]+)/[^/]+\.json")
_TOKEN = re.compile(rf"{HEARTBEAT_PREFIX}(\d{{12}})\.json")


def manifest_key(epoch: Epoch, commit: CommitId) -> Key:
    """Where the manifest of one attempt to commit `epoch` goes."""
    return Key(f"manifests/{epoch:012d}-{commit}.json")


def description_key(epoch: Epoch, attempt: Attempt) -> Key:
    """Where the description of the job goes that `epoch` is the first to publish."""
    return Key(f"descriptions/{epoch:012d}-{attempt}.json")


def delta_key(operator: str, partition: int, epoch: Epoch, attempt: Attempt) -> Key:
    """Where one attempt's state changes go."""
    name = check_name("operator", operator)
    return Key(f"changelog/{name}/{partition}/{epoch:012d}-{attempt}.sst")


def snapshot_key(operator: str, partition: int, epoch: Epoch, attempt: Attempt, sha256: str) -> Key:
    """Where a file of a snapshot goes that `epoch` is the first to publish."""
    name = check_name("operator", operator)
    return Key(f"snapshots/{name}/{partition}/{epoch:012d}-{attempt}/{sha256}.sst")


def output_key(sink: str, epoch: Epoch, partition: int, attempt: Attempt) -> Key:
    """Where one attempt's staged output for a sink goes."""
    return Key(f"outputs/{check_name('sink', sink)}/{epoch:012d}/{partition}-{attempt}.arrow")


def table_prefix(table: str) -> str:
    """Where everything of a table is."""
    return f"{TABLES_PREFIX}{check_name('table', table)}/"


def table_key(table: str, epoch: Epoch, name: str) -> Key:
    """Where a file of a table goes that `epoch` is the first to publish; `name` is unique."""
    return Key(f"{table_prefix(table)}{epoch:012d}/{name}")


def is_table_key(key: str) -> bool:
    """Whether an object is part of a table, which outlives the epoch that added it."""
    return key.startswith(TABLES_PREFIX)


def pin_prefix(name: str) -> str:
    """Where the pins of that name are."""
    return f"{PIN_PREFIX}{check_name('pin', name)}/"


def pin_key(name: str, mark: str) -> Key:
    """Where one pin of that name is."""
    return Key(f"{pin_prefix(name)}{mark}.json")


def pin_name_of(key: str) -> str | None:
    """The name of the pin that an object is, or None for one that no pin is called."""
    found = _PIN.fullmatch(key)
    return found.group(1) if found else None


def request_prefix(operator: str) -> str:
    """Where the requests to replay an operator's dead letters are."""
    return f"requests/{check_name('operator', operator)}/"


def request_key(operator: str, generation: Generation, mark: str) -> Key:
    """Where one such request is. It belongs to one line of history."""
    return Key(f"{request_prefix(operator)}{generation:012d}-{mark}.json")


def epoch_of(key: str) -> Epoch | None:
    """The epoch an object belongs to, or None for a name that is not one of ours."""
    found = _EPOCH.match(key)
    return Epoch(int(found.group(1))) if found else None


def commit_of(key: str) -> CommitId | None:
    """The commit whose manifest this is, or None."""
    found = _COMMIT.fullmatch(key)
    return CommitId(found.group(1)) if found else None


def token_of(key: str) -> Token | None:
    """The token whose heartbeat this is, or None."""
    found = _TOKEN.fullmatch(key)
    return Token(int(found.group(1))) if found else None
