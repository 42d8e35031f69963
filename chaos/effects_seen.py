"""What was noticed of side effects, told by place: how often, and what of it was done twice.

Processes write down what they notice (`penstock.chaos.watch`), a line per attempt and place, the
same line again as its count grows. An effect in two attempts at the same partition's share of an
epoch has happened twice, and the epoch counts once. That is no suspicion: it was seen.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import msgspec

__all__ = ["EVENTS", "Doubled", "Effect", "Noticed", "effects", "file_name"]

EVENTS = {
    "open": "opens {} for writing",
    "os.link": "links {}",
    "os.mkdir": "makes the folder {}",
    "os.remove": "removes {}",
    "os.rename": "renames {}",
    "os.rmdir": "removes the folder {}",
    "os.symlink": "links {}",
    "os.system": "runs {}",
    "os.truncate": "cuts {} short",
    "socket.connect": "connects to {}",
    "socket.sendto": "sends to {}",
    "sqlite3.connect": "opens the database {}",
    "subprocess.Popen": "starts {}",
}
"""What is noticed, as Python's audit events call it, and as it is told."""


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what one attempt has done at one place so far."""

    operator: str
    partition: int
    epoch: int
    generation: int
    run: str
    attempt: str
    event: str
    subject: str
    """The first file, folder or address it was done to."""
    varies: bool = False
    """Whether there were others."""
    function: str
    file: str
    line: int
    times: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Doubled:
    """A partition's share of an epoch in which an effect happened more than once."""

    epoch: int
    partition: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a line of a job has done to the outside, over a whole run."""

    operator: str
    function: str
    event: str
    subject: str
    varies: bool
    """Whether it was done to others than `subject` as well."""
    file: str
    line: int
    times: int
    attempts: int
    doubled: tuple[Doubled, ...]
    """Where it has happened more than once for what counts once."""

    def __str__(self) -> str:
        place = f"function {self.function} of {PurePath(self.file).name}, line {self.line},"
        subject = f"{self.subject} and others" if self.varies else self.subject
        done = EVENTS.get(self.event, f"causes {self.event} of {{}}").format(subject)
        counted = f"{_times(self.times)} in {_attempts(self.attempts)}"
        return f"{place} {done}: {counted}{self._meaning()}"

    def _meaning(self) -> str:
        if not self.doubled:
            return ", and again with every epoch that is tried again"
        tries = sum(each.attempts for each in self.doubled)
        most = max(each.attempts for each in self.doubled)
        often = "twice" if most == 2 else f"up to {_times(most)}"
        return (
            f", of which {tries:,} were tries of an epoch that was tried again: "
            f"it has happened {often} for what counts once"
        )


def file_name(process: int) -> str:
    """What a process calls the file that it writes to."""
    return f"effects-{process}.jsonl"


def effects(folder: str) -> list[Effect]:
    """Everything that was noticed by all processes, by file, line and kind."""
    last: dict[tuple[str, ...], Noticed] = {}
    for each in _lines(Path(folder)):
        mark = (each.attempt, each.event, each.file, str(each.line))
        if mark not in last or last[mark].times <= each.times:
            last[mark] = each
    by_place: dict[tuple[str, int, str, str], list[Noticed]] = defaultdict(list)
    for each in last.values():
        by_place[each.file, each.line, each.event, each.operator].append(each)
    return [_effect(by_place[place]) for place in sorted(by_place)]


def _lines(folder: Path) -> Iterator[Noticed]:
    for path in sorted(folder.glob(file_name(0).replace("0", "*"))):
        for line in path.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=Noticed)
            except msgspec.MsgspecError:  # the disk was full, or the process died over it
                continue


def _effect(noticed: Sequence[Noticed]) -> Effect:
    first = noticed[0]
    return Effect(
        operator=first.operator,
        function=first.function,
        event=first.event,
        subject=first.subject,
        varies=any(each.varies or each.subject != first.subject for each in noticed),
        file=first.file,
        line=first.line,
        times=sum(each.times for each in noticed),
        attempts=len(noticed),
        doubled=tuple(_doubled(noticed)),
    )


def _doubled(noticed: Sequence[Noticed]) -> Iterator[Doubled]:
    attempts: dict[tuple[int, int, int], int] = defaultdict(int)
    for each in noticed:
        attempts[each.generation, each.epoch, each.partition] += 1
    for (_, epoch, partition), count in sorted(attempts.items()):
        if count > 1:
            yield Doubled(epoch, partition, count)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _attempts(count: int) -> str:
    return f"{count:,} attempt{'' if count == 1 else 's'}"
