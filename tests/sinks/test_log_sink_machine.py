"""Any order of deaths, zombies, rewinds and changes to the topic, against one `LogSink`."""

from hypothesis import settings, strategies
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from penstock.errors import Fenced, Invalid
from penstock.ids import Generation, Token
from penstock.sinks import Apply, Cursor
from penstock.sinks.log_sink_writer import LogWriter
from tests.support.log_sinking import (
    Died,
    Mortal,
    Row,
    held,
    log_of,
    opened,
    rows_for,
    sinking,
    spread,
)
from tests.support.sink_cases import cursor

SPREADS = strategies.lists(strategies.integers(0, 5), max_size=4, unique=True).map(sorted)
REQUESTS = strategies.integers(1, 16)


class Sinking(RuleBasedStateMachine):
    """A job commits epochs and a sink takes them; `taken` is what its topic should tell of it."""

    deposed = Bundle("deposed")

    @initialize()
    def start(self) -> None:
        self.sink = sinking(partitions=2)
        self.partitions = 2
        self.token, self.generation, self.made = 1, 1, 0
        self.chain: list[tuple[Cursor, list[int]]] = []
        """The committed epochs, and for which partitions of the job each has rows."""
        self.base: Cursor | None = None
        """Where the sink is while it has none of them."""
        self.taken = 0
        """How many of them the sink has for certain."""
        self.stale: set[Cursor] = set()
        """Commits of other histories that may be there in part."""
        self.writer = opened(self.sink)

    def asked(self, number: int, token: int) -> Apply:
        """The epoch of that place in the chain."""
        at, partitions = self.chain[number]
        return spread(self.told(at), partitions, token=token, follows=self.before(number), at=at)

    def before(self, number: int) -> Cursor | None:
        """The cursor of a sink that has so many epochs."""
        return self.chain[number - 1][0] if number else self.base

    @staticmethod
    def told(at: Cursor) -> int:
        """A number that tells the rows of a commit from those of any other."""
        return at.generation * 1000 + at.epoch

    @rule(partitions=SPREADS)
    def commit(self, partitions: list[int]) -> None:
        """One more epoch."""
        self.made += 1
        at = cursor(len(self.chain) + 1, self.generation, f"commit {self.made}")
        self.chain.append((at, partitions))

    @precondition(lambda self: self.taken < len(self.chain))
    @rule()
    def apply(self) -> None:
        """The leader brings the sink up to HEAD; or it finds half of another history's epoch."""
        while self.taken < len(self.chain):
            try:
                self.writer.apply(self.asked(self.taken, self.token))
            except Invalid as refusal:
                assert self.stale, refusal
                self.accept()
                continue
            self.took()

    def took(self) -> None:
        """The sink has one more; it would have been refused if rows of another line were there."""
        there = [row for part in held(self.sink) for row in part]
        assert not [row for row in there for at in self.stale if self.is_of(row, at)]
        self.taken += 1
        self.stale.clear()

    @precondition(lambda self: self.taken < len(self.chain))
    @rule(number=REQUESTS, heard=strategies.booleans(), next_token=strategies.booleans())
    def die(self, number: int, heard: bool, next_token: bool) -> None:
        """A leader dies somewhere in an epoch; the next one may find the token it had."""
        fate = Mortal(number, heard=heard)
        asked = self.asked(self.taken, self.token)
        try:
            opened(self.sink, fate).apply(asked)
        except Invalid as refusal:
            assert self.stale, refusal
        except Died:
            if opened(self.sink).read_cursor(0) == asked.cursor:
                self.took()
        else:
            self.took()
        self.token += next_token
        self.writer = opened(self.sink)

    @precondition(lambda self: self.taken < len(self.chain))
    @rule()
    def rewind(self) -> None:
        """The job goes back to where the sink is: what it has begun to take is of another line."""
        self.stale |= {at for at, _ in self.chain[self.taken : self.taken + 1]}
        del self.chain[self.taken :]
        self.generation += 1
        self.token += 1
        self.writer = opened(self.sink)

    def accept(self) -> None:
        """Somebody says that the sink is to go on, with another root's token."""
        self.token = 1
        if not self.taken:
            self.base = Cursor.before_all(Generation(self.generation))
        at = self.before(self.taken)
        assert at is not None
        opened(self.sink).accept(0, at, Token(self.token))
        self.stale.clear()

    @rule(target=deposed)
    def take_over(self) -> tuple[LogWriter, int]:
        """Another leader; the one before does not know yet."""
        before, self.writer = (self.writer, self.token), opened(self.sink)
        self.token += 1
        return before

    @precondition(lambda self: self.chain)
    @rule(target=deposed, zombie=consumes(deposed))
    def wake_up(self, zombie: tuple[LogWriter, int]) -> object:
        """A deposed leader applies what it thinks is next. If the sink has heard of nobody else,
        that is as good as anybody's."""
        writer, token = zombie
        is_next = self.taken < len(self.chain)
        before = held(self.sink)
        try:
            writer.apply(self.asked(self.taken - (not is_next), token))
        except (Fenced, Invalid):
            return multiple()
        if is_next:
            self.took()
        else:
            assert held(self.sink) == before
        return zombie

    @rule()
    def sweep(self) -> None:
        """Housekeeping, as a job beside this one does it."""
        log_of(self.sink).sweep()
        log_of(self.sink).compact()

    @precondition(lambda self: self.partitions < 5)
    @rule()
    def grow(self) -> None:
        """The topic gets a partition more."""
        self.partitions += 1
        log_of(self.sink).change(partitions=self.partitions)

    @invariant()
    def every_row_is_there_once(self) -> None:
        """All of what was taken, in order; of the epoch behind it perhaps some partitions."""
        there = held(self.sink)
        for at, partitions in self.chain[: self.taken]:
            found = [row for part in there for row in part if self.is_of(row, at)]
            wanted = [row for p in partitions for row in rows_for(self.told(at), p)]
            assert sorted(found, key=repr) == sorted(wanted, key=repr)
        assert opened(self.sink).read_cursor(0) == self.before(self.taken)
        for part in there:
            epochs = [int(row["user"].partition("-")[0]) for row in part]
            assert epochs == sorted(epochs)

    def is_of(self, row: Row, at: Cursor) -> bool:
        return bool(row["user"].startswith(f"{self.told(at)}-"))


TestLogSink = Sinking.TestCase
TestLogSink.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
