"""Planted bugs of tables: indexes, the walk behind them, and what proves them."""

from functools import partial
from typing import Any

from penstock.chaos import audit_indexes
from penstock.checkpoint import collector
from penstock.checkpoint.chain import Chain
from penstock.effects import Steps
from penstock.ids import Epoch
from penstock.points import Point
from penstock.sinks import table_index, table_sweep, table_tail
from tests.chaos.test_audit_indexes import (
    test_a_file_that_an_index_lost_is_missed_when_its_manifest_is_gone,
    test_epochs_that_an_index_leaves_out_are_named,
)
from tests.mutants.mutant import Mutant, by
from tests.sinks.test_table_index import (
    test_a_table_whose_index_lost_a_file_is_neither_read_nor_swept,
    test_an_index_that_the_chain_counts_otherwise_is_never_stored,
)
from tests.sinks.test_table_tail import (
    test_a_fork_walks_back_to_its_index,
    test_the_collector_keeps_what_the_walk_needs,
)

EPOCH_2 = "epoch 2 (1 files with 1 rows)"

honest_tails = table_tail.table_tails


def walks_to_the_floor(chain: Any, newest: Any, tables: Any) -> Steps[Any]:
    """Takes the promised history for all there is; the epochs below it count as empty."""
    head = (yield from Chain().head(Point.READ_HEAD)).document
    tails = yield from honest_tails(chain, newest, tables)
    return {table: _without(tail, head.floor) for table, tail in tails.items()}


def _without(tail: Any, floor: Epoch) -> Any:
    kept = tuple(
        outputs if tail.base + 1 + number >= floor else ()
        for number, outputs in enumerate(tail.added)
    )
    return table_tail.TableTail(tail.index, tail.born, kept)


def keeps_no_tail(chain: Any, manifest: Any, floor: Any, keys: Any) -> Steps[None]:
    yield from ()


def trusts_the_index(self: Any, *facts: Any) -> None:
    """Looks at nothing."""


def counts_nothing(table: Any, found: Any, tally: Any, epoch: Any) -> None:
    """Whatever an index lists is right."""


MUTANTS = (
    Mutant(
        "tail-to-the-floor",
        "the walk behind a table's index stops at HEAD's floor",
        ((table_tail, "table_tails", walks_to_the_floor),),
        by(test_a_fork_walks_back_to_its_index),
    ),
    Mutant(
        "tail-collected",
        "the collector gives up manifests that name files which no index lists",
        ((collector, "_keep_tail", keeps_no_tail),),
        by(test_the_collector_keeps_what_the_walk_needs),
    ),
    Mutant(
        "index-uncounted",
        "an index is stored without comparing it with the tally",
        ((table_index, "refuse_miscount", counts_nothing),),
        by(test_an_index_that_the_chain_counts_otherwise_is_never_stored),
    ),
    Mutant(
        "sweep-uncounted",
        "a sweep trusts an index that lists too little",
        ((table_sweep, "refuse_miscount", counts_nothing),),
        by(test_a_table_whose_index_lost_a_file_is_neither_read_nor_swept),
    ),
    Mutant(
        "audit-trusts-the-oldest-index",
        "an audit takes the oldest index at its word",
        ((audit_indexes._Proof, "_prove_first", trusts_the_index),),
        by(test_a_file_that_an_index_lost_is_missed_when_its_manifest_is_gone),
    ),
    Mutant(
        "audit-trusts-the-next-index",
        "an audit takes a later index at its word",
        ((audit_indexes._Proof, "_prove_next", trusts_the_index),),
        by(partial(test_epochs_that_an_index_leaves_out_are_named, (1, 3), EPOCH_2)),
    ),
)
