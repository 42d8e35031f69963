"""What an error of the Delta client means to a sink: whether it goes away by itself, what to do.

The client says most things in words alone, which are its own, those of the operating system, or
those of the bucket's endpoint. A code of either of the latter decides, as it does for a store. What
remains is sorted by the words we know; a place that could not be read or written for another
reason may pass, and everything else is for somebody to look at.

An endpoint's error whose code cannot be read is no answer, as it is for a store (ADR 26). The
client takes a proxy's page for an empty list, and so for a table that is not there: that is
believed if a list of our own says the same.

What an endpoint answers may quote a key or a signature, so of an answer only the code is shown, and
no error of the client is kept as a cause.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from botocore.exceptions import ClientError
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from penstock.checkpoint import folder_errors, s3_errors
from penstock.checkpoint.s3_answers import REFUSED, Unreadable
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks.delta_place import BucketPlace, FolderPlace, Place

__all__ = ["explained", "is_conflict"]

REASON_LENGTH_MAX = 200

_NO_FOLDER = "Invalid table location"
_CONFLICT = "Failed to commit transaction"
_OS_ERROR = re.compile(r"os error (\d+)|Os \{ code: (\d+)")
_STATUS = re.compile(r"non-2xx status code.{0,40}?(\d{3}) ", re.DOTALL)
_CODE = re.compile(r"<Code>(\w+)</Code>")
_HEAD = re.compile(r"Error performing HEAD ")
"""An answer to such a request has no body that a code could be in."""
_NO_ANSWER = re.compile(r"error sending request|HTTP error|timed out|connection|decoding", re.I)
_FEATURES = re.compile(r"[Tt]able features|reader version|writer version|catalog-managed")
_NOISE = re.compile(r"\x1b\[\d*m|↳|\S+://\S+|\bpart-\S+")
"""Colours, arrows, and names that mean nothing to whoever reads a message."""


def is_conflict(error: CommitFailedError) -> bool:
    """Whether somebody else's commit was faster, and nothing of ours was written."""
    return str(error).startswith(_CONFLICT)


@contextmanager
def explained(subject: str, place: Place) -> Iterator[None]:
    """Raise what the client raises inside as a Penstock error about `subject`."""
    try:
        yield
    except (DeltaError, OSError, ValueError, RuntimeError) as error:
        raise _sorted(subject, place, error) from None


def _sorted(subject: str, place: Place, error: Exception) -> PenstockError:
    text = str(error)
    number = error.errno if isinstance(error, OSError) and error.errno else _number_in(text)
    if isinstance(place, FolderPlace):
        if _NO_FOLDER in text:
            number = errno.ENOTDIR
        if number and number != errno.ENOENT:
            return _refused_by_folder(subject, place, number)
    elif answered := _answer_in(text):
        return _refused_by_bucket(subject, place.endpoint, answered)
    elif isinstance(error, TableNotFoundError):
        return _not_there(subject, place)
    elif number or _NO_ANSWER.search(text):
        found = f"got no whole answer from {place.endpoint}"
        return Unavailable(
            subject, found, "start the store or check the network: it is tried again"
        )
    return _in_words(subject, error, _shown(text))


def _in_words(subject: str, error: Exception, shown: str) -> PenstockError:
    if isinstance(error, TableNotFoundError):
        return _absent(subject)
    if _FEATURES.search(shown):
        found = f"has features that deltalake cannot write to ({shown})"
        return Invalid(subject, found, "drop them, install a newer deltalake, or use another table")
    if isinstance(error, OSError):
        found = f"could not be read or written ({shown})"
        return Unavailable(subject, found, "check its disk or share: it is tried again")
    found = f"cannot be read or written ({shown})"
    return Invalid(subject, found, "repair the table, or use another")


def _absent(subject: str) -> PenstockError:
    return Invalid(subject, "is not there", "make it, or let the sink do so by `create=True`")


def _not_there(subject: str, place: BucketPlace) -> PenstockError:
    """The same of a bucket, if its own list agrees."""
    try:
        if not place.has_log():
            return _absent(subject)
    except PenstockError as told:
        return type(told)(subject, told.found, told.advice)
    found = f"seemed not to be there by an answer of {place.endpoint}, and is"
    return Unavailable(subject, found, "check what stands before the store: it is tried again")


def _refused_by_folder(subject: str, place: FolderPlace, number: int) -> PenstockError:
    """As the store in a folder says it, but for a file system that is read-only for now."""
    if number == errno.EROFS:
        return Unavailable(subject, "is read-only", "let it be written again: the job goes on then")
    try:
        with folder_errors.explained(place.folder, ""):
            raise OSError(number, _said(number))
    except PenstockError as told:
        return type(told)(subject, told.found, told.advice)


def _refused_by_bucket(subject: str, endpoint: str, answered: tuple[str, int]) -> PenstockError:
    """As the store in a bucket says it."""
    code, status = answered
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    try:
        with s3_errors.explained(subject, endpoint):
            if not code:
                raise Unreadable(status=status, why="without a code of S3")
            raise ClientError(cast(Any, answer), "Delta")
    except PenstockError as told:
        return type(told)(told.subject, told.found, told.advice)


def _said(number: int) -> str:
    return errno.errorcode.get(number, f"error {number}")


def _number_in(text: str) -> int:
    found = _OS_ERROR.search(text)
    return int(found[1] or found[2]) if found else 0


def _answer_in(text: str) -> tuple[str, int] | None:
    """The code, if it can be read, and the status of an error that the endpoint has answered with.
    Where the status says it all, it is the code."""
    status = _STATUS.search(text)
    if status is None:
        return None
    code = _CODE.search(text)
    bare = status[1] if _HEAD.search(text) or int(status[1]) == REFUSED else ""
    return (code[1] if code else bare), int(status[1])


def _shown(text: str) -> str:
    lines = _NOISE.sub(" ", text).strip().splitlines()
    first = " ".join(lines[0].split()) if lines else "no reason given"
    return first[:REASON_LENGTH_MAX].rstrip(".")
