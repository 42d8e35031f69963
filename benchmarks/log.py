"""How near to bare Arrow files the log is, and whether a topic opens slower as it grows.

    make bench-log                                    5 M rows
    python -m benchmarks.log --quick --dry            a quick try

Bare is what anyone would write who needs no log: each batch an Arrow file of its own, compressed
alike, without a checksum, an order, or a promise that it is there after a loss of power. What is
compared runs in turn on the same rows, so that a busy machine slows both alike.
"""

import argparse
import cProfile
import os
import platform
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

from benchmarks.commit import Cost
from benchmarks.results import markdown, write_section
from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.perform import armed, perform, store_handlers
from penstock.checkpoint.s3_client import new_clients
from penstock.clock import SystemChance, SystemClock
from penstock.points import Point
from penstock.sources.log import Log
from penstock.sources.log_append import Batch, Writer, append, stage
from penstock.sources.log_lane import Batching, Lane, Wiring
from penstock.sources.log_segment import encode
from penstock.sources.protocol import Range
from tests.support.servers import BUCKET, moto, proxy

ROWS = 5_000_000
BATCH_ROWS = 100_000
BUCKET_SHARE = 5
"""A bucket gets a fifth of the rows: moto keeps them in memory."""
ROUNDS = 3
PARTITIONS = 4
USERS = 50_000
START_US = 1_700_000_000_000_000
APPEND_BAR, READ_BAR, OPENING_BAR = 0.4, 0.6, 2.0
FEW, MANY = 10, 10_000
GROUP = 500
OPENINGS = 50
PROFILED = 50
TOP = 6
LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
CHANCE, CLOCK = SystemChance(), SystemClock()

Work = Callable[[], int]
"""Appends or reads, and says how many rows."""


@dataclass(frozen=True)
class Speed:
    """The best of several rounds of one thing."""

    rows: int
    size_bytes: int
    """As Arrow has them in memory."""
    wall_s: float
    cpu_s: float
    """Of all threads of this process."""


@dataclass(frozen=True)
class Row:
    """One thing measured, beside the bare one."""

    store: str
    what: str
    log: Speed
    bare: Speed
    bar: float | None = None

    @property
    def ratio(self) -> float:
        """How fast the log is, where bare is 1."""
        return self.bare.wall_s / self.log.wall_s

    @property
    def cpu_ratio(self) -> float:
        """The same by the time of a core."""
        return self.bare.cpu_s / self.log.cpu_s


@dataclass(frozen=True)
class Opening:
    """How long a look at a small topic and at a large one takes, and what it asks of the store."""

    store: str
    what: str
    segments: tuple[int, int]
    few_ms: float
    many_ms: float
    requests: tuple[int, int]
    bar: float | None = None

    @property
    def ratio(self) -> float:
        """How much slower the large one is."""
        return self.many_ms / self.few_ms


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--quick", action="store_true", help="a million rows, a thousand segments")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    batches = made((ROWS // 5 if options.quick else options.rows) // BATCH_ROWS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = folder_rows(folder, batches)
        costs = profiled(folder, batches[:PROFILED])
        rows += bucket_rows(folder, batches[: max(1, len(batches) // BUCKET_SHARE)])
        openings = opened(folder, MANY // 10 if options.quick else MANY)
    console = Console(width=180)
    for table in (speed_table(rows), opening_table(openings), *map(cost_table, costs.items())):
        console.print(table)
    console.print(conclusion(costs))
    if not options.dry:
        write_section("log", report(rows, openings, costs))


def made(count: int) -> list[pa.Table]:
    """So many batches: a user of 10 letters, an amount, a number, and a moment."""
    names = pa.array([f"user-{number:05d}" for number in range(USERS)])
    batches = []
    for number in range(count):
        random = np.random.default_rng(number)
        numbers = np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS, dtype=np.int64)
        moments = START_US + numbers * 1000 + random.integers(0, 1000, BATCH_ROWS)
        columns = {
            "user": names.take(pa.array(random.integers(0, USERS, BATCH_ROWS))),
            "amount": pa.array(np.round(random.gamma(2.0, 20.0, BATCH_ROWS), 2)),
            "n": pa.array(numbers),
            "at": pa.array(moments).cast(pa.timestamp("us", tz="UTC")),
        }
        batches.append(pa.table(columns))
    return batches


def in_turn(works: dict[str, Work], size_bytes: int, clean: Callable[[], None]) -> dict[str, Speed]:
    """Each several times, one after the other; of each the best. What one has written is removed,
    and the disk is idle, before the next begins. The first round is for memory and connections
    that were never used before, and does not count."""
    best: dict[str, Speed] = {}
    for work in works.values():
        clean()
        work()
    for name, work in [*works.items()] * ROUNDS:
        clean()
        os.sync()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        rows = work()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        known = best.get(name, Speed(rows, size_bytes, wall_s, cpu_s))
        best[name] = Speed(rows, size_bytes, min(known.wall_s, wall_s), min(known.cpu_s, cpu_s))
    clean()
    return best


def append_log(url: str, batches: Sequence[pa.Table], partitions: int) -> int:
    """Append to a new topic, until all is durable."""
    log = Log.create(url, batches[0].schema, partitions=partitions, key="user")
    with log.producer() as producer:
        for batch in batches:
            producer.append(batch)
    return BATCH_ROWS * len(batches)


def read_log(url: str) -> int:
    """Read all there is, one partition after the other."""
    log, rows = Log(url), 0
    for partition, span in log.spans().items():
        for batch in log.read(partition, Range(start=span.earliest, stop=span.latest)):
            rows += batch.num_rows
    return rows


def folder_rows(folder: Path, batches: list[pa.Table]) -> list[Row]:
    """Against plain files, both without and with an fsync each."""
    size_bytes, passing = sum(batch.nbytes for batch in batches), folder / "passing"
    wrote = in_turn(
        {
            "log": lambda: append_log(str(passing), batches, 1),
            "by key": lambda: append_log(str(passing), batches, PARTITIONS),
            "bare": lambda: write_files(passing, batches, durable=False),
            "durable": lambda: write_files(passing, batches, durable=True),
        },
        size_bytes,
        lambda: shutil.rmtree(passing, ignore_errors=True),
    )
    for name, partitions in (("log", 1), ("by key", PARTITIONS)):
        append_log(str(folder / name), batches, partitions)
    write_files(folder / "bare", batches, durable=False)
    read = in_turn(
        {
            "log": lambda: read_log(str(folder / "log")),
            "by key": lambda: read_log(str(folder / "by key")),
            "bare": lambda: read_files(folder / "bare"),
        },
        size_bytes,
        lambda: None,
    )
    return [
        Row("folder", "append", wrote["log"], wrote["bare"], APPEND_BAR),
        Row("folder", "append, bare with fsync", wrote["log"], wrote["durable"]),
        Row("folder", f"append to {PARTITIONS} partitions by key", wrote["by key"], wrote["bare"]),
        Row("folder", "read", read["log"], read["bare"], READ_BAR),
        Row("folder", f"read {PARTITIONS} partitions", read["by key"], read["bare"]),
    ]


def write_files(folder: Path, batches: Sequence[pa.Table], *, durable: bool) -> int:
    """Each batch a file."""
    folder.mkdir()
    for number, batch in enumerate(batches):
        path = folder / f"{number:06d}.arrow"
        with pa.OSFile(str(path), "wb") as file:
            _write(file, batch)
        if durable:
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return BATCH_ROWS * len(batches)


def read_files(folder: Path) -> int:
    """Every file, decompressed."""
    rows = 0
    for path in sorted(folder.iterdir()):
        with pa.OSFile(str(path)) as file:
            rows += pa.ipc.open_file(file).read_all().num_rows
    return rows


def bucket_rows(folder: Path, batches: list[pa.Table]) -> list[Row]:
    """Against the same objects, put and got one by one by a client with the same settings."""
    size_bytes, base = sum(batch.nbytes for batch in batches), f"s3://{BUCKET}"
    with moto(folder) as upstream, proxy(upstream, folder, "serialise") as endpoint:
        os.environ.update(endpoint.settings())
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        passing = boto3.resource("s3").Bucket(BUCKET).objects.filter(Prefix="passing/")
        wrote = in_turn(
            {
                "log": lambda: append_log(f"{base}/passing", batches, 1),
                "by key": lambda: append_log(f"{base}/passing", batches, PARTITIONS),
                "bare": lambda: put_objects("passing", batches),
            },
            size_bytes,
            passing.delete,
        )
        append_log(f"{base}/log", batches, 1)
        put_objects("bare", batches)
        read = in_turn(
            {"log": lambda: read_log(f"{base}/log"), "bare": lambda: get_objects("bare/")},
            size_bytes,
            lambda: None,
        )
    return [
        Row("moto", "append", wrote["log"], wrote["bare"], APPEND_BAR),
        Row("moto", f"append to {PARTITIONS} partitions by key", wrote["by key"], wrote["bare"]),
        Row("moto", "read", read["log"], read["bare"], READ_BAR),
    ]


def put_objects(prefix: str, batches: Sequence[pa.Table]) -> int:
    """Each batch an object."""
    client = new_clients()[1]
    for number, batch in enumerate(batches):
        sink = pa.BufferOutputStream()
        _write(sink, batch)
        body = sink.getvalue().to_pybytes()
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{number:06d}.arrow", Body=body)
    return BATCH_ROWS * len(batches)


def get_objects(prefix: str) -> int:
    """Every object, decompressed."""
    client, rows = new_clients()[1], 0
    for found in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
        body = client.get_object(Bucket=BUCKET, Key=found["Key"])["Body"].read()
        rows += pa.ipc.open_file(body).read_all().num_rows
    return rows


def _write(sink: pa.NativeFile, batch: pa.Table) -> None:
    with pa.ipc.new_file(sink, batch.schema, options=LZ4) as writer:
        writer.write_table(batch)


def opened(folder: Path, many: int) -> list[Opening]:
    """Looks at a small topic and at a large one, in memory and in a folder."""
    urls = {segments: with_segments(segments) for segments in (FEW, many)}
    copies = {segments: copied(url, folder / f"{segments}") for segments, url in urls.items()}
    looks: dict[str, Callable[[Log, int], object]] = {
        "open: Log(url).spans()": lambda log, _: log.spans(),
        "read the earliest row": lambda log, _: read_row(log, 0),
        "read the middle row": lambda log, segments: read_row(log, segments // 2),
        "read the latest row": lambda log, segments: read_row(log, segments - 1),
    }
    return [
        compared(store, what, topics, look)
        for store, topics in {"memory": urls, "folder": copies}.items()
        for what, look in looks.items()
    ]


def with_segments(segments: int) -> str:
    """A topic of one partition in memory, with so many segments of a row each."""
    url = f"memory://{CHANCE.unique()}"
    topic = Log.create(url, pa.schema([("n", pa.int64())])).topic()
    handlers = store_handlers(open_store(url), CLOCK)
    writer, seen = Writer(topic.id, "bench", 1), None
    for first in range(0, segments, GROUP):
        bodies = [encode(pa.table({"n": [n]})) for n in range(first, min(segments, first + GROUP))]
        rows = [Batch(n + 1, n, 1, None, body) for n, body in enumerate(bodies, first)]
        staged = [perform(stage(0, row, 0, CHANCE), handlers) for row in rows]
        seen = perform(append(writer, 0, staged, 1, CHANCE, seen), handlers).tail
    return url


def copied(url: str, folder: Path) -> str:
    """The same topic in a folder, without the fsyncs that appending costs."""
    store, after = open_store(url), ""
    while page := store.list("", after):
        after = page[-1].key
        for entry in page:
            stored = store.get(entry.key)
            assert stored is not None
            (folder / entry.key).parent.mkdir(parents=True, exist_ok=True)
            (folder / entry.key).write_bytes(stored.body)
    return str(folder)


def read_row(log: Log, offset: int) -> None:
    """What a reader does that begins there."""
    (row,) = log.read("0", Range(start=offset, stop=offset + 1))
    assert row.column("n").to_pylist() == [offset]


def compared(
    store: str, what: str, topics: dict[int, str], look: Callable[[Log, int], object]
) -> Opening:
    """One look at both topics in turn, many times; the median counts."""
    taken: dict[int, list[float]] = {segments: [] for segments in topics}
    for segments, url in [*topics.items()] * OPENINGS:
        started = time.perf_counter()
        look(Log(url), segments)
        taken[segments].append(1000 * (time.perf_counter() - started))
    few, many = topics
    few_ms, many_ms = statistics.median(taken[few]), statistics.median(taken[many])
    requests = requested(topics[few], few, look), requested(topics[many], many, look)
    bar = OPENING_BAR if what.startswith("open") else None
    return Opening(store, what, (few, many), few_ms, many_ms, requests, bar)


def requested(url: str, segments: int, look: Callable[[Log, int], object]) -> int:
    """How many requests a look makes."""
    log, asked = Log(url), list[Point]()
    log._handlers = armed(log._handlers, asked.append, lambda point: None)
    look(log, segments)
    return len(asked)


def profiled(folder: Path, batches: list[pa.Table]) -> dict[str, list[Cost]]:
    """Where the time goes, by function, without what it calls."""
    url = str(folder / "profiled")
    log = Log.create(url, batches[0].schema)
    writer = Writer(log.topic().id, "bench", 1)
    handlers = store_handlers(open_store(url), CLOCK)
    lane = Lane(Wiring(log.name, writer, None, handlers, CLOCK, CHANCE, Batching()), 0)

    def append_all() -> None:
        for batch in batches:  # in this thread, for a profile sees no other
            lane.add(batch, None)
            assert lane.enter()
            lane.send()

    return {
        "Appending": profile(append_all, len(batches)),
        "Reading": profile(lambda: read_log(url), len(batches)),
    }


def profile(work: Callable[[], object], times: int) -> list[Cost]:
    """The costliest functions of some work."""
    profiler = cProfile.Profile()
    profiler.runcall(work)
    stats = pstats.Stats(profiler)
    total = stats.total_tt  # type: ignore[attr-defined]
    lines = stats.stats.items()  # type: ignore[attr-defined]
    costs = [Cost(_short(name), calls / times, own / total) for name, (_, calls, own, *_) in lines]
    return sorted(costs, key=lambda cost: -cost.share)[:TOP]


def _short(place: tuple[str, int, str]) -> str:
    """A function's name without the machine's paths."""
    file, _, name = place
    return name.strip("<>") if file == "~" else f"{Path(file).name}: {name}"


def speed_table(rows: list[Row]) -> Table:
    """Rates by the clock on the wall, and by that of a core."""
    table = Table(
        "store", "what", "rows/s", "MB/s", "rows/s of a core", "bare rows/s", "bare MB/s",
        "bare rows/s of a core", "ratio", "ratio by core", "bar", "met", title="Log and bare files",
    )  # fmt: skip
    for row in rows:
        ratios = f"{row.ratio:.2f}", f"{row.cpu_ratio:.2f}"
        bar = "" if row.bar is None else f"≥ {row.bar}"
        met = "" if row.bar is None else "yes" if row.ratio >= row.bar else "no"
        table.add_row(row.store, row.what, *_rates(row.log), *_rates(row.bare), *ratios, bar, met)
    return table


def _rates(speed: Speed) -> tuple[str, str, str]:
    return (
        f"{speed.rows / speed.wall_s:,.0f}",
        f"{speed.size_bytes / speed.wall_s / 1e6:,.0f}",
        f"{speed.rows / speed.cpu_s:,.0f}",
    )


def opening_table(openings: list[Opening]) -> Table:
    """Time to open, and to read a row."""
    few, many = openings[0].segments
    table = Table(
        "store", "what", f"{few:,} segments, ms", f"{many:,} segments, ms", "ratio", "bar", "met",
        "requests", title="Opening",
    )  # fmt: skip
    for each in openings:
        bar = "" if each.bar is None else f"≤ {each.bar:.0f}"
        met = "" if each.bar is None else "yes" if each.ratio <= each.bar else "no"
        times = f"{each.few_ms:.2f}", f"{each.many_ms:.2f}", f"{each.ratio:.2f}"
        requests = "{} and {}".format(*each.requests)
        table.add_row(each.store, each.what, *times, bar, met, requests)
    return table


def cost_table(named: tuple[str, list[Cost]]) -> Table:
    """A profile."""
    name, costs = named
    table = Table("function", "calls per batch", "share", title=f"{name} on a folder")
    for cost in costs:
        table.add_row(cost.name, f"{cost.calls:.1f}", f"{cost.share:.0%}")
    return table


def report(rows: list[Row], openings: list[Opening], costs: dict[str, list[Cost]]) -> str:
    """The section of RESULTS.md."""
    machine = (
        f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f} over 15 minutes), "
        f"{platform.system()}, Python {platform.python_version()}"
    )
    profiles = [
        f"{name} {PROFILED} batches on a folder, one by one, by cProfile, own time only:\n\n"
        f"{markdown(cost_table((name, found)))}\n"
        for name, found in costs.items()
    ]
    return "\n".join(
        [
            "## Log",
            "",
            f"`make bench-log`, {datetime.now(UTC):%Y-%m-%d}, {machine}. Columns user (string of "
            f"10), amount (float64), n (int64), at (timestamp); batches of {BATCH_ROWS:,} rows, "
            f"{rows[0].log.rows:,} rows to a folder and {rows[-1].log.rows:,} to a bucket of moto "
            "behind a serialising proxy. Bare is the same batches as Arrow files with the same "
            "compression, one after the other, nothing else; without fsync, unless a row says so. "
            "An append is done when all is durable; a read gives rows with `_meta`. MB are those "
            f"of Arrow in memory. Best of {ROUNDS} rounds in turn, after one that does not count, "
            "by the wall and by the time of all threads of the process.",
            "",
            markdown(speed_table(rows)),
            "",
            f"Opening a topic, median of {OPENINGS}: one partition, segments of one row each. "
            "Requests are those made to the store, at both sizes.",
            "",
            markdown(opening_table(openings)),
            "",
            *profiles,
            conclusion(costs),
        ]
    )


def conclusion(costs: dict[str, list[Cost]]) -> str:
    """The profiles in words, from their figures."""
    said = [
        f"{name} spends its time in "
        + ", ".join(f"`{cost.name}` ({cost.share:.0%})" for cost in found[:3])
        for name, found in costs.items()
    ]
    return f"{'; '.join(said)}. What Arrow does is counted where Penstock calls it."


if __name__ == "__main__":
    main()
