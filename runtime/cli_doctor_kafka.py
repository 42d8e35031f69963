"""`penstock doctor --kafka`: transactions that hold up the readers of a topic, and ending them."""

from typing import Any

import typer
from rich.markup import escape

from penstock.clock import SystemClock
from penstock.errors import Invalid
from penstock.runtime.answers import EXIT_FOUND, counted, or_exit, out, print_json
from penstock.sinks.kafka_settings import KafkaSettings, Scalar

__all__ = ["examine_kafka"]

PREFIX = "penstock"
TIMEOUT_S = 15.0


def examine_kafka(bootstrap: str, job: str, given: list[str], abort: bool, as_json: bool) -> None:
    """Say what is held up, after ending what is ours if that was asked for. Exits with what was
    found."""
    found = or_exit(bootstrap, lambda: _examined(bootstrap, job, given, abort))
    if as_json:
        print_json(found)
    else:
        _show(found, job)
    raise typer.Exit(EXIT_FOUND if found["hanging"] else 0)


def _examined(bootstrap: str, job: str, given: list[str], abort: bool) -> dict[str, Any]:
    where = f"Kafka at {bootstrap}"
    line = KafkaSettings(where, bootstrap, _settings(where, given), TIMEOUT_S)
    line.check()
    prefix, _, name = job.rpartition("/")
    transactions = _transactions(line, prefix or PREFIX, name)
    seen = transactions.look()
    ended = bool(abort and seen.hanging)
    if ended:
        transactions.end(seen.shards)
        seen = transactions.look()
    return {
        "kafka": bootstrap,
        "ended": ended,
        "hanging": seen.hanging,
        "shards": [
            {"id": each.name, "topic": each.topic, "epoch": each.epoch, "stable": each.is_stable}
            for each in seen.shards
        ],
        "held_back": [
            {"topic": each.topic, "partition": each.partition, "offsets": each.offsets}
            for each in seen.held_back
        ],
    }


def _transactions(line: KafkaSettings, prefix: str, job: str) -> Any:
    try:
        from penstock.sinks.kafka_clients import Clients
        from penstock.sinks.kafka_errors import Place
        from penstock.sinks.kafka_transactions import Transactions
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] != "confluent_kafka":
            raise
        found = "cannot be asked without the package confluent-kafka"
        raise Invalid(line.where, found, "pip install 'penstock[kafka]'") from None
    return Transactions(Clients(Place(line.where, prefix), line, {}), job or None, SystemClock())


def _settings(where: str, given: list[str]) -> dict[str, Scalar]:
    """Settings as they are written on a command line: `name=text`."""
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not equals:
            raise Invalid(where, f"was given the setting {name!r}", "write it as name=text")
    return {name: text for name, _, text in pairs}


def _show(found: dict[str, Any], job: str) -> None:
    shards, held_back = found["shards"], found["held_back"]
    for shard in shards:
        if not shard["stable"]:
            out.print(
                f"[bold red]open[/] {escape(shard['id'])}: a transaction that holds its cursor "
                f"in topic {escape(shard['topic'])} is not ended"
            )
    for each in held_back:
        out.print(
            f"[bold red]held[/] topic {escape(each['topic'])}, partition {each['partition']}: "
            f"read_committed readers are not shown the last {counted(each['offsets'], 'offset')}"
        )
    of = f"job {escape(job)}" if job else "every job"
    said = "nothing is held up" if not found["hanging"] else _advice(found["ended"])
    out.print(f"{counted(len(shards), 'shard')} of {of}: {said}.")


def _advice(ended: bool) -> str:
    if ended:
        return (
            "what is still held up is not ours, or its broker has lost track of it; see "
            "`kafka-transactions.sh find-hanging`"
        )
    return "start the job, wait for transaction.timeout.ms, or end them with --abort"
