"""Real Postgres and Redis servers, each in a temporary folder, that can be killed and come back."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.clock import SystemClock
from tests.support.servers import LEASH, free_port, wait_for_port
from tests.support.versity import out_of_reach

POSTGRES_USER = "postgres"
"""Who runs the server where we are root, which it refuses to be run by."""

PASSWORD = "correct horse $battery"
END_S_MAX = 20.0
READY_S_MAX = 60.0
POLL_S = 0.05


@dataclass
class Server:
    """A server process on a port of its own; its folder outlives the process."""

    command: list[str]
    port: int
    folder: Path
    log: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT)
        wait_for_port(self.process, self.port)

    def kill(self) -> None:
        """kill -9, as when the power fails."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it end by itself, or else end it."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()


class Postgres(Server):
    """A cluster with one database, `shop`, of one user, `etl`, who needs a password."""

    def dsn(self, port: int | None = None) -> str:
        """What a client needs, with the password as a reference."""
        return f"postgresql://etl:${{PG_PASSWORD}}@127.0.0.1:{port or self.port}/shop"

    def start(self) -> None:
        """Start it, and wait until it has recovered and takes connections."""
        super().start()
        ready = [binary("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        clock = SystemClock()
        deadline_s = clock.monotonic() + READY_S_MAX
        while subprocess.run(ready, check=False).returncode:
            assert clock.monotonic() < deadline_s, self.log.read_text()[-2000:]
            clock.sleep(POLL_S)

    def kill(self) -> None:
        """kill -9 of the server, and wait for its backends, which notice and go."""
        assert self.process is not None
        backends = psutil.Process(self.process.pid).children(recursive=True)
        super().kill()
        psutil.wait_procs(backends, END_S_MAX)
        (self.folder / "postmaster.pid").unlink(missing_ok=True)


class Redis(Server):
    """A Redis that writes everything down before it answers."""

    def start(self) -> None:
        """Start it, and wait until it has read what it wrote down: it listens before that."""
        super().start()
        clock = SystemClock()
        deadline_s = clock.monotonic() + READY_S_MAX
        while not self._answers():
            assert clock.monotonic() < deadline_s, self.log.read_text()[-2000:]
            clock.sleep(POLL_S)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port)) as line:
            line.sendall(f'AUTH "{PASSWORD}"\r\nPING\r\n'.encode())
            said = b""
            while said.count(b"\r\n") < 2:
                said += line.recv(1000)
        return said.endswith(b"+PONG\r\n")

    def url(self, port: int | None = None) -> str:
        """What a client needs, with the password as a reference."""
        return f"redis://:${{REDIS_PASSWORD}}@127.0.0.1:{port or self.port}/0"


def binary(name: str) -> str:
    """A program of Postgres, which Debian keeps in a folder per version."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(kept[-1]) if kept else shutil.which(name)
    if found is None:
        out_of_reach(f"there is no {name} here: `make servers` installs the servers tests need")
    return found


@contextmanager
def postgres(*settings: str) -> Iterator[Postgres]:
    """A server in a folder of its own, with further settings like `work_mem=1MB`."""
    initdb, program = binary("initdb"), binary("postgres")
    with _folder(POSTGRES_USER) as folder:
        data = folder / "data"
        secret = folder / "password"
        secret.write_text(PASSWORD)
        _owned(secret, POSTGRES_USER)
        making = ["-D", str(data), "-U", "etl", f"--pwfile={secret}", "--auth=scram-sha-256"]
        _run([*_as(POSTGRES_USER), initdb, *making, "-E", "UTF8", "--locale=C"])
        port = free_port()
        given = [f"port={port}", "listen_addresses=127.0.0.1", "shared_buffers=64MB", *settings]
        options = [part for each in given for part in ("-c", each)]
        where = ["-c", f"unix_socket_directories={folder}"]
        command = [*_as(POSTGRES_USER), program, "-D", str(data), *where, *options]
        server = Postgres(command, port, data, folder / "server.log")
        try:
            server.start()
            _run(
                [binary("createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "etl", "shop"],
                PGPASSWORD=PASSWORD,
            )
            yield server
        finally:
            server.stop()


@contextmanager
def redis(*settings: str) -> Iterator[Redis]:
    """A server in a folder of its own that answers when the disk has it."""
    program = shutil.which("redis-server")
    if program is None:
        out_of_reach("there is no redis-server here: `make servers` installs what tests need")
    with _folder(None) as folder:
        port = free_port()
        given = {"appendonly": "yes", "appendfsync": "always", "save": "", "dir": str(folder)}
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        where = ["--bind", "127.0.0.1", "--port", str(port), "--requirepass", PASSWORD]
        command = [*_as(None), program, *where, *options, *settings]
        server = Redis(command, port, folder, folder / "server.log")
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    """Outside pytest's folders, which another user could not reach into."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-server-"))
    try:
        _owned(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owned(path: Path, user: str | None) -> None:
    if user is not None and os.geteuid() == 0:
        shutil.chown(path, user)


def _as(user: str | None) -> list[str]:
    """What to write before a command, so that it does not outlive us and runs as that user."""
    if user is not None and os.geteuid() == 0:
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                "--pdeathsig=KILL"]  # fmt: skip
    return [sys.executable, str(LEASH)]


def _run(command: list[str], **settings: str) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
