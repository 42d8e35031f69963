"""One wrong 404 must not cost anybody an epoch."""

from collections.abc import Callable
from typing import Any

from penstock.checkpoint import Chain, MemoryStore, Retention, collect, perform, store_handlers
from penstock.checkpoint.root import Root
from penstock.effects import Get
from penstock.ids import Epoch
from penstock.points import Point
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import SINK, commit_epochs

TIGHT = Retention(epochs=1, age_s=0, grace_s=0)


def pinned_root() -> Root:
    """A root whose floor has passed a pinned epoch."""
    root = Root(MemoryStore(), ManualClock(), CountingChance())
    with root.lead("clicks", "one") as session:
        commit_epochs(root, session, 3, snapshot_every=5)
        root.pin("keep", Epoch(3))
        commit_epochs(root, session, 3, snapshot_every=5)
        session.collect(TIGHT, {SINK: Epoch(7)})
        commit_epochs(root, session, 1)
    return root


def collect_with_one_404(root: Root, lost: Callable[[Get], bool]) -> None:
    """Collect while the first matching read is answered with 404 although the object is there."""
    handlers: dict[Any, Any] = dict(store_handlers(root.store, root.clock))
    honest, lies = handlers[Get], [True]

    def get(effect: Get) -> Any:
        if lies and lost(effect):
            lies.pop()
            return None
        return honest(effect)

    handlers[Get] = get
    perform(collect(Chain(), TIGHT, {SINK: Epoch(8)}), handlers)
    assert not lies, "the fault never happened"


def test_a_pin_not_found_once_still_holds() -> None:
    """The listing showed it, so it is there."""
    root = pinned_root()
    collect_with_one_404(root, lambda effect: effect.at is Point.COLLECT_PIN)
    assert root.check().clean


def test_a_pinned_manifest_not_found_once_still_holds() -> None:
    """Retention has passed it, but the pin has not let it go."""
    root = pinned_root()
    pinned = root.pins()[0].manifest.key
    collect_with_one_404(root, lambda effect: effect.key == pinned)
    assert root.check().clean
