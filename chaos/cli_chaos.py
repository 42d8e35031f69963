"""`penstock chaos`: does a job stay right when everything it stands on breaks?

It exits with 0 for valid, 1 for invalid, and 2 for unknown or if it could not do its work.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.markup import escape

from penstock.chaos import conducting
from penstock.chaos.asked import MASTER, PAGE, Asked
from penstock.chaos.cli_audit import EXITS, mark, show_check
from penstock.chaos.history import Family, Happening, commits, recoveries, strikes
from penstock.chaos.telling import told
from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.runtime.answers import AsJson, counted, err, or_exit, out, print_json
from penstock.runtime.cli_run import JobFile

if TYPE_CHECKING:
    from penstock.chaos.chaos_run import Result

__all__ = ["chaos"]

ALL = ",".join(Family)


def chaos(  # noqa: PLR0913, PLR0917 - options of a command, by name
    file: JobFile,
    seed: Annotated[
        int | None, typer.Option(help="What the schedule follows from; else a new one.")
    ] = None,
    faults: Annotated[str, typer.Option(help="Kinds of faults, by comma.")] = ALL,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many faults; else each kind about twice.")
    ] = None,
    evenly: Annotated[
        bool, typer.Option("--evenly", help="As much calm after every fault; else some at once.")
    ] = False,
    epochs: Annotated[int, typer.Option(min=7, help="Over how many epochs.")] = 60,
    duration: Annotated[
        float | None, typer.Option(min=10, help="Seconds, instead of a number of epochs.")
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            min=1, help="Make so many events up from the sources' columns, of small numbers."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=1, help="Made-up events in a second; with --records or --duration."),
    ] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SOURCE=URL", help="A topic with recorded events."),
    ] = None,
    epoch_records: Annotated[
        int | None, typer.Option(min=1, help="What an epoch reads at most.")
    ] = None,
    root: Annotated[
        str, typer.Option(help="s3 (one of its own), folder, or where the job is to live.")
    ] = "s3",
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = MASTER,
    report: Annotated[
        str, typer.Option(metavar="DIR", help="Write a page with all that happened.")
    ] = "",
    job: Annotated[str, typer.Option(help="Which job, if the file has several.")] = "",
    json: AsJson = False,
) -> None:
    """Run a job on real executors under a schedule of faults, then judge what it has written.

    The job's file is not changed. Its sinks are written to: give it ones of its own. The verdict
    is valid, invalid, or unknown, with the seed that repeats the schedule. Exits with 0, 1 or 2.
    """
    asked = or_exit(
        file,
        lambda: Asked(
            file=str(Path(file).absolute()),
            name=job or None,
            seed=_seed() if seed is None else seed,
            faults=_families(faults),
            count=count,
            evenly=evenly,
            epochs=epochs,
            records=records,
            inputs=_inputs(input_ or []),
            rate=rate,
            duration_s=duration,
            epoch_records=epoch_records,
            root=root,
            master=master,
            report=Path(report) if report else None,
        ),
    )
    result = or_exit(file, lambda: _conducted(asked, json))
    if json:
        print_json(msgspec.to_builtins(result.run))
    else:
        _show(result, report)
    raise typer.Exit(EXITS[result.verdict])


def _seed() -> int:
    return int(SystemChance().unique()[:7], 16)


def _families(text: str) -> frozenset[Family]:
    found = set()
    for word in filter(None, (each.strip() for each in text.split(","))):
        if word not in set(Family):
            raise Invalid(f"--faults {word}", "is unknown", f"use some of {ALL}")
        found.add(Family(word))
    return frozenset(found)


def _inputs(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, sign, url = each.partition("=")
        if not (name and sign and url):
            raise Invalid(f"--input {each}", "names no topic", "write source=topic's URL")
        found[name] = url
    return found


def _conducted(asked: Asked, as_json: bool) -> "Result":
    conducted = conducting()
    if as_json:
        return conducted(asked, lambda what: None, lambda happening: None)
    out.print(f"seed {asked.seed}: {escape(asked.command())}", soft_wrap=True)
    with err.status("starting …") as status:

        def watch(happening: Happening) -> None:
            line = told(happening)
            status.update(escape(line))
            if happening.__struct_config__.tag not in ("committed", "retried"):
                out.print(f"[dim]{happening.at_s:7.1f} s[/] {escape(line)}", soft_wrap=True)

        return conducted(asked, lambda what: status.update(f"{what} …"), watch)


def _show(result: "Result", report: str) -> None:
    run = result.run
    for check in run.checks:
        show_check(check)
    epochs = commits(run.happenings)
    rows = sum(each.rows_in for each in epochs)
    struck = strikes(run.happenings)
    slowest = max((each.seconds or 0.0 for each in recoveries(run.happenings)), default=0.0)
    said = (
        f"job {run.job}, seed {run.seed}: {counted(len(struck), 'fault')}, "
        f"{counted(rows, 'record')}, {counted(len(epochs), 'epoch')}, {run.seconds:.0f} s; at most "
        f"{slowest:.1f} s from a fault to the next commit."
    )
    out.print(f"\n{mark(run.verdict)} {escape(said)}")
    out.print(f"Again: {escape(run.command)}", soft_wrap=True)
    if report:
        out.print(f"The report is {escape(str(Path(report) / PAGE))}.")
