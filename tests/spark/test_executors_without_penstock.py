"""How the code reaches executors that do not have it."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import penstock as ps
from penstock.checkpoint import Root
from tests.support.runs import Run
from tests.support.scripts import ROOT
from tests.support.shop_job import expected, fill, found
from tests.test_wheel import LEFT_OUT, isolation

pytestmark = pytest.mark.slow


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has everything Penstock needs, and not Penstock."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True
    )
    (site,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    # A folder that is named here is searched, but what its own .pth files name is not.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The built package."""
    shutil.copytree(ROOT, tmp_path / "source", symlinks=True, ignore=LEFT_OUT)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist")]
    subprocess.run([*build, *isolation()], cwd=tmp_path / "source", check=True, capture_output=True)
    (found_wheel,) = (tmp_path / "dist").glob("*.whl")
    return found_wheel


def test_the_wheel_can_be_sent_along(tmp_path: Path, bare_python: Path, wheel: Path) -> None:
    """A cluster's hosts need not be changed to try a job."""
    code = "import pyarrow, rocksdict; import importlib.util as u; print(u.find_spec('penstock'))"
    told = subprocess.run(
        [bare_python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout == "None\n"
    log = fill(str(tmp_path / "log"), 2000)

    run = Run(
        tmp_path,
        *("--master", "local-cluster[1,2,1024]", "--until", "caught-up", "--records", "1000"),
        *("--py-files", str(wheel)),
        settings={"PYSPARK_PYTHON": str(bare_python)},
    )

    assert run.end() == 0, run.said
    root = str(tmp_path / "root")
    assert found(root) == expected(Root.open(root), ps.Log(log.url))
