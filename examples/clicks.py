"""Clicks per user in one country: the example of the README, in full.

A log of clicks is read, a line of Spark keeps those of one country, and a function that remembers
one number per user counts them. Run it again and the counts go on from where they were.

    python examples/clicks.py
    penstock run examples/clicks.py --root scratch/clicks/root --until caught-up

The first makes clicks and counts them. The second runs the same job from a shell: it finds the
clicks that were appended to scratch/clicks/log since, or those of the log that CLICKS_LOG names.
"""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

FOLDER = "scratch/clicks"
ROWS = 20_000
USERS = 1_000
COLUMNS = pa.schema(
    [("user", pa.string()), ("country", pa.string()), ("at", pa.timestamp("us", tz="UTC"))]
)
START = datetime(2026, 1, 1, tzinfo=UTC)


@ps.stateful(emits="user string, clicks long")
def count_clicks(user: str, events: ps.Events, clicks: ps.Value[int]) -> Iterator[dict[str, Any]]:
    """How often a user has clicked so far."""
    clicks.set(clicks.get(0) + len(events))
    yield {"user": user, "clicks": clicks.get()}


def clicks_job(log: str) -> ps.Job:
    """The job on a log of clicks."""
    job = ps.Job("clicks", partitions=4)
    (
        job.read(ps.Log(log), name="clicks", event_time="at")
        .transform(lambda df: df.where("country = 'KR'"))
        .key_by("user")
        .process(count_clicks)
        .write(ps.Table("totals"))
    )
    return job


job = clicks_job(os.environ.get("CLICKS_LOG", f"{FOLDER}/log"))


def append_clicks(url: str, rows: int) -> None:
    """Append clicks, the same ones every time, to a log that is made if need be."""
    if not Path(url).exists():
        ps.Log.create(url, COLUMNS, partitions=4)
    chance = np.random.default_rng(seed=2026)
    clicks = {
        "user": [f"user-{number}" for number in chance.zipf(1.3, rows) % USERS],
        "country": chance.choice(["KR", "DE", "BR"], rows, p=[0.6, 0.2, 0.2]),
        "at": [START + timedelta(milliseconds=number) for number in range(rows)],
    }
    with ps.Log(url).producer() as producer:
        producer.append(pa.table(clicks, schema=COLUMNS))


def main(folder: str) -> None:
    """Make clicks, count them, and show who clicked most."""
    append_clicks(f"{folder}/log", ROWS)
    ran = clicks_job(f"{folder}/log").run(f"{folder}/root", until="caught-up", master="local[2]")

    totals = ps.read_table(f"{folder}/root", "totals", latest_by="user")
    print(f"{ran.rows_in:,} clicks read; {totals.num_rows:,} users in KR, and the busiest of them:")
    for row in totals.sort_by([("clicks", "descending")]).slice(0, 3).to_pylist():
        print(f"  {row['user']:<10} {row['clicks']:>6,} clicks")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [FOLDER])
