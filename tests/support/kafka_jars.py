"""Apache Kafka's programs: jars from Maven Central, fetched once per machine, kept outside the
repository."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.versity import out_of_reach

VERSION = "4.3.1"
LOGGING_VERSION = "1.7.36"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_S_MAX = 600
RUN_S_MAX = 120
QUICK = ["-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
"""Our brokers live for minutes, beside many others: starting counts, not speed."""

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{VERSION}</version>
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{LOGGING_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Program:
    """Kafka's jars, and how to run what is in them."""

    java: str
    folder: Path

    @property
    def archive(self) -> Path:
        """Where Java keeps what it has learned of the classes, so that it starts sooner."""
        return self.folder / "classes.jsa"

    def command(self, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """What to run for a class with a `main`."""
        jars = ":".join(map(str, sorted((self.folder / "libs").iterdir())))
        kept = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        return [self.java, *QUICK, *(options or kept), "-cp", jars, main, *arguments]

    def run(self, main: str, *arguments: str) -> str:
        """What it prints."""
        done = subprocess.run(
            self.command(main, *arguments),
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{main} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def alone(self) -> Iterator[None]:
        """So that of several test processes that need something made, one makes it."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def kafka_program() -> Program:
    """The program, fetched if this machine has not got it; else the test is skipped."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "penstock" / f"kafka-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    program = Program(_java(), folder)
    with program.alone():
        if not (folder / "libs").exists():
            _fetch(folder)
    return program


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        out_of_reach("Kafka needs Java 17 or newer, and there is no java command here")
    return found


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        out_of_reach("Kafka's jars are fetched with Maven, and there is no mvn command here")
    (folder / "pom.xml").write_text(POM)
    arriving = folder / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    options = [f"-DoutputDirectory={arriving}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [maven, "-q", "-B", COPY, *options],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FETCH_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        out_of_reach(f"fetching Kafka {VERSION} took longer than {FETCH_S_MAX} s")
    if done.returncode:
        out_of_reach(f"Kafka {VERSION} could not be fetched: {done.stdout.strip()[-300:]}")
    arriving.rename(folder / "libs")
