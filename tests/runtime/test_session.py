"""The files that a Spark session is started with: made anew, for this user alone, and bounded."""

import os
import re
import stat
import tempfile
from pathlib import Path

import pytest

from penstock.runtime import session


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder for this test alone, and no log that is named."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_SPARK_LOG", raising=False)
    return tmp_path / f"penstock-logs-{os.geteuid()}"


def test_the_log_is_a_new_file_that_only_this_user_reads(temporary: Path) -> None:
    """A name that can be foreseen can be a link to any file of this user."""
    logs = {session.spark_log_path(), session.spark_log_path()}

    assert len(logs) == 2
    assert {log.parent for log in logs} == {temporary}
    assert {stat.S_IMODE(log.stat().st_mode) for log in (temporary, *logs)} == {0o700, 0o600}


def test_the_properties_are_made_anew_wherever_the_log_is(temporary: Path, tmp_path: Path) -> None:
    """A JVM does what they say: they are never written through a file that is there."""
    log = tmp_path / "named.log"
    planted = log.with_suffix(".log4j2.properties")
    planted.write_text("planted")

    properties = session._log_properties(log)

    assert planted.read_text() == "planted"
    assert properties.parent == temporary
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600
    assert str(properties) in session._java_options(properties)


def test_the_log_is_put_aside_when_it_has_grown_large(temporary: Path, tmp_path: Path) -> None:
    """A job that runs for months fills no disk with warnings."""
    text = session._log_properties(tmp_path / "named.log").read_text()

    assert dict(re.findall(r"appender\.file\.(\S+) = (.*)", text)) == {
        "type": "RollingFile",
        "name": "file",
        "fileName": f"{tmp_path}/named.log",
        "filePattern": f"{tmp_path}/named.log.%i",
        "filePermissions": "rw-------",
        "policies.type": "Policies",
        "policies.size.type": "SizeBasedTriggeringPolicy",
        "policies.size.size": f"{session.LOG_MB_MAX} MB",
        "strategy.type": "DefaultRolloverStrategy",
        "strategy.max": str(session.LOG_FILES_MAX),
        "layout.type": "PatternLayout",
        "layout.pattern": "%d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex",
    }


def test_a_named_log_is_this_users_alone(tmp_path: Path) -> None:
    """Rows and names of a job may stand in it."""
    log = tmp_path / "named.log"

    with session._standard_error_to(log):
        os.write(2, b"from the JVM\n")

    assert log.read_bytes() == b"from the JVM\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
