"""Card payments in, alerts out, both of them topics of a Kafka.

A card is told of when it pays more than five times within ten minutes, or more than 2,000.00 in
all; and not again before it has kept to that for an hour. Time is that of the payments. A
message that is no payment does not stop the job: it is left out, and can be looked at.

    make kafka                                       starts a broker to play with
    export KAFKA_BROKERS=127.0.0.1:9092              what it says
    python examples/kafka_fraud.py --produce         the job, and somebody who pays meanwhile
    python examples/kafka_fraud.py --show            the alerts, as they come

Each goes on until Ctrl-C. `--produce 5000` makes so many payments, processes them and ends; `--show
3` ends after three alerts. From a shell, with payments of one's own:

    penstock run examples/kafka_fraud.py --root scratch/kafka_fraud/root
"""

import argparse
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import penstock as ps
from penstock.clock import SystemClock

FOLDER = "scratch/kafka_fraud"
BROKERS = os.environ.get("KAFKA_BROKERS", "127.0.0.1:9092")
PAYMENTS, ALERTS = "payments", "alerts"
PARTITIONS = 2
WINDOW = timedelta(minutes=10)
SILENCE = timedelta(hours=1)
NUMBER_MAX, TOTAL_MAX = 5, 200_000
"""Payments within the window, and what they may come to, in cents."""

CARDS, THIEVES_EVERY, THEFTS = 100_000, 500, 8
"""A card is stolen every so many payments, and used so many times."""
PER_SECOND = 20
BROKEN_EVERY, FLUSH_EVERY = 1_000, 10_000
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT_S = 30.0

Payment = tuple[datetime, int]
"""When, and how much, in cents."""

clock = SystemClock()


@ps.stateful(emits="card string, at timestamp, rule string, payments long, total long")
def watch(
    card: str,
    events: ps.Events,
    recent: ps.Value[list[Payment]],
    told: ps.Value[datetime],
    forget: ps.Timer,
) -> Iterator[dict[str, Any]]:
    """One alert for a card that pays too often or too much."""
    if forget.fired is not None:
        recent.clear()
        told.clear()
        return
    window, last = recent.get([]), told.get()
    for event in events:
        window = [each for each in window if each[0] > event.at - WINDOW]
        window.append((event.at, event.amount))
        rule = broken_rule(window)
        if rule and (last is None or event.at - last >= SILENCE):
            total = sum(amount for _, amount in window)
            yield {
                "card": card, "at": event.at, "rule": rule, "payments": len(window), "total": total
            }  # fmt: skip
        last = event.at if rule else last
    recent.set(window)
    if last is not None:
        told.set(last)
    forget.clear()
    forget.set(max(window)[0] + SILENCE)


def broken_rule(window: Sequence[Payment]) -> str | None:
    """What is wrong with the payments of a window."""
    if len(window) > NUMBER_MAX:
        return "too many"
    return "too much" if sum(amount for _, amount in window) > TOTAL_MAX else None


def fraud_job(brokers: str) -> ps.Job:
    """The job on the topics of a Kafka."""
    job = ps.Job("fraud", partitions=PARTITIONS)
    payments = ps.Kafka(
        brokers,
        PAYMENTS,
        value="json",
        columns="card string not null, amount long not null, at timestamp not null",
        on_undecodable="quarantine",
        group="fraud-job",
    )
    alerts = ps.Kafka(brokers, ALERTS, value="json", key="string", key_column="card")
    (
        job.read(payments, name="payments", event_time="at", delay="10 s", idle="1 min")
        .key_by("card")
        .process(watch)
        .write(alerts)
    )
    return job


job = fraud_job(BROKERS)


def make_topics(brokers: str) -> None:
    """Make the topics that are not there."""
    admin = AdminClient({"bootstrap.servers": brokers})
    new = [NewTopic(name, PARTITIONS) for name in (PAYMENTS, ALERTS)]
    for made in admin.create_topics(new).values():
        try:
            made.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise


def payments() -> Iterator[dict[str, Any]]:
    """Endless payments, the same ones every time: most by somebody who pays now and then, some by
    a thief."""
    chance = np.random.default_rng(seed=8)
    stolen: list[str] = []
    for number in range(1 << 62):
        if number % THIEVES_EVERY == 0:
            stolen += [f"card-{chance.integers(CARDS):05d}"] * THEFTS
        is_theft = bool(stolen) and chance.random() < 0.1
        card = stolen.pop() if is_theft else f"card-{chance.integers(CARDS):05d}"
        yield {"card": card, "amount": int(chance.lognormal(8.0, 1.0)), "number": number}


def pay(brokers: str, number: int | None) -> None:
    """Send payments: so many at once, as of some day; or as they would come, until the process
    ends. A few messages are none."""
    producer = Producer({"bootstrap.servers": brokers})
    start = START if number else datetime.fromtimestamp(clock.wall(), UTC)
    for sent, payment in zip(range(number or 1 << 62), payments(), strict=False):
        at = start + timedelta(seconds=sent / PER_SECOND)
        body = json.dumps({**payment, "at": at.isoformat()})
        producer.produce(PAYMENTS, body, payment["card"])
        if sent % BROKEN_EVERY == 0:
            producer.produce(PAYMENTS, b"no payment")
        if sent % FLUSH_EVERY == 0:
            producer.flush()
        if number is None and sent % PER_SECOND == PER_SECOND - 1:
            producer.poll(0)
            clock.sleep(1.0)
    producer.flush()


def show(brokers: str, number: int | None) -> None:
    """Print alerts: so many, or those that come until the process ends."""
    settings = {"bootstrap.servers": brokers, "group.id": "show", "enable.auto.commit": False}
    consumer = Consumer(settings)  # it reads what is committed, unless told otherwise
    consumer.assign([TopicPartition(ALERTS, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    shown = 0
    while number is None or shown < number:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        alert = json.loads(message.value() or b"{}")
        paid = f"{alert['payments']} payments, {alert['total'] / 100:,.2f}"
        print(f"{alert['at']}  {alert['card']}  {alert['rule']}: {paid}", flush=True)
        shown += 1
    consumer.close()


def main() -> None:
    """Run the job, with or without somebody who pays; or show what it finds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", default=BROKERS, help="where the Kafka is")
    parser.add_argument("--produce", nargs="?", type=int, const=0, metavar="N", help="and pay")
    parser.add_argument("--show", nargs="?", type=int, const=0, metavar="N", help="show alerts")
    options = parser.parse_args()
    make_topics(options.brokers)
    if options.show is not None:
        with suppress(KeyboardInterrupt):
            show(options.brokers, options.show or None)
        return
    if options.produce:
        pay(options.brokers, options.produce)
    elif options.produce is not None:
        threading.Thread(target=pay, args=(options.brokers, None), daemon=True).start()
    until = "caught-up" if options.produce else None
    ran = fraud_job(options.brokers).run(f"{FOLDER}/root", until=until, master="local[2]")
    alerts = ran.rows_out - ran.quarantined
    print(f"{ran.rows_in:,} payments, {alerts:,} alerts, {ran.quarantined} messages left out.")


if __name__ == "__main__":
    main()
