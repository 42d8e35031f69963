"""`make torture`: five hundred deaths, and what they left."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.torture.killing import torture


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = torture(Path(folder), given.kills, given.seed)
    ways = ", ".join(f"{way}: {count}" for way, count in found.ways.items())
    print(f"{found.kills} kills, {found.epochs} epochs committed, {len(found.torn)} torn")
    print(f"opened afterwards by: {ways}")
    for torn in found.torn[:10]:
        print(torn)
    return 1 if found.torn else 0


if __name__ == "__main__":
    sys.exit(main())
