"""Keys of a compacted log: which columns can be one, and when two are the same."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Invalid
from penstock.sources import Log
from tests.support.logs import append_each, column, new_log, rows


def keyed_log(*, schema: pa.Schema, key: str) -> Log:
    return new_log(schema, key=key, compacted=True)


@pytest.mark.parametrize("name", ["_last", "_row", "_n", "key", "offset", "at ms"])
def test_a_key_may_have_any_name_that_is_not_refused(name: str) -> None:
    """A column that can be made can be compacted."""
    try:
        log = keyed_log(schema=pa.schema([(name, pa.string()), ("v", pa.int64())]), key=name)
    except Invalid:
        return
    append_each(log, [{name: "a", "v": 1}, {name: "b", "v": 2}, {name: "a", "v": 3}])
    log.compact()

    assert rows(log) == {1: {name: "b", "v": 2}, 2: {name: "a", "v": 3}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int64()), [1]),
        (pa.struct([("x", pa.int64())]), {"x": 1}),
        (pa.string_view(), "a"),
        (pa.float64(), 0.0),
        (pa.binary(2), b"ab"),
        (pa.bool_(), True),
        (pa.dictionary(pa.int32(), pa.string()), "a"),
    ],
    ids=str,
)
def test_a_key_that_is_taken_can_be_compacted(kind: pa.DataType, value: Any) -> None:
    """A type that cannot be told apart is refused when the topic is made, not at night."""
    try:
        log = keyed_log(schema=pa.schema([("k", kind), ("v", pa.int64())]), key="k")
    except Invalid:
        return
    append_each(log, [{"k": value, "v": 1}, {"k": value, "v": 2}])
    log.compact()

    assert column(log, "v") == [2]


def test_keys_that_are_one_for_the_hash_are_one_for_compaction() -> None:
    """Both zeros are one number, and so is everything that is none."""
    log = keyed_log(schema=pa.schema([("k", pa.float64()), ("v", pa.int64())]), key="k")
    keys = [0.0, -0.0, float("nan"), -float("nan")]
    append_each(log, [{"k": key, "v": number} for number, key in enumerate(keys)])
    log.compact()

    assert column(log, "v") == [1, 3]
