"""Sessions by event time: one ends when its user has been silent for 30 minutes.

Events come up to five minutes out of order, so a session is told only when no event can change it
any more: a timer waits until the watermark is 30 minutes past its last event.

    python examples/sessions.py
    penstock run examples/sessions.py --root scratch/sessions/root --until caught-up

The first makes a day of visits and checks every session against a plain computation of the same.
The second goes on with scratch/sessions/log, or with the log that VISITS_LOG names.
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

FOLDER = "scratch/sessions"
SILENCE = timedelta(minutes=30)
DELAY = timedelta(minutes=5)
COLUMNS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
START = datetime(2026, 1, 1, tzinfo=UTC)

Session = tuple[datetime, datetime, int]
"""Its first event, its last one, and how many there are."""


@ps.stateful(emits="user string, start timestamp, end timestamp, events long")
def sessions(
    user: str, events: ps.Events, current: ps.Value[list[Session]], silence: ps.Timer
) -> Iterator[dict[str, Any]]:
    """Each session once, when it is over."""
    found = current.get([])
    if silence.fired is not None:
        now = datetime.fromtimestamp(silence.fired / 1000, UTC)
        for start, end, count in found:
            if end + SILENCE <= now:
                yield {"user": user, "start": start, "end": end, "events": count}
        current.set([session for session in found if session[1] + SILENCE > now])
        return
    for event in events:
        found = joined(found, event.at)
    current.set(found)
    silence.clear()
    for _, end, _ in found:
        silence.set(end + SILENCE)


def joined(found: list[Session], at: datetime) -> list[Session]:
    """The sessions with one event more: it may lengthen one, join two, or begin its own."""
    near = [each for each in found if each[0] - SILENCE < at < each[1] + SILENCE]
    apart = [each for each in found if each not in near]
    starts, ends, counts = zip((at, at, 1), *near, strict=True)
    return [*apart, (min(starts), max(ends), sum(counts))]


def sessions_job(log: str) -> ps.Job:
    """The job on a log of visits."""
    job = ps.Job("sessions", partitions=2)
    visits = job.read(ps.Log(log), name="visits", event_time="at", delay="5 min")
    visits.key_by("user").process(sessions).write(ps.Table("sessions"))
    return job


job = sessions_job(os.environ.get("VISITS_LOG", f"{FOLDER}/log"))


def make_visits(url: str, rows: int = 5_000) -> None:
    """A day of visits in the order in which they arrive, each less than five minutes late."""
    chance = np.random.default_rng(seed=30)
    happened = chance.integers(0, 86_400, rows)
    arrived = happened + chance.uniform(0, DELAY.total_seconds(), rows)
    visits = {
        "user": [f"user-{number}" for number in chance.integers(0, 100, rows)],
        "at": [START + timedelta(seconds=int(s)) for s in happened[np.argsort(arrived)]],
    }
    with ps.Log.create(url, COLUMNS).producer() as producer:
        producer.append(pa.table(visits, schema=COLUMNS))


def plainly(log: ps.Log) -> list[tuple[Any, ...]]:
    """The sessions that are over, computed from all visits at once."""
    everything = log.plan({}, ps.Limits())
    batches = [b.select(COLUMNS.names) for p, r in everything.items() for b in log.read(p, r)]
    visits = pa.Table.from_batches(batches).sort_by([("user", "ascending"), ("at", "ascending")])
    found: list[list[Any]] = []
    for row in visits.to_pylist():
        if found and found[-1][0] == row["user"] and row["at"] - found[-1][2] < SILENCE:
            found[-1][2:] = [row["at"], found[-1][3] + 1]
        else:
            found.append([row["user"], row["at"], row["at"], 1])
    watermark = max(visits["at"].to_pylist()) - DELAY
    return sorted(tuple(session) for session in found if session[2] + SILENCE <= watermark)


def main(folder: str) -> None:
    """Make visits, find the sessions in epochs of 1,000 events, check them, show the longest."""
    log, root = ps.Log(f"{folder}/log"), f"{folder}/root"
    if not Path(log.url).exists():
        make_visits(log.url)
    small = ps.RunSettings(limits=ps.Limits(records=1_000), until="caught-up", master="local[2]")
    sessions_job(log.url).run(root, settings=small)

    table = ps.read_table(root, "sessions").select(["user", "start", "end", "events"])
    found = sorted(tuple(row.values()) for row in table.to_pylist())
    if found != plainly(log):
        sys.exit("The sessions are not those of the plain computation.")
    print(f"{len(found):,} sessions are over, each as the plain computation has it; the longest:")
    for user, start, end, events in sorted(found, key=lambda row: row[1] - row[2])[:3]:
        print(f"  {user:<8} {start:%H:%M:%S} to {end:%H:%M:%S}, {events} events")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [FOLDER])
