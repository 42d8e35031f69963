"""What a `Kafka` is told, checked without a broker."""

import pickle  # noqa: TID251 - Spark pickles sources on their way to its workers
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Invalid
from penstock.sources import Range
from penstock.sources.kafka import Kafka

REGISTRY = {"schema_registry": "http://127.0.0.1:1"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no topic": ({"topic": None}, "has no topic"),
    "no topics": ({"topic": []}, "has no topic"),
    "a topic and a pattern": ({"pattern": "a.*"}, "has topics and a pattern"),
    "a pattern that is none": ({"topic": None, "pattern": "("}, "has the pattern '('"),
    "a name no topic has": ({"topic": "a/b"}, "has the topic 'a/b', which Kafka cannot have"),
    "a topic twice": ({"topic": ["a", "a"]}, "has the topic 'a', twice"),
    "no broker": ({"bootstrap": " "}, "names no broker"),
    "an unknown format": ({"value": "xml"}, "has value='xml'"),
    "an unknown format of keys": ({"key": "xml"}, "has key='xml'"),
    "columns of bytes": ({"columns": "a long"}, "has columns and value='bytes', which has none"),
    "Avro without a registry": ({"value": "avro"}, "has value='avro' and no schema registry"),
    "a column twice": (
        {"value": "json", "columns": "a long, a long"},
        "has two columns 'a'",
    ),
    "a column named like the key": (
        {"value": "json", "columns": "key long", "key": "bytes"},
        "has two columns 'key'",
    ),
    "a column named like the headers": (
        {"value": "json", "columns": "headers long", "headers": True},
        "has two columns 'headers'",
    ),
    "a column named like the deletes": (
        {"value": "json", "columns": "gone long", "deletes": "gone"},
        "has two columns 'gone'",
    ),
    "a column named like what is known": (
        {"value": "json", "columns": pa.schema([("_meta", pa.int64())])},
        "has two columns '_meta'",
    ),
    "an unknown policy": ({"on_undecodable": "skip"}, "has on_undecodable='skip'"),
    "no patience": ({"timeout_s": 0}, "has timeout_s=0"),
    "no end of patience": ({"timeout_s": 601}, "has timeout_s=601"),
    "a limit of nothing": ({"partition_records_max": 0}, "has partition_records_max=0"),
    "an empty group": ({"group": ""}, "has an empty group"),
    "a registry's setting that is unknown": (
        {"schema_registry": {"url": "http://x", "url2": "y"}},
        "has schema_registry with 'url2'",
    ),
    "a registry without a URL": (
        {"schema_registry": {"bearer.auth.token": "${TOKEN}"}},
        "has schema_registry without a url",
    ),
    "a setting that is no text": (
        {"settings": {"error_cb": print}},
        "has settings with 'error_cb', which is a builtin_function_or_method",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_told_when_it_is_written(case: str) -> None:
    """Not when the job has started, and not by a broker."""
    given, found = REFUSED[case]

    with pytest.raises(Invalid) as caught:
        Kafka(**{"bootstrap": "127.0.0.1:1", "topic": "clicks", **given})

    assert caught.value.found.startswith(found)


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "values": ({"value": "json"}, "has value='json' and no columns"),
    "keys": ({"key": "json"}, "has key='json' and no key_columns"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_json_without_columns_can_be_written_and_not_read(case: str) -> None:
    """The same description serves both ways, and a job asks for columns before it starts."""
    given, found = UNREADABLE[case]
    source = Kafka("127.0.0.1:1", "clicks", **given)

    for attempt in (source.schema, lambda: list(source.read("0", Range(start=0, stop=1)))):
        with pytest.raises(Invalid) as caught:
            attempt()
        assert caught.value.found == found


PROMISED = {
    "bootstrap.servers": "elsewhere:9092",
    "group.id": "mine",
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "latest",
    "enable.auto.commit": True,
    "enable.partition.eof": False,
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_setting_that_would_break_the_promise_is_refused(name: str) -> None:
    """Silently overruled it would be a riddle, obeyed it would lose messages."""
    with pytest.raises(Invalid) as caught:
        Kafka("127.0.0.1:1", "clicks", settings={name: PROMISED[name]})

    assert caught.value.found == f"has the setting {name!r}"


SECRETS: dict[str, dict[str, Any]] = {
    "sasl.password": {"settings": {"sasl.password": "hunter2"}},
    "ssl.key.password": {"settings": {"ssl.key.password": "hunter2"}},
    "ssl.key.pem": {"settings": {"ssl.key.pem": "hunter2"}},
    "sasl.oauthbearer.client.secret": {"settings": {"sasl.oauthbearer.client.secret": "hunter2"}},
    "basic.auth.user.info": {
        "schema_registry": {"url": "http://x", "basic.auth.user.info": "me:hunter2"}
    },
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(name: str) -> None:
    """It would be in every task that Spark sends, and in every dump of one."""
    with pytest.raises(Invalid) as caught:
        Kafka("127.0.0.1:1", "clicks", **SECRETS[name])

    assert caught.value.found.startswith(f"has {name!r} written out in its ")
    assert "hunter2" not in str(caught.value)


def test_a_description_says_where_and_nothing_else() -> None:
    """It is printed, logged and sent to every worker."""
    settings = {"sasl.password": "${KAFKA_PASSWORD}", "sasl.username": "etl"}
    one = Kafka("a:1,b:2", "clicks", settings=settings, value="json", columns="n long")
    several = Kafka("a:1", ["clicks", "pays"], key="string", headers=True, deletes="gone")

    assert repr(one) == "<topic clicks of Kafka at a:1,b:2>"
    assert repr(several) == "<topics clicks, pays of Kafka at a:1>"
    assert repr(Kafka("a:1", pattern="c.*")) == "<topics 'c.*' of Kafka at a:1>"
    assert one.schema() == pa.schema([("n", pa.int64())])
    assert several.schema().names == ["key", "value", "headers", "gone"]
    copy = pickle.loads(pickle.dumps(several))
    assert (copy.name, copy.schema()) == (several.name, several.schema())


@pytest.mark.parametrize("partition", ["x", "-1", "", "00", "0 ", "٠", "clicks/0", "1e3", "/0"])
def test_a_name_that_no_partition_can_have_is_refused_without_asking(partition: str) -> None:
    """One partition has one name."""
    with pytest.raises(Invalid) as caught:
        list(Kafka("127.0.0.1:1", "clicks").read(partition, Range(start=0, stop=1)))

    assert caught.value.found == f"has no partition {partition!r}"


def test_without_the_client_it_says_what_to_install() -> None:
    """The client is an extra; a job without it is told at its first question."""
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from penstock.errors import Invalid\n"
        "from penstock.sources import Limits, Range\n"
        "from penstock.sources.kafka import Kafka\n"
        "source = Kafka('127.0.0.1:1', 'clicks')\n"
        "for attempt in (source.spans, lambda: source.plan({}, Limits()),\n"
        "                lambda: list(source.read('0', Range(start=0, stop=1)))):\n"
        "    try:\n"
        "        attempt()\n"
        "    except Invalid as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    said = (
        "source topic clicks of Kafka at 127.0.0.1:1 needs the package confluent-kafka, which is "
        "not installed: pip install 'penstock[kafka]'."
    )
    assert done.stdout.splitlines() == [said] * 3
