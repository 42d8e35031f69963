"""Lost requests and lost answers between a job and any of its sinks, by order from another process.

The process that conducts a run puts orders into a folder; the job's own process, whose sinks are
`Unsteady`, looks there before and after it applies an epoch. An order is one fault. It is taken by
renaming its file, which one of all who try can do, so no order is carried out twice, by threads or
by leaders that do not know of one another. What was done is written into the file it was renamed
to before the fault is felt: an order that a crash fell upon is taken and says nothing, and counts
as a fault that never happened.

A sink that is `Unsteady` is otherwise what it was: it has the same name, and so the same cursor.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.clock import SystemChance
from penstock.errors import Invalid, Unavailable
from penstock.ids import Token
from penstock.sinks.changelog import Rebuilding
from penstock.sinks.cursors import Apply, Cursor
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.protocol import (
    AppliedSink,
    Holding,
    ReadableSink,
    Sink,
    StagedSink,
    Target,
    Writer,
)

__all__ = [
    "Ordered",
    "SinkFault",
    "SinkOrders",
    "Unsteady",
    "UnsteadyReadable",
    "UnsteadyWriter",
    "unsteady",
]

ORDER, TAKEN, DRAFT = "sink-", "taken-", "draft-"
"""What the file of an order begins with: as it waits, once it is taken, before it is whole."""


class SinkFault(StrEnum):
    """What happens to a request to apply an epoch."""

    BEFORE = "the request was lost"
    AFTER = "it was done, and the answer was lost"


class _Order(msgspec.Struct, frozen=True):
    """One fault, for one apply."""

    kind: SinkFault
    sink: str | None
    """None: whichever comes first."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Some orders, in the hands of whoever gave them."""

    folder: Path
    names: tuple[str, ...]

    def taken(self) -> list[str]:
        """What was done so far, a text for each fault."""
        return [text for name in self.names if (text := self._text(name))]

    def withdraw(self) -> None:
        """Take back what nobody has taken yet."""
        for name in self.names:
            (self.folder / f"{ORDER}{name}").unlink(missing_ok=True)

    def _text(self, name: str) -> str:
        try:
            said = (self.folder / f"{TAKEN}{name}").read_text()
        except FileNotFoundError:
            return ""
        _, _, text = said.partition("\n")
        return text.strip() if text.endswith("\n") else ""


class SinkOrders:
    """The folder of a run, as its conductor sees it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._given = 0

    def order(self, kind: SinkFault, sink: str | None, times: int = 1) -> Ordered:
        """Let so many applies of a sink go wrong, the next ones; of any sink, if none is named."""
        names = [self._written(_Order(kind, sink)) for _ in range(times)]
        return Ordered(self._folder, tuple(names))

    def _written(self, order: _Order) -> str:
        """An order is seen whole or not at all, and found after those that were given before."""
        self._given += 1
        name = f"{self._given:06}-{SystemChance().unique()}.json"
        draft = self._folder / f"{DRAFT}{name}"
        draft.write_bytes(msgspec.json.encode(order) + b"\n")
        draft.rename(self._folder / f"{ORDER}{name}")
        return name


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A sink whose applies go wrong when somebody has ordered it."""

    sink: AppliedSink
    folder: str

    @property
    def name(self) -> str:
        """The sink's own."""
        return self.sink.name

    @property
    def guarantee(self) -> Guarantee:
        """The sink's own: it must hold here too."""
        return self.sink.guarantee

    def shards(self, partitions: int) -> int:
        """As many as it has anyway."""
        return self.sink.shards(partitions)

    def check(self, rows: pa.Table) -> None:
        """Refuse what the sink refuses."""
        self.sink.check(rows)

    def open(self, target: Target) -> "UnsteadyWriter":
        """Open the sink."""
        return UnsteadyWriter(self.sink.open(target), Path(self.folder))


@dataclass(frozen=True, slots=True)
class UnsteadyReadable(Unsteady):
    """One that can be read back: what it holds is shown as it is."""

    sink: ReadableSink

    def read_back(self, target: Target) -> Holding:
        """Look into the sink."""
        return self.sink.read_back(target)


def unsteady(sink: Sink, folder: str) -> Sink:
    """The sink, to go wrong by the orders in a folder. One that is part of the root, one that state
    is rebuilt from, and one that is unsteady already stay as they are."""
    if not isinstance(sink, AppliedSink) or isinstance(sink, StagedSink | Rebuilding | Unsteady):
        return sink
    if isinstance(sink, ReadableSink):
        return UnsteadyReadable(sink, folder)
    return Unsteady(sink, folder)


@dataclass(frozen=True, slots=True)
class UnsteadyWriter:
    """An open sink, and the folder its orders are in."""

    writer: Writer
    folder: Path

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        return self.writer.read_cursor(shard)

    def apply(self, asked: Apply) -> None:
        """Apply, unless it is ordered otherwise.

        1. A request that is lost: the sink hears nothing of it.
        2. Apply. What the sink itself raises takes no order.
        3. An answer that is lost: the sink has done it, and the job does not know.
        """
        self._meet(SinkFault.BEFORE, asked)  # 1
        self.writer.apply(asked)  # 2
        self._meet(SinkFault.AFTER, asked)  # 3

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here."""
        self.writer.accept(shard, cursor, token)

    def close(self) -> None:
        """Close the sink."""
        self.writer.close()

    def _meet(self, kind: SinkFault, asked: Apply) -> None:
        """Fail, if there is an order for it."""
        where = f"sink {asked.sink}, shard {asked.shard}, epoch {asked.cursor.epoch}"
        if any(_is_mine(path, f"{where}: {kind}") for path in _waiting(self.folder, kind, asked)):
            raise Unavailable(where, f"met a fault: {kind}", "wait: the job tries again")


def _waiting(folder: Path, kind: SinkFault, asked: Apply) -> Iterator[Path]:
    """The orders that such a request would carry out, as they were given."""
    for path in sorted(folder.glob(f"{ORDER}*.json")):
        order = _read(path)
        if order is not None and order.kind is kind and order.sink in (None, asked.sink):
            yield path


def _read(path: Path) -> _Order | None:
    try:
        # Taken between opening and reading it, the file says on a second line what was done.
        line, _, _ = path.read_bytes().partition(b"\n")
        return msgspec.json.decode(line, type=_Order)
    except FileNotFoundError:
        return None  # somebody has taken it, or taken it back
    except msgspec.DecodeError as error:
        advice = "leave the folder to the process that conducts the run"
        raise Invalid(str(path), f"is no order for a sink ({error})", advice) from error


def _is_mine(path: Path, text: str) -> bool:
    """Take an order and write down what is done; False if somebody was faster."""
    taken = path.with_name(f"{TAKEN}{path.name.removeprefix(ORDER)}")
    try:
        path.rename(taken)
    except FileNotFoundError:
        return False
    with taken.open("a") as file:
        file.write(f"{text}\n")
    return True
