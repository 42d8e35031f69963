"""Certificates: what an audit found, sealed, for somebody else to check later.

A certificate names the head of the chain by its hash, and every manifest names its parent by hash,
so it stands for all of history up to there: whoever has the certificate and may read the root can
tell whether it is still the same history, and whether every table still is what it was. It carries
its own hash, against mistakes and careless hands. It is not signed: who issued it is told by
whoever handed it over.
"""

from collections.abc import Iterator

import msgspec

from penstock.chaos.audit import Audited
from penstock.chaos.audit_history import History, read_history
from penstock.chaos.audit_rows import TableDigest, listing_digest
from penstock.chaos.findings import Check, Ledger, Verdict, worst
from penstock.checkpoint.formats import Ref, Sealed, seal, unseal
from penstock.checkpoint.fsck import look_at
from penstock.checkpoint.layout import epoch_of
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Gone, Invalid, PenstockError
from penstock.ids import Epoch
from penstock.sinks.table_index import TableFile, find_files

__all__ = ["CERTIFICATE_FORMAT", "Certificate", "Verified", "issue", "read_certificate", "verify"]

CERTIFICATE_FORMAT = 1


class Certificate(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An audit, and where its root was."""

    format: int = CERTIFICATE_FORMAT
    root: str
    """Without anything secret that its URL had."""
    audited: Audited


class Verified(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has become of what a certificate says."""

    verdict: Verdict
    certified: Verdict
    """What the certificate itself says."""
    head_epoch: Epoch
    """Where HEAD is now."""
    checks: tuple[Check, ...]


def issue(audited: Audited, root: str) -> bytes:
    """The certificate of an audit, to be kept."""
    body = seal(Certificate(root=root, audited=audited))
    return msgspec.json.format(body, indent=2) + b"\n"


def read_certificate(name: str, body: bytes) -> Certificate:
    """The certificate in a file; `Corrupt` if it is not to the letter what was issued."""
    return unseal(name, body, Certificate, CERTIFICATE_FORMAT)


def verify(certificate: Certificate, root: Root) -> Verified:
    """Whether what was certified still is.

    1. The certified head is on the chain: so is all that it was certified with.
    2. Every file of every table, up to there, is there and is what it was.

    What sinks outside the root hold has changed since, and is not looked at again.
    """
    audited = certificate.audited
    chain = Ledger("chain", "The certified head is on the chain of today.")
    head = root.head()
    if head.job != audited.job:
        found = f"is of job {audited.job!r}, and the root belongs to {head.job!r}"
        raise Invalid("the certificate", found, "name the root that it was issued for")
    history = _on_chain(audited.head, root, chain)
    checks = [chain.check()]
    for name, digest in audited.tables.items():
        ledger = Ledger(f"table {name}", "Its files up to the certified epoch are what they were.")
        if history is None:
            ledger.unknown(f"table {name}", "the certified epoch cannot be gone to")
        else:
            _check_table(history, name, digest, ledger)
        checks.append(ledger.check())
    for name, held in audited.sinks.items():
        note = f"Sink {name} was certified at epoch {held.upto}; it has not been looked at again."
        chain.note(note)
    checks[0] = chain.check()
    found = worst([audited.verdict, *(check.verdict for check in checks)])
    return Verified(
        verdict=found, certified=audited.verdict, head_epoch=head.epoch, checks=tuple(checks)
    )


def _on_chain(certified: Ref | None, root: Root, ledger: Ledger) -> History | None:
    """Today's history from the certified epoch on; None if that epoch is not part of it."""
    epoch = None if certified is None else epoch_of(certified.key)
    if certified is None or epoch is None:
        ledger.note("Nothing had been committed when the certificate was issued.")
        return None
    head = root.head()
    subject = f"epoch {epoch}, {certified.key},"
    if head.epoch < epoch:
        found = f"is not on the chain any more: HEAD is at epoch {head.epoch}, it was gone back on"
        ledger.wrong("I6", subject, found, epoch)
        return None
    if epoch < head.floor:
        why = f"epochs before {head.floor} have been given up: whether it is on the chain is lost"
        ledger.unknown(subject, why)
        return None
    history = read_history(root, epoch, ledger)
    if not history.links or history.links[0].epoch != epoch:
        ledger.unknown(subject, "the chain cannot be followed down to it")
        return None
    if history.links[0].ref != certified:
        found = f"is not on the chain: {history.links[0].ref.key} is in its place"
        ledger.wrong("I6", subject, found, epoch)
        return None
    return history


def _check_table(history: History, name: str, certified: TableDigest, ledger: Ledger) -> None:
    epoch = history.links[0].epoch
    try:
        seen = listing_digest(_verified(history, name, epoch, ledger))
    except Gone as gone:
        ledger.unknown(f"table {name}", gone.found)
        return
    except Corrupt as wrong:
        ledger.wrong("I7", wrong.subject, wrong.found)
        return
    except PenstockError as error:
        ledger.unknown(f"table {name}", str(error))
        return
    if seen != certified:
        found = (
            f"has {seen.files:,} files and {seen.rows:,} rows up to epoch {epoch}, whose hash is "
            f"{seen.sha256[:12]}…; certified were {certified.files:,} files and "
            f"{certified.rows:,} rows, {certified.sha256[:12]}…"
        )
        ledger.wrong("I4", f"table {name}", found, epoch)


def _verified(history: History, name: str, epoch: Epoch, ledger: Ledger) -> Iterator[TableFile]:
    handlers = history.root.handlers
    for file in find_files(history.root, name, epoch):
        looking = look_at(history.chain, file.output.ref, history.head.epoch)
        seen = perform(looking, handlers)
        if isinstance(seen, str):
            key = file.output.ref.key
            found = seen.removeprefix(f"{key} ").removesuffix(".")
            ledger.wrong("I7", key, found, file.epoch)
        else:
            ledger.count("files")
            ledger.count("bytes", seen.size_bytes)
        yield file
