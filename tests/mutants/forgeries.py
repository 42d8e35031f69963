"""Planted bugs of judges and doors: what a forger or an accident leaves is taken for genuine."""

import tempfile
from functools import partial
from pathlib import Path

import pytest

from penstock.chaos.audit_objects import Objects
from penstock.checkpoint.signature import plain_body
from penstock.checkpoint.signed_store import SignedStore
from penstock.checkpoint.signing import Signing
from penstock.effects import Stored
from penstock.ids import Key
from penstock.runtime import describing
from penstock.runtime import loop as epoch_loop
from penstock.sources import log_segment
from tests.checkpoint import test_signature
from tests.mutants.mutant import Mutant, by, by_folder
from tests.runtime import test_going_back, test_job
from tests.sources import test_log_forged


def lenient(self: Signing, key: Key, stored: Stored) -> bytes:
    """Verifies what is signed, and believes what is not."""
    is_signed = plain_body(stored.body) != stored.body
    return self._keys.verified(key, stored.body) if is_signed else stored.body


def by_a_missing_file() -> str | None:
    """Caught by a savepoint that has lost a file."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(epoch_loop, "INDEX_EVERY", 4)
            test_going_back.test_a_file_that_only_a_savepoint_needs_is_missed(Path(folder), 5)

    return by(run)()


def by_a_reserved_name() -> str | None:
    """Caught by a source that would be hidden by one of Penstock's own."""

    def run() -> None:
        with pytest.raises(test_job.ps.Invalid):
            test_job.read(test_job.ps.Job("clicks"), "count.replays")

    return by(run)()


MUTANTS = (
    Mutant(
        "sign anything",
        "a change of keys signs what a forger has left without a signature",
        ((Signing, "_opened", lenient),),
        by(partial(test_signature.test_a_new_key_makes_no_forgery_genuine, "cursors/")),
    ),
    Mutant(
        "sign a new head",
        "a HEAD without a signature is signed though everything else has one",
        ((Signing, "_refuse_signed_beside", lambda self: None),),
        by(test_signature.test_a_head_without_a_signature_beside_signed_documents_is_asked_about),
    ),
    Mutant(
        "another key",
        "a process with the key of another root removes what decides this history",
        ((SignedStore, "_refuse_with_another_key", lambda self: None),),
        by(test_signature.test_a_process_with_the_key_of_another_root_changes_nothing),
    ),
    Mutant(
        "segment offsets",
        "a segment is read whatever offsets it says it has",
        ((log_segment, "_checked", lambda piece, batch, at: at + batch.num_rows),),
        by_folder(
            test_log_forged.test_a_segment_holds_what_its_piece_says,
            test_log_forged.FORGED["offsets of others"],
        ),
    ),
    Mutant(
        "audit of savepoints",
        "the audit looks only at the files of tables that HEAD needs",
        ((Objects, "_of_its_own", lambda self, manifest: []),),
        by_a_missing_file,
    ),
    Mutant(
        "names of ours",
        "a source may have the name that Penstock gives to replayed letters",
        ((describing, "_refuse_reserved", lambda what, name: None),),
        by_a_reserved_name,
    ),
)
