"""`penstock run`: run a job from a file."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from penstock.checkpoint.root import Lease
from penstock.errors import Fenced, Invalid, PenstockError
from penstock.runtime.answers import EXIT_ERROR, AsJson, counted, err, out, print_json
from penstock.runtime.loading import load_job
from penstock.runtime.run import Ran, run_job
from penstock.runtime.settings import EPOCH_BYTES, EPOCH_RECORDS, RunSettings
from penstock.runtime.view import view_on
from penstock.sources.protocol import Limits

__all__ = ["EXIT_FENCED", "JobFile", "run"]

EXIT_FENCED = 3
"""Another leader has taken over: do not start this one again by itself."""

JobFile = Annotated[str, typer.Argument(metavar="JOB.py", help="A Python file with a ps.Job.")]


def run(  # noqa: PLR0913, PLR0917 - options of a command, by name
    file: JobFile,
    root: Annotated[str, typer.Option(envvar="PENSTOCK_ROOT", help="Where the job lives.")],
    master: Annotated[str, typer.Option(help="local[*], local-cluster[2,1,1024], spark://…")] = "",
    until: Annotated[str, typer.Option(help="'caught-up': stop when all is processed.")] = "",
    require: Annotated[str, typer.Option(help="The least guarantee, like exactly-once.")] = "",
    job: Annotated[str, typer.Option(help="Which job, if the file has several.")] = "",
    records: Annotated[int, typer.Option(min=1, help="Of an epoch, at most.")] = EPOCH_RECORDS,
    every: Annotated[float, typer.Option(min=0, help="Seconds between epochs, at least.")] = 0.0,
    lease: Annotated[
        float, typer.Option(min=0.5, help="Seconds of silence after which a leader is given up.")
    ] = 15.0,
    standby: Annotated[bool, typer.Option(help="Wait while another process leads.")] = False,
    state_dir: Annotated[str, typer.Option(help="Where hosts keep state.")] = "",
    py_files: Annotated[str, typer.Option(help="Wheels and files for executors, by comma.")] = "",
    conf: Annotated[list[str] | None, typer.Option(help="A Spark setting, name=value.")] = None,
    json: AsJson = False,
) -> None:
    """Run a job until it is stopped. Ctrl-C finishes the epoch under way and releases the job."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        spark = _spark_settings(conf or [])
        settings = RunSettings(
            limits=Limits(records=records, size_bytes=EPOCH_BYTES),
            every_s=every,
            lease=Lease(length_s=lease, beat_every_s=lease / 5, poll_every_s=lease / 15),
            standby=standby,
            state_folder=state_dir or None,
            py_files=_py_files(py_files),
            spark=spark,
        ).with_options(until=until or None, master=master or None, require=require or None)
        loaded = load_job(file, job or None)
        with view_on(err) as view:
            ran = run_job(loaded, root, settings, view)
    except PenstockError as error:
        err.print(f"[bold red]penstock:[/] {escape(str(error))}")
        if trace := getattr(error, "trace", ""):
            err.print(escape(trace))
        raise typer.Exit(EXIT_FENCED if isinstance(error, Fenced) else EXIT_ERROR) from error
    _show(ran, json)


def _py_files(paths: str) -> tuple[str, ...]:
    found = tuple(filter(None, paths.split(",")))
    for path in found:
        if not Path(path).exists():
            raise Invalid(f"--py-files {path}", "is not there", "check its name")
    return found


def _spark_settings(conf: list[str]) -> dict[str, str]:
    settings = {}
    for each in conf:
        name, found, value = each.partition("=")
        if not found or not name.startswith("spark."):
            raise Invalid(f"--conf {each}", "is no Spark setting", "write spark.name=value")
        settings[name] = value
    return settings


def _show(ran: Ran, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "epochs": ran.epochs,
                "last_epoch": ran.last_epoch,
                "rows_in": ran.rows_in,
                "rows_out": ran.rows_out,
                "dead_letters": ran.quarantined,
                "retries": ran.retries,
                "restores": dict(ran.restores),
            }
        )
        return
    out.print(
        f"{counted(ran.epochs, 'epoch')}, {counted(ran.rows_in, 'row')} in, {ran.rows_out:,} out"
        + (f", {counted(ran.quarantined, 'dead letter')}" if ran.quarantined else "")
        + f"; the last epoch is {ran.last_epoch:,}."
    )
