"""Fixtures shared by all rooms: real servers, started once per test process."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

from tests.support import databases, kafka, servers
from tests.support.memory_folder import use_memory
from tests.support.servers import BUCKET, Endpoint
from tests.support.versity import versity_binary

use_memory()

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for a minute: to compile well, and to collect in parallel, costs them more
than it gives. A start of Spark and a small epoch take a third less of the processor."""
for name, value in {
    "SPARK_SUBMIT_OPTS": QUICK,
    "SPARK_LAUNCHER_OPTS": QUICK,
    "SPARK_DAEMON_JAVA_OPTS": QUICK,
    "PYSPARK_SUBMIT_ARGS": f'--conf "spark.executor.extraJavaOptions={QUICK}" pyspark-shell',
}.items():
    os.environ.setdefault(name, value)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long: one of them left for the end would run alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, "spark" not in item.path.parts))


SLOWEST_FILES = 15
"""How many files the summary of a run names."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that took longest, set-up included: that is where a run can be shortened."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    seconds: Counter[str] = Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"slowest files, of {sum(seconds.values()):.0f} s in all")
    for path, taken in seconds.most_common(SLOWEST_FILES):
        terminalreporter.line(f"{taken:7.1f} s  {path}")


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """moto as it is, with a bucket: not atomic."""
    with servers.moto(tmp_path_factory.mktemp("moto")) as endpoint:
        yield with_bucket(endpoint)


@pytest.fixture(scope="session")
def atomic_moto(
    moto_server: Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    """moto behind a proxy that lets one write through at a time."""
    with servers.proxy(moto_server, tmp_path_factory.mktemp("proxy"), "serialise") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def versity_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A real S3 server, with a bucket."""
    with servers.versity(versity_binary(), tmp_path_factory.mktemp("versity")) as endpoint:
        yield with_bucket(endpoint)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[databases.Postgres]:
    """A real Postgres; the database is shared, so tests use tables of their own."""
    with databases.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[databases.Redis]:
    """A real Redis; it is shared, so tests use keys of their own."""
    with databases.redis() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[kafka.Cluster]:
    """A real Kafka of one broker; it is shared, so tests use topics of their own."""
    with kafka.cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_brokers() -> Iterator[kafka.Cluster]:
    """A real Kafka of three brokers, any one of which may be away for a while."""
    with kafka.cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs of this process and its children find the passwords they refer to."""
    for name in ("PG_PASSWORD", "REDIS_PASSWORD"):
        monkeypatch.setenv(name, databases.PASSWORD)


@pytest.fixture
def s3_proxy(moto_server: Endpoint, tmp_path: Path) -> Iterator[Callable[..., Endpoint]]:
    """Start a proxy before moto: `s3_proxy("lost-ack", "--count", "1")`."""
    with ExitStack() as stack:
        yield lambda mode, *options: stack.enter_context(
            servers.proxy(moto_server, tmp_path, mode, *options)
        )


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Endpoint], None]:
    """Point the AWS settings of this process and its children at an endpoint."""

    def point(endpoint: Endpoint) -> None:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name, value in endpoint.settings().items():
            monkeypatch.setenv(name, value)

    return point


def with_bucket(endpoint: Endpoint) -> Endpoint:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    return endpoint
