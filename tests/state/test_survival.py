"""What must survive a reopening or a move to another host: options and timers."""

from pathlib import Path

from rocksdict import Options, Rdict

from penstock.ids import Attempt, Epoch, Generation
from penstock.state.database import PartitionDatabase
from penstock.state.declare import declared
from penstock.state.delta import Marker
from penstock.state.keys import encode_key
from penstock.state.kinds import Timer
from penstock.state.settings import StateSettings
from penstock.state.workspace import Due, EpochTimes, Workspace

SETTINGS = StateSettings(bloom_bits=7, block_cache_bytes=4 << 20)


def waking(wake: Timer) -> None:
    """A function with a timer."""


def marker(epoch: int) -> Marker:
    return Marker(
        job="j",
        operator="o",
        partition=0,
        generation=Generation(1),
        epoch=Epoch(epoch),
        attempt=Attempt(f"a{epoch}"),
    )


def test_timers_fire_on_another_host(tmp_path: Path) -> None:
    """A timer is state like any other: in the delta, and so in every restore."""
    with PartitionDatabase(tmp_path / "one", SETTINGS) as database:
        space = Workspace(database, "o", declared(waking), range(4), EpochTimes(None, 0))
        space.bind(2, encode_key("kim"))
        space.states["wake"].set(500)
        delta = space.finish(tmp_path / "delta.sst", marker(1), SETTINGS)
    assert delta is not None

    with PartitionDatabase(tmp_path / "two", SETTINGS) as database:
        database.ingest([delta.path])
        space = Workspace(database, "o", declared(waking), range(4), EpochTimes(500, 0))
        assert list(space.due()) == [Due(500, 2, "kim", "wake")]


def test_our_options_are_in_force_on_every_open(tmp_path: Path) -> None:
    """rocksdict goes on with the options it finds in the folder, unless it is given others."""
    Rdict(str(tmp_path / "db"), Options(raw_mode=True)).close()

    PartitionDatabase(tmp_path / "db", SETTINGS).close()

    newest = max((tmp_path / "db").glob("OPTIONS-*"), key=lambda path: path.name)
    written = newest.read_text()
    assert "filter_policy=bloomfilter" in written
    assert "compression=kLZ4Compression" in written
    assert "cache_index_and_filter_blocks=true" in written
