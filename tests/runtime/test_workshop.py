"""What a worker does by itself, and what it leaves to its driver."""

import pickle  # noqa: TID251 - as Spark sends a workshop to its workers
from typing import Any

import pytest

from penstock.checkpoint import Root
from penstock.checkpoint.restore import Identity
from penstock.checkpoint.signature import CHAIN_KEY
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.ids import Epoch, Generation, Token
from penstock.runtime.wire import Orders
from penstock.runtime.workshop import Workshop
from penstock.state import StateSettings
from tests.support.history import JOB, OPERATOR, commit_epochs

SECRET = "a-secret-of-32-characters-or-more"
ORDERS = Orders(
    run="r", epoch=Epoch(3), generation=Generation(1), token=Token(1), watermark_ms=None,
    planned_ms=0, files=(), deltas=(), files_at=None, cuts_snapshot=False, origins=(),
)  # fmt: skip


def workshop(url: str) -> Workshop:
    topology: Any = None  # a changelog is found without one
    return Workshop(topology, url, "clicks", StateSettings(), SnapshotPolicy())


def test_a_worker_without_the_key_reads_no_history_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could not tell a forged HEAD; what the driver sends it has hashes that were verified."""
    url = "memory://workshop-without-a-key"
    monkeypatch.setenv(CHAIN_KEY, SECRET)
    root = Root.open(url)
    with root.lead(JOB, "one") as session:
        commit_epochs(root, session, 2)
    sent = pickle.dumps(workshop(url))
    who = Identity(JOB, OPERATOR, 0, Generation(1))

    with_key = pickle.loads(sent).whole(ORDERS, who)()
    monkeypatch.delenv(CHAIN_KEY)
    without_key = pickle.loads(sent).whole(ORDERS, who)()

    assert SECRET.encode() not in sent
    assert [epoch for epoch, _ in with_key.deltas] == [1, 2]
    assert without_key is None
