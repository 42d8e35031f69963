from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.checkpoint import (
    Chain,
    Collected,
    Leader,
    Manifest,
    Ref,
    Retention,
    collect,
    pin,
    ref_to,
)
from penstock.checkpoint.formats import encode, seal
from penstock.checkpoint.fsck import Findings, check
from penstock.checkpoint.layout import HEAD_KEY, manifest_key
from penstock.errors import Corrupt, Invalid
from penstock.ids import CommitId, Epoch
from penstock.points import Point
from tests.support.driving import Stage
from tests.support.history import SINK, contents, led, work

LAST = Retention(epochs=1, age_s=0.0, grace_s=0.0)


def sound_root(epochs: int = 3) -> tuple[Stage, list[Manifest]]:
    """A root of so many epochs, and their manifests, oldest first."""
    stage = Stage()
    leader, chance = led(stage)
    return stage, [stage.run(work(leader, chance)) for _ in range(epochs)]


def looked_at(stage: Stage) -> Findings:
    found: Findings = stage.run(check(Chain()))
    return found


def next_floor(stage: Stage, leader: Leader) -> Epoch:
    """Collect for a leader whose sink has applied everything."""
    applied = {SINK: Epoch(leader.head.epoch + 1)}
    done: Collected = stage.run(collect(Chain(), LAST, applied))
    return done.next_floor


def size_of(manifests: list[Manifest]) -> int:
    return sum(manifest.size_bytes for manifest in manifests)


def delta_of(manifest: Manifest) -> Ref:
    return next(manifest.state_refs())


def manifest_ref(manifests: list[Manifest], epoch: int) -> Ref:
    """How the next manifest names this one."""
    ref = manifests[epoch].parent
    assert ref is not None
    return ref


def test_a_sound_root_is_clean() -> None:
    """Every object is counted once."""
    stage, manifests = sound_root()

    assert looked_at(stage) == Findings(
        head_epoch=Epoch(3),
        floor=Epoch(1),
        manifests=3,
        objects=6,
        size_bytes=size_of(manifests),
        pins=0,
        wrong=[],
    )


def test_a_root_without_epochs_is_clean() -> None:
    """A job that has started and committed nothing is no damage."""
    stage = Stage()
    led(stage)

    assert looked_at(stage) == Findings(Epoch(0), Epoch(1))


def test_looking_changes_nothing() -> None:
    """It runs beside a job, and after a damage, when every byte is evidence."""
    stage, _ = sound_root()
    before = contents(stage.store)

    looked_at(stage)

    assert contents(stage.store) == before


def test_an_object_that_is_missing_is_named() -> None:
    """With the epoch that needs it, so that a person knows which copy to fetch."""
    stage, manifests = sound_root()
    lost = delta_of(manifests[1])
    stage.store.delete(lost.key)

    assert looked_at(stage).wrong == [f"{lost.key} is missing, though epoch 2 needs it."]


def test_an_object_that_was_altered_is_named() -> None:
    """One flipped bit in an output is found, not passed on."""
    stage, manifests = sound_root()
    output = list(manifests[2].refs())[-1]
    stage.store.put(output.key, b"Output 3")

    (wrong,) = looked_at(stage).wrong
    assert wrong.startswith(f"{output.key} hashes to ")
    assert wrong.endswith("restore it from a copy or an older checkpoint.")


def test_everything_that_is_wrong_is_told() -> None:
    """A person deciding what to restore wants the whole list."""
    stage, manifests = sound_root()
    for manifest in manifests:
        stage.store.delete(delta_of(manifest).key)

    assert looked_at(stage).wrong == [
        f"{delta_of(m).key} is missing, though epoch {m.epoch} needs it."
        for m in reversed(manifests)
    ]


def test_a_manifest_that_is_missing_ends_the_line() -> None:
    """What lies behind it cannot be named; the rest is checked all the same."""
    stage, manifests = sound_root()
    lost = manifest_ref(manifests, 1)
    stage.store.delete(lost.key)

    found = looked_at(stage)

    assert (found.manifests, found.objects) == (2, 4)
    assert found.wrong == [
        f"{lost.key} is missing, though epoch 1 is retained and needs it: restore it from a "
        "copy, or rewind to an epoch that does not need it."
    ]


def test_a_manifest_that_was_altered_is_named() -> None:
    """Its child names its hash, so nobody can rewrite history in place."""
    stage, manifests = sound_root()
    ref = manifest_ref(manifests, 2)
    altered = encode(manifests[1]).replace(b'"rows_in":10', b'"rows_in":11')
    stage.store.put(ref.key, altered)

    (wrong,) = looked_at(stage).wrong
    assert wrong.startswith(f"{ref.key} hashes to ")


def test_a_manifest_that_cannot_be_the_parent_is_named() -> None:
    """Hashes that fit do not make a history: the offsets must follow too."""
    stage, manifests = sound_root()
    sources = manifests[1].sources["events"]
    skipped = msgspec.structs.replace(sources, ranges={}, resume_at={"0": 19})
    rewrite(stage, manifests, 1, sources={"events": skipped})

    wrong = looked_at(stage).wrong

    assert wrong == [
        f"{manifest_key(Epoch(2), CommitId('forged'))} cannot be the parent it is named as: "
        "source events: partition 0 was read from 20, not from 19.",
        f"{manifest_ref(manifests, 1).key} cannot be the parent it is named as: "
        "source events: partition 0 moved from 10 to 19 without reading.",
    ]


def rewrite(stage: Stage, manifests: list[Manifest], index: int, **changes: Any) -> None:
    """Change one manifest and make every hash from there to HEAD fit again."""
    ref = None
    for manifest in manifests[index:]:
        changed = msgspec.structs.replace(
            manifest, commit=CommitId("forged"), **({"parent": ref} if ref else changes)
        )
        ref = ref_to(manifest_key(changed.epoch, changed.commit), encode(changed))
        stage.store.put(ref.key, encode(changed))
    head = stage.run(Chain().head(Point.READ_HEAD)).document
    stage.store.put(HEAD_KEY, seal(msgspec.structs.replace(head, manifest=ref)))


def test_pinned_epochs_are_checked_with_their_state() -> None:
    """A pin that does not hold should be found on a quiet day."""
    stage = Stage()
    leader, chance = led(stage)
    manifests = [stage.run(work(leader, chance)) for _ in range(3)]
    stage.run(pin(Chain(), "kept", "mark", Epoch(1)))
    leader.raise_floor(next_floor(stage, leader))
    stage.run(work(leader, chance, snapshot=True))
    leader.raise_floor(next_floor(stage, leader))
    stage.run(work(leader, chance))
    stage.run(collect(Chain(), LAST))
    clean = looked_at(stage)
    output = list(manifests[0].refs())[-1]
    stage.store.delete(output.key)

    assert (clean.floor, clean.pins, clean.manifests, clean.wrong) == (4, 1, 3, [])
    damaged = looked_at(stage)
    assert [(pin.name, pin.epoch) for pin in damaged.broken_pins] == [("kept", 1)]
    assert not damaged.clean


@pytest.mark.parametrize(
    ("hurt", "error", "says"),
    [
        (lambda body: body[:40], Corrupt, "HEAD cannot be read as a Head"),
        (
            lambda body: body.replace(b'"epoch":3', b'"epoch":2'),
            Corrupt,
            "HEAD does not match its own checksum",
        ),
        (lambda body: body.replace(b'"format":1', b'"format":9'), Invalid, "HEAD has format 9"),
    ],
)
def test_without_a_head_there_is_nothing_to_check(
    hurt: Callable[[bytes], bytes], error: type[Exception], says: str
) -> None:
    """HEAD is the only way in, so its own damage is an error and not a finding."""
    stage, _ = sound_root()
    stored = stage.store.get(HEAD_KEY)
    assert stored is not None
    stage.store.put(HEAD_KEY, hurt(stored.body))

    with pytest.raises(error, match=says):
        looked_at(stage)


def test_a_collection_that_runs_meanwhile_is_no_finding() -> None:
    """What HEAD has given up since we looked was not lost."""
    stage = Stage()
    leader, chance = led(stage)
    for _ in range(5):
        stage.run(work(leader, chance, snapshot=True))
    looks = 0

    def collected(effect: Any, perform_it: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 4:
            stage.interfere = None
            for _ in range(2):
                leader.raise_floor(next_floor(stage, leader))
                stage.run(work(leader, chance, snapshot=True))
            stage.run(collect(Chain(), LAST))
        return perform_it()

    stage.interfere = collected

    assert looked_at(stage).wrong == []
