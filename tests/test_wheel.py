"""The built package, in an environment that has never seen this folder."""

import json
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.scripts import ROOT

pytestmark = pytest.mark.slow

ROOMS = ("chaos", "checkpoint", "fencing", "runtime", "sinks", "sources", "state")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "scratch", "*.egg-info")
IMPORT_ALL = """
import importlib, json, os, pkgutil
import penstock
names = [found.name for found in pkgutil.walk_packages(penstock.__path__, "penstock.")]
found = {"penstock": penstock.__file__}
for name in names:
    if not name.endswith("__main__"):
        found[name] = importlib.import_module(name).__file__
links = [name for name in os.listdir(penstock.__path__[0])
         if os.path.islink(os.path.join(penstock.__path__[0], name))]
print(json.dumps({"found": found, "links": links}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a clean environment with the wheel and its pinned dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", "../dist", *isolation()]
    run(build, folder / "source")
    (wheel,) = (folder / "dist").glob("*.whl")
    run([sys.executable, "-m", "venv", "clean"], folder)
    pip = [str(folder / "clean" / "bin" / "pip"), "install", "--disable-pip-version-check"]
    # Every module is imported, also those of extras.
    whole = f"{wheel}[chaos,delta,kafka-schemas,postgres,redis]"
    run([*pip, "--quiet", "-c", str(ROOT / "constraints.txt"), whole], folder)
    return folder / "clean"


def isolation() -> list[str]:
    """Build with what is installed here if it is new enough; else `build` fetches what it needs."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return ["--no-isolation"] if all(map(is_installed, asked)) else []


def is_installed(asked: str) -> bool:
    needed = Requirement(asked)
    try:
        return version(needed.name) in needed.specifier
    except PackageNotFoundError:
        return False


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def modules_of_the_source() -> set[str]:
    paths = [path for room in ("penstock", *ROOMS) for path in (ROOT / room).glob("*.py")]
    dotted = (path.relative_to(ROOT).with_suffix("").parts for path in paths)
    names = (".".join(p if p[0] == "penstock" else ("penstock", *p)) for p in dotted)
    return {n.removesuffix(".__init__") for n in names if not n.endswith("__main__")}


def test_every_module_is_in_the_wheel(installed: Path) -> None:
    """The links in penstock/ are for a clone; the wheel has real folders of the same names."""
    told = json.loads(run([str(installed / "bin" / "python"), "-c", IMPORT_ALL], installed))
    (site,) = (installed / "lib").glob("python*/site-packages")

    assert set(told["found"]) == modules_of_the_source()
    assert [p for p in told["found"].values() if not Path(p).is_relative_to(site)] == []
    assert told["links"] == []


def test_the_wheel_has_nothing_else(installed: Path) -> None:
    """A room's folder at the top of site-packages would shadow somebody's own `state`."""
    (site,) = (installed / "lib").glob("python*/site-packages")

    assert [room for room in ROOMS if (site / room).exists()] == []
    assert (site / "penstock" / "py.typed").is_file()
    assert not (site / "tests").exists()


def test_the_command_line_works_from_the_wheel(installed: Path) -> None:
    """The script is what most people meet first."""
    told = run([str(installed / "bin" / "penstock"), "--help"], installed)

    for command in ("doctor", "log", "fsck", "audit"):
        assert command in told
