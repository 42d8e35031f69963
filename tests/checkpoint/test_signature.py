"""A signed history: what is forged is refused, whoever reads it, and keys can be replaced."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.checkpoint import MemoryStore
from penstock.checkpoint.fork import fork
from penstock.checkpoint.formats import seal
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.root import Root
from penstock.checkpoint.signature import CHAIN_KEY, ChainKeys, plain_body
from penstock.checkpoint.signed_store import SignedStore, chain_keys
from penstock.checkpoint.signing import Signing
from penstock.effects import Stored
from penstock.errors import Corrupt, Invalid
from penstock.ids import Epoch, ETag, Key
from penstock.runtime.cli import app
from penstock.secrets import SECRETS_FILE
from penstock.sinks.cursors import Cursor, Held
from penstock.sinks.root_cursor import RootCursor
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import JOB, commit_epochs, contents

SECRET, OTHER = "a-secret-of-32-characters-or-more", "another-key-that-no-one-can-guess-0"
KEYS, OTHERS = ChainKeys.parse(SECRET), ChainKeys.parse(OTHER)


def opened(store: MemoryStore, keys: ChainKeys = KEYS) -> Root:
    return Root(SignedStore(store, keys), ManualClock(), CountingChance())


def signed_root(keys: ChainKeys = KEYS, epochs: int = 3) -> MemoryStore:
    """The store of a root whose leader has those keys; its second epoch is pinned."""
    store = MemoryStore()
    root = opened(store, keys)
    with root.lead(JOB, "one") as session:
        commit_epochs(root, session, epochs, snapshot_every=2)
    root.pin("good", Epoch(2))
    return store


def newest_key(store: MemoryStore) -> Key:
    ref = opened(store, ChainKeys()).head().manifest
    assert ref is not None
    return ref.key


def body_of(store: MemoryStore, key: Key) -> bytes:
    stored = store.get(key)
    assert stored is not None
    return stored.body


def flipped(body: bytes) -> bytes:
    """The last digit of the HMAC is another one."""
    return body[:-1] + (b"0" if body[-1:] != b"0" else b"1")


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "missing": (plain_body, f"carries no HMAC, and {CHAIN_KEY} is set"),
    "wrong": (flipped, "that is not right for"),
    "of another key": (
        lambda body: OTHERS.signed(HEAD_KEY, plain_body(body)),
        "that is not right for",
    ),
    "another document": (
        lambda body: body.replace(b'"rows', b'"ROWS').replace(b'"token":1', b'"token":9'),
        "that is not right for",
    ),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("place", ["HEAD", "manifest"])
def test_a_forged_history_is_refused_by_every_reader(
    place: str, damage: Callable[[bytes], bytes], says: str
) -> None:
    """Readers, leaders, rewinds, forks and fsck pass through one place, and none gets by it."""
    store = signed_root()
    key = HEAD_KEY if place == "HEAD" else newest_key(store)
    store.put(key, damage(body_of(store, key)))
    before = contents(store)
    readers: list[Callable[[Root], Any]] = [
        lambda root: root.newest(),
        lambda root: list(root.history()),
        lambda root: root.lineages(),
        lambda root: root.lead(JOB, "two"),
        lambda root: root.rewind(JOB, Epoch(2)),
        lambda root: fork(root, Epoch(3), Root(MemoryStore())),
    ]

    for read in readers:
        with pytest.raises(Corrupt) as caught:
            read(opened(store))
        assert caught.value.subject == key
        assert says in str(caught.value)
        assert SECRET not in str(caught.value)
        assert contents(store) == before


def test_fsck_names_a_forged_manifest() -> None:
    """With all that is wrong, as ever."""
    store = signed_root()
    key = newest_key(store)
    store.put(key, plain_body(body_of(store, key)))

    found = opened(store).check()

    assert [line.partition(" ")[0] for line in found.wrong] == [key]


def test_a_forged_pin_and_a_forged_cursor_are_refused() -> None:
    """A pin could name a manifest that was never committed; a cursor could skip rows."""
    store = signed_root()
    root = opened(store)
    held = Held(Cursor(root.head().generation, Epoch(3), 7), root.head().token)
    cursors = RootCursor(root.store, JOB, "calls")
    cursors.put(0, held)
    assert cursors.read(0).held == held

    for prefix in ("pins/", "cursors/"):
        key = store.list(prefix)[0].key
        store.put(key, plain_body(body_of(store, key)))

    found = root.all_pins()
    assert found.pins == []
    assert ["carries no HMAC" in str(error) for error in found.unreadable] == [True]
    with pytest.raises(Corrupt, match="carries no HMAC"):
        cursors.read(0)


def test_a_signed_document_cannot_stand_under_another_name() -> None:
    """The HMAC covers the key of the object: a pin of an old epoch is no pin of a new name."""
    store = signed_root()
    key = store.list("pins/")[0].key
    store.put(Key("pins/other/mark.json"), body_of(store, key))

    found = opened(store).all_pins().unreadable

    assert ["carries an HMAC of key" in str(error) for error in found] == [True]


def test_an_honest_history_reads_as_without_a_key() -> None:
    """A key changes what is stored, and nothing that is seen."""
    signed, plain = opened(signed_root()), opened(signed_root(ChainKeys()), ChainKeys())

    assert signed.head() == plain.head()
    assert list(signed.history()) == list(plain.history())
    assert signed.check() == plain.check()
    assert signed.rewind(JOB, "good") == plain.rewind(JOB, "good")


def test_a_reader_without_the_key_reads_and_does_not_write() -> None:
    """Whoever can verify could forge, so readers need no key; a leader without it is stopped."""
    store = signed_root()
    before = contents(store)
    keyless = opened(store, ChainKeys())

    assert [manifest.epoch for manifest in keyless.history()] == [3, 2, 1]
    assert keyless.check().clean
    for write in (lambda: keyless.lead(JOB, "two"), lambda: keyless.pin("more")):
        with pytest.raises(Invalid, match="this root is signed, and PENSTOCK_CHAIN_KEY is not set"):
            write()
    assert contents(store) == before


def test_a_process_without_the_key_removes_nothing_that_decides_history() -> None:
    """A savepoint that is let go of takes its epoch with it at the next collection."""
    store = signed_root()
    before = contents(store)

    for change in (
        lambda root: root.unpin("good"),
        lambda root: root.store.delete(HEAD_KEY),
        lambda root: root.store.put(Key("requests/sum/000000000001-x.json"), b"{}"),
    ):
        with pytest.raises(Invalid, match="this root is signed, and PENSTOCK_CHAIN_KEY is not set"):
            change(opened(store, ChainKeys()))
        assert contents(store) == before
    opened(store).unpin("good")
    assert opened(store).all_pins().pins == []


def test_a_root_without_signatures_is_changed_without_a_key() -> None:
    """As ever."""
    store = signed_root(ChainKeys())

    opened(store, ChainKeys()).unpin("good")

    assert opened(store, ChainKeys()).all_pins().pins == []


def test_a_fork_is_signed_with_the_keys_of_its_own_root() -> None:
    """Manifests are copied as documents: what signed them stays behind."""
    source, target = signed_root(), MemoryStore()

    fork(opened(source), Epoch(3), opened(target, OTHERS))

    assert opened(target, OTHERS).check().clean
    with pytest.raises(Corrupt, match="that is not right for"):
        opened(target).head()


def test_a_root_gets_its_first_signature_and_goes_on() -> None:
    """Before, a process with a key refuses it; after, one without a key does not write to it."""
    store = signed_root(ChainKeys())
    with pytest.raises(Corrupt, match="run `penstock sign`"):
        opened(store).head()

    done = Signing(store, KEYS).sign()

    assert (done.job, done.epoch, done.signed, done.pins) == (JOB, 3, 5, ("good",))
    root = opened(store)
    assert root.check().clean
    with root.lead(JOB, "two") as session:
        commit_epochs(root, session, 1)
    assert Signing(store, KEYS).sign().signed == 0


def test_a_key_is_replaced_while_all_is_readable() -> None:
    """Both keys known, the new one signs; once all is signed by it, the old one can go."""
    store = signed_root()
    both = ChainKeys.parse(f"{OTHER}, {SECRET}")
    root = opened(store, both)
    with root.lead(JOB, "two") as session:
        commit_epochs(root, session, 1)
    assert root.check().clean

    Signing(store, both).sign()

    assert opened(store, OTHERS).check().clean


BOTH = ChainKeys.parse(f"{OTHER}, {SECRET}")


@pytest.mark.parametrize("prefix", ["manifests/", "pins/", "cursors/"])
def test_a_new_key_makes_no_forgery_genuine(prefix: str) -> None:
    """A document that a forger has left without a signature is refused by every reader; signing
    everything anew would have given it one."""
    store = signed_root()
    SignedStore(store, KEYS).put(Key("cursors/clicks/calls/0.json"), b"{}")
    key = store.list(prefix)[-1].key
    store.put(key, plain_body(body_of(store, key)))
    before = [body_of(store, HEAD_KEY), body_of(store, key)]

    with pytest.raises(Corrupt, match="carries no HMAC"):
        Signing(store, BOTH).sign()
    assert [body_of(store, HEAD_KEY), body_of(store, key)] == before


def test_a_head_without_a_signature_beside_signed_documents_is_asked_about() -> None:
    """It may be a forger's; or a first signing was cut short, and a person says so."""
    store = signed_root()
    store.put(HEAD_KEY, plain_body(body_of(store, HEAD_KEY)))
    before = contents(store)

    with pytest.raises(Invalid, match="a first signing was cut short, or HEAD was replaced"):
        Signing(store, KEYS).sign()
    assert contents(store) == before

    assert Signing(store, KEYS).sign(vouched=True).signed == 1
    assert opened(store).check().clean


def test_requests_get_the_new_key_too() -> None:
    """A request to replay dead letters was refused once the old key was gone. One that was forged
    stays refused."""
    store = signed_root()
    asked, forged = Key("requests/sum/1-a.json"), Key("requests/sum/1-b.json")
    SignedStore(store, KEYS).put(asked, b"{}")
    store.put(forged, b"{}")

    Signing(store, BOTH).sign()

    renewed = SignedStore(store, OTHERS)
    assert renewed.get(asked) is not None
    with pytest.raises(Corrupt, match="carries no HMAC"):
        renewed.get(forged)


def test_a_process_with_the_key_of_another_root_changes_nothing() -> None:
    """It cannot read what decides this history, so it must not remove it either."""
    store = signed_root()
    before = contents(store)
    (pin,) = [entry.key for entry in store.list("pins/")]
    other = SignedStore(store, OTHERS)

    with pytest.raises(Corrupt, match="that is not right for"):
        other.delete(pin)
    with pytest.raises(Corrupt, match="that is not right for"):
        other.put(Key("cursors/clicks/calls/0.json"), b"{}")
    assert contents(store) == before


def test_what_nothing_reaches_is_not_signed() -> None:
    """A manifest that was planted, or lost its race, does not become genuine by the command."""
    store = signed_root(ChainKeys())
    planted = Key("manifests/000000000009-planted.json")
    store.put(planted, body_of(store, newest_key(store)))

    Signing(store, KEYS).sign()

    assert plain_body(body_of(store, planted)) == body_of(store, planted)


def test_a_root_that_does_not_hash_is_not_signed() -> None:
    """The person vouches for HEAD; the rest is proved from there."""
    store = signed_root(ChainKeys())
    store.put(newest_key(store), b"{}")
    before = contents(store)

    with pytest.raises(Corrupt, match="is not what its successor, HEAD or a pin names"):
        Signing(store, KEYS).sign()
    assert contents(store) == before


def test_a_bit_flipped_on_the_way_is_read_again() -> None:
    """A wire is no forger."""

    class Flipping(MemoryStore):
        reads = 0

        def get(self, key: Key) -> Stored | None:
            found = super().get(key)
            self.reads += 1
            if found is None or self.reads % 2:
                return found
            return Stored(flipped(found.body), ETag(found.etag))

    store = Flipping()
    root = opened(store)
    with root.lead(JOB, "one") as session:
        commit_epochs(root, session, 2)

    assert [manifest.epoch for manifest in root.history()] == [2, 1]


@pytest.mark.parametrize("text", ["", " , ", "short", f"{SECRET},short", " ".join([SECRET] * 9)])
def test_a_key_that_can_be_guessed_is_refused_without_being_shown(text: str) -> None:
    """An error message ends in a log."""
    with pytest.raises(Invalid) as caught:
        ChainKeys.parse(text)

    assert "short" not in str(caught.value).replace("the shortest", "")
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(KEYS) + str(KEYS)


def test_the_key_comes_by_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the environment, the file of secrets, or a reference in either; or there is none."""
    monkeypatch.delenv(CHAIN_KEY, raising=False)
    monkeypatch.delenv(SECRETS_FILE, raising=False)
    assert chain_keys() == ChainKeys()
    secrets = tmp_path / "secrets.toml"
    secrets.write_text(f"{CHAIN_KEY} = '${{VAULT_KEY}}'\nVAULT_KEY = '{SECRET}'\n")
    monkeypatch.setenv(SECRETS_FILE, str(secrets))
    assert chain_keys() == KEYS
    monkeypatch.setenv(CHAIN_KEY, OTHER)
    assert chain_keys() == OTHERS


@pytest.mark.parametrize(
    "text",
    [
        f'{CHAIN_KEY} = ["{SECRET}", "{OTHER}"]',
        f"{CHAIN_KEY} = 12345678901234567890123456789012",
        f'{CHAIN_KEY} = ""',
        f'[prod]\n{CHAIN_KEY} = "{SECRET}"',
        f'[[prod]]\n[prod.keys]\n{CHAIN_KEY} = "{SECRET}"',
    ],
)
def test_a_key_in_the_file_that_is_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """Taken for absent, it would let every forgery pass, silently."""
    monkeypatch.delenv(CHAIN_KEY, raising=False)
    secrets = tmp_path / "secrets.toml"
    secrets.write_text(text)
    monkeypatch.setenv(SECRETS_FILE, str(secrets))

    with pytest.raises(Invalid) as caught:
        chain_keys()
    assert caught.value.subject.startswith(CHAIN_KEY)
    assert not any(key in str(caught.value) for key in (SECRET, OTHER, "1234567"))


@pytest.mark.parametrize("text", ["", " ", "\udcff" * 40])
def test_a_key_in_the_environment_that_is_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The operator who set it expects every history to be verified."""
    monkeypatch.setenv(CHAIN_KEY, text)

    with pytest.raises(Invalid, match=CHAIN_KEY) as caught:
        chain_keys()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_key_that_looks_like_a_reference_inside_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message about what a part of a key refers to would show that part."""
    text = f"{SECRET}${{part_of_it}}{OTHER}"
    monkeypatch.setenv(CHAIN_KEY, text)
    assert chain_keys() == ChainKeys.parse(text)
    monkeypatch.setenv(CHAIN_KEY, "${NEW_KEY}, ${OLD_KEY}")
    monkeypatch.setenv("NEW_KEY", SECRET)
    monkeypatch.setenv("OLD_KEY", OTHER)
    assert chain_keys() == ChainKeys.parse(f"{SECRET},{OTHER}")


def test_commands_verify_sign_and_tell_no_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The way a person meets it: refused, signed once, then read as ever."""
    caplog.set_level(logging.DEBUG)
    url = "memory://signed-by-command"
    root = Root(open_store(url), ManualClock(), CountingChance())
    with root.lead(JOB, "one") as session:
        commit_epochs(root, session, 2)
    monkeypatch.setenv(CHAIN_KEY, SECRET)

    def penstock(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments])
        assert SECRET not in done.output + caplog.text
        return done.exit_code, done.output

    for command in ("status", "fsck", "checkpoints", "log"):
        code, output = penstock(command, url)
        assert (code, "HEAD carries no HMAC" in output) == (2, True)
    code, output = penstock("sign", url, "--yes")
    assert (code, output) == (0, "clicks is signed at epoch 2: 3 objects were signed anew.\n")
    for command in ("status", "fsck", "checkpoints", "log"):
        assert penstock(command, url)[0] == 0


def test_a_head_forged_with_its_own_checksum_is_refused() -> None:
    """The checksum guards against damage; whoever forges computes it anew."""
    store = signed_root()
    head = msgspec.structs.replace(opened(store).head(), floor=Epoch(3))
    store.put(HEAD_KEY, seal(head))

    with pytest.raises(Corrupt, match="carries no HMAC"):
        opened(store).head()
