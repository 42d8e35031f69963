"""Replays in this process: the epochs of a root gone through once more, without Spark."""

from dataclasses import replace
from pathlib import Path

import penstock as ps
from penstock.chaos.dressing import dressed
from penstock.chaos.replaying import FollowingLoop, FollowingPlanner, as_table, recorded
from penstock.checkpoint.root import Root
from penstock.runtime.loop import position_of
from penstock.runtime.telling import Silent
from tests.support.driving import ManualClock
from tests.support.in_process import SETTINGS, InProcessRunner, no_spark, workshop


def replayed(job: ps.Job, story_of: Root, folder: Path) -> Root:
    """The root of a replay below a folder."""
    story = recorded(story_of)
    calm = dressed(job, sinks=as_table, changelog=False)
    url = str(folder / "root")
    topology = calm.topology(url, no_spark)
    root, clock = Root.open(url), ManualClock()
    with root.lead(job.name) as session:
        planner = FollowingPlanner(
            topology, SETTINGS.limits, SETTINGS.snapshots, 2, clock, root.chance
        )
        planner.story, planner.original = story, story_of
        position = position_of(root, session.manifest, session.head.generation, topology)
        runner = InProcessRunner(workshop(topology, folder), 3)
        settings = replace(SETTINGS, epochs_max=max(story))
        FollowingLoop(root, session, planner, runner, settings, Silent(), clock, position).run(
            lambda: False
        )
    return root
