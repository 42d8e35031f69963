"""Job files as users write them, honest and others, and what they are made of without Spark."""

import importlib.util
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.runtime.functions import Wrapped
from penstock.runtime.loading import load_job
from penstock.runtime.topology import Topology
from tests.support.in_process import clicks_log, no_spark

ROOT = Path(__file__).parents[2]
MARK = "# here"
"""Ends a line that is under suspicion."""

USER, AMOUNT = ("user", pa.string()), ("amount", pa.int64())
AT = ("at", pa.timestamp("us", tz="UTC"))
HONEST: Mapping[str, pa.Schema] = {
    "examples/clicks.py": pa.schema([USER, AT]),
    "examples/inventory.py": pa.schema([("item", pa.string()), ("change", pa.int64())]),
    "examples/kafka_fraud.py": pa.schema([("card", pa.string()), AMOUNT, AT]),
    "examples/sessions.py": pa.schema([USER, AT]),
    "examples/word_count.py": pa.schema([("word", pa.string())]),
    "tests/support/kafka_job.py": pa.schema([USER, AMOUNT, ("number", pa.int64())]),
    "tests/support/shop_job.py": pa.schema([USER, ("country", pa.string()), AMOUNT, AT]),
    "tests/support/six_sinks_job.py": pa.schema([USER, AMOUNT]),
}
"""Jobs that do nothing wrong, and the events of each; the key is the first column."""

FRAME = """\
import penstock as ps

{text}

job = ps.Job("job", partitions=1)
clicks = job.read(ps.Log({log!r}), name="clicks", event_time="at")
clicks.key_by("user").process(rate).write(ps.Table("out"))
"""


def written(folder: Path, text: str) -> Path:
    """A job file around these functions, of which `rate` is the operator, and a log for it."""
    path = folder / "job.py"
    path.write_text(FRAME.format(text=text, log=clicks_log(folder).url))
    return path


def described(path: Path) -> Topology:
    """What the job in a file is made of."""
    return load_job(str(path)).topology(str(path.parent / "root"), no_spark)


def marked(path: Path) -> list[int]:
    """The lines of a file that have the mark."""
    lines = path.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(MARK)]


def honest_job(name: str, folder: Path) -> ps.Job:
    """The functions of an honest job on a log of its events, without Spark and without servers."""
    schema = HONEST[name]
    log = ps.Log.create(str(folder / "log"), schema)
    job = ps.Job("honest", partitions=1)
    stream = job.read(log, name="clicks", event_time="at" if "at" in schema.names else None)
    keys = iter((schema.names[0], "country"))  # the shop's second operator has another
    for function in _functions_of(ROOT / name):
        stream = stream.key_by(next(keys)).process(function).write(ps.Table(function.name))
    return job


def some_events(name: str, count: int = 40) -> list[dict[str, Any]]:
    """Events of an honest job."""
    made = {
        "string": lambda number: f"name {number % 3}",
        "int64": lambda number: number,
        "timestamp[us, tz=UTC]": lambda number: datetime.fromtimestamp(number * 600, tz=UTC),
    }
    columns = {column.name: made[str(column.type)] for column in HONEST[name]}
    return [{name: of(number) for name, of in columns.items()} for number in range(1, count)]


def _functions_of(path: Path) -> Iterator[Wrapped]:
    """The operators that a file defines, in order."""
    spec = importlib.util.spec_from_file_location(f"penstock_job_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return (each for each in vars(module).values() if isinstance(each, Wrapped))
