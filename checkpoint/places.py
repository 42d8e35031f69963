"""The places of the objects that a manifest names: each below the prefix of its own kind.

A manifest says where its deltas, files, outputs and indexes are. A key that points elsewhere was
not written by Penstock; reading it would hand bytes of one kind to the code of another, and copying
it in a fork would carry it along. `decode_manifest` refuses such a manifest whole.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.layout import table_prefix
from penstock.errors import Corrupt

if TYPE_CHECKING:
    from penstock.checkpoint.manifest import Manifest, PartitionState

__all__ = ["refuse_misplaced"]


def refuse_misplaced(name: str, manifest: "Manifest") -> None:
    """`Corrupt` if the manifest called `name` names an object outside the place of its kind."""
    for ref, prefixes in _places(manifest):
        if not ref.key.startswith(prefixes):
            raise Corrupt(
                name,
                f"names {ref.key}, which is not below {' or '.join(prefixes)}",
                "it was altered or forged; nothing of it was used; restore it from a copy",
            )


def _places(manifest: "Manifest") -> Iterator[tuple[Ref, tuple[str, ...]]]:
    """Every object, and the prefixes it may lie below."""
    if manifest.parent is not None:
        yield manifest.parent, ("manifests/",)
    for operator, partitions in manifest.operators.items():
        for state in partitions.values():
            yield from _state_places(operator, state)
    for sink, outputs in manifest.sinks.items():
        prefixes = (f"outputs/{sink}/", table_prefix(sink))
        yield from ((output.ref, prefixes) for output in outputs)
    if manifest.description is not None:
        yield manifest.description, ("descriptions/",)
    for table, index in manifest.tables.items():
        yield index.ref, (table_prefix(table),)


def _state_places(operator: str, state: "PartitionState") -> Iterator[tuple[Ref, tuple[str, ...]]]:
    deltas, files = (f"changelog/{operator}/",), (f"snapshots/{operator}/",)
    if state.delta is not None:
        yield state.delta.ref, deltas
    if state.snapshot is not None:
        yield from ((file.ref, files) for file in state.snapshot.files)
        yield from ((delta.ref, deltas) for _, delta in state.snapshot.tail)
