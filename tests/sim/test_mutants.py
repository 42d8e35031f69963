import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    """A check that cannot fail is no check: each known mistake, made on purpose, is found."""
    assert mutant.caught() is not None, f"{mutant.name}: {mutant.bug}"
