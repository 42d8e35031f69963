"""A reader's view of a root, which never goes backwards.

A cache between us and the store may answer with a HEAD from a minute ago. A reader that has
shown epoch 12 to somebody must not show epoch 11 afterwards, so the view keeps the greatest
HEAD it has seen.
"""

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.head import Head
from penstock.effects import Steps
from penstock.points import Point

__all__ = ["View"]


class View:
    """What one reader has seen so far."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._head: Head | None = None

    def refresh(self) -> Steps[Head]:
        """The newest HEAD seen by this reader, looking once more."""
        found = (yield from self._chain.head(Point.READ_HEAD)).document
        if self._head is None or found.rank > self._head.rank:
            self._head = found
        return self._head
