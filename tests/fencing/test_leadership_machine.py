"""Leadership under any schedule: processes stop and go at every request, and lose answers."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.checkpoint import Leader, Manifest, MemoryStore, lead, store_handlers
from penstock.checkpoint.layout import HEAD_KEY
from penstock.effects import Wait
from penstock.errors import Fenced, PenstockError, Unavailable
from penstock.ids import Holder
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import JOB, work

PROCESSES = 3
Change = tuple[int, str, int]
"""Token, holder and epoch of HEAD after one write."""


@dataclass
class Process:
    """One process: what it leads, and the protocol it is in the middle of."""

    leader: Leader | None = None
    chance: CountingChance = field(default_factory=CountingChance)
    running: Generator[Any, Any, Any] | None = None
    asked: Any = None


class LeadershipMachine(RuleBasedStateMachine):
    """Time is what the rules make of it: a process that is not stepped is paused."""

    def __init__(self) -> None:
        super().__init__()
        clock = ManualClock()
        self.clock = clock
        self.store = MemoryStore(clock)
        self.handlers = store_handlers(self.store, clock)
        self.processes = [Process() for _ in range(PROCESSES)]
        self.tries = 0
        self.changes: list[Change] = []
        self.reported: list[Manifest] = []

    @rule(number=st.integers(0, PROCESSES - 1))
    def take_over(self, number: int) -> None:
        process = self.processes[number]
        if process.running is None:
            self.tries += 1
            process.leader = None
            process.chance = CountingChance(f"h{self.tries}")
            holder = Holder(f"h{self.tries}")
            self.begin(process, lead(JOB, holder, self.clock, process.chance))

    @precondition(lambda self: any(p.leader and not p.running for p in self.processes))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        idle = [p for p in self.processes if p.leader and not p.running]
        process = idle[data.draw(st.integers(0, len(idle) - 1))]
        assert process.leader is not None
        self.begin(process, work(process.leader, process.chance))

    @precondition(lambda self: any(p.running for p in self.processes))
    @rule(
        data=st.data(),
        steps=st.sampled_from([1, 1, 2, 5, 30]),
        fate=st.sampled_from(["fine", "fine", "fine", "answer lost", "request lost"]),
    )
    def go_on(self, data: st.DataObject, steps: int, fate: str) -> None:
        """Let a process do some requests, the first of which may go wrong."""
        busy = [p for p in self.processes if p.running]
        process = busy[data.draw(st.integers(0, len(busy) - 1))]
        for number in range(steps):
            if process.running is not None:
                self.step(process, fate if number == 0 else "fine")

    def begin(self, process: Process, protocol: Generator[Any, Any, Any]) -> None:
        process.running = protocol
        self.advance(process, lambda: next(protocol))

    def step(self, process: Process, fate: str) -> None:
        protocol, effect = process.running, process.asked
        assert protocol is not None
        lost = Unavailable("store", "did not answer", "try again")
        if isinstance(effect, Wait) or fate == "fine":
            answer = self.perform(process, effect)
            self.advance(process, lambda: protocol.send(answer))
            return
        if fate == "answer lost":
            self.perform(process, effect)
        self.advance(process, lambda: protocol.throw(lost))

    def advance(self, process: Process, move: Callable[[], Any]) -> None:
        """Go to the next effect, or take down how the protocol ended."""
        try:
            process.asked = move()
        except StopIteration as end:
            process.running = None
            self.finished(process, end.value)
        except PenstockError as error:
            assert isinstance(error, Fenced | Unavailable), error
            process.running = None
            if process.leader is not None and process.leader.tenure.over:
                process.leader = None

    def finished(self, process: Process, result: Any) -> None:
        if isinstance(result, Leader):
            process.leader = result
        else:
            self.reported.append(result)

    def perform(self, process: Process, effect: Any) -> Any:
        before = self.head()
        answer = self.handlers[type(effect)](effect)
        after = self.head()
        if after != before:
            assert after is not None
            self.changes.append((after["token"], after["holder"], after["epoch"]))
            if before is not None and after["epoch"] > before["epoch"]:
                assert process.leader is not None
                assert process.leader.tenure.token == before["token"]
        return answer

    def head(self) -> Any:
        stored = self.store.get(HEAD_KEY)
        return None if stored is None else json.loads(stored.body)

    @invariant()
    def every_change_is_a_take_over_or_a_commit(self) -> None:
        """Tokens grow by one with a new holder; epochs grow by one with the same."""
        for (token, holder, epoch), after in zip(self.changes, self.changes[1:], strict=False):
            took_over = after[0] == token + 1 and after[1] != holder and after[2] == epoch
            assert took_over or after == (token, holder, epoch + 1)

    @invariant()
    def one_holder_per_token(self) -> None:
        holders = {(token, holder) for token, holder, _ in self.changes}
        assert len({token for token, _ in holders}) == len(holders)

    @invariant()
    def what_was_reported_is_in_the_chain(self) -> None:
        chain = self.chain()
        assert [epoch for epoch, _ in chain] == list(range(len(chain), 0, -1))
        assert {(m.epoch, m.commit) for m in self.reported} <= set(chain)
        assert len({m.epoch for m in self.reported}) == len(self.reported)

    def chain(self) -> list[tuple[int, str]]:
        """Epochs and commits from HEAD back, read without any of our code."""
        found: list[tuple[int, str]] = []
        named = (self.head() or {}).get("manifest")
        while named is not None:
            stored = self.store.get(named["key"])
            assert stored is not None
            manifest = json.loads(stored.body)
            found.append((manifest["epoch"], manifest["commit"]))
            named = manifest["parent"]
        return found


def test_there_is_one_leader_under_any_schedule() -> None:
    """Pauses, lost answers and take-overs in any order: no fork, no gap, no silent loss."""
    run_state_machine_as_test(
        LeadershipMachine,
        settings=settings(max_examples=150, stateful_step_count=60, deadline=None),
    )
