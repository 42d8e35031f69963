"""Credentials by reference: a job says `${NAME}`, and only who connects knows what that is.

A name is looked up in the environment, then in the settings file that PENSTOCK_SECRETS names: a
TOML file of names and texts. It is looked up when a connection is made, in the process that makes
it, so a job, its manifests, its tasks and its messages hold the reference and nothing else.

A secret that may be absent must not be lost by a slip: a name that is there without a text, or in a
section of the file, is an error and never taken for absent.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from penstock.errors import Invalid

__all__ = ["SECRETS_FILE", "is_reference", "optional", "references_in", "resolved", "secrets_in"]

SECRETS_FILE = "PENSTOCK_SECRETS"
"""The variable of the environment that names the settings file."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_WHOLE_REFERENCE = re.compile(rf"(?<![^\s,]){_REFERENCE.pattern}(?![^\s,])")
"""A reference with nothing but commas and spaces around it: no part of a secret looks like that."""


def resolved(where: str, text: str) -> str:
    """The text with every reference replaced; `Invalid` names one that nobody knows."""
    return _REFERENCE.sub(lambda found: _looked_up(where, found[1]), text)


def optional(name: str) -> str | None:
    """The secret of that name; None if there is none, `Invalid` if it is there and is no text. A
    reference in its place, alone or in a list, is replaced."""
    value = os.environ[name] if name in os.environ else _found_in_file(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        kind = "empty" if isinstance(value, str) else "no text"
        raise Invalid(name, f"is set, and is {kind}", f"write {name} = 'text', or remove it")
    return _WHOLE_REFERENCE.sub(lambda found: _looked_up(name, found[1]), value)


def _found_in_file(name: str) -> Any:
    """The value of a name in the settings file, of whatever type; None if it is not there."""
    found = _parsed_file(name)
    if name not in found and _is_below(name, found):
        raise Invalid(
            f"{name}, {SECRETS_FILE}={os.environ[SECRETS_FILE]}",
            "stands in a section of the file, where it is not looked for",
            "move it above the first [section]",
        )
    return found.get(name)


def _is_below(name: str, found: Any) -> bool:
    """Whether a name occurs anywhere in what was parsed."""
    if isinstance(found, dict):
        return name in found or any(_is_below(name, value) for value in found.values())
    return isinstance(found, list) and any(_is_below(name, value) for value in found)


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
    found = _parsed_file(where)
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _parsed_file(where: str) -> dict[str, Any]:
    path = os.environ.get(SECRETS_FILE)
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        # What the parser says may quote a line of the file, and with it a secret.
        why = error.strerror if isinstance(error, OSError) else "it is no TOML file"
        raise Invalid(
            f"{where}, {SECRETS_FILE}={path}", f"cannot be read ({why})", "write NAME = 'text'"
        ) from None
