"""A history in words: one line for each happening, for a page and for a terminal alike.

Whatever a job or a fault says may be of any length and may hold line breaks; a line of this is one
line, and bounded. Nothing is escaped here: whoever shows it knows how.
"""

import signal

from penstock.chaos.history import (
    Committed,
    Ended,
    Happening,
    Held,
    Led,
    Missed,
    Noted,
    Retried,
    Started,
    Struck,
)
from penstock.runtime.answers import counted
from penstock.runtime.cli_run import EXIT_FENCED

__all__ = ["clock", "ending", "lasting", "restored", "told"]

TOLD_CHARS_MAX = 400


def told(happening: Happening) -> str:
    """What happened, as one line without its moment."""
    match happening:
        case Started(driver=driver, standby=standby):
            line = f"driver {driver} is started" + (", to stand by" if standby else "")
        case Led(driver=driver, epoch=epoch):
            line = f"driver {driver} leads" + (f" after epoch {epoch:,}" if epoch else " at first")
        case Ended(said=said):
            line = ending(happening) + (f": {said}" if said else "")
        case Committed():
            line = _committed(happening)
        case Retried(driver=driver, epoch=epoch, why=why):
            line = f"epoch {epoch:,} is tried again by driver {driver}: {why}"
        case Held():
            line = _held(happening)
        case Struck(fault=fault, text=text):
            line = f"{fault}: {text}"
        case Missed(fault=fault, why=why):
            line = f"{fault} was due and did not come about: {why}"
        case Noted(text=text):
            line = text
    return _one_line(line)


def ending(ended: Ended) -> str:
    """How a driver went."""
    if ended.code == 0:
        return f"driver {ended.driver} ends"
    if ended.code == EXIT_FENCED:
        return f"driver {ended.driver} ends fenced, as another one leads"
    if ended.code < 0:
        return f"driver {ended.driver} is ended by {_signal(-ended.code)}"
    return f"driver {ended.driver} ends with exit code {ended.code}"


def restored(done: Committed) -> str:
    """What state was brought up for an epoch, and by which way; nothing if none was."""
    return ", ".join(
        f"{counted(count, 'partition')} restored: {way}" for way, count in done.restores.items()
    )


def clock(at_s: float) -> str:
    """A moment of a run, as a stopwatch shows it."""
    minutes, tenths = divmod(round(at_s * 10), 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{tenths / 10:04.1f}"
    return f"{hours}:{minutes:02}:{seconds}" if hours else f"{minutes}:{seconds}"


def lasting(seconds: float) -> str:
    """How long something took: 0.42 s, 41.2 s, 12 min 4 s, 3 h 12 min."""
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _committed(done: Committed) -> str:
    rows = f"{counted(done.rows_in, 'row')} in, {done.rows_out:,} out, {lasting(done.seconds)}"
    parts = [f"epoch {done.epoch:,} is committed by driver {done.driver}: {rows}"]
    if done.lag is not None:
        parts.append(f"lag {done.lag:,}")
    if done.retries:
        parts.append("1 retry" if done.retries == 1 else f"{done.retries:,} retries")
    if done.restores:
        parts.append(restored(done))
    return "; ".join(parts)


def _held(held: Held) -> str:
    if not held.sinks:
        return f"every sink is back; driver {held.driver} goes on"
    sinks = "; ".join(f"sink {name}: {why}" for name, why in held.sinks.items())
    return f"driver {held.driver} is held by {sinks}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TOLD_CHARS_MAX else line[: TOLD_CHARS_MAX - 1] + "…"
