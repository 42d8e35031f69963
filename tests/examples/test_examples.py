"""The examples and the demo, run as a new user runs them."""

import ast
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.runtime.loading import load_job

EXAMPLES = Path(__file__).parents[2] / "examples"
PENSTOCK = "from penstock.runtime.cli import main; main()"
LIMIT_S = 600


@dataclass(frozen=True)
class Example:
    """An example, its job, and what it prints the first time and, if it goes on, the second."""

    name: str
    job: str
    prints: str
    again: str | None = None


CLICKS = Example(
    "clicks",
    "clicks",
    """\
20,000 clicks read; 901 users in KR, and the busiest of them:
  user-1      3,028 clicks
  user-2      1,253 clicks
  user-3        737 clicks
""",
)
SESSIONS = Example(
    "sessions",
    "sessions",
    """\
1,690 sessions are over, each as the plain computation has it; the longest:
  user-67  15:18:59 to 19:12:55, 20 events
  user-73  00:12:39 to 03:20:42, 14 events
  user-81  11:29:47 to 14:11:07, 13 events
""",
)
INVENTORY = Example(
    "inventory",
    "inventory",
    """\
1. Five bolts and nine nuts come in; eight bolts and nine nuts go out.
   stock: bolt 5, nut 0
2. Eight bolts cannot go out of five: that booking is a dead letter.
   $ penstock dead-letters list scratch/inventory/root
 letter      operator  key     event         error                                 state
 book/1/1/0  book      'bolt'  bookings/0@2  ValueError: 8 taken, and there are 5
3. The delivery nobody had booked is booked, and the letter is replayed.
   $ penstock dead-letters replay scratch/inventory/root
1 letter will be processed again.
   stock: bolt 0, nut 0
   $ penstock dead-letters list scratch/inventory/root
 letter      operator  key     event         error                                 state
 book/1/1/0  book      'bolt'  bookings/0@2  ValueError: 8 taken, and there are 5  replayed
""",
)
WORD_COUNT = Example(
    "word_count",
    "word-count",
    """\
   6  the
   2  ask
   2  does
   2  grain
   2  mill
""",
    """\
  12  the
   4  ask
   4  does
   4  grain
   4  mill
""",
)
EVERY = [CLICKS, SESSIONS, INVENTORY, WORD_COUNT]


def with_marks(example: Example) -> object:
    return pytest.param(example, marks=pytest.mark.slow, id=example.name)


def commands(example: Example) -> list[list[str]]:
    """The commands in an example's docstring, for this Python and from any folder."""
    text = ast.get_docstring(ast.parse(source(example).read_text())) or ""
    lines = [line.split() for line in text.splitlines() if line.startswith("    ")]
    starts = {"python": [sys.executable], "penstock": [sys.executable, "-c", PENSTOCK]}
    whole = {f"examples/{example.name}.py": str(source(example))}
    return [[*starts[first], *(whole.get(word, word) for word in rest)] for first, *rest in lines]


def source(example: Example) -> Path:
    return EXAMPLES / f"{example.name}.py"


def run(command: list[str], folder: Path) -> str:
    """What a command prints, in a folder of its own."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PENSTOCK_STATE_DIR": str(folder / "state"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.parametrize("example", [with_marks(each) for each in EVERY])
def test_the_commands_of_an_example_do_what_it_says(example: Example, tmp_path: Path) -> None:
    """A reader copies both: the first makes everything, the second finds it done. What a function
    remembers outlives the process that it ran in."""
    script, from_a_shell = commands(example)

    assert run(script, tmp_path) == example.prints
    assert ", 0 rows in, 0 out; " in run(from_a_shell, tmp_path)
    if example.again is not None:
        assert run(script, tmp_path) == example.again


@pytest.mark.parametrize("example", EVERY, ids=lambda each: each.name)
def test_an_example_is_a_job_file(example: Example) -> None:
    """An example that only runs as a script would not show how jobs are deployed."""
    assert load_job(str(source(example))).name == example.job


@pytest.mark.slow
def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    """The first thing a new user runs: an executor, the local state and the driver are lost."""
    shown = run([sys.executable, str(EXAMPLES / "demo.py"), str(tmp_path / "demo")], tmp_path)
    lines = [line[9:].strip() for line in shown.splitlines()]

    assert [line[0] for line in lines if line[:2] in ("1.", "2.", "3.", "4.", "5.")] == list(
        "12345"
    )
    assert [line for line in lines if line.startswith("user-1 ")] == ["user-1     46,054 clicks"]
    assert "1,000 users, 179,679 clicks: exactly those of the log." in lines
    assert any(line.startswith("penstock fsck: ") and "all sound." in line for line in lines)
    assert lines[-1] == "Nothing was lost and nothing counted twice."
