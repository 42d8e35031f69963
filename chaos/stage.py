"""Where a chaos run takes place: a root on a store that can be harmed, and servers' lines.

The store is S3 by default, moto behind our proxy, because most of what can go wrong with a store
goes wrong on the way to it. A folder is the other choice: nothing on the way, and nothing to harm.
Whoever looks at the root afterwards looks past the proxy.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.chaos.asked import OWN_S3
from penstock.chaos.store_faults import StoreFaults, faulty_store
from penstock.checkpoint.open_store import without_secrets
from penstock.clock import Clock
from penstock.errors import Invalid, Unavailable

__all__ = ["Stage", "staged_at"]

BUCKET = "penstock"
READY_S_MAX = 60.0
POLL_S = 0.05
_KEYS = {
    "AWS_ACCESS_KEY_ID": "penstock-access",
    "AWS_SECRET_ACCESS_KEY": "penstock-secret",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A root, and how the job's processes reach it."""

    root: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """What drivers find in their environment."""
    store: StoreFaults | None = None


@contextmanager
def staged_at(root: str, folder: Path, clock: Clock) -> Iterator[Stage]:
    """A stage. `root` is 's3' for one of our own, 'folder' for one below `folder`, or a URL."""
    if root == "folder":
        yield Stage(str(folder / "root"))
    elif root == OWN_S3:
        with _moto(folder, clock) as url, _looking_past(url), faulty_store(url, clock) as proxied:
            _make_bucket(url)
            environment = {**_KEYS, "AWS_ENDPOINT_URL": proxied[0]}
            yield Stage(f"s3://{BUCKET}/{folder.name}", environment, proxied[1])
    elif root.startswith("s3://") and os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        with faulty_store(os.environ["AWS_ENDPOINT_URL"], clock) as (url, faults):
            yield Stage(root, {"AWS_ENDPOINT_URL": url}, faults)
    elif "://" not in root or root.startswith(("s3://", "file://")):
        yield Stage(root)
    else:
        found = "is no place for a chaos run"
        advice = "give s3, folder, a folder's name or s3://bucket/prefix"
        raise Invalid(f"root {without_secrets(root)}", found, advice)


@contextmanager
def _looking_past(url: str) -> Iterator[None]:
    """This process looks at the store itself, and not at what a proxy makes of it."""
    settings = {**_KEYS, "AWS_ENDPOINT_URL": url}
    before = {name: os.environ.get(name) for name in [*settings, "AWS_PROFILE"]}
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _moto(folder: Path, clock: Clock) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "moto.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_for(server, port, clock)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int, clock: Clock) -> None:
    deadline_s = clock.monotonic() + READY_S_MAX
    while clock.monotonic() < deadline_s:
        if server.poll() is not None:
            found = "does not start; its package may not be installed"
            raise Invalid("moto", found, "pip install 'penstock[chaos]', or use --root folder")
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        clock.sleep(POLL_S)
    raise Unavailable("moto", f"does not answer after {READY_S_MAX:.0f} s", "try again")


def _make_bucket(url: str) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
        region_name=_KEYS["AWS_REGION"],
    )
    client.create_bucket(Bucket=BUCKET)
