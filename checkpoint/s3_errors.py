"""What an S3 endpoint's answers mean: one table, and one rule for what is not in it.

`Invalid` is what a person must fix first; everything else may pass by itself and is
`Unavailable`. So is an answer that cannot be read, whatever its status (ADR 26). A message names
the object, the finding and the next step, and is built from the error's code alone: what the
endpoint sent back may quote a signature or a key.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from penstock.checkpoint.s3_answers import Unreadable
from penstock.errors import Invalid, PenstockError, Unavailable

__all__ = ["code_of", "explained", "status_of", "unreadable"]

_TOLD_APART = {
    "AccessDenied": (
        "may not be used with these credentials",
        "allow them to get, put, delete and list below the job's prefix",
    ),
    "ExpiredToken": ("was refused because the credentials have expired", "renew the credentials"),
    "InvalidAccessKeyId": (
        "was refused because the endpoint does not know the access key",
        "check AWS_ACCESS_KEY_ID and that it belongs to this endpoint",
    ),
    "SignatureDoesNotMatch": (
        "was refused because the secret key does not fit the access key",
        "check AWS_SECRET_ACCESS_KEY",
    ),
    "RequestTimeTooSkewed": (
        "was refused because this host's clock is too far off",
        "set the clock of this host",
    ),
    "NoSuchBucket": (
        "cannot be reached because its bucket does not exist",
        "create the bucket or correct its name",
    ),
    "NotImplemented": (
        "needs an operation that this store does not have, such as a conditional write",
        "use a store that `penstock doctor` accepts",
    ),
    "PermanentRedirect": (
        "is in a bucket of another region",
        "set AWS_REGION to the region of the bucket",
    ),
}
_ALSO = {
    "AllAccessDisabled": "AccessDenied",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "ExpiredTokenException": "ExpiredToken",
    "InvalidToken": "ExpiredToken",
    "TokenRefreshRequired": "ExpiredToken",
}
_MAY_PASS = {"BadDigest", "IncompleteBody", "RequestTimeout"}
"""Codes that come with status 400 and blame the network all the same."""
_MAY_PASS_STATUS = {408, 409, 412, 425, 429}
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError)
_NO_ROLE = (CredentialRetrievalError, MetadataRetrievalError)
_CUT_SHORT = (
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    HTTPError,
    NoConnection,
    ResponseParserError,
)


@contextmanager
def explained(subject: str, endpoint: str) -> Iterator[None]:
    """Raise what boto3 raises inside as a Penstock error about `subject`."""
    try:
        yield
    except ClientError as error:
        raise _answered(error, subject) from error
    except Unreadable as error:
        raise unreadable(error, subject, endpoint) from None
    except (BotoCoreError, ResponseParserError, HTTPError) as error:
        raise _not_answered(error, subject, endpoint) from error


def code_of(error: ClientError) -> str:
    """The endpoint's own name for what went wrong, or the status if it gave none."""
    return str(error.response.get("Error", {}).get("Code", status_of(error)))


def status_of(error: ClientError) -> int:
    """The HTTP status of the answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def unreadable(error: Unreadable, subject: str, endpoint: str) -> Unavailable:
    """An answer that says no more than its status."""
    found = f"got an answer from {endpoint} that cannot be read ({error})"
    advice = "try again; if it stays so, check the endpoint, and any proxy before it"
    return Unavailable(subject, found, advice)


def _answered(error: ClientError, subject: str) -> PenstockError:
    code, status = code_of(error), status_of(error)
    told = _TOLD_APART.get(_ALSO.get(code, code)) or _by_status(status)
    if told:
        return Invalid(subject, *told)
    if 400 <= status < 500 and status not in _MAY_PASS_STATUS and code not in _MAY_PASS:
        found = f"was refused by the store ({code}, status {status})"
        return Invalid(subject, found, "check the store's settings, then run `penstock doctor`")
    found = f"was not confirmed by the store ({code}, status {status})"
    return Unavailable(subject, found, "try again; if it stays so, look at the store's own log")


def _by_status(status: int) -> tuple[str, str] | None:
    """The meaning of a bare status: an answer to HEAD has no body that a code could be in."""
    return _TOLD_APART.get({403: "AccessDenied", 501: "NotImplemented"}.get(status, ""))


def _not_answered(error: Exception, subject: str, endpoint: str) -> PenstockError:
    if isinstance(error, _NO_CREDENTIALS):
        return Invalid(
            subject,
            "cannot be reached because no credentials were found",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role",
        )
    if isinstance(error, EndpointConnectionError):
        return Unavailable(
            subject,
            f"could not be reached because nothing answers at {endpoint}",
            "start the store or correct AWS_ENDPOINT_URL, and try again",
        )
    if isinstance(error, _NO_ROLE):
        found = "could not be asked for, because no credentials were handed out"
        return Unavailable(subject, found, "check the role or login of this host, and try again")
    if isinstance(error, _CUT_SHORT):
        found = f"got no whole answer from {endpoint} ({type(error).__name__})"
        return Unavailable(subject, found, "try again; if it stays so, check the network")
    found = f"was not even asked for, because the AWS settings are wrong ({type(error).__name__})"
    return Invalid(subject, found, "check the bucket's name, the profile, the region and the keys")
