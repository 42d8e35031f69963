"""A source that makes its rows up: as many as wanted, as fast as wanted, always the same ones.

Row i of partition p follows from the seed, p and i alone, so any range of it can be read again,
cut anywhere, by any process. The clock decides only how many rows are there by now, never what is
in them: who reads a range that was planned elsewhere needs no clock, and one that is set back
takes no row away. For tests, examples and measurements.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NoReturn

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.clock import Clock, SystemClock
from penstock.errors import Invalid
from penstock.sources.planning import check_range, plan_ranges
from penstock.sources.protocol import META, META_NAME, TIME, Limits, Range, Span
from penstock.sources.rate_columns import (
    Ints,
    Stream,
    check_type,
    make_column,
    moments,
    with_nulls,
)
from penstock.sources.rate_keys import KEYS_MAX, SKEW_MAX, check_key, key_column, ranks
from penstock.sources.rate_pace import Pace

__all__ = ["BATCH_ROWS_MAX", "COLUMNS", "Rate"]

COLUMNS = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("at", TIME)])
"""What a row has, unless it is said otherwise."""

BATCH_ROWS_MAX = 65_536
PARTITIONS_MAX = 10_000
RATE_MIN, RATE_MAX = Fraction(1, 100), Fraction(100_000_000)
UNPACED_ROWS_PER_S = 1_000
"""How far apart the rows are said to have happened if they are all there at once."""
PAUSES = (timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=1), timedelta(days=1))
DELAY_MAX = timedelta(days=3_650)
SAMPLE_ROWS = 256

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
"""Moments of all units can be told in between, in nanoseconds too."""
_MICROSECOND = timedelta(microseconds=1)
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A generated stream. `rows`, or `rows_per_s`, or both must be given."""

    columns: pa.Schema | Mapping[str, pa.DataType] = COLUMNS
    partitions: int = 1
    rows: int | None = None
    """How many each partition has in the end. None: there is no end."""
    rows_per_s: float | None = None
    """How many come in each partition. None: all are there at once, and a millisecond apart."""
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """When the first row of each partition happened."""
    burst_rows: int | None = None
    """After so many rows nothing happens for a while; only of rows that are all there at once.
    None: they happen one after the other."""
    pauses: Sequence[timedelta | float] = PAUSES
    """How long nothing happens then, in turn."""
    seed: int = 0
    key: str | None = None
    """The column that has one of `keys` values, which are the same in all partitions."""
    keys: int = 1000
    key_with: Sequence[str] = ()
    """Further columns that go with the key: rows of one key have one value of each."""
    key_prefix: str | None = None
    """What keys begin with that are texts. None: the column's name."""
    skew: float = 0.0
    """How much rarer each key is than the one before, as Zipf's exponent. 0: all alike."""
    event_time: str | None = None
    """The column that says when a row happened. None: the first that holds timestamps, if any."""
    out_of_order: float = 0.0
    """The share of rows that come up to `disorder` after they happened."""
    disorder: timedelta | float = timedelta(seconds=10)
    late: float = 0.0
    """The share of rows that come up to `lateness` after even `disorder` is over."""
    lateness: timedelta | float = timedelta(minutes=1)
    null_share: float = 0.0
    """In columns that may be null, except the key and the event time."""
    numbers_below: int | None = None
    """Whole numbers, and the digits of decimals, are from 0 up to it, or to what a signed type of
    their width has, so that a few thousand of them can be added up. None: all there are."""
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _as_schema(self.columns))
        _check_time(self)
        _check_bursts(self)
        _check_count(self)
        _check_keys(self)
        _check_shares(self)
        _check_columns(self)

    @property
    def name(self) -> str:
        """How messages call it."""
        return "rate source"

    def anchors(self) -> Mapping[str, str]:
        """The seed that its rows follow from, and how many partitions they are spread over."""
        return {"seed": str(self.seed), "partitions": str(self.partitions)}

    def schema(self) -> pa.Schema:
        """The columns of its rows, without `_meta`."""
        return _as_schema(self.columns)

    def spans(self) -> Mapping[str, Span]:
        """Every partition, from its first row up to those that are still to come."""
        latest = self._latest()
        return {str(number): Span(0, latest) for number in range(self.partitions)}

    def offsets_at(self, at_ms: int) -> Mapping[str, int]:
        """Per partition, where rows of that moment come, if they come in order.

        No row before it happened as late as `at_ms`; some after it may have happened earlier.
        """
        offset = min(_pace(self).first_at(at_ms * 1_000), self._latest())
        return {str(number): offset for number in range(self.partitions)}

    def plan(self, resume: Mapping[str, int], limits: Limits) -> Mapping[str, Range]:
        """What to read next. A row that was read is there, whatever the clock says now."""
        there, end = self._latest(), self._end()
        partitions = [str(number) for number in range(self.partitions)]
        spans = {p: Span(0, max(there, min(resume.get(p, 0), end))) for p in partitions}
        width = 0.0 if limits.size_bytes is None else self._row_bytes()
        return plan_ranges(self.name, spans, resume, limits, dict.fromkeys(partitions, width))

    def read(self, partition: str, wanted: Range, planned_ms: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range, also of one that by this host's clock is still to come."""
        if partition not in map(str, range(self.partitions)):
            advice = f"use '0' to '{self.partitions - 1}'"
            raise Invalid(self.name, f"has no partition {partition!r}", advice)
        check_range(self.name, partition, wanted, Span(0, self._end()))
        return (
            self._batch(partition, begin, min(begin + BATCH_ROWS_MAX, wanted.stop), planned_ms)
            for begin in range(wanted.start, wanted.stop, BATCH_ROWS_MAX)
        )

    def _latest(self) -> int:
        if self.rows_per_s is None:
            return self._end()
        now_us = int(self.clock.wall() * _SECOND_US)
        return min(_pace(self).first_at(now_us + 1), self._end())

    def _end(self) -> int:
        """How many rows a partition will ever have. Nothing happens after the last year."""
        return _pace(self).first_at(_micros(_LAST)) if self.rows is None else self.rows

    def _row_bytes(self) -> float:
        """About what a row takes, measured at the first ones."""
        count = min(SAMPLE_ROWS, self._end())
        return self._batch("0", 0, count, 0).nbytes / count if count else 0.0

    def _batch(self, partition: str, begin: int, end: int, planned_ms: int) -> pa.RecordBatch:
        offsets = np.arange(begin, end, dtype=np.int64)
        stream = Stream(f"rate {self.seed}", self.numbers_below).sub(partition)
        nominal_us = _pace(self).micros(offsets)
        event_us = self._event_us(stream, offsets, nominal_us)
        arrays = [self._column(column, stream, offsets, event_us) for column in self.schema()]
        planned_us = np.full(len(offsets), planned_ms * 1_000, np.int64)
        times = [moments(micros, TIME) for micros in (event_us, nominal_us, planned_us)]
        fields = [META.field(number) for number in range(META.num_fields)]
        arrays.append(pa.StructArray.from_arrays([pa.array(offsets), *times], fields=fields))
        schema = self.schema().append(pa.field(META_NAME, META))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _event_us(self, stream: Stream, offsets: Ints, nominal_us: Ints) -> Ints:
        """When each row happened: as it comes, or before that, or long before."""
        disorder_us, lateness_us = _delay_us(self.disorder), _delay_us(self.lateness)
        counters, order, delay = offsets.view(np.uint64), stream.sub("order"), stream.sub("delay")
        late = order.below(self.late, counters)
        moved = order.below(self.late + self.out_of_order, counters) & ~late
        event_us = nominal_us.copy()
        if moved.any():
            event_us[moved] -= 1 + delay.upto(disorder_us, counters[moved])
        if late.any():
            event_us[late] -= 1 + disorder_us + delay.upto(lateness_us, counters[late])
        return event_us

    def _column(self, column: pa.Field, stream: Stream, offsets: Ints, event_us: Ints) -> pa.Array:
        counters, own = offsets.view(np.uint64), stream.sub("column").sub(column.name)
        if column.name == _event_column(self):
            return moments(event_us, column.type)
        if column.name in _key_columns(self):
            chosen = ranks(stream.sub("column").sub(self.key), counters, self.keys, self.skew)
            return key_column(column.type, self.key_prefix or column.name, chosen)
        made = make_column(column.type, own, counters)
        if column.nullable and self.null_share:
            return with_nulls(made, own.sub("null").below(self.null_share, counters))
        return made


def _pace(rate: Rate) -> Pace:
    per_s = UNPACED_ROWS_PER_S if rate.rows_per_s is None else rate.rows_per_s
    exact = Fraction(per_s).limit_denominator(RATE_MIN.denominator)
    pauses_us = [_delay_us(each) for each in rate.pauses]
    start_us = _micros(rate.start)
    return Pace(start_us, exact.numerator, exact.denominator, rate.burst_rows, pauses_us)


def _key_columns(rate: Rate) -> Sequence[str]:
    return () if rate.key is None else (rate.key, *rate.key_with)


def _event_column(rate: Rate) -> str | None:
    """The column of the event time, if there is one."""
    if rate.event_time is not None:
        return rate.event_time
    keys = _key_columns(rate)
    timed = (c.name for c in rate.schema() if pa.types.is_timestamp(c.type) and c.name not in keys)
    return next(timed, None)


def _as_schema(columns: pa.Schema | Mapping[str, pa.DataType]) -> pa.Schema:
    return columns if isinstance(columns, pa.Schema) else pa.schema(list(columns.items()))


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _delay_us(delay: timedelta | float) -> int:
    return (delay if isinstance(delay, timedelta) else timedelta(seconds=delay)) // _MICROSECOND


def _check_time(rate: Rate) -> None:
    if rate.start.utcoffset() is None:
        _refuse(rate, f"starts at {rate.start}, in no zone", "give a datetime with a zone")
    if not _FIRST <= rate.start < _LAST:
        _refuse(rate, f"starts at {rate.start}", f"start from {_FIRST:%Y} up to {_LAST:%Y}")
    pauses = [("pause", each) for each in rate.pauses]
    for name, delay in (("disorder", rate.disorder), ("lateness", rate.lateness), *pauses):
        if not 0 <= _seconds(delay) <= DELAY_MAX.total_seconds():
            _refuse(rate, f"has a {name} of {delay}", f"use 0 to {DELAY_MAX.days} days")


def _seconds(delay: timedelta | float) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else delay


def _check_count(rate: Rate) -> None:
    if rate.rows is None and rate.rows_per_s is None:
        _refuse(rate, "has neither rows nor rows_per_s", "say how many rows it has, or how fast")
    if rate.rows_per_s is not None and not RATE_MIN <= rate.rows_per_s <= RATE_MAX:
        advice = f"use {float(RATE_MIN)} to {int(RATE_MAX)} rows a second and partition"
        _refuse(rate, f"has {rate.rows_per_s} rows_per_s", advice)
    if not 1 <= rate.partitions <= PARTITIONS_MAX:
        _refuse(rate, f"has {rate.partitions} partitions", f"use 1 to {PARTITIONS_MAX}")
    if rate.rows is not None and not 0 <= rate.rows <= _pace(rate).first_at(_micros(_LAST)):
        _refuse(rate, f"has {rate.rows} rows", f"use 0 or more, the last before {_LAST:%Y}")


def _check_bursts(rate: Rate) -> None:
    if rate.burst_rows is None:
        return
    if rate.rows_per_s is not None:
        advice = "leave burst_rows out, or rows_per_s"
        _refuse(rate, "has bursts, and rows that come as the clock says", advice)
    if rate.burst_rows < 1 or not rate.pauses:
        found = f"has bursts of {rate.burst_rows} rows and {len(rate.pauses)} pauses"
        _refuse(rate, found, "use 1 or more of both")


def _check_keys(rate: Rate) -> None:
    if not 1 <= rate.keys <= KEYS_MAX:
        _refuse(rate, f"has {rate.keys} keys", f"use 1 to {KEYS_MAX}")
    if not 0 <= rate.skew <= SKEW_MAX:
        _refuse(rate, f"has a skew of {rate.skew}", f"use 0, for none, to {SKEW_MAX}")


def _check_shares(rate: Rate) -> None:
    both = rate.out_of_order + rate.late
    shares = {"out_of_order": rate.out_of_order, "late": rate.late, "null_share": rate.null_share}
    for name, share in {**shares, "out_of_order and late": both}.items():
        if not 0 <= share <= 1:
            _refuse(rate, f"has {share} as {name}", "use a share from 0 to 1")
    if rate.out_of_order and not _delay_us(rate.disorder):
        _refuse(rate, "has rows out of order by nothing", "give a disorder, or no out_of_order")
    if rate.late and not _delay_us(rate.lateness):
        _refuse(rate, "has rows that are late by nothing", "give a lateness, or no late")


def _check_columns(rate: Rate) -> None:
    names = rate.schema().names
    if not names or len(set(names)) < len(names) or META_NAME in names:
        _refuse(rate, f"has the columns {names}", f"give each a name of its own, not {META_NAME}")
    if rate.numbers_below is not None and rate.numbers_below < 1:
        _refuse(rate, f"has numbers below {rate.numbers_below}", "use 1 or more, or leave it out")
    for column in rate.schema():
        check_type(column.type, f"{rate.name}, column {column.name}")
    _check_roles(rate, names)


def _check_roles(rate: Rate, names: list[str]) -> None:
    further = [("key_with", name) for name in rate.key_with]
    for role, name in (("key", rate.key), *further, ("event_time", rate.event_time)):
        if name is not None and name not in names:
            _refuse(rate, f"has no column {name} for its {role}", f"use one of {', '.join(names)}")
    for name in _key_columns(rate):
        check_key(rate.schema().field(name).type, rate.keys, f"{rate.name}, column {name}")
    if rate.event_time is not None:
        kind = rate.schema().field(rate.event_time).type
        if not pa.types.is_timestamp(kind):
            _refuse(rate, f"has an event_time of type {kind}", "use a column of timestamps")
        if rate.event_time in _key_columns(rate):
            _refuse(rate, f"has {rate.event_time} as its key and its event_time", "use two columns")


def _refuse(rate: Rate, found: str, advice: str) -> NoReturn:
    raise Invalid(rate.name, found, advice)
