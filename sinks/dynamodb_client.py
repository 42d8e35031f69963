"""How Penstock talks to DynamoDB: the settings of its client, and a look at every answer.

The client repeats nothing by itself; `retrying` does, for all of Penstock. An answer whose body was
lost on the way is no answer: boto3 takes it for one without content, and a cursor that could not be
read would look like one that is not there.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from zlib import crc32

import boto3
from botocore.config import Config
from botocore.exceptions import ChecksumError, InvalidEndpointConfigurationError

from penstock.checkpoint.s3_answers import check_json, check_length

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient

__all__ = ["new_client"]

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
CONNECTIONS_MAX = 64


def new_client() -> "DynamoDBClient":
    """A client of the endpoint that the AWS settings name."""
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS_MAX,
        retries={"total_max_attempts": 1},
    )
    session = boto3.session.Session()
    # boto3 by itself looks at AWS_DEFAULT_REGION only, other SDKs at AWS_REGION.
    region = session.region_name or os.environ.get("AWS_REGION")
    try:
        client = session.client("dynamodb", region_name=region, config=config)
    except ValueError:
        raise InvalidEndpointConfigurationError(msg="not a URL") from None
    client.meta.events.register("before-parse.dynamodb", _check_whole)
    return client


def _check_whole(response_dict: Mapping[str, Any], **_: Any) -> None:
    """Refuse an answer of which a part is missing, which boto3 does only if it may ask again, and
    one that DynamoDB cannot have given."""
    status, headers, body = (response_dict[name] for name in ("status_code", "headers", "body"))
    check_length(status, headers, body)
    actual = str(crc32(body))
    expected = headers.get("x-amz-crc32", actual)
    if expected != actual:
        raise ChecksumError(
            checksum_type="crc32", expected_checksum=expected, actual_checksum=actual
        )
    check_json(status, body)
