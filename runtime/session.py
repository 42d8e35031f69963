"""A Spark session as Penstock needs it: started quietly, with the settings results depend on.

Settings that are insisted on, and why:

    spark.stage.maxConsecutiveAttempts=1   a lost shuffle fails the epoch, which is tried again
                                           whole; Spark alone would run a part of it again
    spark.speculation=false                a second copy of a state task would only compete
    spark.sql.adaptive.enabled=false       a part goes to the partition it is addressed to
    spark.sql.session.timeZone=UTC         moments are moments
    spark.task.reaper.enabled=true         a task that is given up is killed

Spark's own output goes to a log file, which is put aside when it has grown large.
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
from penstock.private_folder import user_folder

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
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.filePermissions = rw-------
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size_mb} MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {files_max}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
LOG_MB_MAX = 16
"""How large a log grows before it is put aside."""

LOG_FILES_MAX = 3
"""How many that were put aside are kept."""

CONNECT_S = 5.0
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\d+,\d+,(\d+)\]")


def spark_log_path() -> Path:
    """Where Spark's own output goes: PENSTOCK_SPARK_LOG, or a new file of a name that no other user
    can foresee, in a folder of this user alone."""
    named = os.environ.get("PENSTOCK_SPARK_LOG")
    return Path(named) if named else _new_file(f"spark-{os.getpid()}-", ".log")


def _new_file(prefix: str, suffix: str) -> Path:
    """A file that was not there before, for this user alone."""
    descriptor, name = tempfile.mkstemp(suffix, prefix, user_folder("logs"))
    os.close(descriptor)
    return Path(name)


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
    properties = _log_properties(log)
    quiet = {"spark.driver.extraJavaOptions": _java_options(properties)}
    settings = {**_DEFAULTS, **_executor_memory(master), **quiet, **options, **INSISTED}
    builder: Any = SparkSession.builder.master(master).appName(f"penstock {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _standard_error_to(log):
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, Exception) as error:
        raise _not_started(master, log, error) from error
    finally:
        properties.unlink(missing_ok=True)  # it is read once, when the JVM starts
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


def _log_properties(log: Path) -> Path:
    """The settings of Spark's log, in a file that another user can neither make nor change: a JVM
    does what they say."""
    properties = _new_file("spark-", ".log4j2.properties")
    limits = {"size_mb": LOG_MB_MAX, "files_max": LOG_FILES_MAX}
    properties.write_text(_LOG4J.format(path=log, **limits))
    return properties


def _java_options(properties: Path) -> str:
    return f"-Dlog4j2.configurationFile=file:{properties} -Djava.net.preferIPv4Stack=true"


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """What is started inside inherits a standard error that goes to the log."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
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
