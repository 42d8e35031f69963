"""Planted bugs of pins, collection, recovery and reading."""

from typing import Any

import msgspec

from penstock.chaos import model_job, model_visitors
from penstock.chaos.model_workload import SINK
from penstock.checkpoint import chain as chain_module
from penstock.checkpoint import collector, pins, recovery, view
from penstock.effects import Get, Put, Steps
from penstock.errors import Gone
from penstock.ids import Epoch, Key
from penstock.points import Point
from tests.checkpoint.test_false_absence import (
    test_a_pin_not_found_once_still_holds,
    test_a_pinned_manifest_not_found_once_still_holds,
)
from tests.mutants.mutant import Mutant, by, by_seeds, by_zombies

honest_from_head = collector._from_head
honest_is_past = collector._is_past
honest_add = recovery._Strand.add
honest_read = pins._read
honest_collect = collector.collect
honest_verified = chain_module.Chain._verified


def pins_without_a_second_look(chain: Any, name: str, mark: str, epoch: Any = None) -> Steps[Any]:
    head = (yield from chain.head(Point.PIN_TARGET)).document
    at, ref = yield from pins._target(chain, head, epoch)
    wanted = pins.Pin(name=name, mark=mark, generation=head.generation, epoch=at, manifest=ref)
    yield Put(Point.PIN_WRITE, pins.pin_key(name, mark), pins.seal(wanted))
    return wanted


def believes_one_404(entry: Any, list_at: Point, read_at: Point) -> Steps[Any]:
    """A pin that is not found once is taken for removed."""
    if (yield Get(read_at, entry.key)) is None:
        return None
    return (yield from honest_read(entry, list_at, read_at))


def explains_at_once(self: Any, ref: Any, needed_by: Any, at: Any, decoded: Any) -> Steps[Any]:
    """An object that is not found once is taken for given up."""
    stored = yield Get(at, ref.key)
    if stored is None:
        head = (yield from self.head(Point.RECOVER_HEAD)).document
        if needed_by < head.floor:
            raise Gone(ref.key, "was given up", "read a later epoch")
    return (yield from honest_verified(self, ref, needed_by, at, decoded))


def needs_nothing(chain: Any, retention: Any, needed: Any = None) -> Steps[Any]:
    """Gives up epochs that a sink has yet to apply."""
    return (yield from honest_collect(chain, retention, (needed or {}) | {SINK: Epoch(1 << 40)}))


def sees_no_pins(list_at: Point, read_at: Point) -> Steps[Any]:
    yield from ()
    return pins.Pins()


def gives_up_at_once(chain: Any, head: Any, retention: Any) -> Steps[Any]:
    """Obeys the floor that retention allows, not the one HEAD promises."""
    reach = yield from honest_from_head(chain, head, retention)
    lower = msgspec.structs.replace(head, floor=reach.next_floor)
    return (yield from honest_from_head(chain, lower, retention))


def keeps_no_lineage(chain: Any, oldest: Any, floor: Any, keys: set[Key]) -> Steps[None]:
    keys.update(ref.key for ref in oldest.refs())
    yield from ()


def takes_work_in_progress(key: Key, head: Any) -> bool:
    return collector.epoch_of(key) is not None or honest_is_past(key, head)


def forgets_the_delta_beside_a_snapshot(self: Any, epoch: Any, state: Any) -> None:
    """Takes a snapshot for the state after the epoch that published it."""
    honest_add(self, epoch, state)
    if state.snapshot is not None and self.deltas and self.deltas[-1][0] == epoch:
        self.deltas.pop()


def goes_backwards(self: Any) -> Steps[Any]:
    return (yield from self._chain.head(Point.READ_HEAD)).document


MUTANTS = (
    Mutant(
        "pin check",
        "pinned without a second look",
        ((model_visitors, "pin", pins_without_a_second_look),),
        by_zombies(),
    ),
    Mutant(
        "pins", "the collector sees no pins", ((collector, "list_pins", sees_no_pins),), by_seeds
    ),
    Mutant(
        "floor",
        "given up and deleted at once",
        ((collector, "_from_head", gives_up_at_once),),
        by_seeds,
    ),
    Mutant(
        "lineage",
        "state below the floor dropped",
        ((collector, "_walk", keeps_no_lineage),),
        by_seeds,
    ),
    Mutant(
        "uploads",
        "uploads above HEAD are garbage",
        ((collector, "_is_past", takes_work_in_progress),),
        by_seeds,
    ),
    Mutant(
        "snapshot",
        "a snapshot for an epoch too late",
        ((recovery._Strand, "add", forgets_the_delta_beside_a_snapshot),),
        by_seeds,
    ),
    Mutant("view", "a reader goes back", ((view.View, "refresh", goes_backwards),), by_seeds),
    Mutant(
        "pin 404",
        "a pin not found once is gone",
        ((pins, "_read", believes_one_404),),
        by(test_a_pin_not_found_once_still_holds),
    ),
    Mutant(
        "gone 404",
        "an object not found once is given up",
        ((chain_module.Chain, "_verified", explains_at_once),),
        by(test_a_pinned_manifest_not_found_once_still_holds),
    ),
    Mutant(
        "needed", "unapplied outputs given up", ((model_job, "collect", needs_nothing),), by_seeds
    ),
)
