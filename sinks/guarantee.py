"""What a sink promises about rows it was given: the word a job is measured by before it starts.

A job is as good as its weakest part, and says so. Nothing here is ever lowered in silence.
"""

from enum import StrEnum

from penstock.errors import Invalid

__all__ = ["Guarantee", "parse_guarantee"]


class Guarantee(StrEnum):
    """From the strongest to the weakest."""

    EXACTLY_ONCE = "exactly-once"
    """Every row is there once, and nobody ever sees it otherwise."""
    CONVERGES = "converges"
    """A reader may meet an older value for a moment; in the end each is the last one."""
    AT_LEAST_ONCE = "at-least-once"
    """Every row arrives; after a failure some arrive again."""

    def at_least(self, other: "Guarantee") -> bool:
        """Whether this promises all that `other` does."""
        order = list(Guarantee)
        return order.index(self) <= order.index(other)


def parse_guarantee(text: str) -> Guarantee:
    """The guarantee that is written like this."""
    try:
        return Guarantee(text)
    except ValueError as unknown:
        raise Invalid(
            f"guarantee {text!r}",
            "is not one there is",
            f"use one of {', '.join(Guarantee)}",
        ) from unknown
