"""Answers in a schema registry's place: a proxy's page, half an answer, none of its own."""

import pytest
from confluent_kafka.schema_registry import Schema

from penstock.errors import Invalid, Unavailable
from penstock.sources.kafka_registry import Registry
from tests.support.s3_stub import Reply, Stub, s3_stub

PAGE = b"<html><body>not here</body></html>"
FOUND = Reply(200, body=b'{"schema": "{}", "schemaType": "JSON"}')


def at(stub: Stub) -> Registry:
    """A registry as a source asks it, without the client's own retries."""
    told = (("max.retries", 0), ("timeout", 10.0), ("url", stub.endpoint.url))
    return Registry("schema registry", told, ())


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, body=PAGE),
        Reply(404),
        Reply(404, body=b'{"error_code": 40403', length=99),
        Reply(404, body=b'{"error_code": 40403'),
        Reply(404, body=b'{"message": "no Route matched"}'),
        Reply(403, body=PAGE),
        Reply(400, body=PAGE),
        Reply(200, body=PAGE),
        Reply(200),
        Reply(200, body=b"[]"),
    ],
    ids=str,
)
def test_an_answer_that_no_registry_gave_blames_no_message(reply: Reply) -> None:
    """A message would be called undecodable, and set aside, for a page of a load balancer."""
    with s3_stub(reply) as stub:
        registry = at(stub)
        with pytest.raises(Unavailable, match="schema registry does not answer"):
            registry.schema(7, None)
        with pytest.raises(Unavailable, match="schema registry does not answer"):
            registry.newest("orders-value", None)
        stub.replies[:] = [FOUND]

        found = registry.schema(7, None)

    assert (found.schema_type, found.schema_str) == ("JSON", "{}")
    assert isinstance(found, Schema)


def test_what_a_registry_says_itself_counts() -> None:
    """It numbers its errors: a schema that it lacks is a mistake of whoever names it."""
    with s3_stub(Reply(404, body=b'{"error_code": 40403, "message": "not found"}')) as stub:
        registry = at(stub)
        with pytest.raises(ValueError, match="it names schema 7, which the registry lacks"):
            registry.schema(7, None)
        stub.replies[:] = [Reply(404, body=b'{"error_code": 40401, "message": "not found"}')]
        with pytest.raises(Invalid, match="has no subject 'orders-value'"):
            registry.newest("orders-value", None)
        stub.replies[:] = [Reply(403, body=b'{"error_code": 40301, "message": "denied"}')]
        with pytest.raises(Invalid, match="refuses with 403"):
            registry.schema(7, None)
