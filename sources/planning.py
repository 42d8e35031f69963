"""Choosing ranges: fair shares of an epoch's limits, and what is said when history is gone."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import ceil

from penstock.errors import Gone, Invalid
from penstock.sources.protocol import Limits, Range, Source, Span

__all__ = [
    "check_range",
    "checked_starts",
    "lag",
    "plan_ranges",
    "share_rows",
    "start_offsets",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plan_ranges(
    name: str,
    spans: Mapping[str, Span],
    resume: Mapping[str, int],
    limits: Limits,
    row_bytes: Mapping[str, float],
) -> Mapping[str, Range]:
    """Ranges under the limits. `row_bytes` is about what a row of each partition takes.

    The shares are as equal as what is there allows: a partition with little leaves the rest to
    the others. The same spans, offsets and limits always give the same ranges.
    """
    starts = checked_starts(name, spans, resume)
    lags = {p: spans[p].latest - start for p, start in starts.items()}
    rows = share_rows(lags, limits, row_bytes)
    return {p: Range(start=starts[p], stop=starts[p] + count) for p, count in rows.items()}


def checked_starts(
    name: str, spans: Mapping[str, Span], resume: Mapping[str, int]
) -> dict[str, int]:
    """Where each partition is to be read from; `Gone` if it does not reach back so far."""
    return {p: _start(name, p, span, resume) for p, span in sorted(spans.items())}


def share_rows(
    lags: Mapping[str, int], limits: Limits, row_bytes: Mapping[str, float]
) -> dict[str, int]:
    """How many of the rows that are to be read, of each partition, fit the limits."""
    rows = _shares({p: count for p, count in sorted(lags.items()) if count}, limits.records)
    rows_bytes = {p: ceil(count * row_bytes.get(p, 0.0)) for p, count in rows.items()}
    allowed_bytes = _shares(rows_bytes, limits.size_bytes)
    fitting = {
        p: count * allowed_bytes[p] // rows_bytes[p] if rows_bytes[p] else count
        for p, count in rows.items()
    }
    shares = {p: count for p, count in fitting.items() if count > 0}
    return shares or _one_row(lags)


def _one_row(lags: Mapping[str, int]) -> dict[str, int]:
    """Limits below a row per partition still let the one that is furthest behind go on."""
    behind = min(lags, key=lambda partition: (-lags[partition], partition), default=None)
    return {behind: 1} if behind is not None and lags[behind] else {}


def _shares(wanted: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """What each gets of `limit`: all it wants, or as much as any other that wants more."""
    if limit is None or sum(wanted.values()) <= limit:
        return dict(wanted)
    shares, left = {}, limit
    waiting = sorted(wanted, key=lambda partition: (wanted[partition], partition))
    for number, partition in enumerate(waiting):
        shares[partition] = min(wanted[partition], left // (len(waiting) - number))
        left -= shares[partition]
    return shares


def _start(name: str, partition: str, span: Span, resume: Mapping[str, int]) -> int:
    start = resume.get(partition, span.earliest)
    check_range(name, partition, Range(start=start, stop=max(start, span.latest)), span)
    return start


def check_range(name: str, partition: str, wanted: Range, span: Span) -> None:
    """Raise unless every offset of a range is one the partition has."""
    if not 0 <= wanted.start <= wanted.stop:
        raise Invalid(
            f"{name}, partition {partition}",
            f"was asked for offsets {wanted.start} up to {wanted.stop}",
            "give a start of 0 or more and a stop that is not before it",
        )
    if wanted.start < span.earliest:
        raise Gone(
            f"{name}, partition {partition}",
            f"begins at offset {span.earliest} now and was asked for {wanted.start}: "
            f"retention has removed {span.earliest - wanted.start} offsets that were not read",
            "restore them from a copy, or start again at 'earliest' or at an offset of your "
            "choice and accept the gap, or rebuild from a snapshot that has passed them",
        )
    if wanted.stop > span.latest:
        raise Invalid(
            f"{name}, partition {partition}",
            f"ends at offset {span.latest} and was asked for {wanted.stop}",
            "was the log truncated or made anew? start again at 'earliest' or 'latest'",
        )


def start_offsets(
    source: Source, start: "str | int | datetime | Mapping[str, int]"
) -> Mapping[str, int]:
    """Where to begin: 'earliest', 'latest', a moment, or an offset for each partition."""
    spans = source.spans()
    if start == "earliest":
        return {partition: span.earliest for partition, span in spans.items()}
    if start == "latest":
        return {partition: span.latest for partition, span in spans.items()}
    if isinstance(start, datetime) and start.tzinfo is not None:
        return source.offsets_at((start - _EPOCH) // timedelta(milliseconds=1))  # rounded down
    if isinstance(start, Mapping):
        unknown = sorted(set(start) - set(spans))
        if unknown:
            raise Invalid(source.name, f"has no partition {unknown[0]}", _known(spans))
        for partition, offset in start.items():
            if not isinstance(offset, int):
                raise Invalid(source.name, f"cannot start at {offset!r}", "give whole numbers")
            check_range(source.name, partition, Range(start=offset, stop=offset), spans[partition])
        return dict(start)
    raise Invalid(
        source.name,
        f"cannot start at {start!r}",
        "use 'earliest', 'latest', a datetime with a zone, or {partition: offset}",
    )


def lag(source: Source, resume: Mapping[str, int]) -> Mapping[str, int]:
    """How many offsets of each partition are still to be read."""
    return {
        partition: max(0, span.latest - resume.get(partition, span.earliest))
        for partition, span in source.spans().items()
    }


def _known(spans: Mapping[str, Span]) -> str:
    names = sorted(spans)
    return f"use one of {', '.join(names[:5])}" + (" …" if len(names) > 5 else "")
