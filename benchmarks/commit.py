"""How fast epochs become real, and whether a restart gets slower as a job gets older.

    make bench-commit

One epoch is one delta and one output of a few bytes, their manifest and the swap of HEAD: what
the commit itself costs, without any data. The history for the restarts is made by the same code.
"""

import cProfile
import os
import platform
import pstats
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import boto3
from rich.console import Console
from rich.table import Table

from benchmarks.results import markdown, write_section
from penstock.checkpoint import MemoryStore
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.root import Root
from penstock.checkpoint.s3_store import S3Store
from penstock.checkpoint.store import ObjectStore
from tests.support.history import JOB, commit_epochs
from tests.support.servers import BUCKET, moto, proxy

COMMITS_S = 5.0
BATCH = 20
SNAPSHOT_EVERY = 50
SHORT, LONG = 1_000 - 1, 10_000 - 1
"""One epoch before a snapshot is due: the longest walk back that there is."""
OPENINGS = 50
PROFILED = 300
TOP = 5


@dataclass(frozen=True)
class Opening:
    """How long it takes to open a root with some history, in milliseconds."""

    store: str
    short_ms: float
    long_ms: float

    @property
    def ratio(self) -> float:
        """How much slower ten times the history is."""
        return self.long_ms / self.short_ms


@dataclass(frozen=True)
class Cost:
    """One line of a profile: a function, and its share of the time."""

    name: str
    calls: float
    share: float


def main() -> None:
    """Measure, show, and write it down."""
    with tempfile.TemporaryDirectory() as folder:
        rates = commit_rates(Path(folder))
        openings = [
            opening("memory", "memory://opened"),
            opening("folder", f"{folder}/opened"),
        ]
        costs = profile(DirectoryStore(Path(folder) / "profiled"))
    console = Console()
    for table in (rate_table(rates), opening_table(openings), cost_table(costs)):
        console.print(table)
    write_section("commit", report(rates, openings, costs))


def commit_rates(folder: Path) -> dict[str, float]:
    """Commits per second of one leader, per kind of store."""
    rates = {
        "memory": commits_per_s(MemoryStore()),
        "folder": commits_per_s(DirectoryStore(folder / "rate")),
    }
    with bucket(folder) as store:
        rates["moto behind a serialising proxy"] = commits_per_s(store)
    return rates


def commits_per_s(store: ObjectStore) -> float:
    """How often one leader commits, over some seconds."""
    root = Root(store)
    session = root.lead(JOB, "bench")
    commit_epochs(root, session, BATCH)  # the first ones load and connect
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < COMMITS_S:
        commit_epochs(root, session, BATCH)
        done += BATCH
    return done / (time.perf_counter() - started)


@contextmanager
def bucket(folder: Path) -> Iterator[S3Store]:
    """A bucket of moto, made atomic."""
    with moto(folder) as upstream, proxy(upstream, folder, "serialise") as endpoint:
        os.environ.update(endpoint.settings())
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield S3Store(BUCKET, "rate")


def opening(name: str, url: str) -> Opening:
    """Open a young root and an old one in turn, so that a busy machine slows both alike."""
    young, old = with_history(f"{url}-young", SHORT), with_history(f"{url}-old", LONG)
    taken = [(opening_ms(young), opening_ms(old)) for _ in range(OPENINGS)]
    short_ms, long_ms = (statistics.median(each) for each in zip(*taken, strict=True))
    return Opening(name, short_ms, long_ms)


def with_history(url: str, epochs: int) -> str:
    """Make a root of so many epochs there."""
    root = Root.open(url)
    commit_epochs(root, root.lead(JOB, "bench"), epochs, SNAPSHOT_EVERY)
    return url


def opening_ms(url: str) -> float:
    """What a restart does before it reads any state."""
    started = time.perf_counter()
    root = Root.open(url)
    root.head()
    root.lineages()
    return (time.perf_counter() - started) * 1000


def profile(store: ObjectStore) -> list[Cost]:
    """Where the time of a commit goes, by function, without what it calls."""
    root = Root(store)
    session = root.lead(JOB, "bench")
    profiler = cProfile.Profile()
    profiler.runcall(commit_epochs, root, session, PROFILED)
    stats = pstats.Stats(profiler)
    total = stats.total_tt  # type: ignore[attr-defined]
    lines = stats.stats.items()  # type: ignore[attr-defined]
    costs = [
        Cost(_short(name), calls / PROFILED, own / total) for name, (_, calls, own, *_) in lines
    ]
    return sorted(costs, key=lambda cost: -cost.share)[:TOP]


def _short(place: tuple[str, int, str]) -> str:
    """A function's name without the machine's paths."""
    file, _, name = place
    return name.strip("<>") if file == "~" else f"{Path(file).name}: {name}"


def rate_table(rates: dict[str, float]) -> Table:
    """Commits per second."""
    table = Table("store", "commits/s", "ms per commit", title="One leader, one after the other")
    for store, rate in rates.items():
        table.add_row(store, f"{rate:,.0f}", f"{1000 / rate:.2f}")
    return table


def opening_table(openings: list[Opening]) -> Table:
    """Time to open."""
    table = Table(
        "store", f"{SHORT:,} epochs, ms", f"{LONG:,} epochs, ms", "ratio", title="Opening"
    )
    for each in openings:
        table.add_row(
            each.store, f"{each.short_ms:.2f}", f"{each.long_ms:.2f}", f"{each.ratio:.2f}"
        )
    return table


def cost_table(costs: list[Cost]) -> Table:
    """A profile."""
    table = Table("function", "calls per commit", "share", title="Commits on a folder")
    for cost in costs:
        table.add_row(cost.name, f"{cost.calls:.1f}", f"{cost.share:.0%}")
    return table


def report(rates: dict[str, float], openings: list[Opening], costs: list[Cost]) -> str:
    """The section of RESULTS.md."""
    machine = (
        f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f} over 15 minutes), "
        f"{platform.system()}, Python {platform.python_version()}"
    )
    return "\n".join(
        [
            "## Commits and restarts",
            "",
            f"`make bench-commit`, {datetime.now(UTC):%Y-%m-%d}, {machine}. One leader; an epoch "
            "is one delta and one output of a few bytes, their manifest, and the swap of HEAD.",
            "",
            markdown(rate_table(rates)),
            "",
            f"Opening a root: `Root.open`, HEAD, and every partition's lineage, median of "
            f"{OPENINGS}, with a snapshot every {SNAPSHOT_EVERY} epochs and the next one due: the "
            "longest walk back there is.",
            "",
            markdown(opening_table(openings)),
            "",
            f"Where {PROFILED} commits on a folder spend their time, by cProfile, own time only:",
            "",
            markdown(cost_table(costs)),
            "",
            conclusion(costs),
        ]
    )


def conclusion(costs: list[Cost]) -> str:
    """The profile in a sentence, from its figures."""
    fsync = sum(cost.share for cost in costs if "fsync" in cost.name)
    calls = sum(cost.calls for cost in costs if "fsync" in cost.name)
    return (
        f"A commit on a folder makes {calls:.0f} calls of fsync, which take {fsync:.0%} of its "
        f"time; the largest other cost is `{_largest_other(costs).name}` with "
        f"{_largest_other(costs).share:.0%}. cProfile slows Python down and fsync not at all, so "
        "without it the share of fsync is larger still."
    )


def _largest_other(costs: list[Cost]) -> Cost:
    return next(cost for cost in costs if "fsync" not in cost.name)


if __name__ == "__main__":
    main()
