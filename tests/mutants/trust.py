"""Planted bugs of what comes from outside: names, signatures, folders and full disks."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import private_folder, secrets
from penstock.checkpoint import (
    MemoryStore,
    folder_links,
    head,
    leader,
    manifest,
    restore,
    signature,
    signed_store,
    signing,
)
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import MANIFEST_FORMAT, Manifest
from penstock.checkpoint.signature import plain_body
from penstock.fencing import heartbeat
from penstock.sources import log_pieces
from tests.checkpoint import (
    test_directory_store,
    test_forged_names,
    test_leader,
    test_restore_full_disk,
    test_signature,
)
from tests.checkpoint.test_forged_names import HOSTILE, Forger
from tests.fencing import test_standby
from tests.mutants.mutant import Mutant, by, by_folder
from tests.sources import test_log_notes
from tests.state import test_private_folder
from tests.support.small_job import SmallJob


def by_forging(test: Callable[[Forger, str], None], name: str) -> Callable[[], str | None]:
    """Caught by a reader of a forged manifest."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Forger(Path(folder)), HOSTILE[name])

    run.__name__ = test.__name__
    return by(run)


def by_a_full_disk() -> str | None:
    """Caught by a restore that runs out of disk."""
    test = test_restore_full_disk.test_a_full_disk_while_files_are_fetched_is_named

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            job = SmallJob(MemoryStore(), Path(folder) / "host")
            job.epoch({"ann": 1})
            test(job, Path(folder))

    run.__name__ = test.__name__
    return by(run)()


def believes_fields(name: str, body: bytes) -> Manifest:
    """Decodes a manifest without the rules of its fields: any text is a name."""
    found = msgspec.json.decode(body)
    assert found["format"] <= MANIFEST_FORMAT
    return _without_rules(found, Manifest)


def _without_rules(found: Any, kind: Any) -> Any:
    """The document with its hostile names, put into a manifest that was decoded with others."""
    files: list[str] = []
    for state in (s for parts in found["operators"].values() for s in parts.values()):
        for file in (state.get("snapshot") or {}).get("files", ()):
            files.append(file["name"])
            file["name"] = "000009.sst"
    honest = msgspec.convert(found, kind, strict=False)
    for state in (s for parts in honest.operators.values() for s in parts.values()):
        for file in state.snapshot.files if state.snapshot else ():
            msgspec.structs.force_setattr(file, "name", files.pop(0))
    return honest


def believes_places(name: str, found: Manifest) -> None:
    """A key is anywhere in the root."""


def believes_the_unsigned(self: Any, key: str, body: bytes) -> bytes:
    """What carries no HMAC is taken for old, and genuine."""
    plain = plain_body(body)
    return plain if plain == body else honest_verified(self, key, body)


honest_verified = signature.ChainKeys.verified


def signs_no_names(secret: bytes, key: str, body: bytes) -> str:
    return honest_mac(secret, "", body)


honest_mac = signature._mac


def signs_heads_only(key: str) -> bool:
    return key == "HEAD"


def signs_what_does_not_hash(key: Any, body: bytes) -> Any:
    return _Anything(honest_ref_to(key, body))


honest_ref_to = signing.ref_to


class _Anything:
    """Equal to every reference."""

    def __init__(self, ref: Ref) -> None:
        self.ref = ref

    def __ne__(self, other: object) -> bool:
        return False


def follows_links(path: Path) -> os.stat_result:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.stat()


@contextmanager
def lets_errors_pass(path: Path) -> Iterator[None]:
    yield


def an_array_is_no_key() -> None:
    """A key in the file of secrets that is an array is refused."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        test_signature.test_a_key_in_the_file_that_is_no_text_is_refused(
            patch, Path(folder), f"{signature.CHAIN_KEY} = ['{test_signature.SECRET}']"
        )


def a_page_lists_each_piece_once() -> None:
    """A page that lists one piece twice is refused."""
    test_log_notes.test_a_page_that_leads_nowhere_is_refused(
        test_log_notes.page(0, 0, reach=test_log_notes.NOT_MEETING["twice"]), "do not meet"
    )


def a_long_heartbeat_is_not_read() -> None:
    """One of a hundred kilobytes says nothing."""
    test_standby.test_a_heartbeat_that_cannot_be_read_says_nothing(
        b'{"holder":"a","count":1,"notes":{"x":"%s"}}' % (b"x" * 100_000)
    )


MUTANTS = (
    Mutant(
        "endless heartbeat",
        "a heartbeat of any length is decoded",
        ((heartbeat, "BEAT_BYTES_MAX", 1 << 40),),
        by(a_long_heartbeat_is_not_read),
    ),
    Mutant(
        "endless pages",
        "a page of a topic may list one piece many times",
        ((log_pieces, "_meet", lambda page, found: True),),
        by(a_page_lists_each_piece_once),
    ),
    Mutant(
        "key is absent",
        "a key that is no text is taken for none",
        ((secrets, "_found_in_file", lambda name: secrets._in_file(name).get(name)),),
        by(an_array_is_no_key),
    ),
    Mutant(
        "forged name",
        "a file of a snapshot is laid wherever its manifest says",
        ((manifest, "decode", lambda name, body, kind, newest: believes_fields(name, body)),),
        by_forging(test_forged_names.test_a_reader_lays_no_file_of_a_forged_name, "absolute"),
    ),
    Mutant(
        "forged place",
        "a manifest's key may be anywhere in the root",
        ((manifest, "refuse_misplaced", believes_places),),
        by_forging(
            lambda forger, _: test_forged_names.test_a_key_outside_its_place_is_refused(
                forger, "HEAD"
            ),
            "empty",
        ),
    ),
    Mutant(
        "unsigned is old",
        "a document without an HMAC is accepted while a key is set",
        ((signature.ChainKeys, "verified", believes_the_unsigned),),
        by(test_signature.test_a_head_forged_with_its_own_checksum_is_refused),
    ),
    Mutant(
        "HMAC without name",
        "a signed document is genuine under any name",
        ((signature, "_mac", signs_no_names),),
        by(test_signature.test_a_signed_document_cannot_stand_under_another_name),
    ),
    Mutant(
        "HMAC of HEAD only",
        "pins and cursors are not signed",
        ((signed_store, "is_signed_place", signs_heads_only),),
        by(test_signature.test_a_forged_pin_and_a_forged_cursor_are_refused),
    ),
    Mutant(
        "deletes without key",
        "a process without the key removes pins of a signed root",
        ((signed_store.SignedStore, "delete", lambda self, key: self.plain.delete(key)),),
        by(test_signature.test_a_process_without_the_key_removes_nothing_that_decides_history),
    ),
    Mutant(
        "beyond the last",
        "a leader claims a token that no process can read",
        ((head, "next_ordinal", lambda what, number: number + 1),),
        by(test_leader.test_no_leader_writes_a_token_that_it_could_not_read),
    ),
    Mutant(
        "end of time",
        "a leader writes a time that no process can read",
        ((leader, "_refuse_late", lambda manifest: None),),
        by(test_leader.test_no_leader_writes_a_time_that_it_could_not_read),
    ),
    Mutant(
        "signs anything",
        "the first signature does not verify what HEAD reaches",
        ((signing, "ref_to", signs_what_does_not_hash),),
        by(test_signature.test_a_root_that_does_not_hash_is_not_signed),
    ),
    Mutant(
        "folder of another",
        "the folder of state may be a link",
        ((private_folder, "_made", follows_links),),
        by_folder(test_private_folder.test_a_jobs_folder_below_a_named_one_is_this_users_own),
    ),
    Mutant(
        "link in a root",
        "a folder store follows links below its root",
        ((folder_links, "refuse_link", lambda path, key: True),),
        by_folder(test_directory_store.test_a_link_below_the_root_leads_nowhere),
    ),
    Mutant(
        "full disk",
        "a full disk ends a restore with a bare OSError",
        ((restore, "_writing", lets_errors_pass),),
        by_a_full_disk,
    ),
)
