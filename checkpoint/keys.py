"""Which of the names found on a store are keys: others may keep files of their own beside ours."""

from penstock.checkpoint.store import check_key
from penstock.errors import Invalid

__all__ = ["is_key"]


def is_key(name: str) -> bool:
    """Whether Penstock could have written an object of this name."""
    try:
        check_key(name)
    except Invalid:
        return False
    return True
