"""The probe accepts what is safe and names what is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.probe import Diagnosis, probe
from penstock.checkpoint.probe_race import WRITERS, Outcome, Round, complaint
from penstock.clock import SystemChance
from penstock.ids import ETag, Key
from tests.support.s3_stub import Reply, s3_stub
from tests.support.servers import BUCKET, Endpoint

CREATED_ONCE = "an object is created once"
CURRENT = "the current version can be replaced"
STALE = "a stale version cannot be replaced"
ABSENT = "an absent object cannot be replaced"
CREATORS = "one of many creators wins"
REPLACERS = "one of many replacers wins"

Use = Callable[[Endpoint], None]


def failed(diagnosis: Diagnosis) -> dict[str, str]:
    return {check.name: check.detail for check in diagnosis.checks if not check.passed}


def leftovers(url: str) -> list[str]:
    return [entry.key for entry in open_store(url).list("")]


def bucket_url() -> str:
    return f"s3://{BUCKET}/{SystemChance().unique()}"


def test_a_memory_store_is_safe_within_its_process() -> None:
    """And the diagnosis says that nothing more was tried."""
    diagnosis = probe("memory://probed")

    assert (diagnosis.safe, failed(diagnosis), leftovers("memory://probed")) == (True, {}, [])
    assert "in this process only" in diagnosis.checks[-1].detail


def test_a_folder_is_safe(tmp_path: Path) -> None:
    """The embedded default."""
    diagnosis = probe(str(tmp_path))

    assert (diagnosis.safe, failed(diagnosis), leftovers(str(tmp_path))) == (True, {}, [])
    assert "in two processes" in diagnosis.checks[-1].detail
    assert not (tmp_path / "probe").exists()


@pytest.mark.parametrize("server", ["atomic_moto", "versity_server"])
def test_an_atomic_bucket_is_safe(server: str, request: pytest.FixtureRequest, use: Use) -> None:
    """What the contract says of a store, the probe finds out in seconds."""
    use(request.getfixturevalue(server))
    url = bucket_url()
    diagnosis = probe(url)

    assert (diagnosis.safe, failed(diagnosis), leftovers(url)) == (True, {}, [])


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("racy", [CREATORS, REPLACERS]),
        ("ignore-if-match", [CREATED_ONCE, STALE, ABSENT, CREATORS, REPLACERS]),
        ("ignore-if-match-when-absent", [ABSENT]),
        ("always-200", [CREATED_ONCE, STALE, ABSENT, CREATORS, REPLACERS]),
    ],
)
def test_an_unsafe_bucket_is_refused_with_what_it_did(
    mode: str, names: list[str], s3_proxy: Callable[..., Endpoint], use: Use
) -> None:
    """Each of these has been shipped by somebody (B21, B22, B23)."""
    use(s3_proxy(mode))
    url = bucket_url()
    diagnosis = probe(url)

    assert not diagnosis.safe
    assert list(failed(diagnosis)) == names
    for detail in failed(diagnosis).values():
        assert "told" in detail
    assert leftovers(url) == []


def test_a_store_out_of_reach_is_tried_once(use: Use) -> None:
    """One sentence says it; ten would hide it."""
    with s3_stub(Reply(403, "AccessDenied")) as stub:
        use(stub.endpoint)
        diagnosis = probe(bucket_url())

    (check,) = diagnosis.checks
    assert (diagnosis.safe, check.name) == (False, "a write is read back")
    assert "may not be used with these credentials" in check.detail


def test_a_store_without_conditional_writes_is_told_apart(use: Use) -> None:
    """It answers everything else."""
    written = {"ETag": '"v"'}
    replies = Reply(200, headers=written), Reply(200, body=b"written", headers=written)
    with s3_stub(*replies) as stub:
        stub.replies.append(Reply(501, "NotImplemented"))
        use(stub.endpoint)
        diagnosis = probe(bucket_url())

    assert diagnosis.checks[0].passed
    assert "such as a conditional write" in failed(diagnosis)[CREATED_ONCE]
    assert CREATORS in failed(diagnosis)


CREATE = Round(Key("k"), None)
REPLACE = Round(Key("k"), ETag("v"))
WON, LOST, UNSURE = Outcome.WON, Outcome.LOST, Outcome.UNSURE


@pytest.mark.parametrize(
    ("turn", "told", "stored", "said"),
    [
        (CREATE, [WON, LOST], b"writer-0", ""),
        (REPLACE, [UNSURE, WON], b"writer-1", ""),
        (REPLACE, [UNSURE, LOST], b"old", ""),
        (
            CREATE,
            [WON, WON],
            b"writer-0",
            "two writers were both told they created the same object",
        ),
        (REPLACE, [WON, WON], b"", "two writers were both told they replaced the same version"),
        (REPLACE, [WON, WON, WON], b"", "3 writers were all told they replaced the same version"),
        (CREATE, [LOST, LOST], None, "every writer was told it lost, though one of them must"),
        (REPLACE, [WON, LOST], b"writer-1", "the object is not what the writer wrote that was"),
    ],
)
def test_a_round_is_judged_in_words(
    turn: Round, told: list[Outcome], stored: bytes | None, said: str
) -> None:
    """A perhaps is neither a win nor a loss."""
    outcomes = dict(zip(WRITERS, told, strict=False))

    assert complaint(turn, outcomes, stored)[: len(said) or None] == said
