"""Where events come from: offsets, ranges, readers. Nothing is here yet.

Promise: a range is exact and repeatable; reading it twice gives the same rows in the same order.

May import the lobby, `penstock.fencing`, `penstock.state`, `penstock.checkpoint`.
"""

__all__: list[str] = []
