"""Reading the source: rules that no linter knows and no reviewer should have to remember."""

import ast
import importlib
import inspect
import os
import pickle  # noqa: TID251 - what crosses Spark's processes is pickled by Spark, not by us
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError

ROOT = Path(__file__).parents[1]
ROOMS = ("chaos", "checkpoint", "fencing", "runtime", "sinks", "sources", "state")
MAY_IMPORT = {
    "penstock": set(),
    "fencing": set(),
    "state": set(),
    "checkpoint": {"fencing", "state"},
    "sources": {"fencing", "state", "checkpoint"},
    "sinks": {"fencing", "state", "checkpoint", "sources"},
    "runtime": {*ROOMS} - {"chaos"},
    "chaos": {*ROOMS},
}
"""The rooms each may import, besides itself and the lobby."""

FILE_LINES_MAX = 450
BODY_LINES_MAX = 60
LONGER_FILES: dict[str, int] = {}
"""Files that are over the limit, and how long they may be. Entries may only shrink or go."""
LONGER_BODIES: dict[str, int] = {}
"""The same for functions, as `file:name`."""

MADE_AGAIN = {"build", "dist", "scratch", "__pycache__"}
"""Folders that are in nobody's copy of the source."""


def production() -> list[Path]:
    """Every module of the package, each once."""
    return sorted(path for room in ("penstock", *ROOMS) for path in (ROOT / room).glob("*.py"))


def every_file() -> Iterator[Path]:
    """Every file of the source, in a clone and in an exported tree alike."""
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if not is_left_out(Path(folder, name))]
        yield from (Path(folder, name) for name in files)


def is_left_out(folder: Path) -> bool:
    hidden = folder.name.startswith(".") and folder.name not in (".ci", ".github")
    made = folder.name in MADE_AGAIN or folder.name.endswith(".egg-info")
    return hidden or made or folder.is_symlink()


def name_of(path: Path) -> str:
    """`checkpoint/chain.py` is the module `penstock.checkpoint.chain`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    dotted = parts if parts[0] == "penstock" else ("penstock", *parts)
    return ".".join(dotted).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room a dotted name is in; the lobby is called `penstock`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "penstock"


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module a file imports, at the top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which room is meant"
            module = node.module or ""
            # `from penstock import fencing` imports the room as much as naming it does.
            whole = [f"{module}.{alias.name}" for alias in node.names]
            yield from whole if module == "penstock" else [module]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def said(path: Path) -> str:
    return str(path.relative_to(ROOT))


def each_module() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", production(), ids=said)


DOORS = {
    # Names what users need of the rooms; for type checkers, so that importing it imports none.
    ROOT / "penstock" / "__init__.py": {"chaos", "runtime", "sinks", "sources", "state"},
    # The command line, where the commands of the runtime and of the room that proves it meet.
    ROOT / "penstock" / "__main__.py": {"chaos", "runtime"},
}
"""The only files of the lobby that lead into rooms, and where to."""


@each_module()
def test_rooms_import_only_what_they_may(path: Path) -> None:
    """A core that cannot reach Spark or the chaos kit can be simulated whole."""
    room = room_of(name_of(path))
    reached = {room_of(name) for name in imports(parsed(path)) if name.startswith("penstock")}

    assert reached - {room, "penstock"} <= DOORS.get(path, MAY_IMPORT[room])


def test_the_front_door_opens_no_room_before_somebody_knocks() -> None:
    """`import penstock` in every worker must cost nothing; each name still leads to its room."""
    code = (
        "import sys, penstock; rooms = [m for m in sys.modules if m.startswith('penstock.')]; "
        "print(sorted(rooms)); [getattr(penstock, name) for name in penstock.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['penstock.errors']\n"


@each_module()
def test_nobody_imports_a_room_by_its_folder(path: Path) -> None:
    """`import checkpoint` works in a clone and nowhere else, and gives every class twice."""
    assert {name.partition(".")[0] for name in imports(parsed(path))} & set(ROOMS) == set()


def test_only_the_runtime_knows_spark() -> None:
    """Besides it, at most one adapter for each of the two ends of a job."""
    knowing = [
        said(path).split("/")[0]
        for path in production()
        if any(name.partition(".")[0] == "pyspark" for name in imports(parsed(path)))
    ]

    assert set(knowing) <= {"runtime", "sources", "sinks"}
    assert max(knowing.count("sources"), knowing.count("sinks")) <= 1


def test_rooms_links_and_packages_are_the_same() -> None:
    """A room that is in one list and not in another is missing from the wheel or from a clone."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    links = {p.name: str(p.readlink()) for p in (ROOT / "penstock").iterdir() if p.is_symlink()}
    packages = ["penstock", *(f"penstock.{room}" for room in ROOMS)]

    assert links == {room: f"../{room}" for room in ROOMS}
    assert settings["packages"] == packages
    assert settings["package-dir"] == {
        package: package.removeprefix("penstock.") for package in packages
    }
    for room in ROOMS:
        assert (ROOT / room / "__init__.py").is_file()
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == {"penstock", *ROOMS}


@each_module()
def test_files_stay_short(path: Path) -> None:
    """A file holds one idea. The exceptions are named, and may only shrink."""
    lines = len(path.read_text().splitlines())

    assert lines <= LONGER_FILES.get(said(path), FILE_LINES_MAX)


@each_module()
def test_functions_stay_short(path: Path) -> None:
    """What does not fit on a screen is not seen as a whole."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = (node.end_lineno or 0) - node.body[0].lineno + 1
            limit = LONGER_BODIES.get(f"{said(path)}:{node.name}", BODY_LINES_MAX)
            assert body <= limit, f"{said(path)}:{node.name} has {body} lines"


def test_exceptions_to_the_limits_are_still_needed() -> None:
    """A ratchet: once something fits, it is not excused any more."""
    files = {said(path): path for path in production()}
    for name, limit in LONGER_FILES.items():
        assert FILE_LINES_MAX < len(files[name].read_text().splitlines()) <= limit
    assert {name.split(":")[0] for name in LONGER_BODIES} <= files.keys()


def errors() -> list[type[PenstockError]]:
    """Every error there is, once every module has been imported."""
    for path in production():
        if path.name != "__main__.py":
            importlib.import_module(name_of(path))
    found, left = [], [PenstockError]
    while left:
        kind = left.pop()
        found.append(kind)
        left += [sub for sub in kind.__subclasses__() if sub.__module__.startswith("penstock")]
    return sorted(found, key=lambda kind: kind.__name__)


def sample(kind: type[PenstockError]) -> PenstockError:
    """An error of this kind with some fact for everything its constructor asks for."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for number, asked in enumerate(inspect.signature(kind).parameters.values()):
        fact = number + 7 if asked.annotation in (int, "int") else f"fact {number}"
        if asked.kind is asked.KEYWORD_ONLY:
            named[asked.name] = fact
        else:
            given.append(fact)
    return kind(*given, **named)


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_every_error_survives_a_trip_between_processes(kind: type[PenstockError]) -> None:
    """Tasks raise them in workers; the driver must see the same kind, message and facts."""
    error = sample(kind)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))

        assert type(copy) is kind
        assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


@each_module()
def test_a_module_says_what_it_offers(path: Path) -> None:
    """`__all__` is there, true, and complete."""
    if path.name == "__main__.py":
        return
    module = importlib.import_module(name_of(path))
    offered = module.__all__
    public = {
        node.name
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    }

    assert len(offered) == len(set(offered))
    assert [name for name in offered if not hasattr(module, name)] == []
    assert public - set(offered) == set()


@each_module()
def test_a_module_begins_with_what_it_is(path: Path) -> None:
    """From its first lines a reader learns what a file promises."""
    docstring = ast.get_docstring(parsed(path)) or ""

    assert re.search(r"\w.*[.!?]", docstring, re.DOTALL), f"{said(path)} has no docstring"
    if path.name == "__init__.py" and path.parent.name != "penstock":
        assert "May import" in docstring, f"{said(path)} does not say what it may import"


@each_module()
def test_nothing_is_left_for_later(path: Path) -> None:
    """What is not there is not mentioned; what is there works."""
    found = re.findall(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b", path.read_text())
    vague = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}

    assert found == []
    assert path.stem not in vague


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """A path of somebody's home, or the host of a package index, is of no use to others."""
    home = "|".join(("home", "Users", "root", "work", "workspace"))
    machine = re.compile(rf"""(?:^|[\s"'=(:`])/(?:{home})/\w""")
    index = re.compile(
        r"(?:index-url|registry|artifactory|nexus|pypi)[\w.-]*\.[a-z]{2,}[/:]|index-url"
    )
    found = []
    for path in every_file():
        if path.suffix in {".png", ".svg", ".jar", ".gz"} or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if machine.search(line) or index.search(line):
                found.append(f"{said(path)}:{number}: {line.strip()}")

    assert found == []


def targets() -> dict[str, str]:
    """Every target of the Makefile, with the rest of its line."""
    found = re.findall(r"^([A-Za-z][\w-]*):(?!=)(.*)$", (ROOT / "Makefile").read_text(), re.M)
    return dict(found)


def test_every_target_is_in_the_help() -> None:
    """Whoever clones this runs `make` first."""
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.findall(r"^  make (\S+) +\S", done.stdout, re.M)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)

    assert [name for name, rest in targets().items() if "## " not in rest] == []
    assert sorted(listed) == sorted(targets())
    assert phony is not None
    assert set(targets()) <= set(phony.group(1).split())
