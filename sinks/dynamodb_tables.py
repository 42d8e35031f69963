"""The tables a DynamoDB sink needs: there with the right key, or made.

A table with another key would refuse every row after the decision, so it is looked at when the sink
is opened.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from penstock.checkpoint.s3_errors import code_of
from penstock.clock import Clock
from penstock.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient

__all__ = ["TableShape", "make_table", "see_table"]

READY_S_MAX = 120.0
"""How long a table that is being made is waited for."""
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as the sink needs it."""

    name: str
    key: tuple[tuple[str, str], ...]
    """Its key's attributes, each with its type: S, N or B. The first one is the partition key."""
    expires: str | None = None
    """The attribute that says when an item may go."""

    def schema(self) -> dict[str, Any]:
        """The key as DynamoDB describes it."""
        kinds = ("HASH", "RANGE")
        return {
            "KeySchema": [
                {"AttributeName": name, "KeyType": kind}
                for (name, _), kind in zip(self.key, kinds, strict=False)
            ],
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": letter} for name, letter in self.key
            ],
        }


def see_table(client: "DynamoDBClient", subject: str, shape: TableShape) -> None:
    """Raise `Invalid` if the table has another key, `Unavailable` if it is not ready."""
    table = client.describe_table(TableName=shape.name)["Table"]
    kinds = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    schema = sorted(table["KeySchema"], key=lambda each: each["KeyType"])
    found = tuple((each["AttributeName"], str(kinds[each["AttributeName"]])) for each in schema)
    if found != shape.key:
        raise Invalid(
            subject,
            f"has the key {_shown(found)}, and the sink needs {_shown(shape.key)}",
            "name another table, or give the sink the key of this one",
        )
    if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
        found_ = f"is not ready ({table['TableStatus']})"
        raise Unavailable(subject, found_, "wait until it is active")


def make_table(client: "DynamoDBClient", subject: str, shape: TableShape, clock: Clock) -> None:
    """Make the table if there is none, and wait until it is ready."""
    deadline_s = clock.monotonic() + READY_S_MAX
    if not _is_ready(client, subject, shape):
        _create(client, shape)
        while not _is_ready(client, subject, shape):
            if clock.monotonic() > deadline_s:
                raise Unavailable(subject, "is still being made", "wait until it is active")
            clock.sleep(POLL_S)
    _let_expire(client, shape)


def _is_ready(client: "DynamoDBClient", subject: str, shape: TableShape) -> bool:
    """A table that was just made may be unknown for a moment."""
    try:
        see_table(client, subject, shape)
    except Unavailable:
        return False
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return False
        raise
    return True


def _create(client: "DynamoDBClient", shape: TableShape) -> None:
    try:
        client.create_table(TableName=shape.name, BillingMode="PAY_PER_REQUEST", **shape.schema())
    except ClientError as error:
        if code_of(error) != "ResourceInUseException":  # somebody is making it, or was faster
            raise


def _let_expire(client: "DynamoDBClient", shape: TableShape) -> None:
    if shape.expires is None:
        return
    told = client.describe_time_to_live(TableName=shape.name)["TimeToLiveDescription"]
    if told["TimeToLiveStatus"] == "DISABLED":
        client.update_time_to_live(
            TableName=shape.name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": shape.expires},
        )


def _shown(key: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} ({letter})" for name, letter in key)
