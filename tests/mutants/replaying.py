"""Planted bugs of dead letters and their replays, caught by the simulator."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from penstock.chaos import model_job, model_letters
from penstock.chaos.model_workload import REPLAYED
from penstock.effects import Steps
from penstock.ids import Attempt
from penstock.runtime import replay_choice
from penstock.runtime.letters import grouped, place_of
from tests.mutants.letters import at_once, forgets, keeps_outdated, of_any_line
from tests.mutants.mutant import Mutant, by_seeds

honest_decide = replay_choice.decide
honest_progress = model_job.letters_progress
honest_stage = model_job.Program._stage
honest_staged = model_letters.staged


def names_no_replays(self: Any, *given: Any) -> Steps[Any]:
    """Processes letters, and leaves them out of the manifest."""
    draft, after = yield from honest_stage(self, *given)
    if REPLAYED in draft.sinks:
        draft = msgspec.structs.replace(draft, sinks={**draft.sinks, REPLAYED: ()})
    return draft, after


def by_place(requests: Mapping[Any, Any], files: Any, *given: Any) -> Any:
    """Takes the letter of this line that has the epoch, partition and number of the one named."""
    mine = {place_of((key, 0)): key for key in files}

    def here(letter: Any) -> Any:
        place = place_of(letter)
        return mine.get(place and (*place[:2], 0), letter[0]), letter[1]

    moved = {
        key: msgspec.structs.replace(each, letters=grouped(map(here, each.each())))
        for key, each in requests.items()
    }
    return honest_decide(moved, files, *given)


def without_attempt(sink: Any, epoch: Any, partition: Any, attempt: Any, rows: Any) -> Any:
    """Letters of two lines of history have the same file."""
    return honest_staged(sink, epoch, partition, Attempt("only"), rows)


def never_fulfilled(*given: Any) -> Any:
    """Keeps requests for ever."""
    return replace(honest_decide(*given), fulfilled=())


def counts_from_zero(first: int, count: int) -> Any:
    """The offsets of replayed letters begin anew with every epoch."""
    return honest_progress(0, count)


MUTANTS = (
    Mutant(
        "sim-2 unnamed",
        "a replay is not recorded in the chain",
        ((model_job.Program, "_stage", names_no_replays),),
        by_seeds,
    ),
    Mutant(
        "sim-2 forgets",
        "a leader does not know what was replayed",
        ((replay_choice, "_replayed", forgets),),
        by_seeds,
    ),
    Mutant(
        "sim-2 place",
        "a letter is known by its place, without its file",
        ((replay_choice, "decide", by_place),),
        by_seeds,
    ),
    Mutant(
        "sim-2 file",
        "letters of two lines of history have the same file",
        ((model_letters, "staged", without_attempt),),
        by_seeds,
    ),
    Mutant(
        "sim-2 line",
        "a request acts on another line of history",
        ((replay_choice, "open_requests", of_any_line),),
        by_seeds,
    ),
    Mutant(
        "sim-2 at once",
        "a request is removed before its letters are committed",
        ((replay_choice, "decide", at_once),),
        by_seeds,
    ),
    Mutant(
        "sim-2 outdated",
        "requests of older lines stay",
        ((replay_choice, "remove_outdated", keeps_outdated),),
        by_seeds,
    ),
    Mutant(
        "sim-2 fulfilled",
        "requests stay that are fulfilled",
        ((replay_choice, "decide", never_fulfilled),),
        by_seeds,
    ),
    Mutant(
        "sim-2 offsets",
        "replayed letters are counted from zero",
        ((model_job, "letters_progress", counts_from_zero),),
        by_seeds,
    ),
)
