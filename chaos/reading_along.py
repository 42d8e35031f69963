"""Readers of a job's tables while it suffers: their view never goes back (I12).

A table grows by whole epochs. So a reader that looks again sees as many rows of the epochs it has
seen, and perhaps more epochs; it never sees an epoch go, grow, shrink, or come in between. What is
in the rows is the audit's affair.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.chaos.findings import Check, Ledger
from penstock.checkpoint.root import Root
from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.sinks.table_read import read_table, table_names

__all__ = ["ReadersAlong"]

EVERY_S = 2.0


@dataclass(slots=True)
class ReadersAlong:
    """Reads every table now and then, from a thread of its own."""

    root: str
    clock: Clock
    ledger: Ledger = field(
        default_factory=lambda: Ledger("readers", "What a reader has seen of a table stays.")
    )
    _seen: dict[str, dict[int, int]] = field(default_factory=dict)
    """Per table, the rows of each epoch that were seen."""
    _head: int = 0
    _has_tables: bool = False
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-reader")
        self._thread.start()

    def finish(self) -> Check:
        """Look once more, and say what was seen."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._look()
        if self._head and self._has_tables and not self.ledger.counted("looks at tables"):
            self.ledger.unknown("the tables", "nobody could read them")
        return self.ledger.check()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        try:
            root = Root.open(self.root)
            head = root.head().epoch
            for name in table_names(root):
                self._has_tables = True
                self.saw(name, read_table(root, name))
        except Unavailable:
            return  # nobody is promised that a store always answers
        except PenstockError as error:
            if self._head:  # before the first commit there is no root
                self.ledger.wrong("I12", "a reader", f"was told: {error}", self._head)
            return
        except Exception as error:  # noqa: BLE001 - a reader that died has seen nothing
            self.ledger.unknown("a reader", f"{type(error).__name__}: {error}")
            return
        if head < self._head:
            self.ledger.wrong("I12", "HEAD", f"went back from epoch {self._head} to {head}", head)
        self._head = max(self._head, head)

    def saw(self, name: str, table: pa.Table) -> None:
        """A reader has seen these rows of a table."""
        self.ledger.count("looks at tables")
        before, now = self._seen.get(name, {}), _by_epoch(table)
        for epoch, rows in before.items():
            if now.get(epoch, 0) != rows:
                found = f"showed {rows} rows of epoch {epoch}, and later {now.get(epoch, 0)}"
                self.ledger.wrong("I12", f"table {name}", found, epoch)
        last = max(before, default=0)
        for epoch in _new(now, before):
            if epoch < last:
                found = f"showed rows of epoch {epoch} only after those of epoch {last}"
                self.ledger.wrong("I12", f"table {name}", found, epoch)
        self._seen[name] = now


def _by_epoch(table: pa.Table) -> dict[int, int]:
    counted = pc.value_counts(table.column("_epoch"))
    return {int(each["values"].as_py()): int(each["counts"].as_py()) for each in counted}


def _new(now: dict[int, int], before: dict[int, int]) -> Sequence[int]:
    return sorted(set(now) - set(before))
