"""Planted bugs of replayed dead letters, caught by the tests of them and of their audit."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.chaos import audit, audit_replays
from penstock.checkpoint import signature
from penstock.checkpoint.perform import perform
from penstock.ids import Generation, Key
from penstock.runtime import (
    checking,
    cli_dead_letters,
    replay_choice,
    replay_requests,
    replay_topics,
)
from penstock.runtime.letters import FileLetters
from penstock.runtime.replay_choice import Decision
from penstock.runtime.replay_requests import open_requests
from penstock.runtime.replay_topics import TopicRow
from tests.chaos import test_audit_letters as audited
from tests.mutants.mutant import Mutant, by
from tests.runtime import test_replays as replays
from tests.support.in_process import SETTINGS
from tests.support.letters import Letters, mended

honest_decide = replay_choice.decide
honest_open = replay_choice.open_requests


def told(test: Callable[..., None], *given: Any) -> Callable[[], str | None]:
    """Caught by a test that wants a folder."""

    def inside() -> None:
        with tempfile.TemporaryDirectory() as name:
            test(Path(name), *given)

    inside.__name__ = test.__name__
    return by(inside)


def on_letters(test: Callable[[Letters], None]) -> Callable[[], str | None]:
    """Caught by a test of the audit, on a root that has replayed one of two letters."""

    def inside(folder: Path) -> None:
        job = Letters.begun(folder, 3, 100, 200)
        job.replay("--letter", "sum/2/0/0")
        job.run(mended)
        test(job)

    inside.__name__ = test.__name__
    return told(inside)


def counted_once(folder: Path) -> None:
    """One letter, asked for once, in at most so many epochs."""
    job = Letters.begun(folder, 3, 100)
    job.replay()
    job.local(mended).run(replace(SETTINGS, epochs_max=6))
    assert (job.total(), job.replayed()) == (103, [True])


def asks_for_too_many(folder: Path) -> None:
    """A forged request for letters without number is none of the open ones."""
    job = Letters.begun(folder, 3, 100)
    replays.forged(job, "sum", (FileLetters(Key("tables/x"), ((0, 10**12),)),))
    assert perform(open_requests("sum", Generation(1), {}), job.root.handlers) == {}


def asks_unsigned(folder: Path) -> None:
    """A request without an HMAC replays nothing."""
    with pytest.MonkeyPatch.context() as patch:
        replays.test_a_request_that_the_job_cannot_verify_replays_nothing(folder, patch)


def forgets(*given: Any) -> Iterator[Any]:
    """Does not look at what was replayed."""
    yield from ()
    return {}


def of_any_line(operator: str, generation: Any, known: Any) -> Iterator[Any]:
    """Takes requests of every generation for its own."""
    yield from honest_open(operator, generation, known)
    return {key: each for key, each in known.items() if each is not None}


def keeps_outdated(*given: Any) -> Iterator[Any]:
    """Removes nothing."""
    yield from ()


def at_once(*given: Any) -> Decision:
    """Forgets a request as soon as its letters are planned."""
    made = honest_decide(*given)
    return replace(made, fulfilled=tuple(given[0]))


def first_match(root: str, letters: list[Any], name: str) -> Any:
    """Takes the first letter that has the place."""
    return next(each for each in letters if each.name.endswith(name))


MUTANTS = (
    Mutant(
        "2 forgets",
        "a leader does not know what was replayed",
        ((replay_choice, "_replayed", forgets),),
        told(counted_once),
    ),
    Mutant(
        "2 unnamed",
        "a manifest does not name the letters it replays",
        ((checking, "replayed_name", lambda operator: f"{operator}.unnamed"),),
        told(counted_once),
    ),
    Mutant(
        "2 line",
        "a request acts on another line of history",
        (
            (replay_choice, "open_requests", of_any_line),
            (replay_choice, "remove_outdated", keeps_outdated),
        ),
        told(replays.test_a_restore_to_between_a_letter_and_its_replay_makes_it_dead_again),
    ),
    Mutant(
        "2 at once",
        "a request is removed before its letters are committed",
        ((replay_choice, "decide", at_once),),
        told(
            lambda folder: replays.test_a_driver_that_dies_replays_a_letter_once(folder, after=True)
        ),
    ),
    Mutant(
        "2 first",
        "an ambiguous name takes the first letter",
        ((cli_dead_letters, "_named", first_match),),
        told(replays.test_letters_of_two_operators_are_told_apart),
    ),
    Mutant(
        "2 old fork",
        "a row of an old topic counts for a letter that came later",
        ((TopicRow, "is_later", True),),
        told(replays.test_an_old_fork_does_not_say_what_was_replayed),
    ),
    Mutant(
        "2 old topic",
        "what an older version has replayed is forgotten",
        ((replay_topics, "_offsets", lambda *given: {}),),
        told(replays.test_an_old_root_keeps_what_it_has_replayed),
    ),
    Mutant(
        "2 endless",
        "a request may name more letters than memory holds",
        ((replay_requests, "LETTERS_MAX", 10**13),),
        told(asks_for_too_many),
    ),
    Mutant(
        "2 unsigned",
        "a request is believed without an HMAC",
        ((signature, "SIGNED_PREFIXES", ("manifests/", "pins/", "cursors/")),),
        told(asks_unsigned),
    ),
    Mutant(
        "2 audit",
        "the audit believes every replayed letter",
        ((audit_replays, "_flaw", lambda *given: None),),
        on_letters(audited.test_a_letter_that_was_replayed_before_it_was_one_is_named),
    ),
    Mutant(
        "2 twice",
        "the audit does not look for letters replayed twice",
        ((audit_replays, "_check_letters", lambda *given: None),),
        on_letters(audited.test_a_letter_that_was_replayed_twice_is_named),
    ),
    Mutant(
        "2 besides",
        "the audit does not look for events processed besides",
        ((audit, "check_letter_events", lambda *given: None),),
        told(audited.test_a_letter_whose_event_was_processed_is_named),
    ),
)
