"""Real servers for tests: started on a free port, logged to a file, ended with their owner."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import SystemClock

LEASH = Path(__file__).with_name("leash.py")
BUCKET = "penstock"
READY_S_MAX = 60.0
POLL_S = 0.02
END_S_MAX = 10.0


@dataclass(frozen=True)
class Endpoint:
    """An S3 endpoint and what its clients must know."""

    url: str
    log: Path
    access_key: str = "penstock-access"
    secret_key: str = "penstock-secret"

    def settings(self) -> Mapping[str, str]:
        """The environment in which boto3 finds this endpoint and nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def lines(self, start: str) -> list[str]:
        """What the server has logged, of the lines that start so."""
        return [line for line in self.log.read_text().splitlines() if line.startswith(start)]


@contextmanager
def moto(folder: Path) -> Iterator[Endpoint]:
    """moto: an S3 in memory that checks first and acts later."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, folder / "moto.log") as server:
        wait_for_port(server, port)
        yield Endpoint(f"http://127.0.0.1:{port}", folder / "moto.log")


@contextmanager
def proxy(upstream: Endpoint, folder: Path, mode: str, *options: str) -> Iterator[Endpoint]:
    """Penstock's own proxy before another endpoint."""
    log = folder / f"proxy-{mode}-{free_port()}.log"
    module = ["-m", "penstock.chaos.s3_proxy", "--upstream", upstream.url]
    with running([sys.executable, *module, "--mode", mode, *options], log) as server:
        port = first_line(server, log)
        yield Endpoint(f"http://127.0.0.1:{port}", log, upstream.access_key, upstream.secret_key)


@contextmanager
def versity(binary: Path, folder: Path) -> Iterator[Endpoint]:
    """VersityGW: a real S3 server over a folder, whose writes are atomic."""
    port = free_port()
    data = folder / "data"
    data.mkdir()
    endpoint = Endpoint(f"http://127.0.0.1:{port}", folder / "versity.log")
    keys = ["--access", endpoint.access_key, "--secret", endpoint.secret_key]
    listen = ["--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"]
    with running([str(binary), *keys, *listen, "posix", *_metadata(data)], endpoint.log) as server:
        wait_for_port(server, port)
        yield endpoint


def _metadata(data: Path) -> list[str]:
    """Where VersityGW keeps ETags: with the files, or beside them if they cannot hold any."""
    try:
        os.setxattr(data, "user.penstock", b"1")
    except OSError:
        beside = data.with_name("sidecar")
        beside.mkdir()
        return ["--sidecar", str(beside), str(data)]
    os.removexattr(data, "user.penstock")
    return [str(data)]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive this block, nor this process."""
    leashed = [sys.executable, str(LEASH), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(leashed, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in _while_starting(process):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return


def first_line(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in _while_starting(process):
        line, end, _rest = log.read_text().partition("\n")
        if end:
            return line
    raise AssertionError("unreachable: the loop ends by returning or raising")


def _while_starting(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Come round until the caller is content; complain if the process ends or takes too long."""
    clock = SystemClock()
    deadline = clock.monotonic() + READY_S_MAX
    while True:
        yield
        if process.poll() is not None or clock.monotonic() > deadline:
            raise RuntimeError(f"server is not ready (exit code {process.returncode})")
        clock.sleep(POLL_S)
