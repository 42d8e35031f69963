from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Delta, SnapshotFile
from penstock.checkpoint.recovery import Lineage
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.ids import Attempt, Epoch, Key

POLICY = SnapshotPolicy(growth=1.0, tail_max=5)


def lineage(deltas: int, delta_bytes: int, files_bytes: int) -> Lineage:
    def ref(size_bytes: int) -> Ref:
        return Ref(key=Key("x"), sha256="0", size_bytes=size_bytes)

    files = (SnapshotFile(name="1.sst", ref=ref(files_bytes)),) if files_bytes else ()
    tail = ((Epoch(n), Delta(attempt=Attempt("a"), ref=ref(delta_bytes))) for n in range(deltas))
    return Lineage(files, tuple(tail))


def test_files_are_cut_when_the_deltas_weigh_as_much_as_they_do() -> None:
    """What is uploaded per changed byte stays the same however large the state is."""
    assert not POLICY.wants_files(lineage(2, 40, 100))
    assert POLICY.wants_files(lineage(3, 40, 100))
    assert not POLICY.wants_files(lineage(0, 0, 100))


def test_files_are_cut_when_there_are_too_many_deltas_to_name() -> None:
    """Small epochs over a large state would make every epoch's orders longer and longer."""
    assert not POLICY.wants_files(lineage(4, 1, 1_000_000))
    assert POLICY.wants_files(lineage(5, 1, 1_000_000))
