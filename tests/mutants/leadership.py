"""Planted bugs of leadership: tokens, leases, clocks."""

from typing import Any

import msgspec

from penstock.checkpoint import leader
from penstock.checkpoint.head import HEAD_REGISTER
from penstock.checkpoint.layout import HEAD_KEY
from penstock.effects import Put, Steps
from penstock.fencing import standby
from penstock.fencing.register import Seen, read
from penstock.fencing.tenure import Tenure
from penstock.points import Point
from tests.checkpoint.test_leader import test_history_without_a_head_is_refused
from tests.fencing.test_standby import (
    test_a_beating_leader_is_left_alone,
    test_not_hearing_is_not_silence,
)
from tests.fencing.test_tenure import test_a_fenced_tenure_refuses_for_good
from tests.mutants.mutant import Mutant, by, by_seeds


def same_token(self: Any, job: Any, holder: Any) -> Any:
    return msgspec.structs.replace(self, holder=holder)


def takes_over_by_force(register: Any, claim: Any, chance: Any) -> Steps[Any]:
    seen = yield from read(register, Point.TAKEOVER_READ)
    claimed = yield from claim(None if seen is None else seen.document)
    yield Put(Point.TAKEOVER_SWAP, HEAD_KEY, register.encode(claimed))
    now = yield from read(register, Point.TAKEOVER_SETTLE)
    return Seen(claimed, now.etag)


def writes_by_lease(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    """Whoever believes its lease is good writes HEAD without a condition."""
    new = self.head.advanced(ref, manifest.commit, self._floor)
    yield Put(Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new))
    seen = yield from read(HEAD_REGISTER, Point.COMMIT_SETTLE)
    self.parent, self._seen = manifest, Seen(new, seen.etag)


def starts_over() -> Steps[None]:
    yield from ()


def never_refuses(self: Any) -> None:
    pass


def judges_by_the_year(self: Any, sign: object, now_s: float) -> bool:
    """Compares this host's clock with a moment of another host's."""
    return now_s > 1_000_000


def deaf_is_silent(self: Any, sign: object, now_s: float) -> bool:
    self._since_s = now_s if self._since_s is None else self._since_s
    return bool(now_s - self._since_s >= self._lease_s)


class NeverReset(standby.Silence):
    """Counts from the first look, whatever was seen since."""

    first_s: float | None = None

    def lasts(self, sign: object, now_s: float) -> bool:
        NeverReset.first_s = now_s if NeverReset.first_s is None else NeverReset.first_s
        return now_s - 1000.0 >= self._lease_s


Leader = leader.Leader
MUTANTS = (
    Mutant(
        "8 token", "taking over keeps the token", ((leader.Head, "claimed", same_token),), by_seeds
    ),
    Mutant(
        "8 swap",
        "taking over without a swap",
        ((leader, "take_over", takes_over_by_force),),
        by_seeds,
    ),
    Mutant(
        "8 lease", "a lease decides who writes", ((Leader, "_decide", writes_by_lease),), by_seeds
    ),
    Mutant(
        "8 sticky",
        "fenced, and forgets it",
        ((Tenure, "check", never_refuses),),
        by(test_a_fenced_tenure_refuses_for_good),
    ),
    Mutant(
        "8 clock",
        "silence by another host's clock",
        ((standby.Silence, "lasts", judges_by_the_year),),
        by(test_a_beating_leader_is_left_alone),
    ),
    Mutant(
        "8 alive",
        "a beating leader counts as silent",
        ((standby.Silence, "lasts", deaf_is_silent),),
        by(test_a_beating_leader_is_left_alone),
    ),
    Mutant(
        "8 deaf",
        "not hearing counts as silence",
        ((standby, "Silence", NeverReset),),
        by(test_not_hearing_is_not_silence),
    ),
    Mutant(
        "8 genesis",
        "no HEAD means a new job",
        ((leader, "_refuse_headless_history", starts_over),),
        by(test_history_without_a_head_is_refused),
    ),
)
