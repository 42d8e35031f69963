"""What a shard does with an epoch it is offered, by what it holds."""

import pytest

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.layout import manifest_key
from penstock.errors import Fenced, Invalid
from penstock.ids import CommitId, Epoch, Key, Token
from penstock.sinks.cursors import Held, is_applied, mark_of, mark_of_ref
from tests.support.sink_cases import apply, cursor


def test_a_mark_fits_a_signed_number() -> None:
    """The narrowest place that a sink keeps it in."""
    marks = [mark_of(CommitId(f"commit {n}")) for n in range(1000)]

    assert len(set(marks)) == 1000
    assert all(0 <= mark < 2**63 for mark in marks)


def test_the_mark_of_a_commit_is_told_from_the_name_of_its_manifest() -> None:
    """A parent need not be read to know whether it is the one a cursor names."""
    commit = CommitId("a-b.c")
    ref = Ref(key=manifest_key(Epoch(7), commit), sha256="", size_bytes=0)

    assert mark_of_ref(ref) == mark_of(commit)
    assert mark_of_ref(Ref(key=Key("outputs/x"), sha256="", size_bytes=0)) is None


def test_the_next_epoch_is_taken_and_the_last_is_there() -> None:
    """The two things that happen all day."""
    assert not is_applied(apply(1, []), None)
    assert not is_applied(apply(2, [], token=3), Held(cursor(1), Token(2)))
    assert is_applied(apply(2, [], token=3), Held(cursor(2), Token(3)))


def test_a_smaller_token_is_refused_whatever_it_brings() -> None:
    """Also what is there already: who is deposed shall hear of it."""
    for epoch in (1, 2, 3):
        with pytest.raises(Fenced):
            is_applied(apply(epoch, [], token=4), Held(cursor(2), Token(5)))


def test_anything_else_is_refused() -> None:
    """A gap, a step back, another history."""
    held = Held(cursor(2), Token(1))
    for asked in (
        apply(1, []),
        apply(4, []),
        apply(3, [], follows=None),
        apply(3, [], follows=cursor(2, commit="other")),
        apply(2, [], at=cursor(2, commit="other")),
    ):
        with pytest.raises(Invalid, match="start the job again: it looks where the sink is"):
            is_applied(asked, held)
    with pytest.raises(Invalid, match="is at no epoch and was given epoch 2 of generation 1"):
        is_applied(apply(2, []), None)
