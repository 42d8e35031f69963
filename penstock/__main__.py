"""`penstock`: all of the command line, from all rooms that have a part in it.

The runtime must not know of the room that proves, and that room's commands belong beside the
others'. So they meet here, at the door, and nowhere else.
"""

from penstock.chaos.cli_audit import audit
from penstock.chaos.cli_chaos import chaos
from penstock.runtime.cli import app, main

app.command()(audit)
app.command()(chaos)

if __name__ == "__main__":
    main()
