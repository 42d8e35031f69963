"""`make mutants`: plant every bug in turn, and say who caught it."""

import sys

from tests.mutants.catalogue import MUTANTS


def main() -> int:
    escaped = 0
    for mutant in MUTANTS:
        how = mutant.caught()
        escaped += how is None
        print(f"{mutant.name:14} {mutant.bug:60} {how or 'ESCAPED'}", flush=True)
    print(f"{len(MUTANTS) - escaped} of {len(MUTANTS)} planted bugs caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
