"""`penstock`: the command line.

Every command can answer in JSON; every error is one sentence on standard error and a non-zero
exit. Nothing here decides anything: the rooms do, and this shows what they say.
"""

import sys
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from penstock.calendar import datetime_of
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.fsck import Findings
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.probe import Diagnosis, probe
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Gone
from penstock.points import Point
from penstock.runtime.answers import EXIT_FOUND, AsJson, or_exit, out, print_json
from penstock.runtime.cli_dead_letters import dead_letters
from penstock.runtime.cli_doctor_kafka import examine_kafka
from penstock.runtime.cli_history import checkpoints, restore, savepoint, status
from penstock.runtime.cli_run import run
from penstock.runtime.cli_sign import sign
from penstock.runtime.cli_sinks import sinks
from penstock.runtime.cli_state import states
from penstock.runtime.cli_topic import topics
from penstock.sinks.table_index import missing_table_files

__all__ = ["app", "doctor", "fsck", "log", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Stateful stream jobs on Apache Spark: look at a job's root and its state, see that it is "
    "sound, go back to an earlier epoch, and keep topics.",
)
app.add_typer(topics, name="topic")
app.command()(run)
app.add_typer(states, name="state")
app.add_typer(sinks, name="sinks")
app.add_typer(dead_letters, name="dead-letters")
for command in (checkpoints, savepoint, restore, status, sign):
    app.command()(command)

RootUrl = Annotated[
    str, typer.Argument(help="A folder, file:///folder, s3://bucket/prefix or memory://name.")
]


def main() -> None:
    """The entry point of the `penstock` script."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has seen enough
        with suppress(OSError):
            sys.stderr.close()
        sys.exit(0)


@app.command()
def doctor(
    root: RootUrl = "",
    kafka: Annotated[str, typer.Option(help="Brokers, instead of a root: host:9092.")] = "",
    job: Annotated[str, typer.Option(help="With --kafka: one job, as name or prefix/name.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option(help="With --kafka: for its client, as name=${NAME}.")
    ] = None,
    abort: Annotated[bool, typer.Option("--abort", help="With --kafka: end what hangs.")] = False,
    json: AsJson = False,
) -> None:
    """Is this store safe? Tries every promise a commit rests on, with races between processes.
    If a job lives there, it also names what keeps its collector from removing anything.

    With --kafka: which transactions of Penstock's hold up the readers of a topic.
    """
    if kafka:
        examine_kafka(kafka, job, setting or [], abort, json)
    if not root:
        raise typer.BadParameter("give a root, or --kafka with brokers")
    diagnosis = or_exit(root, lambda: probe(root))
    pins = or_exit(root, lambda: _unreadable_pins(root)) if diagnosis.safe else []
    if json:
        print_json(
            {
                "url": diagnosis.url,
                "safe": diagnosis.safe,
                "checks": [
                    {"name": c.name, "passed": c.passed, "detail": c.detail}
                    for c in diagnosis.checks
                ],
                "unreadable_pins": pins,
            }
        )
    else:
        _show_diagnosis(diagnosis)
        for sentence in pins:
            out.print(f"[bold red]wrong[/] {escape(sentence)}")
    raise typer.Exit(0 if diagnosis.safe and not pins else EXIT_FOUND)


@app.command()
def log(
    root: RootUrl,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="At most so many epochs.")
    ] = 20,
    json: AsJson = False,
) -> None:
    """The committed epochs, newest first."""
    manifests = or_exit(root, lambda: list(islice(Root.open(root).history(), number)))
    if json:
        print_json([_summary(manifest) for manifest in manifests])
    elif not manifests:
        out.print("Nothing has been committed yet.")
    else:
        out.print(_history_table(manifests))


@app.command()
def fsck(root: RootUrl, json: AsJson = False) -> None:
    """Check that every object of every retained epoch is there and hashes."""
    found = or_exit(root, lambda: _checked(Root.open(root)))
    if json:
        print_json({**_as_dict(found), "clean": found.clean})
    else:
        _show_findings(found)
    raise typer.Exit(0 if found.clean else EXIT_FOUND)


def _checked(root: Root) -> Findings:
    """What is wrong with a root, files of tables that HEAD's indexes or those of pins list
    included: whether these are there is looked up, and `audit` reads them."""
    found = root.check()
    needing: list[Manifest] = []
    with suppress(Corrupt, Gone):  # which `check` has told
        newest = root.newest()
        needing += [] if newest is None else [newest]
    for pin in root.pins():
        with suppress(Corrupt, Gone):
            reading = Chain().manifest(pin.manifest, pin.epoch, Point.READ_MANIFEST)
            needing.append(perform(reading, root.handlers))
    missing = {}
    for manifest in needing:
        with suppress(Corrupt, Gone):
            missing.update(dict.fromkeys(missing_table_files(root, manifest), manifest.epoch))
    told = " ".join(found.wrong)
    found.wrong += [
        f"{key} is missing, though epoch {epoch} needs it."
        for key, epoch in sorted(missing.items())
        if key not in told
    ]
    return found


def _unreadable_pins(root: str) -> list[str]:
    """What is below `pins/` and is no readable pin, a sentence for each."""
    return list(map(str, Root.open(root).all_pins().unreadable))


def _show_diagnosis(diagnosis: Diagnosis) -> None:
    for check in diagnosis.checks:
        mark = "[green]ok  [/]" if check.passed else "[bold red]FAIL[/]"
        out.print(f"{mark} {check.name}: {escape(check.detail)}")
    if diagnosis.safe:
        out.print(f"\n{escape(diagnosis.url)} kept every promise that was tried.")
    else:
        out.print(
            f"\n[bold red]{escape(diagnosis.url)} is not safe.[/] A job on it could lose or "
            "double results. Use another store, or a newer version of this one."
        )


def _show_findings(found: Findings) -> None:
    for wrong in found.wrong:
        out.print(f"[bold red]wrong[/] {escape(wrong)}")
    for pin in found.broken_pins:
        out.print(
            f"[bold red]wrong[/] pin {escape(pin.name)} does not hold: epoch {pin.epoch} has been "
            "given up. If its `pin` never succeeded, remove it; otherwise restore from a copy."
        )
    out.print(
        f"Epochs {found.floor} to {found.head_epoch}: {found.manifests} manifests, "
        f"{found.objects} objects, {found.size_bytes:,} bytes, {found.pins} pins; "
        + ("all sound." if found.clean else f"{len(found.wrong) + len(found.broken_pins)} wrong.")
    )


def _history_table(manifests: list[Manifest]) -> Table:
    table = Table(
        "epoch", "time (UTC)", "token", "rows in", "rows out", "bytes", "holder", box=None
    )
    for manifest in manifests:
        table.add_row(
            str(manifest.epoch),
            f"{_time(manifest):%Y-%m-%d %H:%M:%S}",
            str(manifest.token),
            f"{manifest.rows_in:,}",
            f"{manifest.rows_out:,}",
            f"{manifest.size_bytes:,}",
            escape(manifest.holder),
        )
    return table


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "time": _time(manifest).isoformat(),
        "token": manifest.token,
        "holder": manifest.holder,
        "commit": manifest.commit,
        "rows_in": manifest.rows_in,
        "rows_out": manifest.rows_out,
        "bytes": manifest.size_bytes,
    }


def _time(manifest: Manifest) -> datetime:
    return datetime_of(manifest.at_ms)


def _as_dict(found: Findings) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(found)
    return fields
