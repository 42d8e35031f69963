"""Loading a job from a file: what is wrong with the file is said in one sentence, with the line."""

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from penstock.errors import Invalid, PenstockError
from penstock.runtime.job import Job
from penstock.runtime.run import SparkOnDemand, absolute_root
from penstock.runtime.settings import RunSettings
from penstock.runtime.topology import Topology

__all__ = ["described", "load_job"]


@contextmanager
def described(path: str, root: str, name: str | None = None) -> Iterator[Topology]:
    """The job in a file, checked as a whole, for whoever only wants to look at what it is made of.
    Spark is started only if a transform must be looked at."""
    loaded = load_job(path, name)
    spark = SparkOnDemand(loaded.name, RunSettings(master="local[1]"))
    try:
        yield loaded.topology(absolute_root(root), spark.transformed)
    finally:
        spark.stop()


def load_job(path: str, name: str | None = None) -> Job:
    """The job in a Python file; `name` chooses among several."""
    module = _module(Path(path))
    jobs: dict[str, Job] = {j.name: j for j in vars(module).values() if isinstance(j, Job)}
    if not jobs:
        found = "describes no job"
        raise Invalid(f"file {path}", found, 'write job = ps.Job("name") at the top level of it')
    if name is not None and name not in jobs:
        raise Invalid(f"file {path}", f"has no job {name!r}", f"choose one of {', '.join(jobs)}")
    if name is None and len(jobs) > 1:
        found = f"describes several jobs: {', '.join(jobs)}"
        raise Invalid(f"file {path}", found, "choose one with --job")
    return jobs[name] if name is not None else next(iter(jobs.values()))


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise Invalid(f"file {path}", "is not there", "check its name")
    called = f"penstock_job_{path.stem}"
    spec = importlib.util.spec_from_file_location(called, path)
    if spec is None or spec.loader is None:
        raise Invalid(f"file {path}", "is no Python file", "give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    sys.path.insert(0, str(path.parent.absolute()))  # what stands beside it can be imported
    try:
        spec.loader.exec_module(module)
    except PenstockError as error:
        found = f"does not load: {error.subject} {error.found}"
        raise Invalid(f"file {path}, line {_line(error, path)}", found, error.advice) from error
    except SyntaxError as error:
        found = f"is not Python ({error.msg})"
        raise Invalid(f"file {path}, line {error.lineno}", found, "correct it") from error
    except Exception as error:
        found = f"does not import ({type(error).__name__}: {error})"
        raise Invalid(f"file {path}, line {_line(error, path)}", found, "correct it") from error
    _send_by_value(module)
    return module


def _line(error: BaseException, path: Path) -> int:
    """The last line of the file that the error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f.lineno for f in frames if Path(f.filename).name == path.name and f.lineno]
    return mine[-1] if mine else 1


def _send_by_value(module: ModuleType) -> None:
    """Workers do not have the file: its functions are sent to them whole."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
