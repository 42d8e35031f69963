"""What DynamoDB's answers mean: one table, and one rule for what is not in it.

`Invalid` is what a person must fix first; everything else may pass by itself and is `Unavailable`.
So is an answer that cannot be read, whatever its status (ADR 26). A message is built from the
error's code alone: what the endpoint sent back may quote a key or a row.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from penstock.checkpoint.s3_answers import Unreadable
from penstock.checkpoint.s3_errors import code_of, status_of, unreadable
from penstock.errors import Invalid, PenstockError, Unavailable

__all__ = ["explained", "refusal"]

_DENIED = (
    "may not be used with these credentials",
    "allow them dynamodb:DescribeTable, GetItem, PutItem and UpdateItem on it and on the table of "
    "cursors; with create=True also CreateTable, DescribeTimeToLive and UpdateTimeToLive",
)
_EXPIRED = ("was refused because the credentials have expired", "renew the credentials")
_UNKNOWN = ("was refused because the access key is not known", "check AWS_ACCESS_KEY_ID")
_LASTING = {
    "AccessDenied": _DENIED,
    "AccessDeniedException": _DENIED,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "IncompleteSignatureException": (
        "was refused because the credentials are cut short",
        "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    "InvalidClientTokenId": _UNKNOWN,
    "InvalidSignatureException": (
        "was refused because the secret key does not fit the access key",
        "check AWS_SECRET_ACCESS_KEY and the clock of this host",
    ),
    "ItemCollectionSizeLimitExceeded": (
        "has no room left beside a partition key, because of a local index",
        "drop the index, or spread the rows over more partition keys",
    ),
    "MissingAuthenticationTokenException": (
        "was refused because no credentials were sent",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role",
    ),
    "ResourceNotFoundException": (
        "does not exist",
        "create it, or let the sink do so with create=True",
    ),
    "UnrecognizedClientException": _UNKNOWN,
}
_MAY_PASS = {
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "ResourceInUseException",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
}
"""Codes that come with status 400, or as the reason of a cancelled transaction, and blame load."""
_MAY_PASS_STATUS = {408, 425, 429}
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError)
_NO_ROLE = (CredentialRetrievalError, MetadataRetrievalError)
_CUT_SHORT = (ChecksumError, HTTPClientError, HTTPError, NoConnection, ResponseParserError)


@contextmanager
def explained(subject: str, endpoint: str) -> Iterator[None]:
    """Raise what boto3 raises inside as a Penstock error about `subject`."""
    try:
        yield
    except ClientError as error:
        raise refusal(subject, code_of(error), status_of(error)) from None
    except Unreadable as error:
        raise unreadable(error, subject, endpoint) from None
    except (BotoCoreError, ResponseParserError, HTTPError) as error:
        raise _not_answered(error, subject, endpoint) from None


def refusal(subject: str, code: str, status: int = 400) -> PenstockError:
    """What a code of DynamoDB's means, be it of a request or of one row in a transaction."""
    told = _LASTING.get(code)
    if told:
        return Invalid(subject, *told)
    if code in _MAY_PASS or status in _MAY_PASS_STATUS or not 400 <= status < 500:
        found = f"did not do it ({code})"
        return Unavailable(
            subject, found, "let the job try again; if it stays so, look at its load"
        )
    return Invalid(subject, f"refused it ({code})", "look at the table's settings and indexes")


def _not_answered(error: Exception, subject: str, endpoint: str) -> PenstockError:
    if isinstance(error, _NO_CREDENTIALS):
        return Invalid(
            subject,
            "cannot be reached because no credentials were found",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role",
        )
    if isinstance(error, NoRegionError):
        return Invalid(subject, "cannot be reached because no region is set", "set AWS_REGION")
    if isinstance(error, EndpointConnectionError):
        found = f"could not be reached because nothing answers at {endpoint}"
        return Unavailable(subject, found, "start the endpoint, or correct AWS_ENDPOINT_URL")
    if isinstance(error, _NO_ROLE):
        found = "could not be asked, because no credentials were handed out"
        return Unavailable(subject, found, "check the role or login of this host")
    if isinstance(error, _CUT_SHORT):
        found = f"got no whole answer from {endpoint} ({type(error).__name__})"
        return Unavailable(
            subject, found, "let the job try again; if it stays so, check the network"
        )
    found = f"was not even asked, because the AWS settings are wrong ({type(error).__name__})"
    return Invalid(subject, found, "check the profile, the region, the endpoint and the keys")
