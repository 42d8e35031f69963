"""Files below a prefix of a bucket.

An object is seen whole or not at all, so nothing has to settle. Every read names the version
that was recorded, and the store refuses it once the object is another.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from penstock.checkpoint.s3_client import new_clients, retrying
from penstock.checkpoint.s3_errors import code_of, explained, status_of
from penstock.clock import Chance, Clock
from penstock.errors import PenstockError, Unavailable
from penstock.sources.files_listing import Found, RangedFile, changed, removed

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ObjectTypeDef

__all__ = ["Bucket"]

PAGE_OBJECTS = 1000


class Bucket:
    """The objects below a prefix."""

    def __init__(self, bucket: str, prefix: str, clock: Clock, chance: Chance) -> None:
        self._bucket = bucket
        self._base = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        with explained(f"store s3://{bucket}/{self._base}", "the endpoint"):
            _, self._client = new_clients()
        self._retrying = retrying(clock, chance)

    def files(self, wanted: Callable[[str], bool], settled_us: int | None) -> Iterator[Found]:
        """The objects that are wanted, page by page. All of them are finished."""
        start: dict[str, Any] = {}
        while True:
            page = self._retrying(self._page, start)
            for item in page.get("Contents", ()):
                path = item["Key"].removeprefix(self._base)
                if not path.endswith("/") and wanted(path):
                    yield _found(path, item)
            if not page.get("IsTruncated"):
                return
            start = {"ContinuationToken": page["NextContinuationToken"]}

    def open(self, path: str, size_bytes: int, version: str) -> RangedFile:
        """An object as it was found. Nothing is asked before it is read."""
        return _Object(self, path, size_bytes, version)

    def get(self, path: str, version: str, first: int, last: int) -> bytes:
        """The bytes `first` to `last` of one version of an object."""
        return self._retrying(self._get, path, version, first, last)

    def _explained(self, path: str) -> AbstractContextManager[None]:
        return explained(self._subject(path), self._client.meta.endpoint_url)

    def _subject(self, path: str) -> str:
        return f"object s3://{self._bucket}/{self._base}{path}"

    def _place(self, path: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._base + path}

    def _page(self, start: dict[str, Any]) -> "ListObjectsV2OutputTypeDef":
        with self._explained(""):
            return self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._base, MaxKeys=PAGE_OBJECTS, **start
            )

    def _get(self, path: str, version: str, first: int, last: int) -> bytes:
        with self._explained(path):
            try:
                answer = self._client.get_object(
                    **self._place(path), Range=f"bytes={first}-{last}", IfMatch=version
                )
            except ClientError as error:
                if code_of(error) == "NoSuchKey":
                    raise removed(self._subject(path)) from error
                if status_of(error) in (412, 416):
                    raise self._changed(path, version) from error
                raise
            body = answer["Body"].read()
        if answer["ETag"] != version:  # a store that does not know If-Match
            raise self._changed(path, version)
        return self._whole(path, body, last - first + 1)

    def _whole(self, path: str, body: bytes, size_bytes: int) -> bytes:
        if len(body) == size_bytes:
            return body
        raise Unavailable(
            self._subject(path),
            f"was answered with {len(body)} bytes where {size_bytes} were asked for",
            "try again; if it stays so, look at the store's own log",
        )

    def _changed(self, path: str, version: str) -> PenstockError:
        """The meaning of a refused version, by a look at the object: a proxy can refuse as well."""
        with self._explained(path):
            try:
                now = self._client.head_object(**self._place(path))
            except ClientError as error:
                if status_of(error) == 404:
                    return removed(self._subject(path))
                raise
        if now["ETag"] == version:
            found = "was refused in the version that it has"
            advice = "try again; if it stays so, check what stands before the store"
            return Unavailable(self._subject(path), found, advice)
        found = f"the ETag {now['ETag']} and {now['ContentLength']} bytes"
        return changed(self._subject(path), f"the ETag {version}", found)


class _Object:
    """One version of an object."""

    def __init__(self, bucket: Bucket, path: str, size_bytes: int, version: str) -> None:
        self._bucket = bucket
        self._path = path
        self._version = version
        self.size_bytes = size_bytes

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes from `position` on, by one request."""
        stop = min(position + size_bytes, self.size_bytes)
        if stop <= position:
            return b""
        return self._bucket.get(self._path, self._version, position, stop - 1)

    def close(self) -> None:
        """Nothing is held between two reads."""


def _found(path: str, item: "ObjectTypeDef") -> Found:
    modified_us = round(item["LastModified"].timestamp() * 1_000_000)
    return Found(path, item["Size"], modified_us, item["ETag"])
