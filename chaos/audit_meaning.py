"""What a difference between a sink and its outputs means: wrong, in doubt, or nothing at all.

It depends on the sink. A row too few in a compacted topic is nobody's fault, and a row too many in
a table that anybody may append to may be anybody's.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.chaos.audit_compare import Difference, Kind
from penstock.chaos.audit_naming import Named
from penstock.chaos.findings import Ledger
from penstock.sinks.protocol import Traits

__all__ = ["Meaning"]

_INVARIANTS = {Kind.DOUBLED: "I2", Kind.STRANGE: "I8", Kind.FOREIGN: "I8", Kind.EARLY: "I13"}
_NOTHING = {Kind.LATER: "rows that came later", Kind.BEFORE: "rows of earlier epochs"}


@dataclass(slots=True)
class Meaning:
    """The differences of one sink, summed up by kind."""

    traits: Traits
    ledger: Ledger
    sink: str
    _totals: Counter[Kind] = field(default_factory=Counter)

    def add(self, difference: Difference) -> None:
        """Count it."""
        self._totals[difference.kind] += difference.surplus

    def is_wrong(self, kind: Kind) -> bool:
        """Whether somebody is to blame for certain."""
        return not self._is_nothing(kind) and not self._doubt(kind)

    def say(self, named: Iterable[Named]) -> None:
        """Name the first rows of what is wrong, and sum up the rest."""
        said: Counter[Kind] = Counter()
        for each in named:
            said[each.kind] += each.surplus
            invariant = _INVARIANTS.get(each.kind, "I4")
            self.ledger.wrong(invariant, each.subject, each.found, each.epoch, each.surplus)
        for kind, total in sorted(self._totals.items()):
            self._sum_up(kind, total, total - said[kind])

    def _sum_up(self, kind: Kind, total: int, left: int) -> None:
        name = f"sink {self.sink}"
        if self._is_nothing(kind):
            self.ledger.count(_NOTHING.get(kind, "rows of others"), total)
        elif doubt := self._doubt(kind):
            self.ledger.unknown(name, f"{total:,} rows, of which each {kind}: {doubt}")
        elif left:
            found = f"has {left:,} more rows, of which each {kind}"
            self.ledger.wrong(_INVARIANTS.get(kind, "I4"), name, found, times=left)

    def _is_nothing(self, kind: Kind) -> bool:
        return kind in _NOTHING or (kind is Kind.FOREIGN and bool(self.traits.others))

    def _doubt(self, kind: Kind) -> str:
        """Why it need not be anybody's fault; empty: it is."""
        return {
            Kind.MOVED: "the job was writing to the sink",
            Kind.UNORDERED: "let one partition write a key",
            Kind.MISSING: self.traits.forgets,
            Kind.STRANGE: self.traits.others,
        }.get(kind, "")
