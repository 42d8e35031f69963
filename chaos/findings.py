"""What an audit says: checks, each with what it counted, found wrong, and could not look at.

A verdict is `invalid` if something is wrong; else `unknown` if something that was to be looked at
could not be; only else `valid`. Nothing that was not looked at is ever called valid (I18). Lists
are bounded, counts are not.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from penstock.ids import Epoch

__all__ = ["LISTED_MAX", "PROMISES", "Check", "Ledger", "Unknown", "Verdict", "Violation", "worst"]

PROMISES = {
    "I1": "no event is lost",
    "I2": "no event is counted twice",
    "I3": "state at every committed epoch equals a serial replay",
    "I4": "a sink holds exactly the outputs of the committed chain",
    "I5": "offsets are contiguous and monotone per partition",
    "I6": "epochs are dense, tokens do not fall, a token has one holder",
    "I7": "everything a committed manifest names exists and hashes",
    "I8": "nothing uncommitted is visible",
    "I9": "nothing reachable is removed, and garbage goes to zero",
    "I10": "a run from any retained epoch gives the same again",
    "I11": "watermarks do not fall, and no window closes early",
    "I12": "a reader's view never goes back",
    "I13": "a sink's cursor is never ahead of HEAD",
    "I14": "a local database that is on the chain equals the replay",
    "I15": "once faults stop, the job finishes",
    "I16": "sums are conserved, and order is kept per key",
    "I18": "what is unknown is reported as unknown; nobody cries damage without one",
    "I19": "a table has every row committed to it, at each retained epoch and after going back",
    "user": "what the job's own invariants say",
    "function": "a function gives the same for the same, and acts on nothing outside",
}
"""What a violation can be of, as ARCHITECTURE.md numbers it."""

LISTED_MAX = 100
"""How many violations, unknowns and notes of one check are listed; all are counted."""


class Verdict(StrEnum):
    """What can be said of a check, or of all of them."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a whole whose parts have these."""
    found = set(verdicts)
    if Verdict.INVALID in found:
        return Verdict.INVALID
    return Verdict.UNKNOWN if Verdict.UNKNOWN in found else Verdict.VALID


class Violation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that is wrong."""

    invariant: str
    """The promise that is broken, by its number in ARCHITECTURE.md."""
    subject: str
    """An object, a partition of a source, a row of a sink."""
    found: str
    epoch: Epoch | None = None
    """Where in history to look; None if it is nowhere in particular."""

    def __str__(self) -> str:
        return f"{self.subject} {self.found}"


class Unknown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that was to be looked at and was not."""

    subject: str
    why: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.why}"


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing an audit looks at, and what came of it."""

    name: str
    promise: str
    """What is true if it is valid, in words."""
    verdict: Verdict
    counted: dict[str, int]
    """What was looked at."""
    violations: tuple[Violation, ...] = ()
    violations_total: int = 0
    unknown: tuple[Unknown, ...] = ()
    unknown_total: int = 0
    notes: tuple[str, ...] = ()
    """What is worth knowing and not wrong."""


class Ledger:
    """A check while it is being made."""

    def __init__(self, name: str, promise: str) -> None:
        self.name = name
        self._promise = promise
        self._counted: Counter[str] = Counter()
        self._violations: list[Violation] = []
        self._violations_total = 0
        self._unknown: list[Unknown] = []
        self._unknown_total = 0
        self._notes: list[str] = []

    def count(self, what: str, by: int = 1) -> None:
        """So many more were looked at."""
        self._counted[what] += by

    def counted(self, what: str) -> int:
        """How many were looked at so far."""
        return self._counted[what]

    def wrong(
        self, invariant: str, subject: str, found: str, epoch: int | None = None, times: int = 1
    ) -> None:
        """Something is wrong, so many times in the same way."""
        self._violations_total += times
        if len(self._violations) < LISTED_MAX:
            at = None if epoch is None else Epoch(epoch)
            told = Violation(invariant=invariant, subject=subject, found=found, epoch=at)
            self._violations.append(told)

    def unknown(self, subject: str, why: str) -> None:
        """Something could not be looked at."""
        self._unknown_total += 1
        if len(self._unknown) < LISTED_MAX:
            self._unknown.append(Unknown(subject=subject, why=why))

    def note(self, text: str) -> None:
        """Something is worth knowing."""
        if len(self._notes) < LISTED_MAX:
            self._notes.append(text)

    @property
    def verdict(self) -> Verdict:
        """What can be said so far."""
        if self._violations_total:
            return Verdict.INVALID
        return Verdict.UNKNOWN if self._unknown_total else Verdict.VALID

    def check(self) -> Check:
        """What has come of it."""
        return Check(
            name=self.name,
            promise=self._promise,
            verdict=self.verdict,
            counted=dict(self._counted),
            violations=tuple(self._violations),
            violations_total=self._violations_total,
            unknown=tuple(self._unknown),
            unknown_total=self._unknown_total,
            notes=tuple(self._notes),
        )
