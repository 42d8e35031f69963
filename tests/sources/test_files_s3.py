from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3
import pytest

from penstock.clock import SystemChance, SystemClock
from penstock.errors import Corrupt, Gone, Invalid, Unavailable
from penstock.sources import files_s3
from penstock.sources.files import Files
from penstock.sources.protocol import Range
from tests.sources.test_files import Counted, column, jsonl, numbers, parquet, rows
from tests.support.clocks import SteppingClock
from tests.support.s3_stub import Reply, s3_stub
from tests.support.servers import BUCKET, Endpoint

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client


@dataclass
class Prefix:
    """A prefix that objects arrive under."""

    client: "S3Client"
    name: str

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.name}"

    def write(self, path: str, body: bytes) -> str:
        key = f"{self.name}/{path}"
        return self.client.put_object(Bucket=BUCKET, Key=key, Body=body)["ETag"]

    def remove(self, path: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.name}/{path}")

    def source(self, **settings: object) -> Files:
        record = f"memory://{self.name}"
        return Files(self.url, **{"record": record, **settings})  # type: ignore[arg-type]


@pytest.fixture(params=["atomic_moto", "versity_server"])
def prefix(request: pytest.FixtureRequest, use: Callable[[Endpoint], None]) -> Prefix:
    return new_prefix(request.getfixturevalue(request.param), use)


@pytest.fixture
def moto_prefix(atomic_moto: Endpoint, use: Callable[[Endpoint], None]) -> Prefix:
    return new_prefix(atomic_moto, use)


def new_prefix(endpoint: Endpoint, use: Callable[[Endpoint], None]) -> Prefix:
    use(endpoint)
    client = boto3.client("s3", endpoint_url=endpoint.url, region_name="us-east-1")
    return Prefix(client, SystemChance().unique())


def test_objects_are_read_as_they_arrive(prefix: Prefix) -> None:
    """They need not settle: an object is seen whole or not at all."""
    record = f"s3://{BUCKET}/{prefix.name}-record"
    prefix.write("a.parquet", parquet([{"n": 1}, {"n": 2}, {"n": 3}]))
    source = prefix.source(record=record)
    assert column(source) == [1, 2, 3]

    prefix.write("2026/b.jsonl", numbers(4))
    prefix.write("2026/c.csv", b"n\n5\n6\n")
    prefix.write("_temporary/d.jsonl", numbers(7))
    prefix.write("e.txt", b"foreign")

    assert source.discover() == 2
    assert sorted(column(source)) == [1, 2, 3, 4, 5, 6]
    assert rows(prefix.source(record=record)) == rows(source)


def test_an_object_that_was_changed_gives_no_rows(prefix: Prefix) -> None:
    """The store itself refuses: the version that was recorded is asked for."""
    was = prefix.write("a.jsonl", numbers(1, 2))
    source = prefix.source()
    source.discover()
    now = prefix.write("a.jsonl", numbers(1, 3, 4))

    with pytest.raises(Corrupt) as caught:
        rows(source)

    assert str(caught.value) == (
        f"object {prefix.url}/a.jsonl was changed after it was recorded: it had the ETag {was}, "
        f"and has the ETag {now} and 27 bytes: "
        "put it back as it was, and give new rows to a file of a new name."
    )


def test_an_object_that_was_removed_is_gone(prefix: Prefix) -> None:
    """A range is exact or refused, never cut short."""
    prefix.write("a.jsonl", numbers(1))
    source = prefix.source()
    source.discover()
    prefix.remove("a.jsonl")

    with pytest.raises(Gone) as caught:
        rows(source)

    assert str(caught.value) == (
        f"object {prefix.url}/a.jsonl was recorded and is no longer there: "
        "put it back as it was, or go on from an offset behind it and accept the gap."
    )


def test_a_small_range_of_an_object_is_asked_for_alone(moto_prefix: Prefix) -> None:
    """Every byte of it is paid for."""
    lines = [jsonl({"n": n, "s": "x" * 100}) for n in range(10_000, 30_000)]
    moto_prefix.write("a.jsonl", b"".join(lines))
    world, made = Counted.world(SystemClock())
    source = moto_prefix.source(world=world)
    middle = source.spans()["0"].latest // 2
    before = made[0].read_bytes

    [batch] = source.read("0", Range(start=middle, stop=middle + 10 * len(lines[0])))

    assert batch.column("n").to_pylist() == list(range(20_000, 20_010))
    assert made[0].read_bytes - before < 200_000


def test_a_listing_has_many_pages(moto_prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is forgotten, and foreign objects may fill some."""
    monkeypatch.setattr(files_s3, "PAGE_OBJECTS", 3)
    for number in range(8):
        moto_prefix.write(f"{number}.{'log' if 2 < number < 6 else 'jsonl'}", numbers(number))

    assert sorted(column(moto_prefix.source())) == [0, 1, 2, 6, 7]


def test_a_bucket_that_is_not_there_is_said_to_be(moto_prefix: Prefix) -> None:
    """A slip in a name must not look like a prefix under which nothing happens."""
    source = Files("s3://no-such-bucket/in", record=f"memory://{SystemChance().unique()}")

    with pytest.raises(Invalid, match="its bucket does not exist"):
        source.spans()


PAGE = b"<html><body>not here</body></html>"
ROWS = Reply(200, body=b"rows", headers={"ETag": '"v"'})


def test_a_page_of_a_proxy_says_nothing_of_an_object(use: Callable[[Endpoint], None]) -> None:
    """An object that is there is not called removed, changed or empty because of it."""
    same = Reply(200, headers={"ETag": '"v"'})
    listed = Reply(200, body=b"<R><IsTruncated>false</IsTruncated></R>")
    with s3_stub(ROWS) as stub:
        use(stub.endpoint)
        bucket = files_s3.Bucket("in", "", SteppingClock(), SystemChance())
        for page in (404, 403, 200, 416):
            stub.replies[:] = [Reply(page, body=PAGE), ROWS]
            assert bucket.get("a", '"v"', 0, 3) == b"rows"
            stub.replies[:] = [Reply(page, body=PAGE), listed]
            assert list(bucket.files(lambda path: True, None)) == []
        stub.replies[:] = [Reply(412, body=PAGE), same, ROWS]
        assert bucket.get("a", '"v"', 0, 3) == b"rows"
        stub.replies[:] = [Reply(404, body=b"<Error>", length=99)]
        with pytest.raises(Unavailable, match="status 404, cut off after 7 of 99 bytes"):
            bucket.get("a", '"v"', 0, 3)


def test_a_look_at_a_refused_object_can_find_it_removed(use: Callable[[Endpoint], None]) -> None:
    """HEAD answers without a body: its 404 is one."""
    with s3_stub(Reply(412, "PreconditionFailed"), Reply(404)) as stub:
        use(stub.endpoint)
        bucket = files_s3.Bucket("in", "", SteppingClock(), SystemChance())

        with pytest.raises(Gone, match="was recorded and is no longer there"):
            bucket.get("a", '"v"', 0, 3)
