"""Uploading a large object to S3 in parts, several at a time, each tried again by itself.

The object appears whole when the last step, completing, is done. A process that dies before
leaves parts behind that no listing shows: give the bucket a rule that aborts incomplete
multipart uploads after some days.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from botocore.exceptions import ClientError
from tenacity import Retrying

from penstock.checkpoint.s3_client import UPLOAD_THREADS
from penstock.checkpoint.s3_errors import code_of
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef

__all__ = ["PART_BYTES", "Target", "upload_in_parts"]

PART_BYTES = 16 << 20
PARTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the object goes and how."""

    client: "S3Client"
    bucket: str
    name: str
    retrying: Retrying
    explained: Callable[[], AbstractContextManager[None]]
    """What turns boto3's errors into ours."""


def upload_in_parts(target: Target, source: BinaryIO, size_bytes: int) -> None:
    """Send the next `size_bytes` of `source`; at most `UPLOAD_THREADS` parts are in memory."""
    upload = _begin(target)
    try:
        parts = _send(target, upload, _Slices(source, size_bytes))
        target.retrying(_complete, target, upload, parts, size_bytes)
    except BaseException:
        with suppress(PenstockError):  # what failed first is what the caller must hear of
            _abort(target, upload)
        raise


class _Slices:
    """A file cut into parts that several threads may read, one at a time."""

    def __init__(self, source: BinaryIO, size_bytes: int) -> None:
        self._source = source
        self._start = source.tell()
        self._end = self._start + size_bytes
        self._part_bytes = max(PART_BYTES, -(-size_bytes // PARTS_MAX))
        self._lock = threading.Lock()

    def numbers(self) -> Sequence[int]:
        """Part numbers, from 1."""
        return range(1, -(-(self._end - self._start) // self._part_bytes) + 1)

    def read(self, number: int) -> bytes:
        """The bytes of one part."""
        at = self._start + (number - 1) * self._part_bytes
        with self._lock:
            self._source.seek(at)
            return self._source.read(min(self._part_bytes, self._end - at))


def _begin(target: Target) -> str:
    def once() -> str:
        with target.explained():
            answer = target.client.create_multipart_upload(Bucket=target.bucket, Key=target.name)
        return answer["UploadId"]

    return target.retrying(once)


def _send(target: Target, upload: str, slices: _Slices) -> "list[CompletedPartTypeDef]":
    def send(number: int) -> "CompletedPartTypeDef":
        return target.retrying(_send_part, target, upload, number, slices.read(number))

    with _threads() as threads:
        return list(threads.map(send, slices.numbers()))


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that leave what they have not begun when one of them fails."""
    pool = ThreadPoolExecutor(UPLOAD_THREADS, "penstock-upload")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _send_part(target: Target, upload: str, number: int, body: bytes) -> "CompletedPartTypeDef":
    with target.explained():
        answer = target.client.upload_part(
            Bucket=target.bucket, Key=target.name, UploadId=upload, PartNumber=number, Body=body
        )
    return {"PartNumber": number, "ETag": answer["ETag"]}


def _complete(
    target: Target, upload: str, parts: "list[CompletedPartTypeDef]", size_bytes: int
) -> None:
    with target.explained():
        try:
            target.client.complete_multipart_upload(
                Bucket=target.bucket,
                Key=target.name,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
        except ClientError as error:
            if code_of(error) != "NoSuchUpload" or not _is_there(target, size_bytes):
                raise


def _is_there(target: Target, size_bytes: int) -> bool:
    """Whether an earlier try completed the upload and only its answer was lost."""
    try:
        found = target.client.head_object(Bucket=target.bucket, Key=target.name)
    except ClientError as error:
        if code_of(error) in ("404", "NoSuchKey"):
            return False
        raise
    return found["ContentLength"] == size_bytes


def _abort(target: Target, upload: str) -> None:
    with target.explained():
        target.client.abort_multipart_upload(Bucket=target.bucket, Key=target.name, UploadId=upload)
