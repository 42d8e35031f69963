"""What a job file defines reaches processes that do not have the file."""

import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.runtime.sending import packed

JOB = """
import dataclasses, sys
import msgspec
import penstock as ps
from penstock.runtime.sending import packed
from penstock.state.values import Codec

@dataclasses.dataclass
class Basket:
    items: list[str] = dataclasses.field(default_factory=list)
    total: float = 0.0

class Point(msgspec.Struct, frozen=True):
    x: int
    y: int = 7

    def sum(self) -> int:
        return self.x + self.y

@ps.stateful(emits="n long")
def keep(user: str, events: ps.Events, basket: ps.Value[Basket], point: ps.Value[Point]):
    yield {"n": 1}

def use(codec):
    return Basket(["a"], 1.5), Point(1), Point(2, 3).sum(), codec

Codec(Basket, "basket").encode(Basket())   # msgspec has seen it now
Codec(Point, "point")
sys.stdout.buffer.write(packed((keep, use)))
"""

READ = """
import sys
from penstock.runtime.sending import unpacked_job
from penstock.state.values import Codec
keep, use = unpacked_job(sys.stdin.buffer.read())
basket, point, total, _ = use(None)
kinds = {spec.name: spec.value_type for spec in keep.states}
for name, value in (("basket", basket), ("point", point)):
    codec = Codec(kinds[name], name)
    assert codec.decode(codec.encode(value)) == value
print(basket, point, total, kinds["point"] is type(point))
"""


def test_dataclasses_and_structs_of_a_job_file_are_sent_whole(tmp_path: Path) -> None:
    """They are what state is made of, and the worker has never seen the file."""
    (tmp_path / "job.py").write_text(JOB)
    sent = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    (tmp_path / "job.py").unlink()
    told = subprocess.run(
        [sys.executable, "-c", READ], cwd=tmp_path, input=sent, capture_output=True, check=True
    ).stdout.decode()

    assert told == "Basket(items=['a'], total=1.5) Point(x=1, y=7) 5 True\n"


def test_what_cannot_be_sent_is_said_in_one_sentence() -> None:
    """A lock or an open file in a function's reach is a common mistake."""
    import threading

    with pytest.raises(ps.Invalid, match="the job cannot be sent to the workers"):
        packed(threading.Lock())
