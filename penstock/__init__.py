"""Stateful stream jobs on Apache Spark, in Python, effectively exactly once.

The lobby: what every room shares. The rooms themselves are `penstock.checkpoint`,
`penstock.fencing`, `penstock.sinks`, `penstock.sources`, `penstock.state`, `penstock.runtime`
and `penstock.chaos`.
"""

from penstock.errors import Bug, Corrupt, Fenced, Gone, Invalid, PenstockError, Unavailable

__all__ = [
    "Bug",
    "Corrupt",
    "Fenced",
    "Gone",
    "Invalid",
    "PenstockError",
    "Unavailable",
]
