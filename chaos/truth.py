"""The witness: knows what really happened, and says which promise was broken.

It reads the store and the sink directly and shares no code with the protocols it judges: what
is reachable, what the state and the tables must be and what a sink must hold is worked out here
once more, in the plainest way, from the record of what became real (dead letters are judged by
`penstock.chaos.letter_truth`). The invariants are numbered as in ARCHITECTURE.md.
"""

import hashlib
import json
import re
from collections import Counter
from typing import Any

from penstock.chaos.letter_truth import LetterTruth, Post
from penstock.chaos.model_table import TABLE
from penstock.chaos.model_workload import (
    CHANGELOG,
    CLOSING,
    PARTITIONS,
    SINK,
    TABLES,
    Row,
    Workload,
    rows_of,
)
from penstock.chaos.record import Committed, Json, Line, Record, refs_of, state_refs
from penstock.chaos.world import Accept, Outputs, World
from penstock.effects import Stored
from penstock.ids import Epoch, ETag, Key
from penstock.sinks import Apply

__all__ = ["Truth"]

_NOTHING = Stored(b"{}", ETag(""))
_EPOCH = re.compile(r"/(\d{12})[-/]")


class Truth:
    """Everything that became real, and every promise found broken so far."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world = world
        self._workload = workload
        self.broken: list[str] = []
        self.record = Record()
        self.letters = LetterTruth(workload.poison, self._break)
        self.line: Line = []
        """HEAD's own line of history."""
        self._head: Json = {}
        self._returned_floor = 1
        """The floor as the last rewind, or the fork, has put it."""
        self._holders: dict[int, str] = {}
        self._pins: dict[str, str] = {}
        """By mark, the manifests of the epochs that somebody was promised."""
        self._kept: set[str] | None = None
        """What must not go; None: to be worked out anew."""
        self._claims: list[tuple[str, int, int]] = []
        self._views: dict[str, tuple[int, ...]] = {}

    def begin_with(self, head: Json, record: Record) -> None:
        """Judge a root whose history began elsewhere: a fork."""
        self.record = record
        self._head, self._returned_floor = head, head["floor"]
        self.line = record.by_key[head["manifest"]["key"]].line

    # What the world shows.

    def wrote(self, key: str) -> None:
        """An object was written. If it was HEAD: judge the new one."""
        if key != "HEAD":
            return
        stored = self._world.store.get(Key("HEAD"))
        assert stored is not None
        head, before = json.loads(stored.body), self._head
        self._head, self._kept = head, None
        if head["token"] < before.get("token", 0):
            self._break("I6", f"token went back to {head['token']}")
        holder = self._holders.setdefault(head["token"], head["holder"])
        if holder != head["holder"]:
            self._break("I6", f"token {head['token']} has two holders")
        if head["generation"] != before.get("generation", head["generation"]):
            self._judge_rewind(head, before)
        elif head["epoch"] != before.get("epoch", 0):
            if head["epoch"] != before.get("epoch", 0) + 1:
                self._break("I6", f"epoch {before.get('epoch', 0)} was followed by {head['epoch']}")
            self._judge_commit(head)

    def deleted(self, key: str) -> None:
        """An object is about to go: nobody may need it."""
        if key in self.reachable():
            self._break("I9", f"{key} was removed while reachable")

    def applied(self, effect: Apply) -> None:
        """A sink took rows: they must be those of a committed epoch."""
        done = self.record.by_mark.get(effect.cursor.mark)
        if done is None or done.epoch != effect.cursor.epoch:
            self._break("I13", f"the sink took epoch {effect.cursor.epoch}, which is not committed")
            return
        rows = [row for body in effect.outputs for row in rows_of(body)]
        if rows != done.rows[effect.shard]:
            self._break("I4", f"the sink took other rows for epoch {done.epoch} than committed")

    def accepted(self, effect: Accept) -> Outputs:
        """A sink is put right by hand. Only one may have been refused that has left HEAD's line, or
        whose past was left behind by going back: retention alone never passes a sink."""
        held = self._world.sink.shards[effect.sink, effect.shard].held
        epoch = 0 if held is None else held.cursor.epoch
        done = None if held is None else self.record.by_mark.get(held.cursor.mark)
        is_on_line = done is None or (epoch <= len(self.line) and self.line[epoch - 1] is done)
        if is_on_line and epoch + 1 >= self._returned_floor:
            self._break("I4", f"a sink at epoch {epoch} of HEAD's own line was refused")
        return [
            (Epoch(each.epoch), (json.dumps(each.rows[effect.shard]).encode(),))
            for each in self.line[: effect.cursor.epoch]
            if each.manifest["sinks"].get(effect.sink)
        ]

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
            self._kept = None
        elif what == "broken pin" and facts[0] in self._pins:
            self._break("I9", f"{facts[0]} is pinned and does not hold")
        elif what == "asking":
            self.letters.asked(*facts)
        elif what == "asked":
            self.letters.confirmed(*facts)
        elif what == "alarm":
            self._break("I18", f"{process} cried {facts[0]}")

    def quiet(self) -> None:
        """Judge what can be read when all is quiet: each retained epoch and each pinned one."""
        for epoch in range(self._head.get("floor", 1), len(self.line) + 1):
            self._judge_whole(self.line[epoch - 1])
        for key in self._pins.values():
            self._judge_whole(self.record.by_key[key])

    def finish(self) -> list[str]:
        """Judge the end of the run, when everything has arrived and everybody is gone."""
        for claim in self._claims:
            self._judge_claim(*claim)
        self.quiet()
        self._judge_sinks()
        if self._workload.job.has_letters:
            present = [str(entry.key) for entry in self._world.store.list("requests/")]
            self.letters.judge_requests(present, self._head["generation"], self._post())
        left = self._leftovers()
        if left:
            self._break("I9", f"garbage stays: {', '.join(left[:3])} and {len(left)} in all")
        if not self._workload.retention.age_s:
            kept = self._workload.retention.epochs + CLOSING
            if len(self.line) - self._head["floor"] > kept:
                self._break("I9", f"at epoch {len(self.line)} the floor is {self._head['floor']}")
        return self.broken

    # Judgements.

    def _judge_commit(self, head: Json) -> None:
        ref = head["manifest"]
        manifest = self._load(ref, "I7")
        if manifest is None:
            return
        if manifest["token"] != head["token"] or manifest["epoch"] != head["epoch"]:
            self._break("I6", f"epoch {head['epoch']} was committed with another's manifest")
        done = Committed(manifest, ref["key"], self._rows(manifest, SINK), [])
        done.line = [*self.line, done]
        done.files = {table: _files(manifest, table) for table in TABLES}
        self._judge_offsets(manifest)
        if self._workload.job.has_letters:
            rows = [row[:2] for _, shard in sorted(done.rows.items()) for row in shard]
            done.post = self.letters.judge(manifest, rows, self._post(), self._letter_body)
        self.line = done.line
        self.record.add(done)
        for named in refs_of(manifest):
            self._body(named, "I7")
        self._judge_state(done)
        self._judge_tables(done)
        for output in manifest["sinks"].get(TABLE, ()):
            wanted = [list(row) for row in done.rows[output["partition"]]]
            if self._load(output["ref"], "I19") != wanted:
                self._break("I19", f"{output['ref']['key']} has other rows than the sink")

    def _judge_rewind(self, head: Json, before: Json) -> None:
        """HEAD names an earlier epoch, or one of another line: whole, and once committed."""
        done = self.record.by_key.get((head["manifest"] or {}).get("key", ""))
        if done is None or done.epoch != head["epoch"]:
            self._break("I6", f"HEAD went back to epoch {head['epoch']}, which never was")
            return
        if head["generation"] != before["generation"] + 1 or head["token"] <= before["token"]:
            self._break("I6", f"generation {before['generation']} became {head['generation']}")
        self.letters.went_back(self._post(), done.post)
        self.line, self._returned_floor = done.line, head["floor"]
        for epoch in range(head["floor"], done.epoch + 1):
            self._judge_whole(self.line[epoch - 1])

    def _judge_whole(self, done: Committed) -> None:
        """All of an epoch is there: its state, and every row of the tables up to it."""
        if self._rebuilt(done) != done.state:
            self._break("I3", f"state of epoch {done.epoch} is not what it was")
        self._judge_tables(done)

    def _judge_offsets(self, manifest: Json) -> None:
        for source, progress in manifest["sources"].items():
            before = self.line[-1].manifest["sources"][source]["resume_at"] if self.line else {}
            for partition, resume in progress["resume_at"].items():
                read = progress["ranges"].get(partition)
                start = before.get(partition, 0)
                expected = {"start": start, "stop": resume} if resume != start else None
                if read != expected:
                    how = f"{start} to {resume}, but read {read}"
                    self._break("I5", f"partition {partition} of {source}: {how}")

    def _judge_state(self, done: Committed) -> None:
        """State rebuilt from the store equals a serial replay of the committed history."""
        expected = dict(done.line[-2].state) if done.line[1:] else {}
        for _, _, key, total in (row for rows in done.rows.values() for row in rows):
            expected[key] = total
        done.state = expected
        if not self._workload.wobbly and expected != self._replay(done):
            self._break("I3", f"outputs of epoch {done.epoch} are not the replay's")
        if self._rebuilt(done) != expected:
            self._break("I3", f"state of epoch {done.epoch} is not the replay's")

    def _replay(self, done: Committed) -> dict[int, int]:
        totals: dict[int, int] = {}
        for source, stop in done.manifest["sources"]["events"]["resume_at"].items():
            for offset, (key, amount) in enumerate(self._workload.events[int(source)][:stop]):
                if (int(source), offset) not in done.post.open:
                    totals[key] = totals.get(key, 0) + amount
        return totals

    def _rebuilt(self, done: Committed) -> dict[int, int]:
        state: dict[int, int] = {}
        for ref in state_refs(done.line)[0]:
            body = self._load(ref, "I7")
            state.update({int(k): v for k, v in (body or {}).items()})
        return state

    def _judge_tables(self, done: Committed) -> None:
        """A table as of an epoch, by its index and the manifests behind it, has every file that was
        ever committed to it on that line, as it was committed."""
        for table in TABLES:
            found, wanted = self._table_files(done, table), done.table_files(table)
            for ref in found:
                self._body(ref, "I19")
            if found != wanted:
                lacks = [ref["key"] for ref in wanted if ref not in found]
                how = f"lacks {lacks[:3]}, has {[ref['key'] for ref in found[:3]]}"
                self._break("I19", f"table {table} at epoch {done.epoch} {how}")

    def _table_files(self, done: Committed, table: str) -> list[Json]:
        """The files of a table, as whoever goes on from an epoch finds them in the store."""
        files: list[Json] = []
        named = done.manifest["tables"].get(table)
        if named is not None:
            index = self._load(named["ref"], "I19") or {"pages": [], "files": []}
            for page in index["pages"]:
                files += (self._load(page, "I19") or {"files": []})["files"]
            files += index["files"]
        found = [file["output"]["ref"] for file in files]
        behind = [] if named is None and table not in done.manifest["sinks"] else done.line
        for each in behind[0 if named is None else named["epoch"] :]:
            if self._world.store.get(Key(each.manifest_key)) is None:
                self._break("I19", f"{each.manifest_key} is gone, and lists files of {table}")
            found += _files(each.manifest, table)
        return found

    def _judge_claim(self, what: str, token: int, epoch: int) -> None:
        if ((token, epoch) in self.record.made) != (what == "committed"):
            self._break("I18", f"told its user that epoch {epoch} was {what}, which is not so")

    def _judge_view(self, process: str, rank: tuple[int, ...], rows: dict[str, list[Row]]) -> None:
        if rank < self._views.get(process, rank):
            self._break("I12", f"{process} saw {self._views[process]}, then {rank}")
        self._views[process] = rank
        for commit, found in rows.items():
            done = self.record.by_commit.get(commit)
            real = done and [row for _, rows_ in sorted(done.rows.items()) for row in rows_]
            if found != real:
                self._break("I8", f"{process} read rows of commit {commit} nobody committed")

    def _judge_pin(self, mark: str, manifest: str) -> None:
        """A pin that was promised keeps all of its epoch, from this moment on."""
        self._pins[mark] = manifest
        self._kept = None
        done = self.record.by_key[manifest]
        for key in sorted(self._kept_by(done)):
            if self._world.store.get(Key(key)) is None:
                self._break("I9", f"epoch {done.epoch} was pinned as {mark} without {key}")

    def _judge_sinks(self) -> None:
        rows = self._sink_rows(SINK)
        self._judge_rows(rows)
        committed = sorted(r for done in self.line for shard in done.rows.values() for r in shard)
        if sorted(rows) != committed:
            self._break("I4", "the sink does not hold what was committed")
        if self._workload.job.version == 1:
            for shard in range(PARTITIONS):
                self._judge_changelog(shard)

    def _judge_changelog(self, number: int) -> None:
        """A sink that was added late holds what was committed for it from its first epoch on."""
        shard = self._world.sink.shards.get((CHANGELOG, number))
        found = (
            []
            if shard is None
            else [row for _, b in shard.outputs for x in b for row in rows_of(x)]
        )
        wanted = [
            row
            for done in self.line
            if done.manifest["sinks"].get(CHANGELOG)
            for row in done.rows[number]
        ]
        if found != wanted:
            self._break("I4", f"shard {number} of the changelog holds {found}, not {wanted}")

    def _judge_rows(self, rows: list[Row]) -> None:
        times = Counter((source, offset) for source, offset, _, _ in rows)
        for source, events in enumerate(self._workload.events):
            for offset in range(len(events)):
                count = times[source, offset]
                count += (source, offset) in self._post().open
                if count == 0:
                    self._break("I1", f"event {source}/{offset} is lost")
                elif count > 1:
                    self._break("I2", f"event {source}/{offset} is there {count} times")

    # What is really there.

    def reachable(self) -> set[str]:
        """Every key that HEAD's promise keeps, or a pin that somebody was promised."""
        if self._kept is None:
            self._kept = self._reachable([self.record.by_key[key] for key in self._pins.values()])
        return self._kept

    def _reachable(self, pinned: list[Committed]) -> set[str]:
        kept: set[str] = set()
        floor = self._head.get("floor", 1)
        for done in self.line[floor - 1 :]:
            kept.add(done.manifest_key)
            kept.update(ref["key"] for ref in refs_of(done.manifest))
        oldest = self.line[: max(floor, 1)][-1:]
        for done in (*oldest, *self.line[-1:], *pinned):
            kept |= self._kept_by(done)
        return kept

    def _kept_by(self, done: Committed) -> set[str]:
        """Everything that is needed to go on from an epoch."""
        refs, oldest = state_refs(done.line)
        kept = {ref["key"] for ref in (*refs, *refs_of(done.manifest))}
        for table in TABLES:
            index = done.manifest["tables"].get(table)
            if table in done.manifest["sinks"]:
                oldest = min(oldest, 1 if index is None else index["epoch"] + 1)
            kept.update(ref["key"] for ref in done.table_files(table))
        kept.update(each.manifest_key for each in done.line[oldest - 1 :])
        kept.add(done.manifest_key)
        return kept

    def _leftovers(self) -> list[str]:
        """What is in the store and kept by nothing: neither HEAD, nor any pin that is there. What
        is above HEAD, or below a table and above its index, may be somebody's work."""
        store = self._world.store
        store.page_entries_max = 1_000_000
        pins = [json.loads((store.get(e.key) or _NOTHING).body) for e in store.list("pins/")]
        named = (pin["manifest"]["key"] for pin in pins)
        kept = self._reachable([self.record.by_key[k] for k in named if k in self.record.by_key])
        kept |= {"HEAD", f"heartbeats/{self._head['token']:012d}.json"}
        indexes = self.line[-1].manifest["tables"] if self.line else {}
        listed = {table: index["epoch"] for table, index in indexes.items()}
        return [
            entry.key
            for entry in store.list("")
            if entry.key not in kept
            and not entry.key.startswith(("pins/", "requests/"))
            and _epoch_in(entry.key)
            <= (
                listed.get(entry.key.split("/")[1], 0)
                if entry.key.startswith("tables/")
                else self._head["epoch"]
            )
        ]

    def _post(self) -> Post:
        """The dead letters of HEAD's line."""
        return self.line[-1].post if self.line else Post()

    def _sink_rows(self, sink: str) -> list[Row]:
        return [
            row
            for (name, _), shard in self._world.sink.shards.items()
            if name == sink
            for _, outputs in shard.outputs
            for body in outputs
            for row in rows_of(body)
        ]

    def _rows(self, manifest: Json, sink: str) -> dict[int, list[Row]]:
        return {
            output["partition"]: [tuple(row) for row in self._load(output["ref"], "I7") or []]
            for output in manifest["sinks"].get(sink, [])
        }

    def _load(self, ref: Json, invariant: str) -> Any:
        body = self._body(ref, invariant)
        return None if body is None else json.loads(body)

    def _letter_body(self, ref: Json) -> bytes | None:
        return self._body(ref, "I7")

    def _body(self, ref: Json, invariant: str) -> bytes | None:
        stored = self._world.store.get(ref["key"])
        if stored is None:
            self._break(invariant, f"{ref['key']} is named and not there")
        elif hashlib.sha256(stored.body).hexdigest() != ref["sha256"]:
            self._break(invariant, f"{ref['key']} is not what was named")
        else:
            return stored.body
        return None

    def _break(self, invariant: str, how: str) -> None:
        self.broken.append(f"{invariant}: {how}")


def _files(manifest: Json, table: str) -> list[Json]:
    """The files that an epoch added to a table, in order."""
    outputs = sorted(manifest["sinks"].get(table, ()), key=lambda output: output["partition"])
    return [output["ref"] for output in outputs]


def _epoch_in(key: str) -> int:
    """The epoch that a name says; 0 if it says none."""
    found = _EPOCH.search(key)
    return int(found.group(1)) if found else 0
