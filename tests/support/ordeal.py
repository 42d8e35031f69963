"""Chaos runs of the job in chaos_job.py, with servers of their own."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock import chaos
from penstock.chaos.chaos_run import Result
from penstock.chaos.history import ChaosRun, commits, recoveries, strikes
from tests.support import databases, kafka

JOB = Path(__file__).with_name("chaos_job.py")
CORPUS = Path(__file__).parents[1] / "chaos" / "corpus.txt"


@contextmanager
def settings(with_kafka: bool) -> Iterator[Mapping[str, str]]:
    """What the job finds in its environment."""
    with ExitStack() as stack:
        postgres = stack.enter_context(databases.postgres())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        found = {
            "ORDEAL_POSTGRES": postgres.dsn(),
            "PG_PASSWORD": databases.PASSWORD,
            "ORDEAL_TOPIC": f"{folder}/topic",
        }
        if with_kafka:
            cluster = stack.enter_context(kafka.cluster())
            found["ORDEAL_KAFKA"] = f"{cluster.bootstrap}/{cluster.topic(partitions=2)}"
        yield found


@contextmanager
def in_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """With these settings, for this process and those it starts."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ordeal(with_kafka: bool = False, **asked: Any) -> Result:
    """One run of the job, with sinks of its own."""
    with settings(with_kafka) as found, in_environment(found):
        return chaos.run(JOB, **asked)


def corpus() -> list[tuple[int, str]]:
    """Seeds that have found something, and the faults they were given."""
    lines = [line.partition("#")[0].split() for line in CORPUS.read_text().splitlines()]
    return [(int(words[0]), words[1]) for words in lines if words]


def show(run: ChaosRun) -> None:
    """What `make chaos` is asked for."""
    times = Counter(each.family for each in strikes(run.happenings))
    rows = sum(each.rows_in for each in commits(run.happenings))
    print(f"\n{run.verdict}: {sum(times.values())} faults {dict(times)}, {rows:,} records, "
          f"{len(commits(run.happenings))} epochs, {run.seconds:.0f} s")  # fmt: skip
    by_fault: dict[str, list[float]] = {}
    for each in recoveries(run.happenings):
        by_fault.setdefault(each.fault, []).append(each.seconds or 0.0)
    for fault, seconds in sorted(by_fault.items()):
        told = ", ".join(f"{each:.1f}" for each in sorted(seconds))
        print(f"  {fault:20} {told} s to the next commit")
