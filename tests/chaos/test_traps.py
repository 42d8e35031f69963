import subprocess
import sys
from pathlib import Path

import pytest

from penstock.chaos.traps import Snare, Trap, TrappedStore, lay, snared
from penstock.checkpoint import MemoryStore
from penstock.checkpoint.perform import store_handlers
from penstock.clock import SystemChance, SystemClock
from penstock.effects import Put
from penstock.ids import Key
from penstock.points import Point

CHANCE = SystemChance()


class Died(BaseException):
    """Stands for SIGKILL where the test wants to live on."""


def die() -> None:
    raise Died


def snare(folder: Path) -> Snare:
    return Snare(folder, die)


def test_a_process_dies_the_nth_time(tmp_path: Path) -> None:
    """A crash on the first commit and one on the third are different stories."""
    laid = lay(tmp_path, Trap(point=Point.COMMIT_SWAP, moment="before", nth=3), CHANCE)
    mine = snare(tmp_path)
    for _ in range(2):
        mine.at(Point.COMMIT_SWAP, "before")
        mine.at(Point.COMMIT_SWAP, "after")
        mine.at(Point.COMMIT_MANIFEST, "before")
    assert not laid.is_sprung

    with pytest.raises(Died):
        mine.at(Point.COMMIT_SWAP, "before")

    assert laid.is_sprung
    mine.at(Point.COMMIT_SWAP, "before")  # nobody dies twice in one trap


def test_one_of_two_dies(tmp_path: Path) -> None:
    """Two workers reach the same point at once, and one fault was asked for."""
    lay(tmp_path, Trap(point=Point.STAGE_DELTA, moment="after"), CHANCE)
    one, other = snare(tmp_path), snare(tmp_path)

    with pytest.raises(Died):
        one.at(Point.STAGE_DELTA, "after")
    other.at(Point.STAGE_DELTA, "after")


def test_a_trap_that_is_taken_away_kills_nobody(tmp_path: Path) -> None:
    """Faults end when the conductor says so."""
    laid = lay(tmp_path, Trap(point=Point.STAGE_DELTA, moment="before"), CHANCE)
    laid.take_away()
    snare(tmp_path).at(Point.STAGE_DELTA, "before")

    assert not laid.is_sprung


@pytest.mark.parametrize(
    ("moment", "is_stored"), [("before", False), ("after", True)], ids=["before", "after"]
)
def test_an_effect_has_happened_or_not(tmp_path: Path, moment: str, is_stored: bool) -> None:
    """Before and after are the two sides of one request."""
    store = MemoryStore()
    handlers = snared(store_handlers(store, SystemClock()), snare(tmp_path))
    lay(tmp_path, Trap(point=Point.COMMIT_MANIFEST, moment=moment), CHANCE)  # type: ignore[arg-type]

    with pytest.raises(Died):
        handlers[Put](Put(Point.COMMIT_MANIFEST, Key("manifests/x"), b"body"))

    assert (store.get(Key("manifests/x")) is not None) is is_stored


@pytest.mark.parametrize(
    ("key", "point"),
    [
        ("changelog/op/0/000000000001-a.sst", Point.STAGE_DELTA),
        ("snapshots/op/0/000000000001-a/ff.sst", Point.STAGE_SNAPSHOT),
        ("outputs/sink/000000000001/0-a.arrow", Point.STAGE_OUTPUT),
        ("tables/table/000000000001/0-a.arrow", Point.STAGE_OUTPUT),
    ],
)
def test_a_task_dies_while_it_stages(tmp_path: Path, key: str, point: Point) -> None:
    """What a task does is told by the name of the object."""
    store = MemoryStore()
    trapped = TrappedStore(store, snare(tmp_path))
    trapped.put(Key(key), b"one")
    lay(tmp_path, Trap(point=point, moment="after"), CHANCE)

    with pytest.raises(Died):
        trapped.put(Key(key), b"two")

    found = trapped.get(Key(key))
    assert found is not None
    assert found.body == b"two"


def test_death_is_that_of_kill_9(tmp_path: Path) -> None:
    """Nothing may be tidied up on the way out."""
    lay(tmp_path, Trap(point=Point.HEARTBEAT_BEAT, moment="before"), CHANCE)
    program = (
        "import atexit, sys; from pathlib import Path; from penstock.chaos.traps import Snare; "
        "from penstock.points import Point; atexit.register(print, 'tidy'); "
        "Snare(Path(sys.argv[1])).at(Point.HEARTBEAT_BEAT, 'before'); print('alive')"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (-9, "")
    assert list(tmp_path.glob("sprung-*"))
