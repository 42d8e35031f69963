"""Answers of S3 that cannot be read whole: cut off, empty, or given by a proxy in its place."""

import io
from collections.abc import Callable, Iterator

import pytest

from penstock.checkpoint.s3_answers import Unreadable, check_json
from penstock.checkpoint.s3_client import ATTEMPTS_MAX
from penstock.checkpoint.s3_store import S3Store
from penstock.checkpoint.s3_upload import PART_BYTES
from penstock.clock import SystemChance
from penstock.effects import Stored
from penstock.errors import Invalid, Unavailable
from penstock.ids import ETag, Key
from tests.support.clocks import SteppingClock
from tests.support.s3_stub import Reply, Stub, s3_stub
from tests.support.servers import BUCKET, Endpoint

KEY = Key("object")
OLD = ETag('"old"')
VERSION = {"ETag": '"v"'}
ERROR = b"<Error><Code>NoSuchKey</Code><Message>not here</Message></Error>"
PAGE = b"<html><head><title>404</title></head><body>nothing here</body></html>"
FOREIGN = b'<?xml version="1.0" encoding="%s"?><html><body>busy</body></html>'
SJIS = b'<?xml version="1.0" encoding="Shift_JIS"?>'
LIST = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@pytest.fixture
def stub(use: Callable[[Endpoint], None]) -> Iterator[Stub]:
    with s3_stub(Reply(200)) as started:
        use(started.endpoint)
        yield started


@pytest.fixture
def store(stub: Stub) -> S3Store:
    return S3Store(BUCKET, "", SteppingClock())


def repeatable(store: S3Store) -> dict[str, Callable[[], object]]:
    """Every operation that may be sent again, by what it sends."""
    return {
        "GET": lambda: store.get(KEY),
        "GET of a file": lambda: store.download(KEY, io.BytesIO()),
        "GET of a list": lambda: store.list(""),
        "PUT": lambda: store.put(KEY, b"body"),
        "DELETE": lambda: store.delete(KEY),
        "POST": lambda: store.upload(KEY, io.BytesIO(bytes(PART_BYTES + 1))),
    }


def unreadable(stub: Stub, finding: str) -> str:
    return (
        f"got an answer from {stub.endpoint.url} that cannot be read ({finding}): "
        "try again; if it stays so, check the endpoint, and any proxy before it."
    )


@pytest.mark.parametrize(
    ("body", "length", "why"),
    [
        (ERROR[:30], len(ERROR), f"cut off after 30 of {len(ERROR)} bytes"),
        (ERROR[:30], None, "with something else instead of XML of S3"),
        (b"", len(ERROR), f"cut off after 0 of {len(ERROR)} bytes"),
        (b"", None, "without a body"),
        (PAGE, None, "with a page of HTML instead of XML of S3"),
        (b"<!DOCTYPE html><p>nothing", None, "with a page of HTML instead of XML of S3"),
        (FOREIGN % b"Shift_JIS", None, "with something else instead of XML of S3"),
        (FOREIGN % b"gb2312", None, "with something else instead of XML of S3"),
        (FOREIGN % b"x-unheard-of", None, "with something else instead of XML of S3"),
        (b"<Error><Message>m</Message></Error>", None, "with something else instead of XML of S3"),
    ],
    ids=[
        "cut",
        "cut unnoticed",
        "lost",
        "empty",
        "page",
        "broken page",
        "SJIS",
        "GB",
        "x",
        "no code",
    ],
)
def test_an_error_that_cannot_be_read_is_asked_for_again(
    stub: Stub, store: S3Store, body: bytes, length: int | None, why: str
) -> None:
    """A 404 cut on its way ended a run for good: nothing was wrong but that one answer."""
    for status in (301, 400, 403, 404, 416, 501, 502):
        for number, act in enumerate(repeatable(store).values()):
            if number % 2 and status != 404:
                continue  # one status for all of them is enough
            stub.seen.clear()
            stub.replies[:] = [Reply(status, body=body, length=length)]
            with pytest.raises(Unavailable) as caught:
                act()
            assert str(caught.value).endswith(unreadable(stub, f"status {status}, {why}"))
            assert len(stub.seen) == ATTEMPTS_MAX


def test_the_answer_that_comes_after_one_that_was_cut_counts(stub: Stub, store: S3Store) -> None:
    """Whatever it says: the object, or that there is none."""
    cut = Reply(404, body=ERROR[:30], length=len(ERROR))

    stub.replies[:] = [cut, Reply(403, body=PAGE), Reply(200, body=b"body", headers=VERSION)]
    assert store.get(KEY) == Stored(b"body", ETag('"v"'))
    stub.replies[:] = [cut, Reply(404, body=ERROR)]
    assert store.get(KEY) is None
    stub.replies[:] = [cut, Reply(403, "AccessDenied")]
    with pytest.raises(Invalid, match="may not be used with these credentials"):
        store.get(KEY)


@pytest.mark.parametrize("body", [b"", PAGE], ids=["empty", "page"])
def test_a_success_that_no_store_has_given_is_none(stub: Stub, store: S3Store, body: bytes) -> None:
    """An empty list would let a collector remove what a pin keeps; a put would be lost."""
    for sent, act in repeatable(store).items():
        stub.seen.clear()
        stub.replies[:] = [Reply(200, body=body)]
        if sent == "DELETE" and not body:
            act()  # what a store says to it, but for the status
            continue
        with pytest.raises(Unavailable):
            act()
        assert stub.seen == [sent.split()[0]] * ATTEMPTS_MAX


def test_a_success_that_was_cut_is_asked_for_again(stub: Stub, store: S3Store) -> None:
    """A list without its end names too little, and one without anything names nothing."""
    stub.replies[:] = [
        Reply(200, body=b"", length=len(LIST)),
        Reply(200, body=LIST[:40], length=len(LIST)),
        Reply(200, body=LIST[:40]),
        Reply(200, body=SJIS + LIST),
        Reply(200, body=LIST),
    ]

    assert store.list("") == []
    assert stub.seen == ["GET"] * 5


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000], ids=["list", "object"])
def test_json_that_is_nested_beyond_reason_is_no_answer(body: bytes) -> None:
    """The parser gives up with an error of its own, which no caller expects."""
    with pytest.raises(Unreadable):
        check_json(400, body)


@pytest.mark.parametrize("status", [403, 404, 409, 500])
def test_a_swap_whose_refusal_cannot_be_read_is_a_perhaps(
    stub: Stub, store: S3Store, status: int
) -> None:
    """It is sent once, and the register is read to find out what became of it."""
    stub.replies[:] = [Reply(status, body=PAGE)]

    for act in (lambda: store.create(KEY, b""), lambda: store.replace(KEY, b"", OLD)):
        stub.seen.clear()
        with pytest.raises(Unavailable, match=f"cannot be read .status {status}, with a page"):
            act()
        assert stub.seen == ["PUT"]


@pytest.mark.parametrize("body", [b"", PAGE, b"<Error><Code>Precond"])
def test_412_means_not_confirmed_whatever_comes_with_it(
    stub: Stub, store: S3Store, body: bytes
) -> None:
    """Nobody takes it for more, so there is no need to read it."""
    stub.replies[:] = [Reply(412, body=body)]

    assert (store.create(KEY, b""), store.replace(KEY, b"", OLD)) == (None, None)


STARTED = Reply(200, body=b"<R><UploadId>u</UploadId></R>")
PART = Reply(200, headers=VERSION)
DONE = Reply(200, body=b"<R><ETag>v</ETag></R>")


def test_an_answer_to_a_look_has_no_body_and_counts(stub: Stub, store: S3Store) -> None:
    """Whether an upload was completed is asked by HEAD: its 404 and 403 are answers."""
    upload = repeatable(store)["POST"]
    gone = Reply(404, "NoSuchUpload")

    stub.replies[:] = [STARTED, PART, PART, gone, Reply(404), Reply(204)]
    with pytest.raises(Invalid, match="NoSuchUpload, status 404"):
        upload()
    stub.replies[:] = [STARTED, PART, PART, gone, Reply(403), Reply(204)]
    with pytest.raises(Invalid, match="may not be used with these credentials"):
        upload()
    assert stub.seen == ["POST", "PUT", "PUT", "POST", "HEAD", "DELETE"] * 2


def test_an_upload_goes_on_after_pages_in_its_way(stub: Stub, store: S3Store) -> None:
    """At each of its steps."""
    page = Reply(200, body=PAGE)
    stub.replies[:] = [page, STARTED, page, page, PART, PART, page, Reply(403, body=PAGE), DONE]

    repeatable(store)["POST"]()

    assert stub.seen == ["POST"] * 2 + ["PUT"] * 4 + ["POST"] * 3


def test_the_errors_of_a_real_store_can_be_cut_too(
    s3_proxy: Callable[..., Endpoint], use: Callable[[Endpoint], None]
) -> None:
    """Of an object that is not there, nothing is known as long as no whole answer says so."""
    proxy = s3_proxy("cut-errors")
    use(proxy)
    store = S3Store(BUCKET, SystemChance().unique(), SteppingClock())

    with pytest.raises(Unavailable, match="status 404, cut off after"):
        store.get(KEY)
    store.put(KEY, b"body")
    found = store.get(KEY)

    assert found is not None
    assert found.body == b"body"
    assert len(proxy.lines("GET")) == ATTEMPTS_MAX + 1
