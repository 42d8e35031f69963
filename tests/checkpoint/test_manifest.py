import msgspec
import pytest

from penstock.checkpoint import (
    Delta,
    Manifest,
    Output,
    PartitionState,
    Range,
    Snapshot,
    SnapshotFile,
    SourceProgress,
    ref_to,
)
from penstock.checkpoint.formats import encode
from penstock.checkpoint.layout import delta_key, description_key, output_key, snapshot_key
from penstock.checkpoint.manifest import decode_manifest
from penstock.errors import Corrupt, Invalid
from penstock.ids import Attempt, CommitId, Epoch, Generation, Holder, JobName, Key, Token

BEFORE = SourceProgress(ranges={"0": Range(start=0, stop=10)}, resume_at={"0": 10})
AFTER = SourceProgress(ranges={"0": Range(start=10, stop=15)}, resume_at={"0": 15})
DELTA = ref_to(delta_key("totals", 0, Epoch(8), Attempt("a")), bytes(4))
FILE = ref_to(snapshot_key("totals", 0, Epoch(8), Attempt("a"), "x"), bytes(4))
OUTPUT = ref_to(output_key("ledger", Epoch(8), 0, Attempt("a")), bytes(4))
OTHER = ref_to(output_key("ledger", Epoch(9), 0, Attempt("a")), bytes(4))
PARENT = Manifest(
    job=JobName("clicks"),
    generation=Generation(2),
    epoch=Epoch(7),
    token=Token(3),
    holder=Holder("one"),
    commit=CommitId("seventh"),
    parent=ref_to(Key("manifests/six"), b""),
    at_ms=1000,
    rows_in=10,
    sources={"events": BEFORE},
    operators={"totals": {0: PartitionState()}},
    sinks={"ledger": ()},
)
CHILD = msgspec.structs.replace(
    PARENT,
    epoch=Epoch(8),
    commit=CommitId("eighth"),
    parent=ref_to(Key("manifests/seven"), encode(PARENT)),
    sources={"events": AFTER},
    operators={
        "totals": {
            0: PartitionState(
                delta=Delta(attempt=Attempt("a"), ref=DELTA),
                snapshot=Snapshot(
                    epoch=Epoch(7), files=(SnapshotFile(name="000009.sst", ref=FILE),)
                ),
            )
        }
    },
    sinks={"ledger": (Output(partition=0, ref=OUTPUT, rows=3),)},
)


def with_offsets(**changes: object) -> Manifest:
    progress = msgspec.structs.replace(AFTER, **changes)
    return msgspec.structs.replace(CHILD, sources={"events": progress})


def with_snapshot_of(epoch: int) -> Manifest:
    snapshot = Snapshot(epoch=Epoch(epoch), files=(SnapshotFile(name="000009.sst", ref=FILE),))
    return msgspec.structs.replace(
        CHILD, operators={"totals": {0: PartitionState(snapshot=snapshot)}}
    )


def test_a_manifest_comes_back_as_it_was_written() -> None:
    """Recovery sees what the commit saw."""
    assert decode_manifest("m", encode(CHILD)) == CHILD


def test_a_manifest_knows_what_it_names() -> None:
    """What is not among its refs is garbage to the collector."""
    assert list(CHILD.refs()) == [DELTA, FILE, OUTPUT]
    assert list(CHILD.state_refs()) == [DELTA, FILE]
    assert (CHILD.size_bytes, CHILD.rows_out) == (12, 3)


def test_a_manifest_that_follows_has_no_flaw() -> None:
    """The usual case."""
    assert CHILD.flaw_after(PARENT) is None


@pytest.mark.parametrize(
    ("child", "flaw"),
    [
        (msgspec.structs.replace(CHILD, epoch=9), "epoch 9 does not follow epoch 7"),
        (msgspec.structs.replace(CHILD, epoch=7), "epoch 7 does not follow epoch 7"),
        (msgspec.structs.replace(CHILD, token=2), "token 2 is older than its parent's 3"),
        (msgspec.structs.replace(CHILD, generation=1), "generation 1 is older than its parent's"),
        (msgspec.structs.replace(CHILD, sources={}), "source events is gone"),
        (with_snapshot_of(6), "a snapshot is of epoch 6, not of the one before"),
        (msgspec.structs.replace(CHILD, sinks={}), "sink ledger is left out"),
        (
            msgspec.structs.replace(CHILD, operators={}),
            "partition 0 of operator totals is left out",
        ),
        (
            msgspec.structs.replace(
                CHILD, sinks={"ledger": (Output(partition=0, ref=OTHER, rows=1),)}
            ),
            f"{OTHER.key} does not belong to epoch 8",
        ),
        (
            with_offsets(ranges={}),
            "source events: partition 0 moved from 10 to 15 without reading",
        ),
        (
            with_offsets(ranges={"0": Range(start=11, stop=15)}),
            "source events: partition 0 was read from 11, not from 10",
        ),
        (
            with_offsets(resume_at={"0": 14}),
            "source events: partition 0 was read to 15, but resumes at 14",
        ),
        (
            with_offsets(ranges={}, resume_at={}),
            "source events: partition 0 lost its resume offset 10",
        ),
    ],
)
def test_a_manifest_that_does_not_follow_says_why(child: Manifest, flaw: str) -> None:
    """Each of these would skip events, read them twice, or break the chain."""
    assert child.flaw_after(PARENT) == flaw


def test_only_the_first_epoch_has_no_parent() -> None:
    """A chain that starts in the middle has lost its beginning."""
    first = msgspec.structs.replace(PARENT, epoch=1)
    assert first.flaw_after(None) is None
    assert PARENT.flaw_after(None) == "epoch 7 has no parent"


def test_a_new_partition_may_start_anywhere() -> None:
    """A topic can be given more partitions, and a retention may have cut their beginning."""
    grown = with_offsets(
        ranges={**AFTER.ranges, "1": Range(start=100, stop=120)},
        resume_at={**AFTER.resume_at, "1": 120},
    )

    assert grown.flaw_after(PARENT) is None


def test_a_partition_that_was_not_read_keeps_its_offset() -> None:
    """An idle partition costs nothing and forgets nothing."""
    idle = with_offsets(ranges={}, resume_at={"0": 10})

    assert idle.flaw_after(PARENT) is None


def test_a_manifest_of_a_newer_version_is_told_apart_from_a_damaged_one() -> None:
    """One needs another program, the other a copy."""
    body = encode(msgspec.structs.replace(CHILD, format=3))

    with pytest.raises(Invalid, match="m has format 3, and this version of Penstock reads up to 2"):
        decode_manifest("m", body)
    with pytest.raises(Corrupt, match=f"m cannot be read as a Manifest .*{len(body) // 2} bytes"):
        decode_manifest("m", encode(CHILD)[: len(body) // 2])


def test_a_field_nobody_knows_is_damage() -> None:
    """A reader that skips what it does not know may skip what matters."""
    body = encode(CHILD).replace(b'"rows_in"', b'"rows_in":1,"rows_inn"')

    with pytest.raises(Corrupt, match="rows_inn"):
        decode_manifest("m", body)


def test_a_description_is_named_from_its_first_epoch_on() -> None:
    """A manifest without it would let a changed job pass for the one before."""
    ref = ref_to(description_key(Epoch(7), Attempt("a")), bytes(4))
    parent = msgspec.structs.replace(PARENT, description=ref)
    later = msgspec.structs.replace(CHILD, generation=PARENT.generation + 1)

    assert msgspec.structs.replace(CHILD, description=ref).flaw_after(parent) is None
    assert CHILD.flaw_after(parent) == "the description of the job is left out"
    assert later.flaw_after(parent) == "the description of the job is left out"
    assert ref in list(parent.refs())


def test_a_manifest_of_an_earlier_version_has_no_description() -> None:
    """Roots are older than programs."""
    body = encode(CHILD).replace(b',"description":null', b"")

    assert b"description" not in body
    assert decode_manifest("m", body) == CHILD
