"""Opening a store by its URL: the one place that knows all kinds of store."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.memory_store import MemoryStore
from penstock.checkpoint.store import ObjectStore
from penstock.errors import Invalid

__all__ = ["absolute_url", "open_store", "without_secrets"]

_SECRET = re.compile(r"//.*@|[?#].*", re.DOTALL)
"""What people put before the host of a URL, or behind its path: never to be met again in a log."""


def open_store(url: str) -> ObjectStore:
    """The store that `url` names. Nothing is created or asked before its first use."""
    if not url or "\0" in url:
        raise _unknown(url)
    if "://" not in url:
        return DirectoryStore(Path(url).expanduser())
    scheme, _, rest = url.partition("://")
    opener = {"file": _open_file, "memory": _open_memory, "s3": _open_s3}.get(scheme.lower())
    if opener is None or not rest:
        raise _unknown(url)
    return opener(url)


def absolute_url(url: str) -> str:
    """The same store by a name that means the same in every process's working folder."""
    return url if "://" in url or not url else str(Path(url).expanduser().absolute())


def without_secrets(url: str) -> str:
    """The URL as it may be shown: without what stands before the host."""
    if "://" not in url:
        return url  # a folder may have any name
    return _SECRET.sub(lambda found: "//" if found[0].startswith("//") else "", url)


def _open_file(url: str) -> ObjectStore:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.path in ("", "/"):
        raise _unknown(url)
    return DirectoryStore(unquote(parts.path))


def _open_memory(url: str) -> ObjectStore:
    return _memory(url.partition("://")[2])


@cache
def _memory(name: str) -> MemoryStore:
    """One store per name, so that a job and those who look at it meet."""
    return MemoryStore()


def _open_s3(url: str) -> ObjectStore:
    # Imported here so that a job on a folder need not load boto3 in every worker.
    from penstock.checkpoint.s3_store import S3Store

    parts = urlsplit(url)
    if not parts.netloc or "@" in url or parts.query or parts.fragment:
        raise _unknown(url)
    return S3Store(parts.netloc, parts.path)


def _unknown(url: str) -> Invalid:
    return Invalid(
        f"store {without_secrets(url)!r}",
        "is not something that can be opened",
        "give a folder, file:///folder, s3://bucket/prefix or memory://name",
    )
