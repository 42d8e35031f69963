"""The VersityGW program: built once per machine with Go, kept outside the repository."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

VERSION = "v1.8.0"
SOURCE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
BUILD_S_MAX = 600


def versity_binary() -> Path:
    """The program, built if this machine has not got it; else the test is skipped."""
    folder = _cache() / f"versitygw-{VERSION}"
    binary = folder / "versitygw"
    with _alone(_cache() / "build.lock"):
        if not binary.exists():
            _build(folder)
    return binary


def out_of_reach(reason: str) -> NoReturn:
    """Skip a test that cannot run here; where everything must run, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "penstock" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        out_of_reach("VersityGW is built with Go, and there is no go command here")
    settings = {**os.environ, "GOBIN": str(folder)}
    try:
        built = subprocess.run(
            [go, "install", SOURCE],
            env=settings,
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        out_of_reach(f"go install {SOURCE} took longer than {BUILD_S_MAX} s")
    if built.returncode:
        out_of_reach(f"go install {SOURCE} failed: {built.stderr.strip()[-300:]}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """So that of two test processes that need the program, one builds it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
