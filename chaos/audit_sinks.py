"""What sinks outside the root hold, against what was committed for them up to their cursors.

1. Read HEAD, the cursors, and HEAD again: the first tells whether the sink lags, the second is one
   that no cursor can be ahead of.
2. Make records of what was staged up to each shard's cursor, as the sink would show it.
3. Make records of what the sink shows.
4. Look whether something was on its way meanwhile, where a sink cannot be read at one moment.
5. Compare, a part at a time. Memory does not grow with the rows: records are on disk.

A sink that cannot be read back, or not now, is unknown.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.chaos.audit_compare import Judge, compared, wanted
from penstock.chaos.audit_history import History, Rewound
from penstock.chaos.audit_meaning import Meaning
from penstock.chaos.audit_naming import Naming
from penstock.chaos.audit_records import Lens
from penstock.chaos.findings import Ledger
from penstock.chaos.spill import PARTS, Records, Spill
from penstock.checkpoint.manifest import Output
from penstock.errors import Corrupt, Gone, PenstockError
from penstock.ids import Epoch
from penstock.runtime.topology import SinkNode, Topology
from penstock.sinks.cursors import Cursor, mark_of
from penstock.sinks.protocol import Holding, ReadableSink, Target
from penstock.sinks.staged import rows_of

__all__ = ["SinkAudit", "SinkDigest"]

LAG_MAX = 1
"""How many epochs a sink of a running job may be behind HEAD."""

SAMPLE_OF = 1_000_000


class SinkDigest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sink was found to hold of the audited epochs."""

    upto: Epoch
    """The last epoch that all of its shards have taken."""
    rows: int
    digest: str
    """The sum of the rows' hashes, in any order."""


@dataclass(slots=True)
class SinkAudit:
    """The comparison of one sink."""

    history: History
    topology: Topology
    ledger: Ledger
    node: SinkNode
    sample: float = 1.0
    """The share of keys that are compared, by their hash."""

    def check(self) -> SinkDigest | None:
        """Compare it, as far as that is possible."""
        sink, name = self.node.sink, f"sink {self.node.name}"
        if not isinstance(sink, ReadableSink):
            self.ledger.unknown(name, f"what a {type(sink).__name__} sink holds cannot be read")
            return None
        assert self.node.columns is not None, "a sink outside the root has columns"
        target = Target(
            job=self.topology.job,
            columns=self.node.columns,
            partitions=self.topology.partitions,
            store=self.history.root.store,
        )
        try:
            before = self.history.now().epoch  # 1
            with closing(sink.read_back(target)) as holding:
                cursors = _cursors(holding, sink.shards(self.topology.partitions))
                self.history.follow()
                return self._compared(holding, cursors, self._upto(cursors, before))
        except Rewound:
            raise
        except (PenstockError, pa.ArrowException) as error:
            self.ledger.unknown(name, str(error))
            return None

    def _compared(
        self,
        holding: Holding,
        cursors: Sequence[Cursor | None],
        upto: NDArray[np.int64] | None,
    ) -> SinkDigest | None:
        if holding.traits.is_shared and holding.traits.key:
            why = f"{holding.traits.others}: whose row a key has cannot be told"
            self.ledger.unknown(f"sink {self.node.name}", why)
            return None
        if upto is None:
            return None
        lens = Lens(holding.traits)
        with Spill() as ours, Spill() as theirs:
            if not self._expect(holding, upto, ours):  # 2
                return None
            for batch in holding.batches():  # 3
                theirs.add(self._sampled(lens.records(batch)))
                self.ledger.count("rows in the sink", batch.num_rows)
            judge = self._judge(holding, upto, self._is_still(holding, cursors))  # 4
            digest = self._judged(holding, ours, theirs, judge)  # 5
        self._tell(holding, judge)
        return digest

    def _upto(self, cursors: Sequence[Cursor | None], before: Epoch) -> NDArray[np.int64] | None:
        """The last epoch of each shard; None if a cursor is not on the chain. `before` is where
        HEAD was when they were read."""
        marks = {link.epoch: mark_of(link.manifest.commit) for link in self.history.links}
        head, wrong = self.history.head.epoch, False
        for shard, cursor in enumerate(cursors):
            subject = f"sink {self.node.name}, shard {shard}"
            if cursor is not None and cursor.epoch > head:
                found = f"has taken {cursor}, and HEAD is at epoch {head}"
                self.ledger.wrong("I13", subject, found, head)
                wrong = True
            elif cursor is not None and marks.get(cursor.epoch, cursor.mark) != cursor.mark:
                found = f"has taken {cursor} of another history than HEAD's"
                self.ledger.wrong("I13", subject, found, cursor.epoch)
                wrong = True
        upto = np.array([0 if each is None else each.epoch for each in cursors], np.int64)
        self._lag(before - int(upto.min()))
        return None if wrong else upto

    def _lag(self, lag: int) -> None:
        if lag > LAG_MAX:
            why = f"it is {lag} epochs behind HEAD, and what it lacks was not compared"
            self.ledger.unknown(f"sink {self.node.name}", why)
        elif lag > 0:
            self.ledger.note(f"The sink is {lag} epoch behind HEAD.")

    def _expect(self, holding: Holding, upto: NDArray[np.int64], ours: Spill) -> bool:
        """Records of what the shards have taken; False if that cannot be told."""
        lens = Lens(holding.traits)
        for epoch, output in self._outputs():
            if epoch > upto[output.partition % len(upto)]:
                continue
            try:
                body = self.history.body(output.ref, epoch)
            except Gone:
                continue  # given up meanwhile: the comparison begins behind it
            except Corrupt:
                why = f"what was staged for it in epoch {epoch} cannot be read"
                self.ledger.unknown(f"sink {self.node.name}", why)
                return False
            assert self.node.columns is not None
            changes = holding.expected(rows_of([body], self.node.columns))
            for rows, is_gone in ((changes.puts, False), (changes.gone, True)):
                ours.add(self._sampled(lens.records(rows, is_gone=is_gone)))
            self.ledger.count("committed rows", changes.puts.num_rows + changes.gone.num_rows)
        return True

    def _outputs(self) -> Iterator[tuple[Epoch, Output]]:
        for link in self.history.epochs():
            for output in link.manifest.sinks.get(self.node.name, ()):
                yield link.epoch, output

    def _sampled(self, made: Records) -> Records:
        if self.sample >= 1.0:
            return made
        return made[made["key"][:, 1] % np.uint64(SAMPLE_OF) < round(self.sample * SAMPLE_OF)]

    def _is_still(self, holding: Holding, before: Sequence[Cursor | None]) -> bool:
        """Whether nothing was on its way: the cursors are where they were, and there is nothing
        committed behind them that somebody could be applying."""
        if holding.traits.is_settled:
            return True
        self.history.follow()
        ends = {None if each is None else each.epoch for each in before}
        is_at_head = ends == {self.history.head.epoch}
        return is_at_head and _cursors(holding, len(before)) == list(before)

    def _judge(self, holding: Holding, upto: NDArray[np.int64], is_still: bool) -> Judge:
        traits, history = holding.traits, self.history
        named = [link.epoch for link in history.epochs() if self.node.name in link.manifest.sinks]
        begins = history.begins or (bool(named) and named[0] > history.since)
        return Judge(
            is_keyed=bool(traits.key),
            has_places=Lens(traits).by_place,
            is_settled=traits.is_settled,
            is_still=is_still,
            repeats=traits.repeats,
            is_whole=begins and not traits.is_shared,
            since=history.since,
            upto=upto,
        )

    def _judged(self, holding: Holding, ours: Spill, theirs: Spill, judge: Judge) -> SinkDigest:
        meaning = Meaning(holding.traits, self.ledger, self.node.name)
        naming = Naming(self.history, holding, self.node.name)
        rows, sums = 0, [0, 0]
        for number in range(PARTS):
            expected = ours.part(number)
            mine = wanted(expected[expected["epoch"] >= self.history.since], judge)
            for difference in compared(mine, theirs.part(number), judge):
                meaning.add(difference)
                if meaning.is_wrong(difference.kind):
                    naming.add(difference)
            count, first, second = mine.total()
            rows, sums = rows + count, [sums[0] + first, sums[1] + second]
        meaning.say(naming.named())
        self.ledger.count("rows compared", rows)
        low, high = (each % (1 << 64) for each in sums)
        upto = Epoch(int(judge.upto.min()))
        return SinkDigest(upto=upto, rows=rows, digest=f"{high:016x}{low:016x}")

    def _tell(self, holding: Holding, judge: Judge) -> None:
        """What was not compared."""
        name, traits = f"sink {self.node.name}", holding.traits
        for column in traits.left_out:
            self.ledger.unknown(f"{name}, column {column!r}", "cannot be compared as it is kept")
        if not (judge.is_whole or judge.is_keyed or judge.has_places):
            why = (
                f"its rows do not say where they come from, and those of epochs before "
                f"{judge.since} are not kept: whether one is there twice cannot be told"
            )
            self.ledger.unknown(name, why)
        if self.sample < 1.0:
            self.ledger.note(f"Sampled: {self.sample:.2%} of the keys, by their hash.")


def _cursors(holding: Holding, shards: int) -> list[Cursor | None]:
    return [holding.read_cursor(shard) for shard in range(shards)]
