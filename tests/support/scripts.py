"""Python in another process: for what must not happen to this one."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(script: str, *arguments: object, before: tuple[str, ...] = ()) -> str:
    """What the script prints; if a signal ended it, `signal N`."""
    command = [*before, sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
