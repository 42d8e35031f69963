"""Races for `penstock doctor`: many writers, one version, and at most one may win it.

A store that checks first and acts later looks right to one writer at a time. So several
threads in two processes, each process with a client of its own, write at the same moment,
round after round, and every object must hold what its one winner wrote. A store in this
process's memory has no other process to race with, and is raced by threads alone.
"""

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from threading import Barrier, BrokenBarrierError
from typing import Protocol

from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.store import ObjectStore
from penstock.errors import PenstockError, Unavailable
from penstock.ids import ETag, Key

__all__ = ["WRITERS", "Outcome", "Round", "Start", "complaint", "race", "race_in_threads"]

WRITERS_PER_PROCESS = 4
WRITERS = tuple(f"writer-{number}" for number in range(2 * WRITERS_PER_PROCESS))
ROUND_S_MAX = 60.0
END_S_MAX = 10.0


class Outcome(Enum):
    """What one writer was told about one round."""

    WON = "won"
    LOST = "lost"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Round:
    """One object that all writers want at once: to create it, or to replace one version."""

    key: Key
    etag: ETag | None


class Start(Protocol):
    """Lets nobody go before all are there."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the others."""

    def abort(self) -> None:
        """Send everybody home."""


def race(url: str, rounds: Sequence[Round]) -> list[Mapping[str, Outcome]]:
    """Run the rounds between two processes; what each writer was told, round by round."""
    processes = multiprocessing.get_context("spawn")
    start = processes.Barrier(len(WRITERS))
    halves = WRITERS[:WRITERS_PER_PROCESS], WRITERS[WRITERS_PER_PROCESS:]
    ends = []
    running = []
    for half in halves:
        ours, theirs = processes.Pipe(duplex=False)
        running.append(processes.Process(target=_racer, args=(url, start, rounds, half, theirs)))
        running[-1].start()
        theirs.close()  # so that a process that dies ends our waiting
        ends.append(ours)
    with _ended(running):
        return _joined([_answer(end) for end in ends])


def race_in_threads(
    store: ObjectStore, rounds: Sequence[Round], writers: Sequence[str], start: Start | None = None
) -> list[Mapping[str, Outcome]]:
    """Run the rounds between threads of this process."""
    start = start or Barrier(len(writers))

    def compete(writer: str) -> list[Mapping[str, Outcome]]:
        return [{writer: _write(store, turn, writer, start)} for turn in rounds]

    with ThreadPoolExecutor(len(writers)) as threads:
        return _joined(list(threads.map(compete, writers)))


def complaint(turn: Round, told: Mapping[str, Outcome], stored: bytes | None) -> str:
    """What the store did wrong in one round, or nothing."""
    did, it = ("created", "object") if turn.etag is None else ("replaced", "version")
    won = [writer for writer, outcome in told.items() if outcome is Outcome.WON]
    if len(won) > 1:
        count = {2: "two writers were both"}.get(len(won), f"{len(won)} writers were all")
        return f"{count} told they {did} the same {it}"
    if not won and Outcome.UNSURE not in told.values():
        return f"every writer was told it lost, though one of them must have {did} it"
    if won and stored != won[0].encode():
        return f"the object is not what the writer wrote that was told it {did} it"
    return ""


def _write(store: ObjectStore, turn: Round, writer: str, start: Start) -> Outcome:
    start.wait(ROUND_S_MAX)
    try:
        etag = _send(store, turn, writer.encode())
    except Unavailable:
        return Outcome.UNSURE
    except PenstockError:
        start.abort()
        raise
    return Outcome.LOST if etag is None else Outcome.WON


def _send(store: ObjectStore, turn: Round, body: bytes) -> ETag | None:
    if turn.etag is None:
        return store.create(turn.key, body)
    return store.replace(turn.key, body, turn.etag)


def _racer(
    url: str, start: Start, rounds: Sequence[Round], writers: Sequence[str], answer: Connection
) -> None:
    """The body of one process."""
    try:
        answer.send(race_in_threads(open_store(url), rounds, writers, start))
    except PenstockError as error:
        start.abort()
        answer.send(error)
    except BrokenBarrierError:
        answer.send(_unfinished())


def _answer(end: Connection) -> list[Mapping[str, Outcome]]:
    try:
        told: list[Mapping[str, Outcome]] | PenstockError = end.recv()
    except EOFError as error:
        raise _unfinished() from error
    if isinstance(told, PenstockError):
        raise told
    return told


def _joined(parts: Sequence[Sequence[Mapping[str, Outcome]]]) -> list[Mapping[str, Outcome]]:
    """Several writers' accounts of the same rounds as one."""
    return [
        {writer: outcome for told in turn for writer, outcome in told.items()}
        for turn in zip(*parts, strict=True)
    ]


@contextmanager
def _ended(running: Sequence[multiprocessing.process.BaseProcess]) -> Iterator[None]:
    """Leave no process behind."""
    try:
        yield
    finally:
        for process in running:
            process.join(END_S_MAX)
            process.kill()
            process.join()


def _unfinished() -> PenstockError:
    return Unavailable("the race", "was not run to its end by all writers", "run the probe again")
