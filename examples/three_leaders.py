"""Three leaders, one root: what the commit core promises, shown in seconds.

Run it with `make demo`, or `python examples/three_leaders.py [ROOT]`.
"""

import sys
import tempfile

from penstock import Fenced
from penstock.checkpoint import (
    Draft,
    Output,
    Range,
    Retention,
    Root,
    Session,
    SourceProgress,
    ref_to,
)
from penstock.checkpoint.layout import output_key
from penstock.ids import Attempt, Epoch

ROWS = 100


def commit_one(root: Root, session: Session) -> None:
    """Stage an output, then make the epoch real."""
    start = session.head.epoch * ROWS
    read = SourceProgress(
        ranges={"0": Range(start=start, stop=start + ROWS)}, resume_at={"0": start + ROWS}
    )
    key = output_key("totals", Epoch(session.head.epoch + 1), 0, Attempt(root.chance.unique()))
    body = f"rows {start} to {start + ROWS}".encode()
    root.store.put(key, body)
    output = Output(partition=0, ref=ref_to(key, body), rows=ROWS)
    manifest = session.commit(
        Draft(rows_in=ROWS, sources={"clicks": read}, sinks={"totals": (output,)})
    )
    print(
        f"  {manifest.holder.split('-')[0]}: epoch {manifest.epoch} is real, token {manifest.token}"
    )


def main(url: str) -> None:
    """The story, step by step."""
    root = Root.open(url)

    print("1. Anna leads and commits three epochs.")
    anna = root.lead("demo", "anna")
    for _ in range(3):
        commit_one(root, anna)

    print("2. Ben takes over while Anna is away. She does not know.")
    ben = root.lead("demo", "ben")
    commit_one(root, ben)

    print("3. Anna comes back and tries to go on.")
    try:
        commit_one(root, anna)
    except Fenced as fenced:
        print(f"  refused: {fenced}")

    print("4. Ben pins epoch 2, gives up what is older than two epochs, and collects.")
    root.pin("before-the-holidays", Epoch(2))
    for _ in range(3):
        commit_one(root, ben)
        ben.collect(Retention(epochs=2, age_s=0, grace_s=0), {"totals": ben.head.epoch})
    ben.release()

    print("5. Carla starts. Ben has released the job, so she need not wait.")
    with root.lead("demo", "carla") as carla:
        commit_one(root, carla)

    found = root.check()
    rows = [manifest.rows_in for manifest in root.history()]
    print(
        f"6. Epochs {found.floor} to {found.head_epoch} are kept, and the pinned one: "
        f"{found.manifests} manifests, {found.objects} objects; "
        f"{'all sound' if found.clean else found.wrong}."
    )
    print(f"   {sum(rows)} rows in {len(rows)} retained epochs, each counted once.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"{folder}/root")
