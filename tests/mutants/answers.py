"""Planted bugs of who reads answers, and of who judges runs that show nothing."""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.chaos import judging
from penstock.chaos.findings import Check, Ledger
from penstock.checkpoint import MemoryStore, s3_answers, s3_client
from penstock.checkpoint.s3_store import S3Store
from penstock.effects import Stored
from penstock.ids import ETag, Key
from penstock.sinks import Http, Target, dynamodb_client, http_line
from penstock.sources import kafka_registry, rate_pace
from tests.chaos import test_inputs, test_judging
from tests.mutants.mutant import Mutant, by
from tests.sources import test_kafka_registry
from tests.support.clocks import SteppingClock
from tests.support.s3_stub import Reply, s3_stub
from tests.support.sink_cases import JOB, PEOPLE, apply, people

ERROR = b"<Error><Code>NoSuchKey</Code></Error>"
PAGE = b"<html><body>not here</body></html>"
BODY = Reply(200, body=b"body", headers={"ETag": '"v"'})
LIST = Reply(200, body=b"<R><IsTruncated>false</IsTruncated></R>")


def with_store(*replies: Reply, act: Callable[[S3Store], object]) -> list[str]:
    """What was sent to an endpoint that answers so."""
    with s3_stub(*replies) as stub, pytest.MonkeyPatch.context() as settings:
        for name, value in stub.endpoint.settings().items():
            settings.setenv(name, value)
        act(S3Store("bucket", "", SteppingClock()))
        return stub.seen


def a_cut_404_is_asked_for_again() -> None:
    def act(store: S3Store) -> None:
        assert store.get(Key("object")) == Stored(b"body", ETag('"v"'))

    assert with_store(Reply(404, body=ERROR[:20], length=len(ERROR)), BODY, act=act) == ["GET"] * 2


def a_page_is_no_empty_list() -> None:
    sent = with_store(Reply(200, body=PAGE), LIST, act=lambda store: store.list(""))

    assert sent == ["GET"] * 2


def a_page_in_another_encoding_is_asked_for_again() -> None:
    page = b'<?xml version="1.0" encoding="Shift_JIS"?><html></html>'
    sent = with_store(Reply(503, body=page), BODY, act=lambda store: store.get(Key("object")))

    assert sent == ["GET"] * 2


def knows_one_error(status: int, body: bytes) -> None:
    """An encoding that the parser does not know is an error without a name."""
    with suppress(ElementTree.ParseError):
        ElementTree.fromstring(body)


def in_folder(test: Callable[[Path], None]) -> Callable[[], None]:
    """A test that needs a folder, with one of its own."""

    def catch() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder))

    catch.__name__ = test.__name__
    return catch


def a_gateways_404_blames_no_message() -> None:
    test_kafka_registry.test_an_answer_that_no_registry_gave_blames_no_message(
        Reply(404, body=PAGE)
    )


def knows_pages() -> None:
    """The client of DynamoDB refuses what DynamoDB has not said."""
    with pytest.raises(s3_answers.Unreadable):
        dynamodb_client._check_whole({"status_code": 404, "headers": {}, "body": PAGE})


def a_proxys_page_is_not_the_servers_refusal() -> None:
    target = Target(job=JOB, columns=PEOPLE, partitions=1, store=MemoryStore())
    with s3_stub(Reply(404, body=PAGE), Reply(200)) as stub:
        Http("people", f"{stub.endpoint.url}/in").open(target).apply(apply(1, people(1)))
        assert stub.seen == ["POST"] * 2


def trusts_every_error(status: int, body: bytes) -> None:
    """Whatever boto3 makes of it."""


def trusts_every_success(
    operation: str, status: int, headers: Mapping[str, str], body: Any
) -> None:
    """A list without anything in it is an empty list."""


def calls_an_empty_run_valid(evidence: judging.Evidence) -> Check:
    """Nothing is like nothing."""
    return Ledger("output", "").check()


def knows_no_pause(pace: rate_pace.Pace, offsets: Any) -> Any:
    """Events a millisecond apart, whatever is asked for."""
    return offsets * 0


MUTANTS = (
    Mutant(
        "cut 404",
        "an error that was cut off is taken for a refusal",
        ((s3_answers, "check_length", lambda *answer: None),
         (s3_answers, "_check_xml_error", trusts_every_error)),
        by(a_cut_404_is_asked_for_again),
    ),
    Mutant(
        "Shift_JIS",
        "a page in an encoding that the parser does not know ends a job",
        ((s3_answers, "_check_xml_error", knows_one_error),),
        by(a_page_in_another_encoding_is_asked_for_again),
    ),
    Mutant(
        "unwatched",
        "a client of S3 believes whatever boto3 makes of an answer",
        ((s3_client, "only_whole", lambda client: None),),
        by(a_page_is_no_empty_list),
    ),
    Mutant(
        "empty list",
        "a page of a proxy is taken for a bucket with nothing in it",
        ((s3_answers, "_check_success", trusts_every_success),),
        by(a_page_is_no_empty_list),
    ),
    Mutant(
        "page for JSON",
        "a page of a proxy is taken for DynamoDB's refusal",
        ((dynamodb_client, "check_json", trusts_every_error),),
        by(knows_pages),
    ),
    Mutant(
        "gateway",
        "a gateway's 404 is taken for a schema that the registry lacks",
        ((kafka_registry, "_is_unreadable", lambda error: False),),
        by(a_gateways_404_blames_no_message),
    ),
    Mutant(
        "page for POST",
        "a proxy's page ends a job that sends rows over HTTP",
        ((http_line, "_is_page", lambda answer: False),),
        by(a_proxys_page_is_not_the_servers_refusal),
    ),
    Mutant(
        "empty run",
        "a chaos run in which a sink got no row is called valid",
        ((judging, "_output", calls_an_empty_run_valid),),
        by(in_folder(test_judging.test_a_sink_that_got_no_row_is_unknown)),
    ),
    Mutant(
        "no pause",
        "made-up events are so close together that no session ends",
        ((rate_pace.Pace, "_paused", knows_no_pause),),
        by(in_folder(test_inputs.test_sessions_of_made_up_visits_end)),
    ),
)  # fmt: skip
