"""Events that became dead letters and were processed besides, by the task that set them aside.

Offsets of a source are read by one epoch only, and keys belong to one task of it. So if an event
was processed as well, a row of the same task says that it was computed from that offset: the first
and the last offset of `_input` are those of events of the call. Where a transform may make several
events of one, or a source is fed to the operator twice, an offset does not stand for one event, and
nothing follows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.chaos.audit_letters import Event, LetterBook
from penstock.chaos.audit_trace import inputs_of
from penstock.ids import Epoch, Key
from penstock.runtime.topology import CHANGES, DEAD_LETTERS, REPLAYED, OperatorNode, Topology
from penstock.sinks.table_index import TableFile

__all__ = ["check_letter_events"]


def check_letter_events(book: LetterBook, topology: Topology | None) -> None:
    """Look at the rows of every task that has set letters aside. Only the job's file says which
    sinks are an operator's."""
    if topology is None:
        book.ledger.note("Whether an event of a letter was also processed is told with --job only.")
        return
    emitted = _Emitted(book, topology)
    clear = {
        origin
        for node in topology.operators
        if node.name == book.operator
        for origin in _unambiguous(topology, node)
    }
    for key, file in book.files.items():
        events = {e: n for n, e in book.events(key).items() if e is not None and e[0] in clear}
        for other, event in emitted.of(file, set(events)) if events else ():
            found = f"is of an event that was processed as well: {other} has a row of it"
            book.wrong((key, events[event]), event, file.epoch, found)


def _unambiguous(topology: Topology, node: OperatorNode) -> set[str]:
    """The origins whose offsets stand for one event of the operator each."""
    origins = [feed.origin for feed in node.feeds]
    return {o for o in origins if origins.count(o) == 1 and o not in topology.transformed}


@dataclass(slots=True)
class _Emitted:
    """The rows that an operator has emitted, by the task that did."""

    book: LetterBook
    topology: Topology
    _tables: dict[str, dict[tuple[Epoch, int], TableFile]] = field(default_factory=dict)

    def of(self, file: TableFile, events: set[Event]) -> Iterator[tuple[Key, Event]]:
        """Which of some events the task of a file of letters has processed, and where that is."""
        for each in self._files(file.epoch, file.output.partition):
            self.book.ledger.count("files")
            for batch in self.book.batches(each, "_input"):
                inputs = inputs_of(batch)
                for code, origin in enumerate(inputs.names):
                    source, _, partition = origin.partition("/")
                    mine = inputs.codes == code
                    ends = {*inputs.firsts[mine].tolist(), *inputs.lasts[mine].tolist()}
                    hit = ((source, partition, end) for end in sorted(ends))
                    yield from ((each.output.ref.key, event) for event in hit if event in events)

    def _files(self, epoch: Epoch, partition: int) -> Iterator[TableFile]:
        """What one task has emitted, as far as it is kept."""
        for node in self.topology.sinks:
            if node.operator != self.book.operator:
                continue
            if node.output in (CHANGES, DEAD_LETTERS, REPLAYED):
                continue
            if node.name not in self._tables:
                self._tables[node.name] = {
                    (each.epoch, each.output.partition): each for each in self._kept(node.name)
                }
            found = self._tables[node.name].get((epoch, partition))
            if found is not None:
                yield found

    def _kept(self, sink: str) -> Iterator[TableFile]:
        """All files of a table; of another sink, what is staged for it."""
        history = self.book.history
        if history.newest is not None and sink in history.newest.tables:
            yield from self.book.table(sink)
            return
        for link in history.epochs():
            yield from (TableFile(link.epoch, each) for each in link.manifest.sinks.get(sink, ()))
