"""Keyed state of one partition. Nothing is here yet.

Promise: processing never changes a database; it makes one delta, which becomes real with its epoch.

May import the lobby.
"""

__all__: list[str] = []
