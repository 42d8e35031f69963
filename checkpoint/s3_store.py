"""`S3Store`: an object store in a bucket, on AWS or anything that speaks S3 correctly.

Conditional writes are sent exactly once, by a client used for nothing else; what is not a
plain success is either "not confirmed" (None) or "perhaps" (`Unavailable`), and the commit
protocol reads the object to find out. Everything else is safe to send again, and is.

Credentials, region and endpoint come from the usual AWS settings, AWS_ENDPOINT_URL included.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.exceptions import ClientError

from penstock.checkpoint.hashed_file import Receiver
from penstock.checkpoint.s3_answers import REFUSED
from penstock.checkpoint.s3_client import new_clients, retrying
from penstock.checkpoint.s3_errors import code_of, explained, status_of
from penstock.checkpoint.s3_upload import PART_BYTES, Target, upload_in_parts
from penstock.checkpoint.store import PAGE_ENTRIES_MAX, check_key, check_size, is_key
from penstock.clock import Chance, Clock, SystemChance, SystemClock
from penstock.effects import Entry, Stored
from penstock.errors import Unavailable
from penstock.ids import ETag, Key

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import (
        GetObjectOutputTypeDef,
        ListObjectsV2OutputTypeDef,
        PutObjectOutputTypeDef,
    )

__all__ = ["S3Store"]

CHUNK_BYTES = 1 << 20


class S3Store:
    """Atomic and durable as far as the endpoint is: `penstock doctor` tries to find out."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        self._bucket = bucket
        self._base = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        with explained(f"store s3://{bucket}/{self._base}", "the endpoint"):
            self._once, self._client = new_clients()
        self._retrying = retrying(clock or SystemClock(), chance or SystemChance())

    def get(self, key: Key) -> Stored | None:
        """The object and its version, or None."""
        check_key(key)
        return self._retrying(self._get, key)

    def put(self, key: Key, body: bytes) -> None:
        """Write the object, whatever was there."""
        check_key(key)
        self._retrying(self._put, key, body)

    def create(self, key: Key, body: bytes) -> ETag | None:
        """Write the object if there is none, sending the request once."""
        return self._write_if(key, body, {"IfNoneMatch": "*"})

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        """Write the object if its version is `etag`, sending the request once."""
        return self._write_if(key, body, {"IfMatch": etag})

    def delete(self, key: Key) -> None:
        """Remove the object; no error if there is none."""
        check_key(key)
        self._retrying(self._delete, key)

    def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """The next page of entries below `prefix`, in key order: one request, unless a whole
        page of objects is not ours."""
        start: dict[str, Any] = {"StartAfter": self._base + after} if after else {}
        while True:
            answer = self._retrying(self._list, prefix, start)
            entries = list(self._entries(answer))
            if entries or not answer.get("IsTruncated"):
                return entries
            start = {"ContinuationToken": answer["NextContinuationToken"]}

    def upload(self, key: Key, source: BinaryIO) -> None:
        """Write an object from a file, in parts if it is large."""
        check_key(key)
        size_bytes = _remaining(source)
        if size_bytes <= PART_BYTES:
            self.put(key, source.read())
        else:
            upload_in_parts(self._target(key), source, size_bytes)

    def download(self, key: Key, target: Receiver) -> bool:
        """Read an object into a file, a chunk at a time; a try that failed is overwritten."""
        check_key(key)
        return self._retrying(self._download, key, target)

    def _explained(self, key: str) -> AbstractContextManager[None]:
        return explained(f"object s3://{self._bucket}/{self._base}{key}", self._endpoint)

    @property
    def _endpoint(self) -> str:
        return self._client.meta.endpoint_url

    def _place(self, key: Key) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._base + key}

    def _open(self, key: Key) -> "GetObjectOutputTypeDef | None":
        try:
            return self._client.get_object(**self._place(key))
        except ClientError as error:
            if code_of(error) == "NoSuchKey":
                return None
            raise

    def _get(self, key: Key) -> Stored | None:
        with self._explained(key):
            answer = self._open(key)
            if answer is None:
                return None
            check_size(key, answer.get("ContentLength", 0))
            return Stored(answer["Body"].read(), ETag(answer["ETag"]))

    def _put(self, key: Key, body: bytes) -> None:
        with self._explained(key):
            answer = self._client.put_object(**self._place(key), Body=body)
        self._confirmed(key, answer)

    def _delete(self, key: Key) -> None:
        with self._explained(key):
            self._client.delete_object(**self._place(key))

    def _list(self, prefix: str, start: dict[str, Any]) -> "ListObjectsV2OutputTypeDef":
        with self._explained(prefix):
            return self._client.list_objects_v2(
                Bucket=self._bucket,
                Prefix=self._base + prefix,
                MaxKeys=PAGE_ENTRIES_MAX,
                **start,
            )

    def _entries(self, answer: "ListObjectsV2OutputTypeDef") -> Iterator[Entry]:
        for found in answer.get("Contents", ()):
            key = found["Key"].removeprefix(self._base)
            if is_key(key):
                yield Entry(Key(key), found["Size"], found["LastModified"].timestamp())

    def _download(self, key: Key, target: Receiver) -> bool:
        with self._explained(key):
            answer = self._open(key)
            if answer is None:
                return False
            target.seek(0)
            target.truncate()
            for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
                target.write(chunk)
        return True

    def _target(self, key: Key) -> Target:
        return Target(
            client=self._client,
            bucket=self._bucket,
            name=self._base + key,
            retrying=self._retrying,
            explained=lambda: self._explained(key),
        )

    def _write_if(self, key: Key, body: bytes, condition: dict[str, Any]) -> ETag | None:
        """Send one conditional write. A version is won only by a 200 that names it."""
        check_key(key)
        with self._explained(key):
            try:
                answer = self._once.put_object(**self._place(key), Body=body, **condition)
            except ClientError as error:
                if _is_refusal(error):
                    return None
                raise
        return self._confirmed(key, answer)

    def _confirmed(self, key: Key, answer: "PutObjectOutputTypeDef") -> ETag:
        status = answer["ResponseMetadata"]["HTTPStatusCode"]
        if status == 200 and answer.get("ETag"):
            return ETag(answer["ETag"])
        raise Unavailable(
            f"object s3://{self._bucket}/{self._base}{key}",
            f"was answered with status {status} and no version",
            "read it to find out whether it was written",
        )


def _is_refusal(error: ClientError) -> bool:
    """Whether the store says that the version is another, or that there is no object."""
    return status_of(error) == REFUSED or code_of(error) == "NoSuchKey"


def _remaining(source: BinaryIO) -> int:
    """How many bytes are left to read, leaving the file where it stands."""
    position = source.tell()
    end = source.seek(0, os.SEEK_END)
    source.seek(position)
    return end - position
