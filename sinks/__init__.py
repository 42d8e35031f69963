"""Where results go: staged before the decision, rolled forward after it.

Promise: a sink is given only what a committed manifest names, each epoch once as far as the
sink's own cursor can tell, in order. Nothing is ever computed again after a commit.

May import the lobby, `penstock.fencing`, `penstock.checkpoint`.
"""

from penstock.sinks.roll_forward import Apply, Cursor, ReadCursor, roll_forward

__all__ = ["Apply", "Cursor", "ReadCursor", "roll_forward"]
