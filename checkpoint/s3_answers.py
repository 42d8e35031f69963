"""Whole answers: one that was cut off, or that some other server gave, is no answer.

boto3 makes the best of what arrives. An error whose body it cannot read becomes an error named
after its status, and a success without a body one without content: a bucket with nothing in it,
an upload without an id. Proxies and load balancers answer with such pages, and networks cut them.
So every answer is looked at before boto3 does: an error counts if its code can be read, a success
if it says what the operation must say. All else is `Unreadable`, and may be asked for again.

An answer to HEAD has no body by nature, so its status is the answer. So is 412, which means no more
than "not confirmed" to anybody here, whatever comes with it.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from botocore.exceptions import BotoCoreError

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from types_boto3_s3.client import S3Client

__all__ = ["REFUSED", "Unreadable", "check_json", "check_length", "only_whole"]

REFUSED = 412
"""The status of a write whose condition does not hold."""
_VERSIONED = {"GetObject", "HeadObject", "UploadPart"}
_IN_BODY = {
    "ListObjectsV2": b"IsTruncated>",
    "CreateMultipartUpload": b"UploadId>",
    "CompleteMultipartUpload": b"ETag>",
}
_FOREIGN = re.compile(rb"""\s*<\?xml[^>]*encoding=["'](?!utf-8["'])""", re.IGNORECASE)
"""XML in an encoding that no S3 uses, and that the parser may not know."""
_WITHOUT_BODY = {"AbortMultipartUpload", "DeleteObject"}


class Unreadable(BotoCoreError):
    """An answer of which only the status is known."""

    fmt = "status {status}, {why}"


def only_whole(client: "S3Client") -> None:
    """Let a client of S3 raise `Unreadable` for what is no whole answer."""
    client.meta.events.register("before-parse.s3", _check_s3)


def check_length(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Refuse a body of another length than was promised."""
    promised = headers.get("content-length", str(len(body)))
    if promised != str(len(body)):
        why = f"cut off after {len(body)} of {promised} bytes"
        raise Unreadable(status=status, why=why)


def check_json(status: int, body: bytes) -> None:
    """Refuse what no service has said that speaks JSON: no object, or an error without a name."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or (status >= 300 and not said.get("__type")):
        raise Unreadable(status=status, why=_instead(body, "JSON of the service"))


def _check_s3(
    operation_model: "OperationModel", response_dict: Mapping[str, Any], **_: Any
) -> None:
    status, headers = int(response_dict["status_code"]), response_dict["headers"]
    body, is_head = response_dict["body"], operation_model.http.get("method") == "HEAD"
    if isinstance(body, bytes) and not is_head and status != REFUSED:
        check_length(status, headers, body)
    if status < 300:
        _check_success(operation_model.name, status, headers, body)
    elif not is_head and status != REFUSED:
        _check_xml_error(status, body)


def _check_success(operation: str, status: int, headers: Mapping[str, str], body: Any) -> None:
    """Refuse a success that does not say what this operation's answers say."""
    if operation in _VERSIONED and not headers.get("etag"):
        if not isinstance(body, bytes):
            body.close()  # a connection that nobody would read from any more
        raise Unreadable(status=status, why="without a version")
    if operation in _IN_BODY and (_IN_BODY[operation] not in body or _FOREIGN.match(body)):
        raise Unreadable(status=status, why=_instead(body, "XML of S3"))
    if operation in _WITHOUT_BODY and body.strip():
        raise Unreadable(status=status, why="with a body where none belongs")


def _check_xml_error(status: int, body: bytes) -> None:
    """Refuse an error that does not say which one it is."""
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError):  # the last two: of an encoding
        raise Unreadable(status=status, why=_instead(body, "XML of S3")) from None
    errors = [root, *root] if _local(root.tag) in ("Error", "ErrorResponse") else []
    if not any(_local(part.tag) == "Code" and part.text for each in errors for part in each):
        raise Unreadable(status=status, why=_instead(body, "XML of S3"))


def _local(tag: str) -> str:
    """The name of an element without its namespace."""
    return tag.rpartition("}")[2]


def _instead(body: bytes, expected: str) -> str:
    """The finding about a body, without a word of it: it may quote a signature or a key."""
    start = body.lstrip()[:15].lower()
    if not start:
        return "without a body"
    is_page = any(map(start.startswith, (b"<html", b"<!doctype html")))
    return f"with {'a page of HTML' if is_page else 'something else'} instead of {expected}"
