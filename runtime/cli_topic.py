"""`penstock topic`: make, fill, look at and tidy up topics of the embedded log."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import typer
from rich.markup import escape
from rich.table import Table

from penstock.clock import SystemClock
from penstock.errors import Invalid
from penstock.runtime.answers import AsJson, counted, err, or_exit, out, print_json
from penstock.sources import Log, Producer, Range
from penstock.sources.ddl import parse_columns
from penstock.sources.log_rows import from_json_lines
from penstock.sources.log_tail import Tail
from penstock.state import ttl

__all__ = ["append", "change", "compact", "create", "describe", "tail", "topics"]

LINES_AT_ONCE = 10_000
FOLLOW_S = 0.5

topics = typer.Typer(no_args_is_help=True, help="Topics: partitioned logs on an object store.")

TopicUrl = Annotated[
    str, typer.Argument(help="The topic: a folder, file:///folder or s3://bucket/prefix.")
]
Columns = Annotated[
    str, typer.Option(help="For instance 'user string, clicks long, at timestamp'.")
]


@topics.command()
def create(  # noqa: PLR0913, PLR0917 - options of a command, by name
    topic: TopicUrl,
    columns: Columns,
    partitions: Annotated[int, typer.Option(min=1)] = 1,
    key: Annotated[str, typer.Option(help="Columns whose equal values share a partition.")] = "",
    event_time: Annotated[str, typer.Option(help="The column that says when it happened.")] = "",
    compacted: Annotated[bool, typer.Option(help="Keep the last row of each key.")] = False,
    keep: Annotated[str, typer.Option(help="How long rows are kept, like '7 days'.")] = "",
    keep_bytes: Annotated[int, typer.Option(help="Of each partition; 0 for all.", min=0)] = 0,
) -> None:
    """Make a topic."""
    or_exit(
        topic,
        lambda: Log.create(
            topic,
            parse_columns(columns),
            partitions=partitions,
            key=[name.strip() for name in key.split(",") if name.strip()],
            event_time=event_time or None,
            compacted=compacted,
            keep=timedelta(milliseconds=ttl(keep).length_ms) if keep else None,
            keep_bytes=keep_bytes or None,
        ),
    )
    out.print(f"Made {escape(Log(topic).name)} with {counted(partitions, 'partition')}.")


@topics.command()
def change(
    topic: TopicUrl,
    partitions: Annotated[int, typer.Option(help="As many as there shall be.", min=0)] = 0,
    add: Annotated[str, typer.Option(help="Columns to add, like 'country string'.")] = "",
    keep: Annotated[str, typer.Option(help="How long rows are kept, like '7 days'.")] = "",
) -> None:
    """Give a topic more partitions or columns, or another retention."""

    def work() -> int:
        log, fields = Log(topic), dict[str, Any]()
        if partitions:
            fields["partitions"] = partitions
        if add:
            fields["schema"] = pa.schema([*log.schema(), *parse_columns(add)])
        if keep:
            fields["retention_age_ms"] = ttl(keep).length_ms
        return log.change(**fields).version

    out.print(f"The topic is at version {or_exit(topic, work)}.")


@topics.command()
def append(
    topic: TopicUrl,
    file: Annotated[str, typer.Argument(help="JSON lines; - is standard input.")] = "-",
    partition: Annotated[int | None, typer.Option(help="All rows to this partition.")] = None,
    producer: Annotated[str | None, typer.Option(help="The producer's name.")] = None,
) -> None:
    """Append rows, one JSON object per line. Stops at the first that does not fit.

    What came before it, in steps of 10,000 lines, is in the log, and said so.
    """

    def work() -> int:
        log, lines = Log(topic), 0
        with (
            _opened(file) as source,
            log.producer(producer) as writer,
            err.status("appending …") as status,  # shown on a terminal, and nowhere else
        ):
            while chunk := list(islice(source, LINES_AT_ONCE)):
                _append_lines(writer, log.name, chunk, lines, partition)
                lines += len(chunk)
                status.update(f"{lines:,} lines are in the log …")
        return lines

    out.print(f"Appended {counted(or_exit(topic, work), 'line')}.")


@topics.command()
def describe(topic: TopicUrl, json: AsJson = False) -> None:
    """What a topic is, and what its partitions hold."""
    found, tails = or_exit(topic, lambda: (Log(topic).topic(), Log(topic).tails()))
    columns = {field.name: str(field.type) for field in found.schema}
    if json:
        settings = msgspec.to_builtins(found)
        for hidden in ("format", "columns", "recent", "checksum"):
            settings.pop(hidden)
        print_json({**settings, "columns": columns, "contents": [_contents(t) for t in tails]})
        return
    out.print(", ".join(escape(f"{name} {kind}") for name, kind in columns.items()))
    if found.key:
        out.print(f"key {', '.join(map(escape, found.key))}" + ", compacted" * found.compacted)
    table = Table("partition", "earliest", "latest", "rows", "bytes", "producers", box=None)
    for contents in map(_contents, tails):
        table.add_row(*(f"{value:,}" for value in contents.values()))
    out.print(table)


@topics.command()
def tail(
    topic: TopicUrl,
    number: Annotated[int, typer.Option("-n", "--number", min=0, help="Of each partition.")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes.")] = False,
) -> None:
    """The last rows of each partition, as JSON lines with partition and offset."""
    log, clock = Log(topic), SystemClock()
    spans = or_exit(topic, log.spans)
    at = {p: max(span.earliest, span.latest - number) for p, span in spans.items()}
    while True:
        for partition, span in or_exit(topic, log.spans).items():
            start = at.get(partition, span.earliest)
            or_exit(topic, partial(_print_rows, log, partition, start, span.latest))
            at[partition] = span.latest
        if not follow:
            return
        clock.sleep(FOLLOW_S)


@topics.command()
def compact(topic: TopicUrl, json: AsJson = False) -> None:
    """Expire what retention gives up, compact, and sweep. Safe beside producers and readers."""
    log = Log(topic)
    expired, compacted, swept = or_exit(topic, lambda: (log.expire(), log.compact(), log.sweep()))
    if json:
        print_json({"expired": expired, "compacted": compacted, "swept": swept})
        return
    table = Table(
        "partition", "expired", "rows before", "rows after", "segments", "swept", box=None
    )
    for number, (old, new, left) in enumerate(zip(expired, compacted, swept, strict=True)):
        segments = f"{new.segments_before:,} → {new.segments_after:,}"
        table.add_row(
            *(str(number), f"{old.rows:,}", f"{new.rows_before:,}", f"{new.rows_after:,}"),
            *(segments, f"{left.objects:,}"),
        )
    out.print(table)


def _opened(file: str) -> Any:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise Invalid(f"file {file}", f"cannot be read ({error.strerror})", "check it") from error


def _append_lines(
    writer: Producer, name: str, chunk: list[bytes], before: int, partition: int | None
) -> None:
    """Append some lines; what is wrong is said with what is in the log already."""
    try:
        writer.append(from_json_lines(name, chunk, before + 1), partition)
        writer.flush()
    except Invalid as wrong:
        counted = f" (rows are counted from line {before + 1})" if ", row " in wrong.subject else ""
        done = f"{wrong.advice}; the first {before:,} lines are in the log"
        raise Invalid(wrong.subject + counted, wrong.found, done) from wrong


def _contents(tail: Tail) -> dict[str, int]:
    return {
        "partition": tail.partition,
        "earliest": tail.earliest,
        "latest": tail.latest,
        "rows": sum(piece.rows for piece in tail.pieces),
        "bytes": sum(piece.size_bytes for piece in tail.pieces),
        "producers": len(tail.marks),
    }


def _print_rows(log: Log, partition: str, start: int, stop: int) -> None:
    for batch in log.read(partition, Range(start=start, stop=stop)):
        for line in _lines(partition, batch):
            sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _lines(partition: str, batch: pa.RecordBatch) -> Iterator[str]:
    for row in batch.to_pylist():
        meta = row.pop("_meta")
        shown = {"_partition": int(partition), "_offset": meta["offset"], **row}
        yield msgspec.json.encode(shown).decode()
