"""Harm to processes: killed at any moment or at a named point, stopped for a while, deposed."""

import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psutil

from penstock.chaos.history import Family
from penstock.chaos.nemesis import Nemesis, Strike
from penstock.chaos.processes import DriverProcess, end_tree
from penstock.chaos.scene import PATIENCE_S, NothingThere, Scene
from penstock.chaos.traps import Trap, lay
from penstock.points import Point

__all__ = ["PROCESS_NEMESES"]

Choice = Callable[[DriverProcess], list[psutil.Process]]

PAUSE_S = (0.3, 4.5)
"""Shorter than a lease, and longer."""
DRIVER_COST_S, EXECUTOR_COST_S = 14.0, 6.0

DRIVER_POINTS = (
    Point.COMMIT_MANIFEST,
    Point.COMMIT_SWAP,
    Point.SINK_OUTPUT,
    Point.HEARTBEAT_BEAT,
    Point.COLLECT_LIST,
)
"""Where a driver may be made to die: it gets to each of them again and again."""
WORKER_POINTS = (Point.STAGE_DELTA, Point.STAGE_OUTPUT, Point.STAGE_SNAPSHOT)


def _victim(
    scene: Scene, chance: random.Random, choose: Choice, what: str
) -> tuple[psutil.Process, int]:
    """One of them, once there is one, and how many there were."""
    found = scene.patiently(lambda: choose(scene.cast.leader()))
    if not found:
        raise NothingThere(f"there was no {what}")
    return chance.choice(found), len(found)


def _kill(choose: Choice, what: str) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        victim, count = _victim(scene, chance, choose, what)
        try:
            victim.kill()
        except psutil.Error:
            raise NothingThere(f"the {what} was gone before it was killed") from None
        return f"{what} {victim.pid}, one of {count}, killed"

    return strike


def _kill_driver(scene: Scene, chance: random.Random) -> str:
    driver = scene.cast.leader()
    if driver.code is not None:
        raise NothingThere("no driver was running")
    driver.signal(signal.SIGKILL)
    return f"driver {driver.number} killed"


def _lose_host(scene: Scene, chance: random.Random) -> str:
    """Every executor, all that it has started, and what was on its disk."""
    _victim(scene, chance, DriverProcess.executors, "executor")
    lost = scene.cast.leader().executors()
    for executor in lost:
        end_tree(executor)
    shutil.rmtree(scene.state_folder, ignore_errors=True)
    return f"a host with {len(lost)} executors lost, and all state on its disks"


def _pause(choose: Choice, what: str) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        victim, _ = _victim(scene, chance, choose, what)
        seconds = chance.uniform(*PAUSE_S)
        try:
            victim.suspend()
            scene.clock.sleep(seconds)
        except psutil.Error:
            raise NothingThere(f"the {what} was gone before it was stopped") from None
        finally:
            with suppress(psutil.Error):
                victim.resume()
        return f"{what} {victim.pid} stopped for {seconds:.1f} s"

    return strike


def _own_process(driver: DriverProcess) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [psutil.Process(driver.pid)] if driver.code is None else []
    return []


def _depose(scene: Scene, chance: random.Random) -> str:
    """A driver is stopped for longer than its lease, another takes over, and the first wakes."""
    old = scene.cast.leader()
    if old.code is not None or not scene.cast.has_led(old):
        raise NothingThere("no driver led")
    old.signal(signal.SIGSTOP)
    try:
        new = scene.cast.understudy()
        took_over = scene.patiently(partial(scene.cast.has_led, new), to_the_end=True)
    finally:
        old.signal(signal.SIGCONT)
    if not took_over:
        scene.cast.dismiss(new)
        raise NothingThere(f"driver {new.number} did not come to lead in {PATIENCE_S:.0f} s")
    code = old.wait(PATIENCE_S)
    ending = "is still there" if code is None else f"ended with {code}"
    told = f"driver {old.number} stopped, and driver {new.number} took over"
    return f"{told}; when it woke, driver {old.number} {ending}"


def _trapped(points: tuple[Point, ...], what: str) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        moment = chance.choice(("before", "after"))
        reached = [point for point in points if point in scene.points]
        if not reached:
            raise NothingThere(f"{what} of this job comes to none of these points")
        trap = Trap(point=chance.choice(reached), moment=moment, nth=chance.randint(1, 2))  # type: ignore[arg-type]
        laid = lay(scene.folder, trap, scene.chance)
        sprung = scene.patiently(lambda: laid.is_sprung)
        laid.take_away()
        if not sprung and not laid.is_sprung:
            raise NothingThere(f"no {what} came to {trap}")
        return f"{what} died {trap}"

    return strike


PROCESS_NEMESES = (
    Nemesis(
        "executor.kill",
        Family.EXECUTOR,
        _kill(DriverProcess.executors, "executor"),
        EXECUTOR_COST_S,
    ),
    Nemesis("host.lose", Family.EXECUTOR, _lose_host, 2 * EXECUTOR_COST_S),
    Nemesis("worker.kill", Family.WORKER, _kill(DriverProcess.workers, "worker")),
    Nemesis("daemon.kill", Family.WORKER, _kill(DriverProcess.daemons, "worker daemon"), 2.0),
    Nemesis("worker.point", Family.WORKER, _trapped(WORKER_POINTS, "a worker"), 3.0),
    Nemesis("driver.kill", Family.DRIVER, _kill_driver, DRIVER_COST_S),
    Nemesis("driver.jvm", Family.DRIVER, _kill(DriverProcess.jvm, "driver's JVM"), DRIVER_COST_S),
    Nemesis("driver.point", Family.DRIVER, _trapped(DRIVER_POINTS, "the driver"), DRIVER_COST_S),
    Nemesis("pause.executor", Family.PAUSE, _pause(DriverProcess.executors, "executor"), 2.0),
    Nemesis("pause.worker", Family.PAUSE, _pause(DriverProcess.workers, "worker"), 2.0),
    Nemesis("pause.daemon", Family.PAUSE, _pause(DriverProcess.daemons, "worker daemon"), 3.0),
    Nemesis("pause.driver", Family.PAUSE, _pause(_own_process, "driver"), 2.0),
    Nemesis("pause.jvm", Family.PAUSE, _pause(DriverProcess.jvm, "driver's JVM"), 2.0),
    Nemesis("pause.takeover", Family.PAUSE, _depose, 2 * DRIVER_COST_S),
)
