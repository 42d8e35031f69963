"""A DynamoDB that refuses, hurries or is written to by somebody else."""

import json
import pickle  # noqa: TID251 - errors are pickled by Spark on their way to the driver
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.chaos.s3_proxy import Answer, Mode, Request, Upstream
from penstock.checkpoint import MemoryStore
from penstock.clock import SystemChance
from penstock.errors import Fenced, Invalid, PenstockError, Unavailable
from penstock.sinks import Target
from penstock.sinks.dynamodb import DynamoDB
from penstock.sinks.dynamodb_rows import DynamoDBRows
from penstock.sinks.dynamodb_writer import DynamoDBWriter
from penstock.sinks.keyed import Keyed
from tests.support.clocks import SteppingClock
from tests.support.dynamodb_case import (
    ENDPOINT,
    SECRET,
    Faults,
    cancelled,
    error,
    faulty,
    plain_client,
    rows_in,
)
from tests.support.s3_stub import Reply, s3_stub
from tests.support.servers import Endpoint, free_port
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, in_order, people

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient

Settings = pytest.MonkeyPatch
Behind = Callable[[Mode], None]


@pytest.fixture
def client(atomic_moto: Endpoint, use: Callable[[Endpoint], None]) -> "DynamoDBClient":
    use(atomic_moto)
    return plain_client(atomic_moto)


@pytest.fixture
def clock(monkeypatch: Settings) -> SteppingClock:
    """Nobody waits for a server that does not change its mind."""
    made = SteppingClock()
    monkeypatch.setattr("penstock.sinks.dynamodb_writer.SystemClock", lambda: made)
    return made


@pytest.fixture
def behind(
    client: "DynamoDBClient", atomic_moto: Endpoint, monkeypatch: Settings
) -> Iterator[Behind]:
    """Put a proxy before moto, for those who are opened from now on."""
    with ExitStack() as stack:
        yield lambda mode: monkeypatch.setenv(
            ENDPOINT, stack.enter_context(faulty(atomic_moto, mode))
        )


@pytest.fixture
def table() -> str:
    return f"people-{SystemChance().unique()}"


def opened(table: str, *, create: bool = True, **options: Any) -> DynamoDBWriter:
    given = {"key": "user", "cursors": f"{table}-cursors", **options}
    sink = DynamoDB("people", table=table, create=create, **given)
    return sink.open(Target(job=JOB, columns=PEOPLE, partitions=2, store=MemoryStore()))


def refused_with(kind: type[PenstockError], call: Callable[[], object]) -> str:
    """The sentence with which a call is refused. It names no secret, on its trip either."""
    with pytest.raises(kind) as caught:
        call()
    for shown in (str(caught.value), repr(caught.value), str(pickle.dumps(caught.value))):
        assert SECRET not in shown
        assert "penstock-secret" not in shown
    return str(caught.value)


def make(client: "DynamoDBClient", table: str, *key: tuple[str, str]) -> None:
    """Somebody's table."""
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": name, "KeyType": kind}  # type: ignore[typeddict-item]
            for (name, _), kind in zip(key, ("HASH", "RANGE"), strict=False)
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": letter}  # type: ignore[typeddict-item]
            for name, letter in key
        ],
    )


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ((("name", "S"),), "name (S)"),
        ((("user", "N"),), "user (N)"),
        ((("user", "S"), ("n", "N")), "user (S), n (N)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("create", [True, False])
def test_a_table_with_another_key_is_refused(
    key: tuple[tuple[str, str], ...],
    shown: str,
    create: bool,
    client: "DynamoDBClient",
    table: str,
) -> None:
    """When the sink is opened: it would refuse every row after the decision."""
    make(client, table, *key)

    assert refused_with(Invalid, lambda: opened(table, create=create)) == (
        f"sink people, table {table} has the key {shown}, and the sink needs user (S): "
        "name another table, or give the sink the key of this one."
    )


def test_a_table_of_something_else_is_not_taken_for_cursors(
    client: "DynamoDBClient", table: str
) -> None:
    """Two sinks that were given each other's tables."""
    make(client, table, ("user", "S"))
    make(client, f"{table}-cursors", ("user", "S"))

    assert refused_with(Invalid, lambda: opened(table, create=False)) == (
        f"sink people, table {table}-cursors has the key user (S), and the sink needs shard (S): "
        "name another table, or give the sink the key of this one."
    )


def test_tables_are_made_only_if_asked_for(client: "DynamoDBClient", table: str) -> None:
    """A name with a mistake must not become a table that costs money."""
    told = "does not exist: create it, or let the sink do so with create=True."

    said = refused_with(Invalid, lambda: opened(table, create=False))
    assert said == f"sink people, table {table} {told}"
    make(client, table, ("user", "S"))
    said = refused_with(Invalid, lambda: opened(table, create=False))
    assert said == f"sink people, table {table}-cursors {told}"
    make(client, f"{table}-cursors", ("shard", "S"))
    opened(table, create=False).apply(apply(1, people(1)))
    assert in_order(rows_in(client, table, PEOPLE)) == in_order(people(1))


@pytest.mark.parametrize(("gone", "key"), [("", "user"), ("-cursors", "shard")])
def test_a_writer_goes_on_once_its_table_is_back(
    gone: str, key: str, client: "DynamoDBClient", table: str
) -> None:
    """Somebody has removed it, and makes it again when told."""
    writer = opened(table)
    client.delete_table(TableName=f"{table}{gone}")

    assert refused_with(Invalid, lambda: writer.apply(apply(1, people(1)))) == (
        f"sink people, table {table}{gone} does not exist: "
        "create it, or let the sink do so with create=True."
    )
    make(client, f"{table}{gone}", (key, "S"))
    writer.apply(apply(1, people(1)))
    assert in_order(rows_in(client, table, PEOPLE)) == in_order(people(1))
    assert writer.read_cursor(0) == cursor(1)


def test_an_endpoint_that_is_away_is_unavailable(
    client: "DynamoDBClient", table: str, monkeypatch: Settings, clock: SteppingClock
) -> None:
    """It may come back; the job waits for it."""
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv(ENDPOINT, url.replace("//", "//me:penstock-secret@"))

    assert refused_with(Unavailable, lambda: opened(table)) == (
        f"sink people, table {table} could not be reached because nothing answers at {url}: "
        "start the endpoint, or correct AWS_ENDPOINT_URL."
    )
    assert len(clock.slept) == 4


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"AWS_REGION": None},
            "cannot be reached because no region is set: set AWS_REGION.",
        ),
        (
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
            "cannot be reached because no credentials were found: "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role.",
        ),
        (
            {ENDPOINT: "penstock-secret"},
            "was not even asked, because the AWS settings are wrong "
            "(InvalidEndpointConfigurationError): "
            "check the profile, the region, the endpoint and the keys.",
        ),
        (
            {"AWS_PROFILE": "penstock-secret"},
            "was not even asked, because the AWS settings are wrong (ProfileNotFound): "
            "check the profile, the region, the endpoint and the keys.",
        ),
    ],
    ids=str,
)
def test_settings_that_are_wrong_are_named(
    settings: dict[str, str | None],
    told: str,
    client: "DynamoDBClient",
    table: str,
    monkeypatch: Settings,
) -> None:
    """Without their values: one may be in the wrong variable."""
    for name, value in settings.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)

    assert refused_with(Invalid, lambda: opened(table)) == f"sink people, table {table} {told}"


REFUSALS = [
    (
        error("AccessDeniedException"),
        "Invalid",
        "may not be used with these credentials: allow them dynamodb:DescribeTable, GetItem, "
        "PutItem and UpdateItem on it and on the table of cursors; with create=True also "
        "CreateTable, DescribeTimeToLive and UpdateTimeToLive.",
    ),
    (
        error("ExpiredTokenException"),
        "Invalid",
        "was refused because the credentials have expired: renew the credentials.",
    ),
    (
        error("UnrecognizedClientException"),
        "Invalid",
        "was refused because the access key is not known: check AWS_ACCESS_KEY_ID.",
    ),
    (
        error("InvalidSignatureException"),
        "Invalid",
        "was refused because the secret key does not fit the access key: "
        "check AWS_SECRET_ACCESS_KEY and the clock of this host.",
    ),
    (
        error("ValidationException"),
        "Invalid",
        "refused it (ValidationException): look at the table's settings and indexes.",
    ),
    (
        cancelled("None", "ValidationError", "None", "None"),
        "Invalid",
        "refused it (ValidationError): look at the table's settings and indexes.",
    ),
    (
        cancelled("None", "None", "ItemCollectionSizeLimitExceeded", "None"),
        "Invalid",
        "has no room left beside a partition key, because of a local index: "
        "drop the index, or spread the rows over more partition keys.",
    ),
    (
        error("TransactionCanceledException"),
        "Invalid",
        "refused it (TransactionCanceledException): look at the table's settings and indexes.",
    ),
    (
        cancelled("None", "None", "None", "None"),
        "Invalid",
        "refused it (TransactionCanceledException): look at the table's settings and indexes.",
    ),
    (
        error("ProvisionedThroughputExceededException"),
        "Unavailable",
        "did not do it (ProvisionedThroughputExceededException): "
        "let the job try again; if it stays so, look at its load.",
    ),
    (
        error("InternalServerError", 500),
        "Unavailable",
        "did not do it (InternalServerError): "
        "let the job try again; if it stays so, look at its load.",
    ),
    (
        cancelled("TransactionConflict", "None", "None", "None"),
        "Unavailable",
        "did not do it (TransactionConflict): "
        "let the job try again; if it stays so, look at its load.",
    ),
    (
        cancelled("None", "None", "None", "ThrottlingError"),
        "Unavailable",
        "did not do it (ThrottlingError): let the job try again; if it stays so, look at its load.",
    ),
]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("answer", "kind", "told"), REFUSALS, ids=lambda each: str(each)[:60])
def test_what_dynamodb_refuses_is_sorted(
    answer: Answer,
    kind: str,
    told: str,
    client: "DynamoDBClient",
    table: str,
    behind: Behind,
) -> None:
    """What may pass is tried some times, what will not is for a person; then it goes on."""
    faults = Faults("TransactWriteItems")
    behind(faults)
    writer = opened(table)
    faults.answers = [answer] * 5
    with pytest.raises(PenstockError) as caught:
        writer.apply(apply(1, people(1)))

    assert f"{type(caught.value).__name__}: {caught.value}" == (
        f"{kind}: sink people, table {table} {told}"
    )
    assert SECRET not in str(pickle.dumps(caught.value))
    assert len(faults.bodies) == (5 if kind == "Unavailable" else 1)
    assert (rows_in(client, table, PEOPLE), writer.read_cursor(0)) == ([], None)
    faults.answers = []
    writer.apply(apply(1, people(1)))
    assert in_order(rows_in(client, table, PEOPLE)) == in_order(people(1))


def test_a_conflict_is_tried_again(
    client: "DynamoDBClient", table: str, behind: Behind, clock: SteppingClock
) -> None:
    """Somebody reads or writes one of the items in the same moment."""
    faults = Faults("TransactWriteItems")
    behind(faults)
    writer = opened(table)
    conflict = cancelled("None", "TransactionConflict", "None", "None")
    faults.answers = [conflict, error("TransactionInProgressException"), None]
    writer.apply(apply(1, people(1)))

    assert in_order(rows_in(client, table, PEOPLE)) == in_order(people(1))
    assert (len(faults.bodies), len(clock.slept)) == (3, 2)


def sent(body: Any) -> list[str]:
    """What a transaction was about."""
    actions = body["TransactItems"]
    return [each["Put"]["Item"]["user"]["S"] if "Put" in each else "cursor" for each in actions]


def test_only_rows_that_are_newer_are_sent_again(
    client: "DynamoDBClient", table: str, behind: Behind
) -> None:
    """A transaction that failed for one row must not fail for the others."""
    faults = Faults("TransactWriteItems")
    behind(faults)
    writer = opened(table)
    writer.apply(apply(1, []))
    writer.apply(apply(2, [{"user": "b", "n": 2}]))
    faults.bodies.clear()
    writer.apply(apply(1, [{"user": user, "n": 1} for user in "abc"], shard=1))

    assert [sent(body) for body in faults.bodies] == [
        ["cursor", "a", "b", "c"],
        ["cursor", "a", "c"],
    ]
    assert in_order(rows_in(client, table, PEOPLE)) == in_order(
        [{"user": "a", "n": 1}, {"user": "b", "n": 2}, {"user": "c", "n": 1}]
    )


FIRST = [{"user": user, "n": 1} for user in "abcdef"]
SECOND = [{"user": user, "n": 2} for user in "abcdef"]


@pytest.fixture
def in_small_batches(monkeypatch: Settings) -> None:
    """An epoch of a few rows takes several transactions."""
    monkeypatch.setattr("penstock.sinks.dynamodb_rows.BATCH_ROWS_MAX", 2)


@pytest.mark.usefixtures("in_small_batches")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_leader_deposed_between_two_batches_is_refused(
    number: int, client: "DynamoDBClient", table: str, behind: Behind
) -> None:
    """By the token alone: the new leader has begun the epoch and has moved no cursor yet, even if
    it found all of its first rows there."""
    is_held_up = True

    def holds_up(request: Request, upstream: Upstream) -> Answer:
        last = b'"e"' in request.body and is_held_up
        return error("ValidationException") if last else upstream(request)

    def take_over() -> None:
        with pytest.raises(Invalid, match="ValidationException"):
            new.apply(apply(1, FIRST, token=2))

    faults = Faults("TransactWriteItems", [*[None] * (number - 1), take_over])
    behind(holds_up)
    new = opened(table)
    behind(faults)
    old = opened(table)
    with pytest.raises(Fenced) as caught:
        old.apply(apply(1, FIRST, token=1))

    assert (caught.value.held, caught.value.newest) == (1, 2)
    assert (new.read_cursor(0), len(faults.bodies)) == (None, number)
    is_held_up = False
    new.apply(apply(1, FIRST, token=2))
    assert in_order(rows_in(client, table, PEOPLE)) == in_order(FIRST)
    assert new.read_cursor(0) == cursor(1)


@pytest.mark.usefixtures("in_small_batches")
def test_a_deposed_leader_does_not_undo_what_the_new_one_did(
    client: "DynamoDBClient", table: str, behind: Behind
) -> None:
    """It goes on with its epoch after the new one has finished that and another."""
    new = opened(table)

    def take_over() -> None:
        new.apply(apply(1, FIRST, token=2))
        new.apply(apply(2, SECOND, token=2))

    behind(Faults("TransactWriteItems", [None, take_over]))
    with pytest.raises(Fenced):
        opened(table).apply(apply(1, FIRST, token=1))

    assert in_order(rows_in(client, table, PEOPLE)) == in_order(SECOND)
    assert new.read_cursor(0) == cursor(2)


@pytest.mark.usefixtures("in_small_batches")
def test_a_colleague_with_the_same_token_is_no_harm(
    client: "DynamoDBClient", table: str, behind: Behind
) -> None:
    """The epoch is finished by another thread of ours: there is nothing left to do."""
    other = opened(table)
    faults = Faults("TransactWriteItems", [None, lambda: other.apply(apply(1, FIRST))])
    behind(faults)
    opened(table).apply(apply(1, FIRST))

    assert in_order(rows_in(client, table, PEOPLE)) == in_order(FIRST)
    assert len(faults.bodies) == 2


@pytest.mark.usefixtures("in_small_batches")
def test_an_epoch_that_was_cut_short_is_finished(
    client: "DynamoDBClient", table: str, behind: Behind
) -> None:
    """Its rows that are there are found there; none is lost, and none comes twice."""
    faults = Faults("TransactWriteItems", [None, None, error("ValidationException")])
    behind(faults)
    writer = opened(table)
    with pytest.raises(Invalid):
        writer.apply(apply(1, FIRST))
    assert (len(rows_in(client, table, PEOPLE)), writer.read_cursor(0)) == (4, None)
    writer.apply(apply(1, FIRST))

    assert in_order(rows_in(client, table, PEOPLE)) == in_order(FIRST)
    assert writer.read_cursor(0) == cursor(1)


WHOLE = json.dumps(
    {
        "Item": {
            "shard": {"S": "contract/people/0/people"},
            "generation": {"N": "1"},
            "epoch": {"N": "1"},
            "mark": {"N": str(cursor(1).mark)},
        }
    }
).encode()


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "broken",
    [
        Reply(200, length=len(WHOLE)),
        Reply(200, body=WHOLE[:40], length=len(WHOLE)),
        Reply(200, body=b"{}", headers={"x-amz-crc32": "1"}),
    ],
    ids=["body lost", "body cut short", "body altered"],
)
def test_a_cursor_whose_answer_was_lost_is_not_one_that_is_missing(
    broken: Reply, use: Callable[[Endpoint], None]
) -> None:
    """boto3 takes an answer without its body for one without content: no cursor, begin anew."""
    rows = DynamoDBRows(
        table="people", keyed=Keyed("sink people", ("user",)), writer="contract/people"
    )
    target = Target(job=JOB, columns=PEOPLE, partitions=1, store=MemoryStore())
    with s3_stub(broken, broken, Reply(200, body=WHOLE)) as stub:
        use(stub.endpoint)
        assert DynamoDBWriter(rows, "cursors", target).read_cursor(0) == cursor(1)
        assert len(stub.seen) == 3


NO_ANSWERS = {
    "cut off after 9 of 99 bytes": Reply(400, body=b'{"__type"', length=99),
    "without a body": Reply(403),
    "with a page of HTML instead of JSON of the service": Reply(404, body=b"<html>not here"),
    "with something else instead of JSON of the service": Reply(400, body=b'{"message": "no"}'),
}


@pytest.mark.parametrize("status", [200, 400, 403, 404, 503])
def test_an_answer_that_cannot_be_read_is_no_refusal_and_no_missing_cursor(
    status: int, use: Callable[[Endpoint], None], clock: SteppingClock
) -> None:
    """Proxies give such, and networks cut them: the job tries again, and does not begin anew."""
    rows = DynamoDBRows(
        table="people", keyed=Keyed("sink people", ("user",)), writer="contract/people"
    )
    target = Target(job=JOB, columns=PEOPLE, partitions=1, store=MemoryStore())
    with s3_stub(Reply(200)) as stub:
        use(stub.endpoint)
        writer = DynamoDBWriter(rows, "cursors", target)
        for why, reply in NO_ANSWERS.items():
            if status == 200 and "message" in str(reply.body):
                continue  # an object without an item is how a cursor is missing
            clock.slept.clear()
            stub.replies[:] = [replace(reply, status=status)]
            assert refused_with(Unavailable, lambda: writer.read_cursor(0)) == (
                f"sink people, table cursors got an answer from {stub.endpoint.url} "
                f"that cannot be read (status {status}, {why}): "
                "try again; if it stays so, check the endpoint, and any proxy before it."
            )
            assert len(clock.slept) == 4
