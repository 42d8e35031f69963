"""Planted bugs of going back: rewinds, forks, savepoints, and what a table keeps meanwhile.

The tally of a table's files is a second line of defence: where a bug would be refused by it, it is
taken out as well, so that the loss is silent and only an oracle can see it."""

from typing import Any

import msgspec

from penstock.chaos import model_job, model_table, model_visitors
from penstock.checkpoint import collector, fork, recovery, rewind
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.pins import Pins
from penstock.effects import Steps
from penstock.ids import Epoch
from penstock.points import Point
from penstock.runtime import applying, loop
from penstock.sinks import table_index, table_sweep, table_tail
from tests.checkpoint.test_recovery import test_a_partition_that_was_added_later_has_no_past
from tests.checkpoint.test_rewind import test_anything_may_happen_while_a_rewind_is_under_way
from tests.mutants.mutant import Mutant, by, by_seeds, by_sequence
from tests.mutants.tables import counts_nothing, keeps_no_tail, walks_to_the_floor
from tests.sinks.test_rewound_readers import (
    test_an_index_named_before_a_rewind_is_gone_after_it,
)

UNCOUNTED = (
    (table_index, "refuse_miscount", counts_nothing),
    (table_sweep, "refuse_miscount", counts_nothing),
)

honest_after = table_tail.TableTail.after
honest_copy = fork.copy_epoch
honest_list_pins = table_sweep.list_pins
honest_payload = Chain.payload
honest_make = rewind._Return.make


def skips_epochs_without_files(self: Any, outputs: Any, index: Any) -> Any:
    """An epoch that added nothing gets no place in the tail."""
    return self if not outputs and index == self.index else honest_after(self, outputs, index)


def refuses_no_gap(base: Any, tail: Any, publishing: Any) -> None:
    """Whatever a tail covers will do."""


def sees_its_own_generation(list_at: Point, read_at: Point) -> Steps[Pins]:
    """Pins of another line of history are taken for pins of this one."""
    head = (yield from Chain().head(list_at)).document
    found = yield from honest_list_pins(list_at, read_at)
    own = [msgspec.structs.replace(pin, generation=head.generation) for pin in found.pins]
    return Pins(own, found.unreadable)


def pins_nothing(chain: Any, found: Any, name: str, mark: str) -> Steps[None]:
    """Goes back to an epoch that may be given up at any moment."""
    yield from ()


def has_no_tail(chain: Any, manifest: Any, floor: Any) -> Steps[list[Any]]:
    """Only the epoch itself is copied, not those that name files of the table."""
    yield from ()
    return []


def stays_in_its_generation(self: Any, head: Any) -> Steps[Any]:
    """HEAD goes back, and nobody can tell."""
    made = yield from honest_make(self, head)
    return msgspec.structs.replace(made, generation=head.generation)


def forgets_the_given_up(newest: Any, sinks: Any, applied: Any) -> dict[str, Epoch]:
    """A sink that the job has no more is taken to need everything."""
    found = {name: Epoch(index.epoch + 1) for name, index in newest.tables.items()}
    return found | {name: Epoch(epoch + 1) for name, epoch in applied.items()}


def needs_what_it_gave_up(self: Any, manifest: Any) -> dict[str, Epoch]:
    """The same, of the job's own sinks."""
    return forgets_the_given_up(manifest, (), self.epochs())


def makes_real_first(held: Any, holder: Any, also: Any) -> Steps[Any]:
    """Creates HEAD, and then copies what it needs."""
    copies = []
    steps = honest_copy(held, holder, also)
    effect = next(steps)
    while True:
        try:
            if isinstance(effect, fork.Copy):
                copies.append(effect)
                effect = steps.send(None)
            else:
                effect = steps.send((yield effect))
        except StopIteration as end:
            yield from copies
            return end.value


def is_done_by_a_snapshot_alone(self: Any, epoch: Any) -> bool:
    """A partition that was added later is looked for in epochs before it."""
    return self.snapshot is not None and epoch <= self.snapshot.epoch


def begins_where_it_looks(self: Any, ref: Any, needed_by: Any, at: Point) -> Steps[bytes]:
    """A reader takes the HEAD that explains an absence for the one it began with."""
    return (yield from honest_payload(Chain(), ref, needed_by, at))


MUTANTS = (
    Mutant(
        "line-forgotten",
        "a reader forgets which line of history its names come from",
        ((Chain, "payload", begins_where_it_looks),),
        by(test_an_index_named_before_a_rewind_is_gone_after_it),
    ),
    Mutant(
        "added-operator",
        "recovery looks for the past of a partition that was added later",
        ((recovery._Strand, "done_at", is_done_by_a_snapshot_alone),),
        by(test_a_partition_that_was_added_later_has_no_past),
    ),
    Mutant(
        "walk-to-floor",
        "the walk behind a table's index stops at the floor, silently",
        ((loop, "table_tails", walks_to_the_floor), *UNCOUNTED),
        by_sequence("grown", "fork", "index"),
    ),
    Mutant(
        "restore-to-floor",
        "the same, after going back within the retained history",
        ((loop, "table_tails", walks_to_the_floor), *UNCOUNTED),
        by_sequence("grown", "rewind", "index"),
    ),
    Mutant(
        "sim-to-floor",
        "the same, in the simulator",
        ((model_table, "table_tails", walks_to_the_floor), *UNCOUNTED),
        by_seeds,
    ),
    Mutant(
        "index-not-dense",
        "an epoch without files has no place behind an index",
        (
            (table_tail.TableTail, "after", skips_epochs_without_files),
            (table_index, "_refuse_gaps", refuses_no_gap),
            *UNCOUNTED,
        ),
        by_sequence("grown", "commit", "index"),
    ),
    Mutant(
        "tail-forgotten",
        "the collector forgets the manifests behind a table's index",
        ((collector, "_keep_tail", keeps_no_tail),),
        by_sequence("grown", "collect"),
    ),
    Mutant(
        "sweep-other-line",
        "a sweep ignores a savepoint of another generation",
        ((table_sweep, "list_pins", sees_its_own_generation),),
        by_sequence("grown", "pin", "rewind", "index", "index", "sweep"),
    ),
    Mutant(
        "rewind-unpinned",
        "a rewind does not hold the epoch it goes back to",
        ((rewind, "keep", pins_nothing),),
        by(test_anything_may_happen_while_a_rewind_is_under_way),
    ),
    Mutant(
        "rewind-unseen",
        "a rewind stays in its generation",
        ((rewind._Return, "make", stays_in_its_generation),),
        by_seeds,
    ),
    Mutant(
        "fork-without-tail",
        "a fork leaves out the manifests behind a table's index",
        ((fork, "table_tail", has_no_tail),),
        by_seeds,
    ),
    Mutant(
        "fork-head-first",
        "a fork is real before all is copied",
        ((model_visitors, "copy_epoch", makes_real_first),),
        by_seeds,
    ),
    Mutant(
        "floor-stands",
        "a changelog that was given up holds the floor for ever",
        ((model_job, "needed_by", forgets_the_given_up),),
        by_seeds,
    ),
    Mutant(
        "floor-held",
        "the same: the runtime takes a sink that it has no more to need everything",
        ((applying.Applier, "needed", needs_what_it_gave_up),),
        by_sequence("grown", "give up a sink", "collect", "commit"),
    ),
)
