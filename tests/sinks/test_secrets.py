"""Credentials are named in a job and known only where they are used."""

import traceback
from pathlib import Path

import pytest

from penstock.errors import Invalid
from penstock.secrets import SECRETS_FILE, resolved


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PG_PASSWORD", SECRETS_FILE):
        monkeypatch.delenv(name, raising=False)


def test_a_text_without_references_is_left_alone() -> None:
    """Not everybody has a password, and a dollar is a dollar."""
    assert resolved("sink a", "host=db $5 {x} $") == "host=db $5 {x} $"


def test_the_environment_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is set for one run wins over what is written down for all."""
    file = tmp_path / "secrets.toml"
    file.write_text('PG_PASSWORD = "from the file"\nPG_USER = "etl"\n')
    monkeypatch.setenv(SECRETS_FILE, str(file))
    monkeypatch.setenv("PG_PASSWORD", "from ${the} environment")

    assert resolved("sink a", "${PG_USER}:${PG_PASSWORD}") == "etl:from ${the} environment"


def test_a_name_that_nobody_knows_is_named() -> None:
    """A job that would connect as nobody must not start."""
    with pytest.raises(Invalid) as caught:
        resolved("sink orders", "redis://:${PG_PASSWORD}@host")

    assert str(caught.value) == (
        "sink orders refers to ${PG_PASSWORD}, which is not set: set PG_PASSWORD in the "
        "environment, or in the file that PENSTOCK_SECRETS names."
    )


@pytest.mark.parametrize("text", ['PG_PASSWORD = "hunter2', "hunter2", "\xff"])
def test_a_file_that_cannot_be_read_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """A parser's message may hold the line it stumbled over, and that line a secret."""
    file = tmp_path / "secrets.toml"
    file.write_bytes(text.encode("latin-1"))
    monkeypatch.setenv(SECRETS_FILE, str(file))

    with pytest.raises(Invalid) as caught:
        resolved("sink orders", "${PG_PASSWORD}")

    assert str(caught.value) == (
        f"sink orders, PENSTOCK_SECRETS={file} cannot be read (it is no TOML file): "
        "write NAME = 'text'."
    )
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody meant it to be there."""
    monkeypatch.setenv(SECRETS_FILE, str(tmp_path / "none.toml"))

    with pytest.raises(Invalid, match="cannot be read \\(No such file or directory\\)"):
        resolved("sink orders", "${PG_PASSWORD}")
