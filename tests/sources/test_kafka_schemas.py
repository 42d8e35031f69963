"""Messages whose schema is in a registry, written as other programs write them."""

import json
import pickle  # noqa: TID251 - Spark pickles sources on their way to its workers
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID  # noqa: TID251 - Avro's own type, with a value that is always the same

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from penstock.errors import Invalid, Unavailable
from penstock.sources import META_NAME, Range
from penstock.sources.kafka import DroppedMessage, Kafka
from tests.support import registry as registries
from tests.support.kafka import Cluster
from tests.support.registry import Registry
from tests.support.servers import free_port

AT = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registries.running() as found:
        yield found


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    """What a producer of messages uses."""
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


def rows(source: Kafka, partition: str = "0") -> list[Any]:
    """All rows of a partition, without what is known of them."""
    span = source.spans()[partition]
    batches = source.read(partition, Range(start=span.earliest, stop=span.latest))
    found = [row for batch in batches for row in batch.to_pylist()]
    return [{name: row[name] for name in row if name != META_NAME} for row in found]


def as_value(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def as_key(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY)


def record(*fields: Any, name: str = "Order") -> str:
    named = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": named})


def test_avro_has_the_columns_of_its_schema(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """Every type that people use, and what it is in Arrow."""
    topic = kafka_broker.topic()
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    item = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
    schema = record(
        ("user", "string"),
        ("n", "int"),
        ("total", "long"),
        ("rate", ["null", "double"]),
        ("paid", "boolean"),
        ("raw", "bytes"),
        ("price", decimal),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
        ("items", {"type": "array", "items": item}),
        ("first", ["null", "Item"]),
        ("tags", {"type": "map", "values": "long"}),
    )
    order = {
        "user": "ada",
        "n": 1,
        "total": 1 << 40,
        "rate": None,
        "paid": True,
        "raw": b"\xff",
        "price": Decimal("12.50"),
        "at": AT,
        "day": date(2026, 1, 2),
        "id": UUID(int=7),
        "state": "PAID",
        "items": [{"sku": "a"}, {"sku": "b"}],
        "first": {"sku": "a"},
        "tags": {"x": 1},
    }
    write = AvroSerializer(client, schema)
    kafka_broker.write(topic, [write(order, as_value(topic)), None])
    source = Kafka(
        kafka_broker.bootstrap, topic, value="avro", schema_registry=registry.url, deletes="gone"
    )

    sku = pa.struct([("sku", pa.string())])
    assert source.schema() == pa.schema(
        [
            ("user", pa.string()),
            ("n", pa.int32()),
            ("total", pa.int64()),
            ("rate", pa.float64()),
            ("paid", pa.bool_()),
            ("raw", pa.binary()),
            ("price", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("id", pa.string()),
            ("state", pa.string()),
            ("items", pa.list_(sku)),
            ("first", sku),
            ("tags", pa.map_(pa.string(), pa.int64())),
            pa.field("gone", pa.bool_(), nullable=False),
        ]
    )
    plain = {**order, "id": str(UUID(int=7)), "tags": [("x", 1)], "gone": False}
    assert rows(source) == [plain, {**dict.fromkeys(order), "gone": True}]


def test_an_avro_schema_that_grows_changes_no_column_of_a_running_job(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """The columns are chosen once and travel with the source; each message is brought to them."""
    topic = kafka_broker.topic()
    old = record(("user", "string"))
    grown = json.loads(record(("user", "string"), ("n", "long")))
    grown["fields"][1]["default"] = 9
    grown["fields"][0] |= {"name": "who", "aliases": ["user"]}
    kafka_broker.write(topic, [AvroSerializer(client, old)({"user": "ada"}, as_value(topic))])
    settings = {"value": "avro", "schema_registry": registry.url}
    before = Kafka(kafka_broker.bootstrap, topic, **settings)
    assert before.schema().names == ["user"]
    sent = pickle.dumps(before)

    write = AvroSerializer(client, json.dumps(grown))
    kafka_broker.write(topic, [write({"who": "bob", "n": 1}, as_value(topic))])
    after = Kafka(kafka_broker.bootstrap, topic, **settings)

    assert after.schema().names == ["who", "n"]
    assert rows(after) == [{"who": "ada", "n": 9}, {"who": "bob", "n": 1}]
    task = pickle.loads(sent)
    assert task.schema() == before.schema()
    # The old schema knows no alias for the new name: what Avro cannot resolve is not guessed.
    [bad] = task.dropped("0", Range(start=0, stop=2))
    assert bad.offset == 1


def test_declared_columns_are_filled_by_name_whatever_the_schema(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """Whoever declares them is not surprised by a new schema, nor stopped by one he cannot have."""
    topic = kafka_broker.topic()
    first = AvroSerializer(client, record(("user", "string"), ("x", ["string", "long"])))
    second = AvroSerializer(client, record(("n", "long"), name="Other"))
    bodies = [first({"user": "ada", "x": 1}, as_value(topic)), second({"n": 5}, as_value(topic))]
    kafka_broker.write(topic, bodies)
    source = Kafka(
        kafka_broker.bootstrap,
        topic,
        value="avro",
        columns="n long, user string",
        schema_registry=registry.url,
    )

    assert rows(source) == [{"n": None, "user": "ada"}, {"n": 5, "user": None}]


def test_schemas_that_build_on_others_are_put_together(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """Shared types are registered once, under a subject of their own."""
    topic = kafka_broker.topic()
    client.register_schema("user", Schema(record(("name", "string"), name="User"), "AVRO"))
    order = Schema(
        record(("by", "User"), ("n", "long")), "AVRO", [SchemaReference("User", "user", 1)]
    )
    write = AvroSerializer(client, order)
    kafka_broker.write(topic, [write({"by": {"name": "ada"}, "n": 1}, as_value(topic))])
    source = Kafka(kafka_broker.bootstrap, topic, value="avro", schema_registry=registry.url)

    assert rows(source) == [{"by": {"name": "ada"}, "n": 1}]


def test_keys_can_have_schemas_too(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """A key is one column, named as one likes: plain if its schema is, else a struct."""
    topic = kafka_broker.topic()
    key = AvroSerializer(client, '"long"')
    value = AvroSerializer(client, '"string"')
    kafka_broker.write(topic, [value("a", as_value(topic))], keys=[key(7, as_key(topic))])
    plain = {"value": "avro", "key": "avro", "schema_registry": registry.url}
    source = Kafka(kafka_broker.bootstrap, topic, key_column="number", **plain)

    assert source.schema() == pa.schema([("number", pa.int64()), ("value", pa.string())])
    assert rows(source) == [{"number": 7, "value": "a"}]

    other = kafka_broker.topic()
    key = AvroSerializer(client, record(("shop", "string"), ("user", "long"), name="Key"))
    bodies = [value("b", as_value(other)), value("c", as_value(other))]
    kafka_broker.write(other, bodies, keys=[key({"shop": "x", "user": 1}, as_key(other)), None])

    assert rows(Kafka(kafka_broker.bootstrap, other, **plain)) == [
        {"key": {"shop": "x", "user": 1}, "value": "b"},
        {"key": None, "value": "c"},
    ]


def proto_file(*fields: Any, name: str = "orders.proto") -> Any:
    """A file with two messages: `Other`, and `Order` with these fields."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    order = file.message_type.add(name="Order")
    for number, (field, kind, more) in enumerate(fields, 1):
        order.field.add(**{"name": field, "number": number, "type": kind, "label": 1, **more})
    item = order.nested_type.add(name="Item")
    item.field.add(name="sku", number=1, type=9, label=1)
    tags = order.nested_type.add(name="TagsEntry")
    tags.field.add(name="key", number=1, type=9, label=1)
    tags.field.add(name="value", number=2, type=3, label=1)
    tags.options.map_entry = True
    state = order.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=3, label=1)
    return file


def proto_class(file: Any, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


MESSAGE, ENUM, TEXT, LONG, UNSIGNED, TRUTH, BYTES, DOUBLE = 11, 14, 9, 3, 13, 8, 12, 1
FIELDS = (
    ("user", TEXT, {}),
    ("n", LONG, {}),
    ("small", UNSIGNED, {}),
    ("paid", TRUTH, {}),
    ("raw", BYTES, {}),
    ("rate", DOUBLE, {}),
    ("at", MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
    ("maybe", MESSAGE, {"type_name": ".google.protobuf.Int64Value"}),
    ("state", ENUM, {"type_name": ".shop.Order.State"}),
    ("items", MESSAGE, {"type_name": ".shop.Order.Item", "label": 3}),
    ("first", MESSAGE, {"type_name": ".shop.Order.Item"}),
    ("tags", MESSAGE, {"type_name": ".shop.Order.TagsEntry", "label": 3}),
)


def protobuf_writer(client: SchemaRegistryClient, kind: Any) -> Any:
    return ProtobufSerializer(kind, client, {"use.deprecated.format": False})


def test_protobuf_has_the_columns_of_its_first_message(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """No compiler is needed: the registry sends what was compiled."""
    topic = kafka_broker.topic()
    kind = proto_class(proto_file(*FIELDS), "shop.Order")
    order = kind(user="ada", n=1 << 40, small=7, paid=True, raw=b"\xff", rate=0.5, state=1)
    order.at.FromDatetime(AT)
    order.maybe.value = 3
    order.items.add(sku="a")
    order.first.sku = "b"
    order.tags["x"] = 1
    write = protobuf_writer(client, kind)
    kafka_broker.write(topic, [write(order, as_value(topic)), write(kind(), as_value(topic)), None])
    source = Kafka(kafka_broker.bootstrap, topic, value="protobuf", schema_registry=registry.url)

    sku = pa.struct([("sku", pa.string())])
    assert source.schema() == pa.schema(
        [
            ("user", pa.string()),
            ("n", pa.int64()),
            ("small", pa.uint32()),
            ("paid", pa.bool_()),
            ("raw", pa.binary()),
            ("rate", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("maybe", pa.int64()),
            ("state", pa.string()),
            ("items", pa.list_(sku)),
            ("first", sku),
            ("tags", pa.map_(pa.string(), pa.int64())),
        ]
    )
    full = {"user": "ada", "n": 1 << 40, "small": 7, "paid": True, "raw": b"\xff", "rate": 0.5}
    full |= {"at": AT, "maybe": 3, "state": "PAID", "items": [{"sku": "a"}], "first": {"sku": "b"}}
    bare = {"user": "", "n": 0, "small": 0, "paid": False, "raw": b"", "rate": 0.0, "at": None}
    bare |= {"maybe": None, "state": "NEW", "items": [], "first": None, "tags": []}
    assert rows(source) == [{**full, "tags": [("x", 1)]}, bare, dict.fromkeys(bare)]


def test_a_protobuf_schema_that_grows_goes_by_its_numbers(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """A field that was renamed is the same field; another message is not the chosen one."""
    topic = kafka_broker.topic()
    old = proto_class(proto_file(("user", TEXT, {})), "shop.Order")
    kafka_broker.write(topic, [protobuf_writer(client, old)(old(user="ada"), as_value(topic))])
    file = proto_file(("who", TEXT, {}), ("n", LONG, {}))
    new, other = proto_class(file, "shop.Order"), proto_class(file, "shop.Other")
    bodies = [
        protobuf_writer(client, new)(new(who="bob", n=1), as_value(topic)),
        protobuf_writer(client, other)(other(x=1), as_value(topic)),
    ]
    kafka_broker.write(topic, bodies)
    settings: dict[str, Any] = {"value": "protobuf", "schema_registry": registry.url}
    source = Kafka(kafka_broker.bootstrap, topic, on_undecodable="quarantine", **settings)
    declared = Kafka(kafka_broker.bootstrap, topic, columns="who string, x long", **settings)

    # `Other` stands in the same file: it is found there, and has none of the columns.
    assert rows(source) == [
        {"who": "ada", "n": 0},
        {"who": "bob", "n": 1},
        {"who": None, "n": None},
    ]
    assert rows(declared) == [
        {"who": None, "x": None},
        {"who": "bob", "x": None},
        {"who": None, "x": 1},
    ]


def test_json_with_a_schema_has_its_properties(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """Objects, lists, moments, references, and what may be null."""
    topic = kafka_broker.topic()
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "user": {"type": "string"},
            "n": {"type": ["null", "integer"]},
            "rate": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "paid": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "state": {"enum": ["NEW", "PAID"]},
            "items": {"type": "array", "items": {"$ref": "#/definitions/item"}},
        },
        "definitions": {"item": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    }
    order = {
        "user": "ada",
        "n": 1,
        "rate": 0.5,
        "paid": True,
        "at": AT.isoformat(),
        "state": "NEW",
        "items": [{"sku": "a"}],
    }
    write = JSONSerializer(json.dumps(schema), client)
    kafka_broker.write(topic, [write(order, as_value(topic)), None])
    source = Kafka(kafka_broker.bootstrap, topic, value="json-schema", schema_registry=registry.url)

    assert source.schema() == pa.schema(
        [
            ("user", pa.string()),
            ("n", pa.int64()),
            ("rate", pa.float64()),
            ("paid", pa.bool_()),
            ("at", pa.timestamp("us", "UTC")),
            ("state", pa.string()),
            ("items", pa.list_(pa.struct([("sku", pa.string())]))),
        ]
    )
    assert rows(source) == [{**order, "at": AT}, dict.fromkeys(order)]


def test_what_no_schema_explains_is_left_out_and_can_be_looked_at(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """A bad message takes no good one with it, whatever is wrong with it."""
    topic = kafka_broker.topic()
    write = AvroSerializer(client, record(("user", "string"), ("n", "long")))
    good = write({"user": "ada", "n": 1}, as_value(topic))
    assert good is not None
    client.register_schema("other", Schema('{"type": "object"}', "JSON"))
    no_number, unknown = "it does not begin with the number of a schema", good[:3] + b"\0\x63"
    wrong = {
        b"{}": no_number,
        b"": no_number,
        b"\x01" + good[1:]: no_number,
        unknown + good[5:]: "it names schema 99, which the registry lacks",
        good[:4] + b"\x02" + good[5:]: "its schema is JSON, not AVRO",
        good[:-1]: "it is not what its schema says",
    }
    kafka_broker.write(topic, [good, *wrong, good])
    source = Kafka(
        kafka_broker.bootstrap,
        topic,
        value="avro",
        schema_registry=registry.url,
        on_undecodable="quarantine",
    )

    assert rows(source) == [{"user": "ada", "n": 1}] * 2
    found = list(source.dropped("0", Range(start=0, stop=8)))
    assert [each.value for each in found] == list(wrong)
    for each, reason in zip(found, wrong.values(), strict=True):
        assert each.reason.startswith(reason)
    pieces = list(source.read_with_dropped("0", Range(start=0, stop=8)))
    assert [isinstance(piece, DroppedMessage) for piece in pieces] == [False, *[True] * 6, False]


REFUSED: dict[str, tuple[str, str, str]] = {
    "a union": ("AVRO", record(("x", ["string", "long"])), "field 'x' is a union of several types"),
    "a record in itself": (
        "AVRO",
        record(("next", ["null", "Order"])),
        "field 'next' holds a record Order within itself",
    ),
    "anything": ("JSON", '{"type": "object", "properties": {"x": {}}}', "property 'x' may be of"),
    "no object": ("JSON", '{"type": "string"}', "the schema is not one of objects"),
    "another language": ("JSON", "{}", "its schema is JSON, not AVRO"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_that_has_no_columns_is_refused_with_what_to_do(
    registry: Registry, client: SchemaRegistryClient, case: str
) -> None:
    """It is told when the job is loaded, and which field it is."""
    language, text, reason = REFUSED[case]
    client.register_schema("orders-value", Schema(text, language))
    value = "json-schema" if language == "JSON" and "AVRO" not in reason else "avro"
    source = Kafka("127.0.0.1:1", "orders", value=value, schema_registry=registry.url)

    with pytest.raises(Invalid) as caught:
        source.schema()

    assert f"of which no columns can be made ({reason}" in caught.value.found
    assert caught.value.advice == "declare columns"


def test_a_column_that_a_schema_adds_must_not_be_there_already(
    registry: Registry, client: SchemaRegistryClient
) -> None:
    """What can be known only then is checked then."""
    client.register_schema("orders-value", Schema(record(("key", "string")), "AVRO"))
    settings: dict[str, Any] = {"value": "avro", "key": "bytes", "schema_registry": registry.url}

    with pytest.raises(Invalid, match="has two columns 'key'"):
        Kafka("127.0.0.1:1", "orders", **settings).schema()
    assert Kafka("127.0.0.1:1", "orders", key_column="k", **settings).schema().names == ["k", "key"]


def test_a_topic_without_a_schema_is_told(registry: Registry) -> None:
    """It names the subject that was looked for."""
    source = Kafka("127.0.0.1:1", "orders", value="avro", schema_registry=registry.url)

    with pytest.raises(Invalid, match="has no subject 'orders-value'"):
        source.schema()


def test_several_topics_must_have_declared_columns() -> None:
    """Each may have schemas of its own, and none of them counts more."""
    with pytest.raises(Invalid, match="has value='avro', several topics and no columns"):
        Kafka("127.0.0.1:1", ["a", "b"], value="avro", schema_registry="http://127.0.0.1:1")


def test_a_registry_that_is_away_is_waited_for_and_no_message_is_blamed(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """What cannot be decoded just now is not undecodable."""
    topic = kafka_broker.topic()
    write = AvroSerializer(client, record(("n", "long")))
    kafka_broker.write(topic, [write({"n": 1}, as_value(topic))])
    settings: dict[str, Any] = {"value": "avro", "columns": "n long"}
    quick = {"url": registry.url, "max.retries": 0}
    lenient = {"on_undecodable": "quarantine", "schema_registry": quick}
    source = Kafka(kafka_broker.bootstrap, topic, **lenient, **settings)
    registry.fail(503)
    with pytest.raises(Unavailable, match=r"does not answer \(503: not now\)"):
        rows(source)
    registry.fail(None)
    assert rows(source) == [{"n": 1}]

    nobody = {"url": f"http://127.0.0.1:{free_port()}", "max.retries": 0}
    with pytest.raises(Unavailable, match=r"does not answer \(ConnectError\)"):
        rows(Kafka(kafka_broker.bootstrap, topic, schema_registry=nobody, **settings))


def test_a_registrys_password_is_a_reference(
    registry: Registry, client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked up where it is used, and shown by nobody, not even if the registry says it."""
    client.register_schema("orders-value", Schema(record(("n", "long")), "AVRO"))
    registry.lock("etl", "hunter2")
    told = {"url": registry.url, "basic.auth.user.info": "etl:${REGISTRY_PASSWORD}"}
    source = Kafka("127.0.0.1:1", "orders", value="avro", schema_registry=told)
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2 is wrong")

    with pytest.raises(Invalid, match="refuses with 401") as caught:
        source.schema()
    assert "hunter2" not in repr(caught.value.args)

    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    assert source.schema() == pa.schema([("n", pa.int64())])
    assert b"hunter2" not in pickle.dumps(source)
    assert "hunter2" not in repr(source) + repr(vars(source))


def test_a_password_in_the_url_of_a_registry_is_refused() -> None:
    """A URL is shown in messages."""
    with pytest.raises(Invalid) as caught:
        Kafka("127.0.0.1:1", "orders", schema_registry="http://etl:hunter2@127.0.0.1:1")

    assert "hunter2" not in repr(caught.value.args)


def test_a_schema_is_asked_for_once(
    kafka_broker: Cluster, registry: Registry, client: SchemaRegistryClient
) -> None:
    """A number stands for one schema for ever; a registry is not asked for every message."""
    topic = kafka_broker.topic()
    write = AvroSerializer(client, record(("n", "long")))
    kafka_broker.write(topic, [write({"n": number}, as_value(topic)) for number in range(100)])
    registry.asked.clear()
    source = Kafka(kafka_broker.bootstrap, topic, value="avro", schema_registry=registry.url)
    for _ in range(3):
        assert len(rows(pickle.loads(pickle.dumps(source)))) == 100
        assert len(rows(source)) == 100

    assert sum("/schemas/ids/" in asked for asked in registry.asked) == 1


def test_without_the_packages_it_says_what_to_install() -> None:
    """They are an extra of their own; whoever reads JSON does not need them."""
    code = (
        "import sys; sys.modules['fastavro'] = None\n"
        "from penstock.errors import Invalid\n"
        "from penstock.sources.kafka import Kafka\n"
        "told = {'schema_registry': 'http://h:1', 'columns': 'n long'}\n"
        "try:\n"
        "    Kafka('h:1', 'a', value='avro', **told).schema()\n"
        "except Invalid as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == (
        "source topic a of Kafka at h:1 needs the package fastavro, which is not installed: "
        "pip install 'penstock[kafka-schemas]'.\n"
    )
