"""Where a Delta table is: a folder or a prefix of a bucket, and what its client needs to get there.

A bucket is reached with the AWS settings that every part of Penstock goes by. Keys are asked for
whenever the table is loaded, so that those of a role are renewed while a job runs. A commit is a
conditional write and never anything less: settings that would let the client do without are
switched off, whatever the environment says.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import boto3

from penstock.checkpoint.open_store import absolute_url, without_secrets
from penstock.checkpoint.s3_client import new_clients
from penstock.checkpoint.s3_errors import explained
from penstock.errors import Invalid

__all__ = ["BucketPlace", "FolderPlace", "Place", "as_url", "place_of"]

LOG = "_delta_log"
CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 60
RETRIES_MAX = 3
RETRIES_S_MAX = 30
LOOKED_AT = 100
"""How many objects are looked at to see whether a prefix is taken."""

_MANGLED = frozenset("%\\[]^|")
"""What the client takes for something else in the name of a table."""
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")


def as_url(where: str, url: str) -> str:
    """The same place by a name that means the same in every process; `Invalid` if it is none."""
    if url.lower().startswith("s3://"):
        return _as_s3(where, url)
    path = _path_of(url)
    if not path or "://" in path:
        found = f"is to be at {without_secrets(url)!r}, where no table can be"
        raise Invalid(where, found, "give a folder or s3://bucket/prefix")
    absolute = absolute_url(path)
    _check_letters(where, absolute)
    return absolute


def _path_of(url: str) -> str:
    if not url.lower().startswith("file://"):
        return url
    parts = urlsplit(url)
    return unquote(parts.path) if parts.netloc in ("", "localhost") else ""


def _as_s3(where: str, url: str) -> str:
    _check_letters(where, without_secrets(url))
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    if not parts.netloc or "@" in url or parts.query or parts.fragment or "//" in prefix:
        found = f"is to be at {without_secrets(url)!r}, where no table can be"
        raise Invalid(where, found, "give s3://bucket/prefix, and the keys in AWS settings")
    return f"s3://{parts.netloc}/{prefix}".rstrip("/")


def _check_letters(where: str, path: str) -> None:
    for letter in path:
        if letter in _MANGLED or not letter.isprintable():
            found = f"is to be at {path!r}, and deltalake cannot have {letter!r} in a name"
            raise Invalid(where, found, "give it another place")


class FolderPlace:
    """A table in a folder."""

    def __init__(self, where: str, url: str) -> None:
        self.folder = Path(url).resolve()
        self.url = str(self.folder)
        _check_letters(where, self.url)

    def options(self) -> dict[str, str]:
        """What the client needs besides the URL."""
        return {}

    def is_taken(self) -> bool:
        """Whether something else than a table is there."""
        try:
            return any(each.name != LOG for each in self.folder.iterdir())
        except FileNotFoundError:
            return False

    def __str__(self) -> str:
        return self.url


class BucketPlace:
    """A table below a prefix of a bucket."""

    def __init__(self, where: str, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._where = f"{where}, table {url}"
        with explained(self._where, "the endpoint"):
            self._client = new_clients()[1]
        self._session = boto3.session.Session()

    @property
    def endpoint(self) -> str:
        """Whom to ask."""
        return self._client.meta.endpoint_url

    def options(self) -> dict[str, str]:
        """What the client needs besides the URL. It holds the secret key: never show it."""
        found = {
            "aws_region": self._client.meta.region_name,
            "aws_conditional_put": "etag",
            "aws_s3_allow_unsafe_rename": "false",
            "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
            "timeout": f"{REQUEST_TIMEOUT_S}s",
            "max_retries": str(RETRIES_MAX),
            "retry_timeout": f"{RETRIES_S_MAX}s",
            **self._credentials(),
        }
        parts = urlsplit(self.endpoint)
        if not (parts.hostname or "").endswith(_AWS_HOSTS):
            found["aws_endpoint"] = self.endpoint
            found["allow_http"] = "true" if parts.scheme == "http" else "false"
        return found

    def is_taken(self) -> bool:
        """Whether something else than a table is there."""
        return any(not name.startswith(f"{LOG}/") for name in self._names_below(""))

    def has_log(self) -> bool:
        """Whether a table is there, or the beginning of one."""
        return bool(self._names_below(f"{LOG}/"))

    def _names_below(self, folder: str) -> list[str]:
        """The first objects of a folder, by their names below the table's place."""
        base = f"{self._prefix}/" if self._prefix else ""
        with explained(self._where, self.endpoint):
            answer = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=f"{base}{folder}", MaxKeys=LOOKED_AT
            )
        return [each["Key"].removeprefix(base) for each in answer.get("Contents", [])]

    def _credentials(self) -> dict[str, str]:
        with explained(self._where, self.endpoint):
            credentials = self._session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            found = "cannot be reached because no credentials were found"
            advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role"
            raise Invalid(self._where, found, advice)
        keys = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
        }
        return keys | ({"aws_session_token": frozen.token} if frozen.token else {})

    def __str__(self) -> str:
        return self.url


Place = FolderPlace | BucketPlace


def place_of(where: str, url: str) -> Place:
    """The place that a URL names, as `as_url` gives it."""
    return BucketPlace(where, url) if url.startswith("s3://") else FolderPlace(where, url)
