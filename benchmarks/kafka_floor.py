"""The floor: a bare confluent-kafka consumer that takes every message and does nothing with it.

    python -m benchmarks.kafka_floor --bootstrap B --source T --target - --folder -
        --rows 1000000 --steps FILE

Started by `benchmarks.kafka`. Nobody who reads with that client in one Python process is faster.
"""

import argparse
import json
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from benchmarks.kafka_data import PARTITIONS

AT_ONCE = 10_000
PATIENCE_S = 30.0
SETTINGS = {
    "group.id": "floor",
    "enable.auto.commit": False,
    "fetch.min.bytes": 1 << 16,
    "queued.min.messages": 200_000,
}


def main() -> None:
    """Consume so many messages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bootstrap", "source", "target", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--steps", type=Path, required=True)
    options = parser.parse_args()
    consumer = Consumer({"bootstrap.servers": options.bootstrap, **SETTINGS})
    consumer.assign(
        [TopicPartition(options.source, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    )
    steps, rows = [], 0
    while rows < options.rows:
        messages = consumer.consume(min(AT_ONCE, options.rows - rows), PATIENCE_S)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        if not messages:
            raise SystemExit(f"no message in {PATIENCE_S:g} s")
        rows += len(messages)
        steps.append((time.monotonic(), rows))
    options.steps.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    consumer.close()


if __name__ == "__main__":
    main()
