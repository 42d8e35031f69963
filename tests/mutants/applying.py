"""Planted bugs between the decision and the sinks: values that cannot be written, exceptions that
nobody explains, retention that stands still, objects among the pins that are none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from penstock.checkpoint import collector, pins
from penstock.effects import Steps
from penstock.ids import Epoch
from penstock.points import Point
from penstock.runtime import applying
from penstock.runtime.applying import Applier
from penstock.runtime.loop import EpochLoop
from penstock.sinks import dynamodb_values, kafka_texts, memory, staged, value_check
from tests.checkpoint.test_pins import (
    test_letting_go_of_a_pin_leaves_foreign_objects_where_they_are,
    test_nothing_is_collected_beside_a_pin_that_cannot_be_read,
)
from tests.contracts.test_hostile_values import (
    test_a_hostile_value_is_a_message_or_refused_before_the_commit as a_message_is_made_or_refused,
)
from tests.mutants.mutant import Mutant, by
from tests.runtime.test_applying import (
    Troubled,
    failing_run,
    test_a_failure_is_told_at_once_though_the_epoch_before_waits_for_a_sink,
    test_a_value_that_no_sink_can_write_is_refused_before_the_commit,
    test_any_exception_of_a_sink_becomes_an_error_with_a_way_out,
)
from tests.runtime.test_retention import (
    forget_all,
    test_retention_goes_on_after_a_changelog_is_given_up,
)
from tests.sinks import test_dynamodb

honest_list_pins = pins.list_pins


def in_folder(test: Callable[[Path], None]) -> Callable[[], None]:
    """A test that is given a folder, in one of its own."""

    @wraps(test)
    def run() -> None:
        forget_all()
        with TemporaryDirectory() as folder:
            test(Path(folder))

    return run


def with_sink(test: Callable[[Path, Troubled], None]) -> Callable[[], None]:
    """A test that is given a folder and a sink."""
    return in_folder(wraps(test)(lambda folder: test(folder, Troubled(f"shelf-{folder.name}"))))


def failing(test: Callable[[Any, Troubled], None]) -> Callable[[], None]:
    """A test that is given a job which fails, and its sink."""

    @wraps(test)
    def given(folder: Path, sink: Troubled) -> None:
        test(failing_run(folder, sink), sink)

    return with_sink(given)


def of_value(name: str) -> Callable[[], None]:
    """The contract of hostile values, for one of them."""

    @wraps(a_message_is_made_or_refused)
    def run() -> None:
        a_message_is_made_or_refused(name)

    return run


def takes_anything(where: str, rows: Any) -> None:
    """Looks at no value."""


def looks_at_the_surface(values: Any) -> Iterator[Any]:
    """Does not look into lists, structs and maps."""
    yield values


def in_its_own_zone(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


@contextmanager
def unexplained(asked: Any) -> Iterator[None]:
    """Lets exceptions of a client through."""
    yield


def forgets_what_was_given_up(self: Any, manifest: Any) -> dict[str, Epoch]:
    found = {name: Epoch(index.epoch + 1) for name, index in manifest.tables.items()}
    return found | {name: Epoch(epoch + 1) for name, epoch in self.epochs().items()}


def passes_over_what_it_cannot_read(list_at: Point, read_at: Point) -> Steps[Any]:
    found = yield from honest_list_pins(list_at, read_at)
    return pins.Pins(found.pins)


def by_its_folder(key: str) -> str:
    return key.split("/")[1]


def tells_nobody(self: Any, failure: BaseException) -> None:
    self._has_failed = True


def passes_over_keys(where: str, values: pa.Array) -> None:
    """Looks at the items of maps only."""
    if not pa.types.is_map(values.type):
        honest_inside(where, values)


honest_inside = dynamodb_values._check_inside


def keys_of_maps_are_looked_at() -> None:
    """A map whose key is no number of DynamoDB."""
    test_dynamodb.test_values_that_cannot_be_written_are_refused(
        "map", pa.map_(pa.float64(), pa.int64()), [(float("nan"), 2)], "has a value of size nan"
    )


MUTANTS = (
    Mutant(
        "keys of maps",
        "a number that is a key of a map is not looked at",
        ((dynamodb_values, "_check_inside", passes_over_keys),),
        by(keys_of_maps_are_looked_at),
    ),
    Mutant(
        "calendar",
        "times beyond the calendar are committed",
        ((memory, "check_calendar", takes_anything),),
        by(in_folder(test_a_value_that_no_sink_can_write_is_refused_before_the_commit)),
    ),
    Mutant(
        "nested",
        "values inside of others are not looked at",
        ((value_check, "leaves", looks_at_the_surface),),
        by(of_value("the year 10000")),
    ),
    Mutant(
        "zones",
        "times become Python's in their own zones",
        ((kafka_texts, "python_values", in_its_own_zone),),
        by(of_value("10000 only in Seoul")),
    ),
    Mutant(
        "sound",
        "text that is none is committed",
        ((staged, "check_sound", takes_anything),),
        by(of_value("no text")),
    ),
    Mutant(
        "explained",
        "exceptions of a client end the job bare",
        ((applying, "applying_explained", unexplained),),
        by(with_sink(test_any_exception_of_a_sink_becomes_an_error_with_a_way_out)),
    ),
    Mutant(
        "given up",
        "a changelog that was given up keeps every epoch",
        ((Applier, "needed", forgets_what_was_given_up),),
        by(in_folder(test_retention_goes_on_after_a_changelog_is_given_up)),
    ),
    Mutant(
        "pin unread",
        "an unreadable pin is passed over",
        ((collector, "list_pins", passes_over_what_it_cannot_read),),
        by(test_nothing_is_collected_beside_a_pin_that_cannot_be_read),
    ),
    Mutant(
        "pin ends",
        "an unreadable pin ends the job",
        ((collector, "list_pins", pins.read_pins),),
        by(test_nothing_is_collected_beside_a_pin_that_cannot_be_read),
    ),
    Mutant(
        "unpin all",
        "unpinning removes foreign objects",
        ((pins, "pin_name_of", by_its_folder),),
        by(test_letting_go_of_a_pin_leaves_foreign_objects_where_they_are),
    ),
    Mutant(
        "untold",
        "a failure is not told while a sink is away",
        ((EpochLoop, "_fail", tells_nobody),),
        by(failing(test_a_failure_is_told_at_once_though_the_epoch_before_waits_for_a_sink)),
    ),
)
