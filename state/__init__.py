"""Keyed state of one partition: a RocksDB that is only ever ingested into, and deltas.

Promise: processing never changes a database; it makes one delta, which becomes real with its
epoch. A database shows exactly the version its marker names. Nothing is ever pickled.

May import the lobby.
"""

from penstock.state.columns import Columns
from penstock.state.database import Locked, PartitionDatabase
from penstock.state.declare import StateClock, StateSpec, Ttl, by_clock, declared, ttl
from penstock.state.delta import DeltaFile, Marker
from penstock.state.host import HostFolder, PartitionFolder, default_state_folder
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.settings import StateSettings
from penstock.state.workspace import Due, EpochTimes, Workspace

__all__ = [
    "Columns",
    "DeltaFile",
    "Due",
    "EpochTimes",
    "HostFolder",
    "List",
    "Locked",
    "Map",
    "Marker",
    "PartitionDatabase",
    "PartitionFolder",
    "StateClock",
    "StateSettings",
    "StateSpec",
    "Timer",
    "Ttl",
    "Value",
    "Workspace",
    "by_clock",
    "declared",
    "default_state_folder",
    "ttl",
]
