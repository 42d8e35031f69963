"""How Penstock talks to S3: the settings of its clients, and the one way it tries again.

No client of ours repeats a request by itself. boto3's own retries turn a success whose
answer was lost into a 412, which reads as somebody else's success.
"""

from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import InvalidEndpointConfigurationError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from penstock.checkpoint.s3_answers import only_whole
from penstock.clock import Chance, Clock
from penstock.errors import Unavailable

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

__all__ = ["UPLOAD_THREADS", "new_clients", "retrying"]

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
CONNECTIONS_MAX = 32
ATTEMPTS_MAX = 5
FIRST_WAIT_S = 0.1
WAIT_S_MAX = 5.0
UPLOAD_THREADS = 4
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")


def new_clients() -> "tuple[S3Client, S3Client]":
    """Two clients, with connections of their own, of the endpoint the AWS settings name."""
    session = boto3.session.Session()  # shared: most of a client's cost is reading its model
    first = _client(session, "auto")
    if (urlsplit(first.meta.endpoint_url).hostname or "").endswith(_AWS_HOSTS):
        return first, _client(session, "auto")
    # Other stores seldom have a host name for every bucket.
    return _client(session, "path"), _client(session, "path")


def _client(session: boto3.session.Session, addressing: Literal["auto", "path"]) -> "S3Client":
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS_MAX,
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": addressing},
    )
    try:
        client = session.client("s3", config=config)
    except ValueError as error:
        raise InvalidEndpointConfigurationError(msg="not a URL") from error
    only_whole(client)
    return client


def retrying(clock: Clock, chance: Chance) -> Retrying:
    """Try again what may succeed later, a few times, further and further apart."""

    def wait_s(call: RetryCallState) -> float:
        longest_s = min(WAIT_S_MAX, FIRST_WAIT_S * 2.0 ** (call.attempt_number - 1))
        return longest_s * (0.5 + chance.fraction() / 2)

    return Retrying(
        retry=retry_if_exception_type(Unavailable),
        stop=stop_after_attempt(ATTEMPTS_MAX),
        wait=wait_s,
        sleep=clock.sleep,
        reraise=True,
    )
