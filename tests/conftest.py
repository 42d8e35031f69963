"""Fixtures shared by all rooms: real servers, started once per test process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

from tests.support import servers
from tests.support.servers import BUCKET, Endpoint
from tests.support.versity import versity_binary


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
