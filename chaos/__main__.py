"""`python -m penstock.chaos`: the simulator from a shell. `make sim` and friends call this."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from penstock.chaos.actions import Action
from penstock.chaos.campaign import Campaign, run_campaign
from penstock.chaos.crashpoints import Verdict, every_pair, every_single, every_zombie
from penstock.chaos.faults import Fault
from penstock.chaos.log_simulation import simulate_log
from penstock.chaos.outcome import Outcome
from penstock.chaos.simulation import simulate
from penstock.chaos.small_search import ACTIONS, BEGINNINGS, Searched
from penstock.chaos.small_search import search as search_all
from penstock.points import COMMIT_POINTS, LOG_POINTS, Point

CORES = os.cpu_count() or 1
SEEDS_ENOUGH = 1000
"""In so many schedules every fault happens and every action is taken, or something is wrong."""

UNPLANNED = (Fault.NONE, Fault.ZOMBIE)
out = Console(highlight=False)
app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules.")] = 50_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = CORES,
) -> None:
    """Run seeded schedules and judge each."""
    _run(simulate, seeds, first, workers, Expected(COMMIT_POINTS, tuple(Action), "make sim SEED="))


@app.command()
def sim_log(
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules.")] = 20_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = CORES,
) -> None:
    """The same for the embedded log: producers, their zombies, retention and compaction."""
    points = tuple(point for point in LOG_POINTS if not point.startswith(Point.LOG_TOPIC))
    _run(simulate_log, seeds, first, workers, Expected(points, (), "make sim-log SEED="))


@dataclass(frozen=True, slots=True)
class Expected:
    """What a campaign must have come by, and how one of its seeds is run again."""

    points: tuple[Point, ...]
    actions: tuple[Action, ...]
    again: str


def _run(
    run: Callable[[int], Outcome], seeds: int, first: int, workers: int, expected: Expected
) -> None:
    total = Campaign()
    with Progress(console=out, transient=True) as progress:
        task = progress.add_task("schedules", total=seeds)
        for total in run_campaign(first, seeds, workers, run):
            progress.update(task, completed=total.schedules)
    out.print(_table("fault", total.faults, [f for f in Fault if f not in UNPLANNED]))
    if expected.actions:
        out.print(_table("action", total.actions, expected.actions))
    silent = [point for point in expected.points if not total.points[point]]
    missing = total.never_happened(expected.actions) if seeds >= SEEDS_ENOUGH else []
    out.print(
        f"{total.schedules:,} schedules, {total.requests:,} requests, "
        f"{sum(total.faults.values()):,} faults; {len(total.bad)} bad"
    )
    out.print(
        f"{total.repeated} run twice, {len(total.unlike)} unlike; trace hash {total.trace_hash}"
    )
    for seed, broken in total.bad[:10]:
        out.print(f"[red]seed {seed}[/]: {broken[0]}    {expected.again}{seed}")
    if silent:
        out.print(f"never reached: {', '.join(silent)}")
    for never in missing:
        out.print(f"[red]never happened[/]: {never}")
    raise typer.Exit(1 if total.bad or total.unlike or missing else 0)


@app.command()
def replay(seed: int) -> None:
    """Tell the story of one seed."""
    _tell(simulate(seed, tell=True))


@app.command()
def replay_log(seed: int) -> None:
    """Tell the story of one seed of the log."""
    _tell(simulate_log(seed, tell=True))


def _tell(outcome: Outcome) -> None:
    for line in outcome.story:
        style = "bold yellow" if "<--" in line else None
        out.print(line, style=style, markup=False, soft_wrap=True)
    out.print(f"trace hash {outcome.trace_hash}")
    raise typer.Exit(1 if outcome.broken else 0)


@app.command()
def crashpoints(
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = CORES,
) -> None:
    """Fail every request of a three-epoch job in every way, alone and in pairs."""
    total = Verdict()
    for name, run in (("singles", every_single), ("zombies", every_zombie), ("pairs", every_pair)):
        out.print(f"{name} …" + (" (the longest part: minutes)" if run is every_pair else ""))
        verdict: Verdict = run(workers)
        out.print(
            f"{name:8} {verdict.runs:>8,} runs {verdict.requests:>12,} requests "
            f"{len(verdict.bad):>4} bad"
        )
        total.join(verdict)
    for script, faults, broken in total.bad[:10]:
        out.print(f"[red]{script}({faults})[/]: {broken[0]}")
    reached = len(COMMIT_POINTS) - len(total.never_reached)
    out.print(f"{reached} of {len(COMMIT_POINTS)} named points reached")
    for point in total.never_reached:
        out.print(f"[red]never reached[/]: {point}")
    raise typer.Exit(1 if total.bad or total.never_reached else 0)


@app.command()
def search(
    length: Annotated[int, typer.Option(min=1, help="How many actions.")] = 5,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = CORES,
) -> None:
    """Try every sequence of up to LENGTH actions on a small root, and judge each step."""
    total = Searched()
    with Progress(console=out, transient=True) as progress:
        task = progress.add_task("sequences", total=len(BEGINNINGS) * len(ACTIONS) ** length)
        for total in search_all(length, workers):
            progress.update(task, completed=total.sequences)
    out.print(_table("action", total.taken, ACTIONS))
    out.print(
        f"{total.sequences:,} sequences of {length} actions, {total.steps:,} steps judged; "
        f"{len(total.bad)} bad"
    )
    for begun, sequence, wrong in total.bad[:10]:
        out.print(f"[red]{begun} root: {', '.join(sequence)}[/]: {wrong}", soft_wrap=True)
    raise typer.Exit(1 if total.bad else 0)


def _table(what: str, counted: Mapping[Any, int], names: Iterable[str]) -> Table:
    table = Table(what, "times", box=None)
    for name in names:
        table.add_row(name, f"{counted.get(name, 0):,}")
    return table


if __name__ == "__main__":
    app(prog_name="python -m penstock.chaos")
