"""The witness: knows what really happened, and says which promise was broken.

It reads the store and the sink directly and shares no code with the protocols it judges: what
is reachable, what the state must be and what a sink must hold is worked out here once more, in
the plainest way. The invariants are numbered as in ARCHITECTURE.md.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.chaos.model_job import SINK, Row, Workload, rows_of
from penstock.chaos.world import World
from penstock.effects import Stored
from penstock.ids import ETag, Key
from penstock.sinks import Apply

__all__ = ["Truth"]

Json = dict[str, Any]


@dataclass(slots=True)
class _Committed:
    """One epoch that became real, kept by the witness for ever."""

    manifest: Json
    manifest_key: str
    rows: dict[int, list[Row]]
    """Per shard."""
    state: dict[int, int] = field(default_factory=dict)


_NOTHING = Stored(b"{}", ETag(""))


class Truth:
    """Everything that became real, and every promise found broken so far."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world = world
        self._workload = workload
        self.broken: list[str] = []
        self.chain: list[_Committed] = []
        self._head: Json = {}
        self._holders: dict[int, str] = {}
        self._pins: dict[str, int] = {}
        """The epochs that somebody was promised."""
        self._claims: list[tuple[str, int, int]] = []
        self._views: dict[str, tuple[int, ...]] = {}

    # What the world shows.

    def wrote(self, key: str) -> None:
        """An object was written. If it was HEAD: judge the new one."""
        if key != "HEAD":
            return
        stored = self._world.store.get(Key("HEAD"))
        assert stored is not None
        head, before = json.loads(stored.body), self._head
        self._head = head
        if head["token"] < before.get("token", 0):
            self._break("I6", f"token went back to {head['token']}")
        holder = self._holders.setdefault(head["token"], head["holder"])
        if holder != head["holder"]:
            self._break("I6", f"token {head['token']} has two holders")
        if head["epoch"] == before.get("epoch", 0):
            return
        if head["epoch"] != before.get("epoch", 0) + 1:
            self._break("I6", f"epoch {before.get('epoch', 0)} was followed by {head['epoch']}")
        self._judge_commit(head)

    def deleted(self, key: str) -> None:
        """An object is about to go: nobody may need it."""
        if key in self.reachable():
            self._break("I9", f"{key} was removed while reachable")

    def applied(self, effect: Apply) -> None:
        """A sink took rows: they must be those of a committed epoch."""
        epoch = effect.cursor.epoch
        if epoch > len(self.chain):
            self._break("I13", f"the sink took epoch {epoch}, HEAD is at {len(self.chain)}")
            return
        rows = [row for body in effect.outputs for row in rows_of(body)]
        if rows != self.chain[epoch - 1].rows[effect.shard]:
            self._break("I4", f"the sink took other rows for epoch {epoch} than were committed")

    # What the processes claim.

    def heard(self, process: str, what: str, *facts: Any) -> None:
        """A process told its user something. It had better be true."""
        if what in ("committed", "not committed"):
            self._claims.append((what, *facts))
            self._judge_claim(what, *facts)
        elif what == "read":
            self._judge_view(process, *facts)
        elif what == "pinned":
            self._judge_pin(*facts)
        elif what == "unpinning":
            self._pins.pop(facts[0], None)
        elif what == "broken pin" and facts[0] in self._pins:
            self._break("I9", f"{facts[0]} is pinned and does not hold")
        elif what == "alarm":
            self._break("I18", f"{process} cried {facts[0]}")

    def finish(self) -> list[str]:
        """Judge the end of the run, when everything has arrived and everybody is gone."""
        for claim in self._claims:
            self._judge_claim(*claim)
        rows = self._sink_rows()
        self._judge_rows(rows)
        committed = sorted(r for done in self.chain for shard in done.rows.values() for r in shard)
        if sorted(rows) != committed:
            self._break("I4", "the sink does not hold what was committed")
        left = self._leftovers()
        if left:
            self._break("I9", f"garbage stays: {', '.join(left[:3])} and {len(left)} in all")
        return self.broken

    # Judgements.

    def _judge_commit(self, head: Json) -> None:
        ref = head["manifest"]
        manifest = self._load(ref, "I7")
        if manifest is None:
            return
        done = _Committed(manifest, ref["key"], self._rows(manifest))
        if manifest["token"] != head["token"] or manifest["epoch"] != head["epoch"]:
            self._break("I6", f"epoch {head['epoch']} was committed with another's manifest")
        self.chain.append(done)
        self._judge_offsets(manifest)
        for named in _refs(manifest):
            self._load(named, "I7")
        self._judge_state(done)

    def _judge_offsets(self, manifest: Json) -> None:
        before = self.chain[-2].manifest["sources"]["events"]["resume_at"] if self.chain[1:] else {}
        progress = manifest["sources"]["events"]
        for partition, resume in progress["resume_at"].items():
            read = progress["ranges"].get(partition)
            start = before.get(partition, 0)
            expected = {"start": start, "stop": resume} if resume != start else None
            if read != expected:
                self._break("I5", f"partition {partition}: {start} to {resume}, but read {read}")

    def _judge_state(self, done: _Committed) -> None:
        """State rebuilt from the store equals a serial replay of the committed history."""
        expected = dict(self.chain[-2].state) if self.chain[1:] else {}
        for _, _, key, total in (row for rows in done.rows.values() for row in rows):
            expected[key] = total
        done.state = expected
        if not self._workload.wobbly and expected != self._replay(done.manifest):
            self._break("I3", f"outputs of epoch {done.manifest['epoch']} are not the replay's")
        if self._rebuilt(done.manifest["epoch"]) != expected:
            self._break("I3", f"state of epoch {done.manifest['epoch']} is not the replay's")

    def _replay(self, manifest: Json) -> dict[int, int]:
        totals: dict[int, int] = {}
        for source, stop in manifest["sources"]["events"]["resume_at"].items():
            for key, amount in self._workload.events[int(source)][:stop]:
                totals[key] = totals.get(key, 0) + amount
        return totals

    def _rebuilt(self, epoch: int) -> dict[int, int]:
        state: dict[int, int] = {}
        for ref in self._state_refs(epoch)[0]:
            body = self._load(ref, "I7")
            state.update({int(k): v for k, v in (body or {}).items()})
        return state

    def _judge_claim(self, what: str, token: int, epoch: int) -> None:
        real = len(self.chain) >= epoch and self.chain[epoch - 1].manifest["token"] == token
        if real != (what == "committed"):
            self._break("I18", f"told its user that epoch {epoch} was {what}, which is not so")

    def _judge_view(self, process: str, rank: tuple[int, ...], rows: dict[int, list[Row]]) -> None:
        if rank < self._views.get(process, rank):
            self._break("I12", f"{process} saw {self._views[process]}, then {rank}")
        self._views[process] = rank
        for epoch, found in rows.items():
            real = [row for _, rows_ in sorted(self.chain[epoch - 1].rows.items()) for row in rows_]
            if found != real:
                self._break("I8", f"{process} read rows of epoch {epoch} nobody committed")

    def _judge_pin(self, name: str, epoch: int) -> None:
        """A pin that was promised keeps all of its epoch, from this moment on."""
        self._pins[name] = epoch
        for key in sorted(self._reachable([epoch])):
            if self._world.store.get(Key(key)) is None:
                self._break("I9", f"epoch {epoch} was pinned as {name} without {key}")

    def _judge_rows(self, rows: list[Row]) -> None:
        times = Counter((source, offset) for source, offset, _, _ in rows)
        for source, events in enumerate(self._workload.events):
            for offset in range(len(events)):
                count = times[source, offset]
                if count == 0:
                    self._break("I1", f"event {source}/{offset} is lost")
                elif count > 1:
                    self._break("I2", f"event {source}/{offset} is there {count} times")

    # What is really there.

    def reachable(self) -> set[str]:
        """Every key that HEAD's promise keeps, or a pin that somebody was promised."""
        return self._reachable(list(self._pins.values()))

    def _reachable(self, pinned: list[int]) -> set[str]:
        kept: set[str] = set()
        head = self._head.get("epoch", 0)
        floor = self._head.get("floor", 1)
        for epoch in range(floor, head + 1):
            kept.add(self.chain[epoch - 1].manifest_key)
            kept.update(ref["key"] for ref in _refs(self.chain[epoch - 1].manifest))
        for epoch in (min(floor, head), *pinned):
            if epoch:
                refs, oldest = self._state_refs(epoch)
                kept.update(ref["key"] for ref in refs)
                kept.update(done.manifest_key for done in self.chain[oldest - 1 : epoch])
                kept.update(ref["key"] for ref in _refs(self.chain[epoch - 1].manifest))
        return kept

    def _state_refs(self, epoch: int) -> tuple[list[Json], int]:
        """What rebuilds the state of `epoch`, in order, and the oldest epoch it involves."""
        refs: list[Json] = []
        oldest = epoch
        for partition in self.chain[epoch - 1].manifest["operators"]["totals"]:
            mine: list[Json] = []
            base, at = 0, epoch
            while at > base:
                state = self.chain[at - 1].manifest["operators"]["totals"][partition]
                if state["delta"] is not None:
                    mine.insert(0, state["delta"]["ref"])
                if state["snapshot"] is not None and base == 0:
                    base = state["snapshot"]["epoch"]
                    first = list(_snapshot_refs(state["snapshot"]))
                oldest, at = min(oldest, at), at - 1
            refs += [*first, *mine] if base else mine
        return refs, oldest

    def _leftovers(self) -> list[str]:
        """What is in the store and kept by nothing: neither HEAD, nor any pin that is there."""
        store = self._world.store
        store.page_entries_max = 1_000_000
        pins = [json.loads((store.get(e.key) or _NOTHING).body) for e in store.list("pins/")]
        kept = self._reachable([pin["epoch"] for pin in pins]) | {"HEAD"}
        heartbeat = f"heartbeats/{self._head['token']:012d}.json"
        keys = (entry.key for entry in store.list(""))
        return [k for k in keys if k not in kept and k != heartbeat and not k.startswith("pins/")]

    def _sink_rows(self) -> list[Row]:
        return [
            row
            for (sink, _), shard in self._world.sink.shards.items()
            if sink == SINK
            for _, outputs in shard.outputs
            for body in outputs
            for row in rows_of(body)
        ]

    def _rows(self, manifest: Json) -> dict[int, list[Row]]:
        return {
            output["partition"]: [tuple(row) for row in self._load(output["ref"], "I7") or []]
            for output in manifest["sinks"].get(SINK, [])
        }

    def _load(self, ref: Json, invariant: str) -> Any:
        stored = self._world.store.get(ref["key"])
        if stored is None:
            self._break(invariant, f"{ref['key']} is named and not there")
        elif hashlib.sha256(stored.body).hexdigest() != ref["sha256"]:
            self._break(invariant, f"{ref['key']} is not what was named")
        else:
            return json.loads(stored.body)
        return None

    def _break(self, invariant: str, how: str) -> None:
        self.broken.append(f"{invariant}: {how}")


def _refs(manifest: Json) -> Iterable[Json]:
    for partitions in manifest["operators"].values():
        for state in partitions.values():
            if state["delta"] is not None:
                yield state["delta"]["ref"]
            if state["snapshot"] is not None:
                yield from _snapshot_refs(state["snapshot"])
    for outputs in manifest["sinks"].values():
        yield from (output["ref"] for output in outputs)


def _snapshot_refs(snapshot: Json) -> Iterable[Json]:
    yield from (file["ref"] for file in snapshot["files"])
    yield from (delta["ref"] for _, delta in snapshot["tail"])
