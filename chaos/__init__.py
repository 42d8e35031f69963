"""Proof: the protocols of this project run against a world that goes wrong on purpose, and jobs in
production looked at from outside (`penstock.chaos.audit`).

Promise: a verdict is one of valid, invalid and unknown; the same seed gives the same run; a
fault that was asked for and never happened is reported, not counted as survived; an audit changes
nothing.

May import everything.
"""

from penstock.chaos.crashpoints import Verdict, every_pair, every_single, every_zombie
from penstock.chaos.faults import Fault, Script, SeededFaults
from penstock.chaos.log_simulation import simulate_log
from penstock.chaos.scheduler import Outcome
from penstock.chaos.simulation import simulate

__all__ = [
    "Fault",
    "Outcome",
    "Script",
    "SeededFaults",
    "Verdict",
    "every_pair",
    "every_single",
    "every_zombie",
    "simulate",
    "simulate_log",
]
