"""A fork of a simulated root, gone on with: the same job, without faults, judged like any other.

Its dead letters are asked for in the fork: requests stay in the root they were made in.
"""

import json
import random
from collections import Counter

from penstock.chaos.actions import Action
from penstock.chaos.host import Host
from penstock.chaos.model_job import Program
from penstock.chaos.model_requests import Requester
from penstock.chaos.model_workload import Workload
from penstock.chaos.truth import Truth
from penstock.chaos.world import ProcessClock, SeededChance, World
from penstock.checkpoint.perform import Handlers, perform
from penstock.effects import Steps, Wait
from penstock.errors import PenstockError
from penstock.ids import Key

__all__ = ["go_on_in_fork"]


def go_on_in_fork(source: World, witness: Truth, workload: Workload) -> Counter[Action]:
    """Finish the job in the fork that a run has left, and tell its witness what is wrong there;
    the actions that this took, none without a fork."""
    stored = source.fork.get(Key("HEAD"))
    if stored is None:
        return Counter()
    world = World(source.fork)
    truth = Truth(world, workload)
    world.witness, world.put_right = truth, truth.accepted
    truth.begin_with(json.loads(stored.body), witness.record)
    truth.quiet()
    if not truth.broken:
        _finish(world, truth, workload)
    witness.broken += [f"{how}, in a fork" for how in truth.broken]
    took = truth.letters.actions
    return Counter(
        {
            Action.GO_ON_IN_FORK: 1,
            Action.REPLAY_IN_FORK: took[Action.REPLAY],
            Action.ASK_ELSEWHERE: took[Action.ASK_ELSEWHERE],
        }
    )


def _finish(world: World, truth: Truth, workload: Workload) -> None:
    rng = random.Random(len(truth.line))
    host = Host(
        "fork",
        ProcessClock(world),
        SeededChance("fork", rng),
        rng,
        lambda name, steps: None,
        lambda what, *facts: truth.heard("fork", what, *facts),
        lambda action: truth.letters.actions.update([action]),
    )
    try:
        if workload.poison:
            perform(_ask_for_all(host, workload), _handlers(world))
        perform(Program(host, workload).closer(), _handlers(world))
        truth.finish()
    except PenstockError as error:
        truth.broken.append(f"I15: the job ended with {error}")


def _ask_for_all(host: Host, workload: Workload) -> Steps[None]:
    """Mend the job, and ask for every letter that anybody knows, twice."""
    workload.job.is_mended = True
    person = Requester(host, workload)
    generation, letters = yield from person.look()
    for _ in range(2):
        yield from person.ask(generation, letters, elsewhere=True)


def _handlers(world: World) -> Handlers:
    def wait(asked: Wait) -> None:
        world.now_s += asked.seconds

    return {**world.handlers, Wait: wait}
