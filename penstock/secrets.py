"""Credentials by reference: a job says `${NAME}`, and only who connects knows what that is.

A name is looked up in the environment, then in the settings file that PENSTOCK_SECRETS names: a
TOML file of names and texts. It is looked up when a connection is made, in the process that makes
it, so a job, its manifests, its tasks and its messages hold the reference and nothing else.
"""

import os
import re
import tomllib
from pathlib import Path

from penstock.errors import Invalid

__all__ = ["SECRETS_FILE", "is_reference", "references_in", "resolved", "secrets_in"]

SECRETS_FILE = "PENSTOCK_SECRETS"
"""The variable of the environment that names the settings file."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def resolved(where: str, text: str) -> str:
    """The text with every reference replaced; `Invalid` names one that nobody knows."""
    return _REFERENCE.sub(lambda found: _looked_up(where, found[1]), text)


def secrets_in(where: str, text: str) -> list[str]:
    """What the references of a text stand for: never to be shown."""
    return list(references_in(where, text).values())


def references_in(where: str, text: str) -> dict[str, str]:
    """Every reference of a text, as it is written there, with what it stands for."""
    return {found[0]: _looked_up(where, found[1]) for found in _REFERENCE.finditer(text)}


def is_reference(text: str) -> bool:
    """Whether a text holds a reference: then nothing more can be said of it before it is used."""
    return _REFERENCE.search(text) is not None


def _looked_up(where: str, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        value = _in_file(where).get(name)
    if value is None:
        raise Invalid(
            where,
            f"refers to ${{{name}}}, which is not set",
            f"set {name} in the environment, or in the file that {SECRETS_FILE} names",
        )
    return value


def _in_file(where: str) -> dict[str, str]:
    path = os.environ.get(SECRETS_FILE)
    if not path:
        return {}
    try:
        found = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # What the parser says may quote a line of the file, and with it a secret.
        why = error.strerror if isinstance(error, OSError) else "it is no TOML file"
        raise Invalid(
            f"{where}, {SECRETS_FILE}={path}", f"cannot be read ({why})", "write NAME = 'text'"
        ) from None
    return {name: value for name, value in found.items() if isinstance(value, str)}
