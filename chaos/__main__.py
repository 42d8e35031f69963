"""`python -m penstock.chaos`: the simulator from a shell. `make sim` and friends call this."""

import os
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from penstock.chaos.campaign import Campaign, run_campaign
from penstock.chaos.crashpoints import Verdict, every_pair, every_single, every_zombie
from penstock.chaos.faults import Fault
from penstock.chaos.log_simulation import simulate_log
from penstock.chaos.scheduler import Outcome
from penstock.chaos.simulation import simulate
from penstock.points import COMMIT_POINTS, LOG_POINTS, Point

CORES = os.cpu_count() or 1
out = Console(highlight=False)
app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules.")] = 50_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = CORES,
) -> None:
    """Run seeded schedules and judge each."""
    _run(simulate, seeds, first, workers, COMMIT_POINTS, "make sim SEED=")


@app.command()
def sim_log(
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules.")] = 20_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = CORES,
) -> None:
    """The same for the embedded log: producers, their zombies, retention and compaction."""
    points = tuple(point for point in LOG_POINTS if not point.startswith(Point.LOG_TOPIC))
    _run(simulate_log, seeds, first, workers, points, "make sim-log SEED=")


def _run(
    run: Callable[[int], Outcome],
    seeds: int,
    first: int,
    workers: int,
    points: tuple[Point, ...],
    again: str,
) -> None:
    total = Campaign()
    with Progress(console=out, transient=True) as progress:
        task = progress.add_task("schedules", total=seeds)
        for total in run_campaign(first, seeds, workers, run):
            progress.update(task, completed=total.schedules)
    out.print(_fault_table(total))
    silent = [point for point in points if not total.points[point]]
    out.print(
        f"{total.schedules:,} schedules, {total.requests:,} requests, "
        f"{sum(total.faults.values()):,} faults; {len(total.bad)} bad"
    )
    out.print(
        f"{total.repeated} run twice, {len(total.unlike)} unlike; trace hash {total.trace_hash}"
    )
    for seed, broken in total.bad[:10]:
        out.print(f"[red]seed {seed}[/]: {broken[0]}    {again}{seed}")
    if silent:
        out.print(f"never reached: {', '.join(silent)}")
    raise typer.Exit(1 if total.bad or total.unlike else 0)


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
    for faults, broken in total.bad[:10]:
        out.print(f"[red]{faults}[/]: {broken[0]}")
    reached = len(COMMIT_POINTS) - len(total.never_reached)
    out.print(f"{reached} of {len(COMMIT_POINTS)} named points reached")
    for point in total.never_reached:
        out.print(f"[red]never reached[/]: {point}")
    raise typer.Exit(1 if total.bad or total.never_reached else 0)


def _fault_table(total: Campaign) -> Table:
    table = Table("fault", "times", box=None)
    for fault in Fault:
        if fault not in (Fault.NONE, Fault.ZOMBIE):
            table.add_row(fault, f"{total.faults[fault]:,}")
    return table


if __name__ == "__main__":
    app(prog_name="python -m penstock.chaos")
