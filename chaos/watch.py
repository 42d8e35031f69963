"""What a job's functions do to the outside while epochs are tried, noticed as it happens.

Python tells an audit hook of every file that is opened, every process that is started and every
connection that is made, whoever does it. Here is asked who: the frames are walked up from there,
and the first that is the user's own code is the place. What Penstock does itself has no such frame,
or one of Penstock's before it. The hook is a witness: it raises nothing and changes nothing.

What is noticed is counted by attempt and place, and written to a file of the process: the first
time at once, again whenever the count has doubled, and when the attempt ends. So a process that is
killed has left its word, and a function that acts for every event does not fill a disk.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain, islice
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

import msgspec

from penstock.chaos.effects_seen import EVENTS, Doubled, Effect, Noticed, effects, file_name
from penstock.clock import SystemChance
from penstock.runtime import processing, tasks
from penstock.runtime.inbox import Inbox
from penstock.runtime.wire import Part
from penstock.runtime.workshop import Workshop

__all__ = ["Doubled", "Effect", "effects", "install", "uninstall", "watched"]

FRAMES_MAX = 500
"""How far up the user's code is looked for."""
PLACES_MAX = 1_000
"""How many places are told apart in one attempt; further ones are left out."""
SUBJECT_CHARS_MAX = 120

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NOWHERE = ("/dev", "/proc")
"""Nothing that is written there stays."""
_SHARED_MEMORY = "/dev/shm"
"""The exception: a file written there stays until the machine stops."""

_NOT_THEIRS = (
    "_frozen_importlib",
    "importlib.",
    "tempfile",
    "penstock.runtime.",
    "penstock.state.",
)
"""Modules that act for themselves even if the user's code has called them: they keep what was
compiled, files that go by themselves, and state."""

Process = Callable[[Workshop, Inbox, int], Iterator[Part]]


@dataclass(slots=True)
class _Attempt:
    """One try of a partition's share of an epoch, and what its function has done so far."""

    named: dict[str, Any]
    """Whose attempt it is, as it is written down."""
    files: frozenset[str]
    """The user's own."""
    seen: dict[tuple[Any, ...], Noticed] = field(default_factory=dict)


@dataclass(slots=True)
class _Watch:
    """What this process notices, and where it writes it down."""

    folder: Path
    allowed: tuple[str, ...]
    attempt: _Attempt | None = None
    is_busy: bool = False
    """Whether the watch itself is opening a file."""

    def notice(self, event: str, given: tuple[Any, ...], frame: FrameType | None) -> None:
        """Something is being done. If a user's function does it, count it."""
        attempt, whole = self.attempt, _subject(event, given)
        if attempt is None or whole is None or self._is_allowed(event, whole):
            return
        theirs = _theirs(frame, attempt.files)
        if theirs is None:
            return
        place, subject = (event, theirs.f_code.co_filename, theirs.f_lineno), _short(whole)
        if place not in attempt.seen and len(attempt.seen) >= PLACES_MAX:
            return
        before = attempt.seen.get(place) or _first(attempt, event, subject, theirs)
        varies = before.varies or before.subject != subject
        now = msgspec.structs.replace(before, times=before.times + 1, varies=varies)
        attempt.seen[place] = now
        if _is_power_of_two(now.times):
            self._write([now])

    def begin(self, attempt: _Attempt) -> None:
        """From now on it is this one."""
        self.end()
        self.attempt = attempt

    def end(self) -> None:
        """Write down what is not written yet. A disk that is full is no concern of the job's."""
        ended, self.attempt = self.attempt, None
        if ended is not None:
            with suppress(OSError):
                self._write([n for n in ended.seen.values() if not _is_power_of_two(n.times)])

    def _write(self, noticed: Sequence[Noticed]) -> None:
        """Append, with one write, so that lines of several threads do not mix."""
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in noticed)
        if not lines:
            return
        # A worker is forked after the watch was installed: the number is that of now.
        path = self.folder / file_name(os.getpid())
        target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(target, lines)
        finally:
            os.close(target)

    def _is_allowed(self, event: str, subject: str) -> bool:
        if event.startswith("socket."):
            return False
        path = Path(subject).absolute()
        if any(path.is_relative_to(folder) for folder in self.allowed):
            return True
        is_device = any(path.is_relative_to(folder) for folder in _NOWHERE)
        return is_device and not path.is_relative_to(_SHARED_MEMORY)


@dataclass(slots=True)
class _Switch:
    """What of this process has been changed. A hook can never be removed; it can be turned off."""

    watch: _Watch | None = None
    is_hooked: bool = False
    process: Process | None = None
    """The function in whose place another one is."""


_switch = _Switch()


def install(folder: str, allowed: Sequence[str] = ()) -> None:
    """Watch the functions of every task that this process runs, and write to files in `folder`.

    What they do below the `allowed` folders is left out. Installing again changes the folder, and
    nothing else. An attempt that is under way is watched from now on.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    quiet = tuple(str(Path(each).absolute()) for each in allowed)
    if _switch.watch is None:
        _switch.watch = _Watch(Path(folder), quiet, _under_way(sys._getframe()))
    else:
        _switch.watch.folder, _switch.watch.allowed = Path(folder), quiet
    if not _switch.is_hooked:
        _switch.is_hooked = True
        sys.addaudithook(_hook)
    if _switch.process is None:
        _switch.process = vars(tasks)["process"]
        vars(tasks)["process"] = watched(vars(tasks)["process"])


def uninstall() -> None:
    """Watch no more."""
    if _switch.watch is not None:
        _switch.watch.end()
        _switch.watch = None
    if _switch.process is not None:
        vars(tasks)["process"] = _switch.process
        _switch.process = None


def watched(process: Process) -> Process:
    """The same, with what the user's function does in it noticed, while a watch is installed."""

    @wraps(process)
    def watching(shop: Workshop, inbox: Inbox, partition: int) -> Iterator[Part]:
        watch, parts = _switch.watch, process(shop, inbox, partition)
        attempt = None if watch is None else _attempt(shop, inbox, partition)
        if watch is None or attempt is None:
            yield from parts
            return
        watch.begin(attempt)
        try:
            first = list(islice(parts, 1))  # no function is called any more once there is a part
        finally:
            watch.end()
        yield from chain(first, parts)

    return watching


def _hook(event: str, given: tuple[Any, ...]) -> None:
    """Called by Python for everything that goes on: it must be quick, and may never raise."""
    if event not in EVENTS:
        return
    watch = _switch.watch
    if watch is None or watch.attempt is None or watch.is_busy:
        return
    watch.is_busy = True
    try:
        with suppress(Exception):
            watch.notice(event, given, sys._getframe(1))
    finally:
        watch.is_busy = False


def _attempt(shop: Workshop, inbox: Inbox, partition: int) -> _Attempt | None:
    """A new attempt; None for one without orders, which calls nobody."""
    orders = inbox.orders
    if orders is None:
        return None
    operator = shop.topology.operator(inbox.stage)
    named = {
        "operator": operator.name,
        "partition": partition,
        "epoch": orders.epoch,
        "generation": orders.generation,
        "run": orders.run,
        "attempt": SystemChance().unique(),
    }
    return _Attempt(named, _files(operator.wrapped.function))


def _under_way(frame: FrameType | None) -> _Attempt | None:
    """The attempt that whoever installs the watch is in the middle of, if there is one."""
    while frame is not None and frame.f_code is not processing.process.__code__:
        frame = frame.f_back
    if frame is None:
        return None
    found = frame.f_locals
    return _attempt(found["shop"], found["inbox"], found["partition"])


def _files(function: Any) -> frozenset[str]:
    """The file of a user's function; none of Penstock's own, which some operators are."""
    body = getattr(function, "process", function)
    code = getattr(body, "__code__", None)
    is_ours = str(getattr(body, "__module__", "")).startswith("penstock.")
    return frozenset() if code is None or is_ours else frozenset([code.co_filename])


def _theirs(frame: FrameType | None, files: frozenset[str]) -> FrameType | None:
    """The innermost frame of the user's code; None if somebody acts for himself before it."""
    for _ in range(FRAMES_MAX):
        if frame is None:
            return None
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_filename in files or module.startswith("penstock_job_"):
            return frame
        if module.startswith(_NOT_THEIRS):
            return None
        frame = frame.f_back
    return None


def _first(attempt: _Attempt, event: str, subject: str, frame: FrameType) -> Noticed:
    code = frame.f_code
    return Noticed(
        **attempt.named,
        event=event,
        subject=subject,
        function=code.co_qualname.rpartition("<locals>.")[2],
        file=code.co_filename,
        line=frame.f_lineno,
    )


def _subject(event: str, given: tuple[Any, ...]) -> str | None:
    """What something is done to; None if it is nothing that stays, or a file that is open."""
    subject = given[1] if event.startswith("socket.") else given[0]
    if isinstance(subject, tuple):
        return f"{subject[0]}:{subject[1]}"
    is_harmless = event == "open" and not given[2] & _WRITES
    if is_harmless or isinstance(subject, int) or subject == ":memory:":
        return None
    return os.fsdecode(subject) if isinstance(subject, str | bytes | PurePath) else str(subject)


def _short(subject: str) -> str:
    """The end of it, where the name is."""
    if len(subject) <= SUBJECT_CHARS_MAX:
        return subject
    return f"…{subject[1 - SUBJECT_CHARS_MAX :]}"


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0
