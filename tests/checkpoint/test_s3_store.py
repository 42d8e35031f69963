"""What only a store behind HTTP can get wrong."""

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import boto3
import pytest

from penstock.checkpoint.s3_client import ATTEMPTS_MAX
from penstock.checkpoint.s3_store import S3Store
from penstock.checkpoint.s3_upload import PART_BYTES
from penstock.clock import SystemChance
from penstock.effects import Stored
from penstock.errors import Invalid, Unavailable
from penstock.ids import ETag, Key
from tests.support.clocks import SteppingClock
from tests.support.s3_stub import SECRET, Reply, Stub, s3_stub
from tests.support.servers import BUCKET, Endpoint, free_port

KEY = Key("object")
OLD = ETag('"old"')
Use = Callable[[Endpoint], None]
Proxy = Callable[..., Endpoint]


@pytest.fixture
def stub(use: Use) -> Iterator[Callable[..., Stub]]:
    """Start an endpoint that gives these replies, and use it."""
    with ExitStack() as stack:

        def start(*replies: Reply) -> Stub:
            started = stack.enter_context(s3_stub(*replies))
            use(started.endpoint)
            return started

        yield start


def new_store(clock: SteppingClock | None = None) -> S3Store:
    return S3Store(BUCKET, SystemChance().unique(), clock or SteppingClock())


@pytest.mark.parametrize("mode", ["lost-ack", "applied-500"])
def test_a_conditional_write_without_an_answer_is_sent_once(
    mode: str, s3_proxy: Proxy, use: Use
) -> None:
    """A second try would find the first one's object and report a loss (B1)."""
    proxy = s3_proxy(mode)
    use(proxy)
    store = new_store()

    with pytest.raises(Unavailable):
        store.create(KEY, b"body")

    assert len(proxy.lines("PUT")) == 1
    found = store.get(KEY)
    assert found is not None
    assert found.body == b"body"


@pytest.mark.parametrize("mode", ["lost-ack", "applied-500"])
def test_a_swap_without_an_answer_is_sent_once(mode: str, s3_proxy: Proxy, use: Use) -> None:
    """The same for HEAD: it was swapped, and the caller must look to know (B3)."""
    proxy = s3_proxy(mode, "--count", "1")
    use(proxy)
    store = new_store()
    store.put(KEY, b"old")
    old = store.get(KEY)
    assert old is not None

    with pytest.raises(Unavailable):
        store.replace(KEY, b"new", old.etag)

    assert len(proxy.lines("PUT")) == 2
    new = store.get(KEY)
    assert new is not None
    assert new.body == b"new"
    assert store.replace(KEY, b"newer", new.etag) is not None


def test_a_conflict_is_not_a_loss(s3_proxy: Proxy, use: Use) -> None:
    """409 speaks of another request that may fail too (B4)."""
    proxy = s3_proxy("conflict-409")
    use(proxy)
    store = new_store()

    with pytest.raises(Unavailable, match="ConditionalRequestConflict, status 409"):
        store.create(KEY, b"body")
    assert len(proxy.lines("PUT")) == 1
    assert store.get(KEY) is None


@pytest.mark.parametrize(
    "reply", [Reply(200), Reply(204, headers={"ETag": '"x"'}), Reply(202, headers={"ETag": '"x"'})]
)
def test_only_a_200_with_a_version_is_a_success(stub: Callable[..., Stub], reply: Reply) -> None:
    """Anything else that looks friendly is a perhaps (B23)."""
    started = stub(reply)

    with pytest.raises(Unavailable, match="read it to find out whether it was written"):
        new_store().create(KEY, b"body")
    assert started.seen == ["PUT"]


@pytest.mark.parametrize(
    "reply", [Reply(412, "PreconditionFailed"), Reply(412), Reply(404, "NoSuchKey")]
)
def test_a_refusal_is_none(stub: Callable[..., Stub], reply: Reply) -> None:
    """Another version, or none: not an error, and not tried again."""
    started = stub(reply)

    assert new_store().replace(KEY, b"body", OLD) is None
    assert started.seen == ["PUT"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(500, "InternalError"),
        Reply(503, "SlowDown"),
        Reply(409, "OperationAborted"),
        Reply(429),
        Reply(400, "RequestTimeout"),
        Reply(502, body=b"<html>bad gateway"),
    ],
)
def test_a_conditional_write_is_never_tried_again(stub: Callable[..., Stub], reply: Reply) -> None:
    """Whatever the trouble, the caller decides."""
    started = stub(reply)
    clock = SteppingClock()

    with pytest.raises(Unavailable):
        new_store(clock).replace(KEY, b"body", OLD)
    assert (started.seen, clock.slept) == (["PUT"], [])


REFUSALS = [
    (Reply(403, "AccessDenied"), "may not be used with these credentials"),
    (Reply(400, "ExpiredToken"), "the credentials have expired: renew the credentials"),
    (Reply(403, "InvalidAccessKeyId"), "does not know the access key: check AWS_ACCESS_KEY_ID"),
    (Reply(403, "SignatureDoesNotMatch"), "the secret key does not fit the access key"),
    (Reply(403, "RequestTimeTooSkewed"), "this host's clock is too far off"),
    (Reply(404, "NoSuchBucket"), "its bucket does not exist: create the bucket"),
    (Reply(501, "NotImplemented"), "this store does not have, such as a conditional write"),
    (Reply(400, "InvalidRequest"), r"was refused by the store \(InvalidRequest, status 400\)"),
]


@pytest.mark.parametrize(("reply", "sentence"), REFUSALS)
def test_what_a_person_must_fix_is_said_once_and_without_secrets(
    stub: Callable[..., Stub], reply: Reply, sentence: str
) -> None:
    """Every operation says the same, tries once, and repeats nothing the endpoint sent."""
    started = stub(reply)
    store = new_store()
    attempts: list[Callable[[], object]] = [
        lambda: store.get(KEY),
        lambda: store.put(KEY, b""),
        lambda: store.create(KEY, b""),
        lambda: store.replace(KEY, b"", OLD),
        lambda: store.delete(KEY),
        lambda: store.list(""),
        lambda: store.upload(KEY, io.BytesIO(bytes(PART_BYTES + 1))),
        lambda: store.download(KEY, io.BytesIO()),
    ]

    for attempt in attempts:
        with pytest.raises(Invalid, match=sentence) as caught:
            attempt()
        assert f"s3://{BUCKET}/" in str(caught.value)
        for secret in (SECRET, started.endpoint.access_key, started.endpoint.secret_key):
            assert secret not in str(caught.value)
    assert len(started.seen) == len(attempts)


def test_a_wrong_endpoint_is_named(use: Use, tmp_path: object) -> None:
    """The most common mistake of all."""
    url = f"http://127.0.0.1:{free_port()}"
    use(Endpoint(url, log=None))  # type: ignore[arg-type]

    for attempt in (lambda s: s.get(KEY), lambda s: s.create(KEY, b"")):
        with pytest.raises(Unavailable, match=f"nothing answers at {url}.*AWS_ENDPOINT_URL"):
            attempt(new_store())


def test_an_endpoint_that_is_no_url_is_refused(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no url")

    with pytest.raises(Invalid, match="the AWS settings are wrong"):
        new_store()


def test_missing_credentials_are_the_users_to_fix(
    stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent without them."""
    started = stub(Reply(200))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(Invalid, match="no credentials were found"):
        new_store().get(KEY)
    assert started.seen == []


def test_a_bad_bucket_name_is_the_users_to_fix(stub: Callable[..., Stub]) -> None:
    """boto3 refuses it by itself, and not in our words."""
    stub(Reply(200))

    with pytest.raises(Invalid, match="check the bucket's name"):
        S3Store("no bucket").get(KEY)


def test_what_is_safe_to_send_again_is(stub: Callable[..., Stub]) -> None:
    """Further and further apart, and it is the later answer that counts."""
    started = stub(
        Reply(503, "SlowDown"), Reply(500), Reply(200, body=b"body", headers={"ETag": '"v"'})
    )
    clock = SteppingClock()

    assert new_store(clock).get(KEY) == Stored(b"body", ETag('"v"'))
    assert started.seen == ["GET"] * 3
    first, second = clock.slept
    assert 0.05 <= first <= 0.1 <= second <= 0.2


def test_trying_again_ends(stub: Callable[..., Stub]) -> None:
    """A store that stays away is reported, not waited for."""
    started = stub(Reply(503, "SlowDown"))

    with pytest.raises(Unavailable, match="SlowDown, status 503"):
        new_store().put(KEY, b"")
    assert started.seen == ["PUT"] * ATTEMPTS_MAX


def test_a_download_that_was_cut_short_starts_over(stub: Callable[..., Stub]) -> None:
    """What the first try wrote must not stay in front of the second."""
    stub(
        Reply(200, body=b"half of", headers={"ETag": '"v"'}, length=100),
        Reply(200, body=b"whole", headers={"ETag": '"v"'}),
    )
    target = io.BytesIO()

    assert new_store().download(KEY, target)
    assert target.getvalue() == b"whole"


def test_a_read_that_is_cut_short_is_tried_again(stub: Callable[..., Stub]) -> None:
    """Half a HEAD is no HEAD."""
    stub(
        Reply(200, body=b"half of", headers={"ETag": '"v"'}, length=100),
        Reply(200, body=b"whole", headers={"ETag": '"v"'}),
    )

    assert new_store().get(KEY) == Stored(b"whole", ETag('"v"'))


STARTED = Reply(200, body=b"<R><UploadId>u</UploadId></R>")
VERSION = {"ETag": '"p"'}
PART = Reply(200, headers=VERSION)


@pytest.mark.parametrize(("length", "complaint"), [(PART_BYTES + 1, None), (7, "NoSuchUpload")])
def test_a_completed_upload_whose_answer_was_lost_is_looked_for(
    stub: Callable[..., Stub], length: int, complaint: str | None
) -> None:
    """The second completion finds no upload; the object's length tells which it was."""
    started = stub(
        *(STARTED, PART, PART, Reply(500)),
        *(Reply(404, "NoSuchUpload"), Reply(200, length=length, headers=VERSION), Reply(204)),
    )
    source = io.BytesIO(bytes(PART_BYTES + 1))

    if complaint is None:
        new_store().upload(KEY, source)
    else:
        with pytest.raises(Invalid, match=complaint):
            new_store().upload(KEY, source)

    expected = ["POST", "PUT", "PUT", "POST", "POST", "HEAD"]
    assert started.seen == expected + ["DELETE"] * (complaint is not None)


def test_a_failed_upload_is_aborted(stub: Callable[..., Stub]) -> None:
    """Parts cost money until somebody says that they are not wanted."""
    started = stub(STARTED, Reply(403, "AccessDenied"))

    with pytest.raises(Invalid, match="may not be used"):
        new_store().upload(KEY, io.BytesIO(bytes(PART_BYTES + 1)))
    assert started.seen[-1] == "DELETE"


def test_objects_of_others_are_not_listed(atomic_moto: Endpoint, use: Use) -> None:
    """Consoles leave `folder/` objects; a whole page of foreign names is not the end."""
    use(atomic_moto)
    store = new_store()
    for number in range(3):
        store.put(Key(f"z{number}"), b"")
    client = boto3.client("s3")
    for name in ("", "not a key", "folder/"):
        client.put_object(Bucket=BUCKET, Key=store._base + name, Body=b"")

    assert [entry.key for entry in store.list("")] == ["z0", "z1", "z2"]


def test_a_page_without_keys_of_ours_is_not_the_end(stub: Callable[..., Stub]) -> None:
    """An empty page means the end to whoever lists, so it must be the end."""
    page = (
        "<R><IsTruncated>{more}</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
        "<Contents><Key>{key}</Key><Size>1</Size>"
        "<LastModified>2024-01-01T00:00:00Z</LastModified></Contents></R>"
    )
    started = stub(
        Reply(200, body=page.format(more="true", key="not a key").encode()),
        Reply(200, body=page.format(more="false", key="ours").encode()),
    )

    assert [entry.key for entry in S3Store(BUCKET).list("")] == ["ours"]
    assert started.seen == ["GET", "GET"]
