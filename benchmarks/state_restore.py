"""What needs a store: restoring a partition, uploading its changes, and leaving it alone.

Each function returns rows of the table; `restoring` measures.
"""

import sys

from benchmarks.restoring import TAIL_DELTAS, Restored, idled, restored, uploaded
from benchmarks.state_data import Row

__all__ = ["idle_row", "restore_rows", "upload_rows"]

RESTORED_PER_S_MIN, REPLAY_RATIO_MIN = 1_000_000, 20
UPLOAD_RATIO_MAX = 1.2
CHANGED_KEYS = 100_000
"""Changed per epoch: two cycles of cuts of 10 M keys are then some two hundred epochs."""
CHANGED_SHARE_MAX = 0.1
"""Of the smallest state. With more, a cycle of cuts would be a few epochs, and mostly rounding."""
IDLE_KEYS = 10_000


def restore_rows(sizes: list[int]) -> list[Row]:
    """A restore on a new host against a replay, for each size; the largest has a bar."""
    rows: list[Row] = []
    for keys in sizes:
        rows += _restore_rows(restored(keys), keys == max(sizes))
        print(f"{keys:,} keys: restoring done", file=sys.stderr)
    return rows


def _restore_rows(found: Restored, barred: bool) -> list[Row]:
    figure = f"{found.restored_per_s:,.0f} keys/s"
    ratio = found.restored_per_s / found.replayed_per_s
    met = found.restored_per_s >= RESTORED_PER_S_MIN and ratio >= REPLAY_RATIO_MIN
    return [
        Row(
            found.keys,
            f"restore from a snapshot and {TAIL_DELTAS} deltas, "
            f"{found.downloaded_bytes / 1e6:,.0f} MB downloaded, against a replay",
            figure,
            f"{found.replayed_per_s:,.0f} records/s",
            ratio,
            f"≥ {RESTORED_PER_S_MIN:,} keys/s, ≥ {REPLAY_RATIO_MIN}" if barred else "",
            met if barred else None,
        ),
        Row(
            found.keys,
            "the same, the replay without a write-ahead log",
            figure,
            f"{found.replayed_unlogged_per_s:,.0f} records/s",
            found.restored_per_s / found.replayed_unlogged_per_s,
        ),
    ]


def upload_rows(sizes: list[int]) -> list[Row]:
    """Bytes uploaded per epoch at one rate of change: the largest state against the smallest."""
    if len(sizes) < 2:
        return []
    changed = min(CHANGED_KEYS, int(sizes[0] * CHANGED_SHARE_MAX))
    small, large = (uploaded(keys, changed) for keys in (sizes[0], sizes[-1]))
    print(f"{small.keys:,} and {large.keys:,} keys: uploading done", file=sys.stderr)
    ratio = large.bytes_per_epoch / small.bytes_per_epoch
    return [
        Row(
            large.keys,
            f"uploaded per epoch of {changed:,} random keys, over two cuts of all files "
            f"({large.epochs} epochs), against a state of {small.keys:,} keys "
            f"({small.epochs} epochs)",
            f"{large.bytes_per_epoch / 1e6:,.2f} MB",
            f"{small.bytes_per_epoch / 1e6:,.2f} MB",
            ratio,
            f"≤ {UPLOAD_RATIO_MAX:g}",
            ratio <= UPLOAD_RATIO_MAX,
        )
    ]


def idle_row() -> Row:
    """What an idle partition adds to the store in an epoch; a changed one shows the count works."""
    found = idled(IDLE_KEYS)
    return Row(
        IDLE_KEYS,
        "objects written by an epoch of an idle partition, against one with one changed key",
        f"{found.objects}",
        f"{found.objects_with_a_change}",
        None,
        "0",
        found.objects == 0 and found.objects_with_a_change == 1,
    )
