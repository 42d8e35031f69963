"""Every object store there is, each empty and under a URL that any process can open."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.store import ObjectStore
from penstock.clock import SystemChance
from tests.support.servers import BUCKET, Endpoint

SERVERS = {"s3-moto": "atomic_moto", "s3-versity": "versity_server"}


@pytest.fixture(params=["memory", "directory", *SERVERS])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, use: Callable[[Endpoint], None]
) -> str:
    unique = SystemChance().unique()
    if request.param == "memory":
        return f"memory://{unique}"
    if request.param == "directory":
        return str(tmp_path / "store")
    use(request.getfixturevalue(SERVERS[request.param]))
    return f"s3://{BUCKET}/{unique}"


@pytest.fixture
def store(store_url: str) -> ObjectStore:
    return open_store(store_url)
