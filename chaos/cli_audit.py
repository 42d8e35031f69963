"""`penstock audit`: is what a job has written all there, once, and explained by what it read?

It exits with 0 for valid, 1 for invalid, and 2 for unknown or if it could not do its work.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from penstock.chaos.audit import Audit, Scope
from penstock.chaos.audit import audit as run_audit
from penstock.chaos.audit_report import audit_page
from penstock.chaos.certificate import Verified, issue, read_certificate, verify
from penstock.chaos.findings import Check, Verdict
from penstock.checkpoint.open_store import absolute_url, without_secrets
from penstock.checkpoint.root import Root
from penstock.errors import Invalid
from penstock.ids import Epoch
from penstock.runtime.answers import (
    EXIT_ERROR,
    EXIT_FOUND,
    AsJson,
    counted,
    err,
    or_exit,
    out,
    print_json,
)
from penstock.runtime.loading import described

__all__ = ["EXITS", "audit", "mark", "show_check"]

PAGE, CERTIFICATE, ANSWER = "audit.html", "certificate.json", "audit.json"
"""What is written into the folder of a report."""

EXITS = {Verdict.VALID: 0, Verdict.INVALID: EXIT_FOUND, Verdict.UNKNOWN: EXIT_ERROR}
_COLOURS = {Verdict.VALID: "green", Verdict.INVALID: "bold red", Verdict.UNKNOWN: "yellow"}


def audit(  # noqa: PLR0913, PLR0917 - options of a command, by name
    root: Annotated[
        str, typer.Argument(help="Where the job lives; may be left out with --verify.")
    ] = "",
    job: Annotated[
        str, typer.Option(metavar="JOB.py", help="The job's file: its sinks are read as well.")
    ] = "",
    name: Annotated[str, typer.Option(help="Which job, if the file has several.")] = "",
    since: Annotated[
        int | None, typer.Option(min=1, help="The first epoch; else the oldest that is kept.")
    ] = None,
    sample: Annotated[
        str, typer.Option(help="How much of what sinks hold is compared, such as 5%.")
    ] = "100%",
    report: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write a page, a certificate and the answer.")
    ] = "",
    certificate: Annotated[
        str, typer.Option(metavar="FILE", help="Write a certificate, to be verified later.")
    ] = "",
    check: Annotated[
        str, typer.Option("--verify", metavar="CERTIFICATE", help="Look whether it still holds.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Audit a job while it runs: its chain, its sources, every output row, what its sinks hold.

    Nothing is changed. The verdict is valid, invalid, or unknown: what could not be looked at is
    never called valid. Exits with 0, 1 or 2.
    """
    if check:
        _verify(check, root, json)
    where = or_exit(root, lambda: _root(root))
    scope = or_exit(root, lambda: Scope(since=_epoch(since), sample=_share(sample)))
    or_exit(root, lambda: _refuse_taken(report, certificate))
    with err.status("looking …") as status:
        done = or_exit(
            root, lambda: _audited(where, job, name, scope, lambda what: status.update(f"{what} …"))
        )
    body = issue(done.audited, without_secrets(where))
    or_exit(root, lambda: _write(done, body, report, certificate, without_secrets(where)))
    if json:
        print_json(_answer(done))
    else:
        _show(done, report)
    raise typer.Exit(EXITS[done.audited.verdict])


def _root(url: str) -> str:
    if not url:
        raise Invalid("the audit", "was given no root", "name where the job lives")
    return absolute_url(url)


def _epoch(since: int | None) -> Epoch | None:
    return None if since is None else Epoch(since)


def _share(text: str) -> float:
    try:
        return float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise Invalid(f"--sample {text}", "is no share", "write 5% or 0.1%") from None


def _refuse_taken(report: str, certificate: str) -> None:
    """What was found once is not written over by what is found now."""
    folder, file = Path(report), Path(certificate)
    if report and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Invalid(f"folder {report}", "is there and not empty", "name another, or remove it")
    if certificate and file.exists():
        raise Invalid(f"file {certificate}", "is there already", "name another, or remove it")


def _audited(where: str, job: str, name: str, scope: Scope, tell: Any) -> Audit:
    opened = Root.open(where)
    if not job:
        return run_audit(opened, None, scope, tell)
    opened.head()  # no job is loaded for a root that is not there
    with described(job, where, name or None) as topology:
        return run_audit(opened, topology, scope, tell)


def _write(done: Audit, body: bytes, report: str, certificate: str, where: str) -> None:
    try:
        if certificate:
            Path(certificate).write_bytes(body)
        if report:
            folder = Path(report)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / PAGE).write_text(audit_page(done, where), encoding="utf-8")
            (folder / CERTIFICATE).write_bytes(body)
            answer = msgspec.json.format(msgspec.json.encode(_answer(done)), indent=2)
            (folder / ANSWER).write_bytes(answer + b"\n")
    except OSError as error:
        subject = f"file {error.filename or report or certificate}"
        raise Invalid(subject, f"cannot be written ({error.strerror})", "name another") from error


def _answer(done: Audit) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(done.audited)
    return answer


def _show(done: Audit, report: str) -> None:
    found = done.audited
    for check in found.checks:
        show_check(check)
    epochs = "nothing is committed"
    if found.epochs is not None:
        epochs = f"epochs {found.epochs[0]} to {found.epochs[1]}"
    head = "" if found.head is None else f", HEAD {found.head.sha256[:12]}…"
    sampled = "" if found.sample >= 1 else f", {found.sample:.2%} of what sinks hold"
    said = f"job {found.job}, {epochs}{head}{sampled}; {found.seconds:.1f} s."
    out.print(f"\n{mark(found.verdict)} {escape(said)}")
    if report:
        out.print(f"The report is {escape(str(Path(report) / PAGE))}.")


def show_check(check: Check) -> None:
    """A check, and what came of it."""
    counts = ", ".join(f"{number:,} {what}" for what, number in check.counted.items())
    shown = mark(check.verdict) + " " * (len(Verdict.INVALID) - len(check.verdict))
    out.print(f"{shown} {escape(check.name)}: {escape(counts) or 'nothing'}")
    for violation in check.violations:
        out.print(f"        [red]wrong[/] {escape(str(violation))}.")
    _more(check.violations_total - len(check.violations), "violation")
    for unknown in check.unknown:
        out.print(f"        [yellow]unknown[/] {escape(str(unknown))}")
    _more(check.unknown_total - len(check.unknown), "thing that could not be looked at")
    for note in check.notes:
        out.print(f"        {escape(note)}")


def mark(verdict: Verdict) -> str:
    """A verdict in its colour."""
    return f"[{_COLOURS[verdict]}]{verdict}[/]"


def _more(left: int, what: str) -> None:
    if left > 0:
        out.print(f"        … and {counted(left, what)} more")


def _verify(file: str, root: str, as_json: bool) -> None:
    certificate = or_exit(file, lambda: read_certificate(file, _read(file)))
    where = root or certificate.root
    with err.status("looking …"):
        found = or_exit(where, lambda: verify(certificate, Root.open(where)))
    if as_json:
        print_json(found)
    else:
        _show_verified(found, file)
    raise typer.Exit(EXITS[found.verdict])


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Invalid(f"file {file}", f"cannot be read ({error.strerror})", "check it") from error


def _show_verified(found: Verified, file: str) -> None:
    for check in found.checks:
        show_check(check)
    said = f"it certifies {found.certified}, and HEAD is at epoch {found.head_epoch} now"
    out.print(f"\n{mark(found.verdict)} {escape(file)}: {said}.")
