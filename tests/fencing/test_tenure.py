import pytest

from penstock.errors import Fenced, Unavailable
from penstock.fencing import Tenure
from penstock.ids import Holder, JobName, Token


def tenure() -> Tenure:
    return Tenure(JobName("clicks"), Token(3), Holder("old"))


def test_a_fenced_tenure_refuses_for_good() -> None:
    """A stale read must not bring a deposed leader back."""
    held = tenure()
    held.check()
    held.fence(Token(4), Holder("new"))

    for _ in range(3):
        with pytest.raises(Fenced) as caught:
            held.check()
        assert (caught.value.held, caught.value.newest, caught.value.by) == (3, 4, "new")


def test_the_first_reason_stays() -> None:
    """What ended a tenure is what a person needs to read, not what came after."""
    held = tenure()
    held.end(Unavailable("HEAD", "did not answer", "start again"))
    held.fence(Token(9), Holder("later"))

    with pytest.raises(Unavailable):
        held.check()


def test_fencing_says_what_it_cannot_know() -> None:
    """An outcome that nobody can find out is reported as such, whatever ended the tenure."""
    held = tenure()
    held.fence(Token(4), Holder("new"))

    fenced = held.fence(Token(4), Holder("new"), "whether epoch 7 was committed is not known")

    assert "whether epoch 7 was committed" in str(fenced)
