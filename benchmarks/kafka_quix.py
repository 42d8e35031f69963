"""The topology in Quix Streams, with its exactly-once guarantee.

    .venv/quix/bin/python -m benchmarks.kafka_quix --bootstrap B --source T --target T --folder F

Started by `benchmarks.kafka`, by the Python of an environment of its own: Quix Streams wants older
clients than Penstock is tested with. It runs until it is told to stop by SIGTERM, and then commits.
"""

import argparse
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]

COMMIT_INTERVAL_S = 5.0
"""Its default. With 1 s it was slower, with 10 s no faster."""
PRODUCER = {"linger.ms": 100, "batch.size": 1 << 20, "compression.type": "lz4"}
CONSUMER = {"fetch.min.bytes": 1 << 16, "queued.min.messages": 200_000}


def count(event: dict[str, Any], state: Any) -> dict[str, Any]:
    """What a user has come to, kept as one value, so that it is read and written once."""
    number, total = state.get("total", (0, 0))
    number, total = number + 1, total + event["amount"]
    state.set("total", (number, total))
    return {"user": event["user"], "count": number, "total": total}


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bootstrap", "source", "target", "folder"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    app = Application(
        broker_address=options.bootstrap,
        consumer_group=f"quix-{options.target}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_INTERVAL_S,
        producer_extra_config=dict(PRODUCER),
        consumer_extra_config=dict(CONSUMER),
        state_dir=options.folder,
        loglevel="WARNING",
    )
    rows = app.dataframe(app.topic(options.source)).apply(count, stateful=True)
    rows.to_topic(app.topic(options.target))
    app.run()


if __name__ == "__main__":
    main()
