"""A Spark session as Penstock needs it: started quietly, with the settings results depend on.

Settings that are insisted on, and why:

    spark.stage.maxConsecutiveAttempts=1   a lost shuffle fails the epoch, which is tried again
                                           whole; Spark alone would run a part of it again
    spark.speculation=false                a second copy of a state task would only compete
    spark.sql.adaptive.enabled=false       a part goes to the partition it is addressed to
    spark.sql.session.timeZone=UTC         moments are moments
    spark.task.reaper.enabled=true         a task that is given up is killed

Spark's own output goes to a log file.
"""

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import Invalid, Unavailable

__all__ = ["INSISTED", "send_files", "spark_log_path", "start_spark"]

INSISTED = {
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.task.reaper.enabled": "true",
}
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.task.maxFailures": "4",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.excludeOnFailure.enabled": "false",
    # Over TCP, a task of a few rows waits 40 ms for an acknowledgement that is put off.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
CONNECT_S = 5.0
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\d+,\d+,(\d+)\]")


def spark_log_path() -> Path:
    """Where Spark's own output goes: PENSTOCK_SPARK_LOG, or a file in the temporary folder."""
    named = os.environ.get("PENSTOCK_SPARK_LOG")
    return (
        Path(named) if named else Path(tempfile.gettempdir()) / f"penstock-spark-{os.getpid()}.log"
    )


def start_spark(job: str, master: str, options: Mapping[str, str]) -> SparkSession:
    """A session on `master`; an active one is used as it is, if its settings allow."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return _checked(active)
    _check_java()
    _check_master(master)
    for name, value in options.items():
        if INSISTED.get(name, value) != value:
            found = f"is given as {value!r}, and results would depend on it"
            raise Invalid(f"setting {name}", found, f"leave it out; it must be {INSISTED[name]!r}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    log = spark_log_path()
    settings = {**_DEFAULTS, **_executor_memory(master), **_quiet(log), **options, **INSISTED}
    builder: Any = SparkSession.builder.master(master).appName(f"penstock {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _standard_error_to(log):
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, Exception) as error:
        raise _not_started(master, log, error) from error
    session.sparkContext.setLogLevel("WARN")
    return session


def send_files(session: SparkSession, paths: Sequence[str]) -> None:
    """Let the executors import wheels, archives and modules that they do not have."""
    for path in map(Path, paths):
        if path.suffix != ".whl":
            session.sparkContext.addPyFile(str(path))
            continue
        # Spark looks into archives only by their ending, and a wheel is one by another name.
        archive = Path(tempfile.mkdtemp(prefix="penstock-")) / f"{path.stem}.zip"
        shutil.copyfile(path, archive)
        session.sparkContext.addPyFile(str(archive))


def _checked(session: SparkSession) -> SparkSession:
    for name, value in INSISTED.items():
        found = session.conf.get(name, "")
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
        elif found != value:
            raise Invalid(
                f"the active Spark session's {name}",
                f"is {found!r}, and results would depend on it",
                f"start it with {name}={value}, or stop it and let Penstock start one",
            )
    return session


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    if (java is not None and java.exists()) or (java is None and shutil.which("java")):
        return
    found = f"was not found in JAVA_HOME ({home})" if home else "was not found"
    raise Invalid("Java", found, "install Java 17 or newer, or set JAVA_HOME; Spark needs it")


def _check_master(master: str) -> None:
    """A master that does not answer is said so at once, not after a minute of trying."""
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{place}")
        with suppress(OSError, ValueError):
            socket.create_connection((parts.hostname, parts.port or 7077), CONNECT_S).close()
            return
    raise Unavailable(f"Spark master {master}", "does not answer", "start it, or check its address")


def _executor_memory(master: str) -> dict[str, str]:
    """Executors of a local cluster that fit its workers: Spark's default may not."""
    found = _LOCAL_CLUSTER.fullmatch(master.replace(" ", ""))
    return {} if found is None else {"spark.executor.memory": f"{found[1]}m"}


def _quiet(log: Path) -> dict[str, str]:
    settings = log.with_suffix(".log4j2.properties")
    settings.write_text(_LOG4J.format(path=log))
    option = f"-Dlog4j2.configurationFile=file:{settings} -Djava.net.preferIPv4Stack=true"
    return {"spark.driver.extraJavaOptions": option}


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """What is started inside inherits a standard error that goes to the log."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _not_started(master: str, log: Path, error: Exception) -> Unavailable:
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    telling = [line for line in lines if not line.startswith("An error occurred while calling")]
    last = (telling or lines or [type(error).__name__])[0][:300]
    return Unavailable(
        f"Spark on {master}", f"could not be started ({last})", f"look at {log} for its own words"
    )
