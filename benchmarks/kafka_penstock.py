"""The topology in Penstock: a function per key, from topic to topic.

    python -m benchmarks.kafka_penstock --bootstrap B --source T --target T --folder F
        --records 200000

Started by `benchmarks.kafka`. It ends when everything is processed and can be read.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import penstock as ps
from benchmarks.kafka_data import PARTITIONS
from benchmarks.w1_data import CORES, MEMORY
from benchmarks.w1_penstock import Commits
from penstock.runtime.run import run_job

EVENT = "user string, amount long, at string"


@ps.stateful(emits="user string, count long, total long")
def count(user: str, events: ps.Events, known: ps.Value[tuple[int, int]]) -> Iterator[Any]:
    """A row for each event of a user in this epoch."""
    number, total = known.get((0, 0))
    for amount in events.values("amount"):
        number, total = number + 1, total + amount
        yield {"user": user, "count": number, "total": total}
    known.set((number, total))


def main() -> None:
    """Process everything there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bootstrap", "source", "target", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--records", type=int, required=True)
    options = parser.parse_args()
    job = ps.Job("kafka", partitions=PARTITIONS, order="log")
    source = ps.Kafka(options.bootstrap, options.source, value="json", columns=EVENT)
    target = ps.Kafka(
        options.bootstrap, options.target, value="json", key="string", key_column="user"
    )
    job.read(source, name="events").key_by("user").process(count).write(target)
    settings = ps.RunSettings(
        master=CORES,
        until="caught-up",
        limits=ps.Limits(records=options.records),
        state_folder=f"{options.folder}/state",
        spark=MEMORY,
    )
    commits = Commits()
    run_job(job, f"{options.folder}/root", settings, commits)
    for each in commits.done:
        work = {name: round(seconds, 3) for name, seconds in each.work.items()}
        print(f"{each.rows_in} rows, {each.seconds:.2f} s, commit {each.commit_s:.2f} s, {work}")
    if commits.retries:
        raise SystemExit(commits.retries[0])


if __name__ == "__main__":
    main()
