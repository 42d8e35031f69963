"""`make mutants`: plant every bug in turn, and say who caught it."""

import sys

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import keep_seeds


def main() -> int:
    caught: dict[str, str | None] = {}
    for mutant in MUTANTS:
        how = caught[mutant.name] = mutant.caught()
        print(f"{mutant.name:14} {mutant.bug:60} {how or 'ESCAPED'}", flush=True)
    escaped = list(caught.values()).count(None)
    print(f"{len(MUTANTS) - escaped} of {len(MUTANTS)} planted bugs caught")
    keep_seeds(caught)
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
