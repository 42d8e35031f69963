"""`penstock checkpoints`, `savepoint`, `restore`, `status`: a job's past, and going back to it."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from penstock.calendar import told
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.fork import Further, fork
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.head import Head
from penstock.checkpoint.layout import manifest_key
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.open_store import without_secrets
from penstock.checkpoint.perform import perform
from penstock.checkpoint.pins import Pin, Pins
from penstock.checkpoint.rewind import Found, find_epoch, is_table_file
from penstock.checkpoint.root import Lease, Root
from penstock.errors import Corrupt, Gone, Invalid
from penstock.fencing import Beat, decode_beat, heartbeat_key
from penstock.fields import Ordinal, Text
from penstock.ids import Epoch
from penstock.points import Point
from penstock.runtime.answers import AsJson, err, or_exit, out, print_json
from penstock.runtime.cli_state import parse_target
from penstock.runtime.replay_topics import topic_refs
from penstock.sinks.table_index import missing_table_files, table_refs

__all__ = ["checkpoints", "restore", "savepoint", "status"]

LEASE = Lease()
"""How long a leader may be silent before `restore` takes it for gone."""

TABLE_WIDTH_MAX = 400

RootUrl = Annotated[str, typer.Argument(help="Where the job lives.")]


def checkpoints(
    root: RootUrl,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="At most so many epochs.")
    ] = 20,
    json: AsJson = False,
) -> None:
    """The epochs one can go back to, newest first, and those that only a pin keeps."""

    def work() -> list[dict[str, Any]]:
        opened = Root.open(root)
        pins = _told_of(opened.all_pins())
        line = list(islice(opened.history(), number))
        known = {_key(manifest) for manifest in opened.history()}
        return [_checkpoint(each, pins) for each in [*line, *_elsewhere(opened, pins, known)]]

    found = or_exit(root, work)
    if json:
        print_json(found)
    elif not found:
        out.print("Nothing has been committed yet.")
    else:
        out.print(_checkpoint_table(found))


def savepoint(
    root: RootUrl,
    name: Annotated[str, typer.Argument(help="What to call it.")],
    epoch: Annotated[int | None, typer.Option(help="Which epoch; else the last.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Let go of it.")] = False,
) -> None:
    """Keep an epoch by name, whatever retention says, until it is removed."""
    opened = or_exit(root, lambda: Root.open(root))
    if remove:
        or_exit(root, lambda: _remove(opened, name))
        out.print(f"Removed {escape(name)}. Its epoch goes when retention says so.")
        return
    pin = or_exit(root, lambda: opened.pin(name, None if epoch is None else Epoch(epoch)))
    out.print(f"Epoch {pin.epoch} is kept as {escape(name)}.")


def restore(
    root: RootUrl,
    at: Annotated[str, typer.Option(help="An epoch, the name of a pin, or a time (ISO 8601).")],
    to: Annotated[str, typer.Option("--fork", help="An empty root: go on there instead.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Go back to an earlier epoch, or go on from it elsewhere. The job must not be running."""
    opened = or_exit(root, lambda: Root.open(root))
    head, found = or_exit(root, lambda: _find(opened, at))
    if to:
        made = or_exit(root, lambda: fork(opened, _target(found), Root.open(to), _further(opened)))
        where = escape(without_secrets(to))
        out.print(f"Epoch {made.epoch} is at {where}; start the job with that root.")
        _warn_of_sinks(found.manifest)
        return
    with err.status("looking whether the job is running …"):
        or_exit(root, lambda: _refuse_led(opened, head))
    if not yes:
        typer.confirm(_question(head, found), abort=True)
    or_exit(root, lambda: _refuse_missing_files(opened, found))
    made = or_exit(root, lambda: opened.rewind(head.job, _target(found)))
    out.print(
        f"HEAD is at epoch {made.epoch} again, in generation {made.generation}. The next start of "
        f"the job goes on with epoch {made.epoch + 1} and reads its sources from there."
    )
    _warn_of_sinks(found.manifest)


def status(root: RootUrl, json: AsJson = False) -> None:
    """Where a job is: its leader, its sources, its state and what is kept."""
    found = or_exit(root, lambda: _status(Root.open(root)))
    if json:
        print_json(found)
    else:
        _show_status(found)


def _told_of(found: Pins) -> list[Pin]:
    """The pins that can be read; standard error is told of the rest."""
    for error in found.unreadable:
        err.print(f"[bold red]wrong[/] {escape(str(error))}")
    return found.pins


def _key(manifest: Manifest) -> str:
    return manifest_key(manifest.epoch, manifest.commit)


def _elsewhere(root: Root, pins: list[Pin], known: set[str]) -> Iterator[Manifest]:
    """What pins keep beside HEAD's own line, newest first. A pin that does not hold is left out:
    `penstock fsck` tells of it."""
    others = {pin.manifest.key: pin for pin in pins if pin.manifest.key not in known}
    for pin in sorted(others.values(), key=lambda pin: (-pin.epoch, pin.name)):
        with suppress(Gone, Corrupt):
            reading = Chain().manifest(pin.manifest, pin.epoch, Point.READ_MANIFEST)
            yield perform(reading, root.handlers)


def _checkpoint(manifest: Manifest, pins: list[Pin]) -> dict[str, Any]:
    parts = [state for each in manifest.operators.values() for state in each.values()]
    return {
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "time": _iso(manifest.at_ms),
        "token": manifest.token,
        "rows_in": manifest.rows_in,
        "rows_out": manifest.rows_out,
        "bytes": manifest.size_bytes,
        "snapshots": sum(part.snapshot is not None for part in parts),
        "pins": sorted(pin.name for pin in pins if pin.manifest.key == _key(manifest)),
    }


def _checkpoint_table(found: list[dict[str, Any]]) -> Table:
    names = ("epoch", "generation", "time", "token", "rows in", "rows out", "bytes", "snapshots")
    table = Table(*names, "pins", box=None)
    for each in found:
        shown = [
            value if isinstance(value, str) else f"{value:,}" for value in [*each.values()][:8]
        ]
        table.add_row(*shown, escape(", ".join(each["pins"])))
    # As wide as it is: a narrow terminal breaks its lines, but nothing is cut off in a pipe.
    table.width = out.measure(table, options=out.options.update(width=TABLE_WIDTH_MAX)).maximum
    return table


def _remove(root: Root, name: str) -> None:
    names = root.all_pins().names()
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "there are none"
        raise Invalid(f"savepoint {name}", f"does not exist: {there}", "check the name")
    root.unpin(name)


def _find(root: Root, at: str) -> tuple[Head, Found]:
    """The epoch that is meant: by its number, by the name of a pin, or by a time."""
    head, target = root.head(), parse_target(at)
    if isinstance(target, str) and target not in root.all_pins().names():
        target = _last_before(root, target)
    return head, perform(find_epoch(Chain(generation=head.generation), head, target), root.handlers)


def _last_before(root: Root, at: str) -> Epoch:
    """The last epoch that was committed at or before a time."""
    try:
        time = datetime.fromisoformat(at)
    except ValueError as error:
        raise Invalid(
            f"{at!r}",
            "is no epoch, no time and not the name of a pin",
            "look at `penstock checkpoints`",
        ) from error
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    oldest: Manifest | None = None
    for manifest in root.history():
        if manifest.at_ms <= aware.timestamp() * 1000:
            return manifest.epoch
        oldest = manifest
    since = (
        "nothing is committed" if oldest is None else f"history is kept since {_iso(oldest.at_ms)}"
    )
    raise Invalid(f"time {at}", f"is before all that is kept: {since}", "choose a later one")


def _target(found: Found) -> Epoch | str:
    return found.epoch if found.pin is None else found.pin.name


def _further(root: Root) -> Further:
    """The pages and files of every table: what the manifest's index leads to; and the topics that
    an older version has replayed dead letters from."""

    def further(manifest: Manifest) -> Iterator[Ref]:
        yield from table_refs(root, manifest)
        yield from topic_refs(root, manifest)

    return further


def _refuse_missing_files(root: Root, found: Found) -> None:
    """Going back to where rows are lost would make the loss history."""
    missing = missing_table_files(root, found.manifest)
    if missing:
        more = f", and {len(missing) - 1} more are" if len(missing) > 1 else ""
        what = f"is missing{more}, though epoch {found.epoch} needs it"
        raise Corrupt(missing[0], what, "restore it from a copy, or choose another epoch")


def _refuse_led(root: Root, head: Head) -> None:
    holder = root.is_led(LEASE)
    if holder is not None:
        raise Invalid(
            f"job {head.job}",
            f"is running: {holder} leads it",
            "stop it first, or go on elsewhere with --fork",
        )


def _question(head: Head, found: Found) -> str:
    after = head.epoch - found.epoch
    undone = f" What {after} epochs did since is undone." if after > 0 else ""
    return f"Take job {head.job} from epoch {head.epoch} to epoch {found.epoch}?{undone}"


def _warn_of_sinks(manifest: Manifest) -> None:
    """Tables follow HEAD; what other sinks hold stays where it is."""
    tables = {
        sink
        for sink, outputs in manifest.sinks.items()
        if sink in manifest.tables or any(is_table_file(each.ref) for each in outputs)
    }
    others = sorted(manifest.sinks.keys() - tables)
    if others:
        out.print(
            f"Sinks outside the root ({escape(', '.join(others))}) are not taken back. One that is "
            f"ahead of epoch {manifest.epoch} makes the job refuse to start: give it a new target, "
            "or take out of it what is above and run `penstock sinks accept`."
        )


def _status(root: Root) -> dict[str, Any]:
    head, manifest = root.head(), root.newest()
    beat = _last_beat(root, head)
    sources = {} if manifest is None else manifest.sources
    pins = root.all_pins()
    return {
        "job": head.job,
        "epoch": head.epoch,
        "time": None if manifest is None else _iso(manifest.at_ms),
        "generation": head.generation,
        "token": head.token,
        "holder": head.holder,
        "leader": "released" if beat is not None and beat.released else "unknown",
        "sources": {
            name: {"resume_at": progress.resume_at, "watermark": _iso(progress.watermark_ms)}
            for name, progress in sources.items()
        },
        "operators": _operators(root),
        "sinks": _sinks(manifest, beat),
        "pins": [{"name": p.name, "epoch": p.epoch, "generation": p.generation} for p in pins.pins],
        "unreadable_pins": list(map(str, pins.unreadable)),
        "retained": [head.floor, head.epoch] if manifest is not None else [],
    }


def _last_beat(root: Root, head: Head) -> Beat | None:
    """What the last leader said last. Whether it lives is not waited for."""
    stored = root.store.get(heartbeat_key(head.token))
    return None if stored is None else decode_beat(stored.body)


def _sinks(manifest: Manifest | None, beat: Beat | None) -> dict[str, dict[str, Any]]:
    """How far each sink is. A table is where HEAD is; of the others the leader tells."""
    found: dict[str, dict[str, Any]] = {}
    told = {} if beat is None else _told_of_sinks(beat)
    for name, outputs in ({} if manifest is None else manifest.sinks).items():
        assert manifest is not None
        is_table = name in manifest.tables or any(is_table_file(each.ref) for each in outputs)
        found[name] = {"epoch": manifest.epoch if is_table else None, "held": None}
    return {**found, **told}


class _SinkNote(msgspec.Struct, frozen=True):
    """What a leader says of a sink."""

    epoch: Ordinal | None = None
    held: Text | None = None


def _told_of_sinks(beat: Beat) -> dict[str, dict[str, Any]]:
    """What the leader says of its sinks; nothing, if those are no words of a leader: a heartbeat is
    neither signed nor named by a hash."""
    try:
        told = msgspec.convert(beat.notes.get("sinks", {}), dict[str, _SinkNote])
    except msgspec.ValidationError:
        return {}
    return {name: msgspec.structs.asdict(note) for name, note in told.items()}


def _operators(root: Root) -> dict[str, dict[str, int]]:
    """How many partitions each operator has, and the bytes it would take to rebuild them."""
    found: dict[str, dict[str, int]] = {}
    for (operator, _), lineage in root.lineages().items():
        sums = found.setdefault(operator, {"partitions": 0, "bytes": 0})
        sums["partitions"] += 1
        sums["bytes"] += _size_bytes(lineage.refs())
    return found


def _size_bytes(refs: Iterable[Ref]) -> int:
    return sum(ref.size_bytes for ref in refs)


def _show_status(found: dict[str, Any]) -> None:
    when = f", committed {found['time']}" if found["time"] else ""
    out.print(f"{escape(found['job'])}: epoch {found['epoch']}{when}")
    out.print(
        f"generation {found['generation']}, token {found['token']}, "
        f"held by {escape(found['holder'])} ({found['leader']})"
    )
    for name, source in found["sources"].items():
        offsets = ", ".join(f"{part} at {offset:,}" for part, offset in source["resume_at"].items())
        mark = f"; watermark {source['watermark']}" if source["watermark"] else ""
        out.print(f"source {escape(name)}: {escape(offsets)}{mark}")
    for name, sums in found["operators"].items():
        parts, size = sums["partitions"], sums["bytes"]
        out.print(f"operator {escape(name)}: {parts:,} partitions, {size:,} bytes of state")
    for name, sink in found["sinks"].items():
        at = f"epoch {sink['epoch']}" if sink["epoch"] is not None else "its leader has not said"
        held = f"; the job is held: {sink['held']}" if sink["held"] else ""
        out.print(f"sink {escape(name)}: {at}{escape(held)}")
    for pin in found["pins"]:
        out.print(f"pin {escape(pin['name'])}: epoch {pin['epoch']}")
    for sentence in found["unreadable_pins"]:
        out.print(f"[bold red]wrong[/] {escape(sentence)}")
    if found["retained"]:
        oldest, newest = found["retained"]
        out.print(f"epochs {oldest} to {newest} are kept")


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else told(at_ms)
