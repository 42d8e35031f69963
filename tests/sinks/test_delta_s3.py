"""A Delta table in a bucket: settings, refusals, lost answers, and two leaders at once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from penstock.chaos.s3_proxy import Answer, Request, Upstream
from penstock.chaos.tcp_proxy import Answers, Away, TcpProxy, Way
from penstock.clock import SystemChance
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks.delta import Delta
from penstock.sinks.delta_writer import DeltaWriter
from tests.support.delta_case import bucket_options, rows_at, target
from tests.support.dynamodb_case import faulty
from tests.support.s3_stub import SECRET, Reply, s3_stub
from tests.support.servers import BUCKET, Endpoint, free_port
from tests.support.sink_cases import PEOPLE, apply, cursor, in_order, people

Use = Callable[[Endpoint], None]

EPOCHS = 8
PAGE = b"<html><head><title>no</title></head><body>not here</body></html>"
WRONG = "wrong-secret-0123456789"


@pytest.fixture
def url() -> str:
    """A place of its own."""
    return f"s3://{BUCKET}/{SystemChance().unique()}/a lake"


def opened(url: str, **settings: Any) -> DeltaWriter:
    return Delta("lake", url, **settings).open(target())


def refusal(kind: type[PenstockError], act: Callable[[], object]) -> str:
    """What is said, in one line, without what nobody may read."""
    with pytest.raises(kind) as caught:
        act()
    said = str(caught.value)
    assert (type(caught.value), caught.value.__cause__) == (kind, None)
    for secret in (WRONG, SECRET, "penstock-secret", "penstock-access", "Signature", "<", "\n"):
        assert secret not in said
    return said


def test_a_real_store_keeps_rows_and_cursor(versity_server: Endpoint, use: Use, url: str) -> None:
    """Of every kind: appended, merged, parted, through a checkpoint of the log."""
    use(versity_server)
    writer = opened(url, key="user", partition_by="n")
    for epoch in range(1, EPOCHS + 5):
        writer.apply(apply(epoch, people(epoch)))

    every = [row for epoch in range(1, EPOCHS + 5) for row in people(epoch)]
    assert in_order(rows_at(url, PEOPLE, bucket_options(versity_server))) == in_order(every)
    assert opened(url, key="user", partition_by="n").read_cursor(0) == cursor(EPOCHS + 4)


@pytest.mark.parametrize("settings", [{}, {"key": "user"}], ids=["append", "merge"])
def test_of_two_leaders_one_wins_every_epoch(
    versity_server: Endpoint, use: Use, url: str, settings: dict[str, Any]
) -> None:
    """The conditional write of a real store decides, and nothing is there twice."""
    use(versity_server)
    writers = [opened(url, **settings) for _ in range(2)]
    start = threading.Barrier(2)

    def lead(writer: DeltaWriter) -> None:
        for epoch in range(1, EPOCHS + 1):
            start.wait()
            writer.apply(apply(epoch, people(epoch)))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lead, writers))

    every = [row for epoch in range(1, EPOCHS + 1) for row in people(epoch)]
    assert in_order(rows_at(url, PEOPLE, bucket_options(versity_server))) == in_order(every)


def test_a_commit_that_is_not_atomic_cannot_be_asked_for(
    versity_server: Endpoint, use: Use, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that other programs on this host may need must not take the promise away."""
    use(versity_server)
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    writers = [opened(url) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda writer: writer.apply(apply(1, people(1))), writers))

    assert in_order(rows_at(url, PEOPLE, bucket_options(versity_server))) == in_order(people(1))


def test_wrong_keys_are_the_users_to_fix(versity_server: Endpoint, use: Use, url: str) -> None:
    """And none of them is shown."""
    use(versity_server)
    writer = opened(url)
    use(replace(versity_server, secret_key=WRONG))

    assert refusal(Invalid, lambda: opened(url)) == (
        f"sink lake, table {url} was refused because the secret key does not fit the access key: "
        "check AWS_SECRET_ACCESS_KEY."
    )
    writer.apply(apply(1, people(1)))  # it was opened with the right ones
    use(replace(versity_server, access_key="nobody"))
    assert "was refused by the store" in refusal(Invalid, lambda: opened(url))


def test_no_keys_at_all_are_said_to_be_missing(
    versity_server: Endpoint, use: Use, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody is asked."""
    use(versity_server)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    assert refusal(Invalid, lambda: opened(url)) == (
        f"sink lake, table {url} cannot be reached because no credentials were found: "
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role."
    )


def test_a_bucket_that_does_not_exist_is_not_made(versity_server: Endpoint, use: Use) -> None:
    """A mistake in its name would cost money."""
    use(versity_server)

    assert refusal(Invalid, lambda: opened("s3://nowhere/lake")) == (
        "sink lake, table s3://nowhere/lake cannot be reached because its bucket does not exist: "
        "create the bucket or correct its name."
    )


def test_a_prefix_with_something_else_is_no_place_for_a_table(
    versity_server: Endpoint, use: Use, url: str
) -> None:
    """Its objects would be vacuumed as files that nothing names."""
    use(versity_server)
    place = urlsplit(url)
    boto3.client("s3").put_object(Bucket=BUCKET, Key=f"{place.path[1:]}/letter", Body=b"dear")

    said = refusal(Invalid, lambda: opened(url))
    assert said.startswith(f"sink lake, table {url} holds something that is no Delta table")


@pytest.mark.parametrize(
    ("reply", "kind", "found"),
    [
        (Reply(403, "AccessDenied"), Invalid, "may not be used with these credentials"),
        (Reply(400, "ExpiredToken"), Invalid, "the credentials have expired"),
        (Reply(404, "NoSuchBucket"), Invalid, "its bucket does not exist"),
        (Reply(403), Unavailable, "cannot be read (status 403, without a code of S3)"),
        (Reply(403, body=PAGE), Unavailable, "cannot be read (status 403, without a code of S3)"),
        (Reply(404, body=PAGE), Unavailable, "cannot be read (status 404, without a code of S3)"),
        (Reply(404, body=b"<Err", length=99), Unavailable, "got no whole answer"),
        (Reply(200, body=PAGE), Unavailable, "cannot be read (status 200, with a page of HTML"),
        (Reply(503, "SlowDown"), Unavailable, "was not confirmed by the store (SlowDown"),
        (Reply(500), Unavailable, "cannot be read (status 500, without a code of S3)"),
        (Reply(200, body=b"half", length=99), Unavailable, "got no whole answer"),
    ],
    ids=str,
)
def test_an_answer_is_sorted_by_its_code_and_never_quoted(
    use: Use, url: str, reply: Reply, kind: type[PenstockError], found: str
) -> None:
    """It may hold a signature."""
    with s3_stub(reply) as stub:
        use(stub.endpoint)

        assert found in refusal(kind, lambda: opened(url))


def test_a_table_that_a_proxys_page_hides_is_not_called_missing(
    versity_server: Endpoint, use: Use, url: str
) -> None:
    """The client takes the page for an empty list; a running job would end for good."""

    def hides_the_log(request: Request, upstream: Upstream) -> Answer:
        is_list = "start-after" in request.path and "_delta_log" in request.path
        return Answer(200, {}, PAGE) if is_list else upstream(request)

    use(versity_server)
    opened(url)
    with faulty(versity_server, hides_the_log) as proxy:
        use(replace(versity_server, url=proxy))
        said = refusal(Unavailable, lambda: Delta("lake", url).read_back(target()))

    assert said == (
        f"sink lake, table {url} seemed not to be there by an answer of {proxy}, and is: "
        "check what stands before the store: it is tried again."
    )


def test_a_store_that_is_away_is_waited_for(use: Use, url: str, versity_server: Endpoint) -> None:
    """Nothing is wrong with the job; the same writer goes on when the store is back."""
    use(replace(versity_server, url=f"http://127.0.0.1:{free_port()}"))
    assert "got no whole answer from http://127.0.0.1:" in refusal(Unavailable, lambda: opened(url))
    with TcpProxy(urlsplit(versity_server.url).port or 0) as proxy:
        use(replace(versity_server, url=f"http://127.0.0.1:{proxy.port}"))
        writer = opened(url)
        proxy.arm(Away())
        for act in (lambda: writer.apply(apply(1, people(1))), lambda: writer.read_cursor(0)):
            assert "got no whole answer" in refusal(Unavailable, act)
        proxy.arm(None)
        writer.apply(apply(1, people(1)))

    assert in_order(rows_at(url, PEOPLE, bucket_options(versity_server))) == in_order(people(1))


class From:
    """Cuts from some piece on, for good: that one is lost, and so is all that comes after."""

    def __init__(self, way: Way, containing: bytes) -> None:
        self._way, self._containing, self._gone = way, containing, False

    def __call__(self, way: Way, piece: bytes) -> bool:
        self._gone = self._gone or (way is self._way and self._containing in piece)
        return self._gone


class AnswerTo(From):
    """Passes a request on, and cuts its answer and everything after."""

    def __call__(self, way: Way, piece: bytes) -> bool:
        if self._gone:
            return True
        self._gone = way is self._way and self._containing in piece
        return False


@pytest.mark.parametrize("settings", [{}, {"key": "user"}], ids=["append", "merge"])
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_commit_whose_answer_is_lost_for_good_is_settled_by_the_cursor(
    versity_server: Endpoint, use: Use, url: str, lost: str, settings: dict[str, Any]
) -> None:
    """Whether the log has the entry or not, nobody can say; the next call finds out."""
    commit = f"{2:020}.json".encode()
    with TcpProxy(urlsplit(versity_server.url).port or 0) as proxy:
        use(replace(versity_server, url=f"http://127.0.0.1:{proxy.port}"))
        writer = opened(url, **settings)
        writer.apply(apply(1, people(1)))
        proxy.arm((From if lost == "request" else AnswerTo)(Way.TO_SERVER, commit))
        with pytest.raises(Unavailable):
            writer.apply(apply(2, people(2)))
        proxy.arm(None)
        is_there = lost == "answer"
        options = bucket_options(versity_server)
        found = people(1) + (people(2) if is_there else [])
        assert in_order(rows_at(url, PEOPLE, options)) == in_order(found)
        assert writer.read_cursor(0) == cursor(2 if is_there else 1)
        writer.apply(apply(2, people(2)))

    assert in_order(rows_at(url, PEOPLE, options)) == in_order(people(1) + people(2))


def test_one_lost_answer_is_not_even_noticed(versity_server: Endpoint, use: Use, url: str) -> None:
    """The client sends the commit again and is told that it is there: by itself, as we find."""
    with TcpProxy(urlsplit(versity_server.url).port or 0) as proxy:
        use(replace(versity_server, url=f"http://127.0.0.1:{proxy.port}"))
        writer = opened(url)
        for number in range(1, 12):
            proxy.arm(Answers(number=number))
            writer.apply(apply(number, people(number)))
            assert proxy.cuts == 1
        proxy.arm(None)

    every = [row for number in range(1, 12) for row in people(number)]
    assert in_order(rows_at(url, PEOPLE, bucket_options(versity_server))) == in_order(every)
