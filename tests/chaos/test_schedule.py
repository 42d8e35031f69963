from collections import Counter

import pytest

from penstock.chaos.history import Family
from penstock.chaos.nemesis import Nemesis, at_once, nothing
from penstock.chaos.schedule import CALM_EPOCHS, FIRST_EPOCH, Due, Length, schedule
from penstock.errors import Invalid


def named(name: str, cost_s: float = 1.0) -> Nemesis:
    return Nemesis(name, Family.WORKER, lambda scene, chance: name, cost_s)


def told(due: Due) -> tuple[str, int, float, float]:
    return due.nemesis.name, due.epoch, due.delay_s, due.chance().random()


KINDS = [named(f"kind-{number}", cost_s=number) for number in range(20)]


def test_the_same_seed_gives_the_same_schedule() -> None:
    """A run that failed must be repeated with one number."""
    once, again = (list(map(told, schedule(7, KINDS, 60, Length(90)))) for _ in range(2))
    other = [d.nemesis.name for d in schedule(8, KINDS, 60, Length(90))]

    assert once == again
    assert [name for name, *_ in once] != other


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_is_due_and_the_end_is_calm(seed: int) -> None:
    """A fault nobody survived to see the end of proves nothing."""
    dues = schedule(seed, KINDS, 60, Length(90))

    assert {due.nemesis.name for due in dues} == {kind.name for kind in KINDS}
    assert len(dues) == 60
    assert [due.epoch for due in dues] == sorted(due.epoch for due in dues)
    assert all(FIRST_EPOCH <= due.epoch <= 90 - CALM_EPOCHS for due in dues)


def test_cheap_faults_come_more_often() -> None:
    """A restart of a driver costs what twenty lost requests do."""
    found = Counter(due.nemesis.name for due in schedule(1, KINDS, 2_000, Length(90)))

    assert found["kind-0"] > 4 * found["kind-19"]


def test_fewer_faults_than_kinds_are_each_of_another_kind() -> None:
    """Nothing is done twice before everything was done once."""
    found = [due.nemesis.name for due in schedule(1, KINDS, 5, Length(90))]

    assert len(set(found)) == 5


@pytest.mark.parametrize(
    ("kinds", "faults", "epochs", "says"),
    [([], 3, 60, "no kind of fault"), (KINDS, 3, 6, "has 6 epochs")],
)
def test_what_cannot_be_is_refused(
    kinds: list[Nemesis], faults: int, epochs: int, says: str
) -> None:
    """A run of nothing would be called valid."""
    with pytest.raises(Invalid, match=says):
        schedule(1, kinds, faults, Length(epochs))


def test_two_nemeses_are_one() -> None:
    """Two things break at once more often than one would think."""
    both = at_once(named("one", 1.0), named("two", 2.0))

    assert both.name == "one+two"
    assert both.cost_s == 3.0
    assert both.strike(None, None) == "one; and two"  # type: ignore[arg-type]


def test_one_does_nothing() -> None:
    """To see what a run costs without faults."""
    idle = nothing(Family.DRIVER)

    assert idle.cost_s == 0.0
    assert idle.strike(None, None) == "nothing was done"  # type: ignore[arg-type]


def test_faults_can_be_kept_apart() -> None:
    """To see what each of them costs by itself."""
    epochs = [due.epoch for due in schedule(3, KINDS, 20, Length(86), evenly=True)]

    assert epochs == list(range(FIRST_EPOCH, FIRST_EPOCH + 80, 4))


def test_a_run_can_be_measured_in_seconds() -> None:
    """A job's own source may have no end, and whoever waits has not all day."""
    dues = schedule(3, KINDS, 40, Length(60, seconds=100.0))

    assert [due.at_s for due in dues] == sorted(due.at_s for due in dues)
    assert all(15.0 <= due.at_s <= 85.0 and due.epoch == 1 for due in dues)
