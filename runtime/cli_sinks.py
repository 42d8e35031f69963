"""`penstock sinks`: how far each sink of a job is, and what to do with one of another history."""

from contextlib import closing
from typing import Annotated, Any

import typer
from rich.markup import escape

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.head import Head
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Lease, Root
from penstock.errors import Invalid, PenstockError
from penstock.points import Point
from penstock.runtime.answers import AsJson, counted, err, or_exit, out, print_json
from penstock.runtime.applying import open_sink, shards_of
from penstock.runtime.cli_run import JobFile
from penstock.runtime.loading import described
from penstock.runtime.run import absolute_root
from penstock.runtime.topology import SinkNode, Topology
from penstock.sinks.cursors import Cursor

__all__ = ["accept", "list_sinks", "sinks"]

LEASE = Lease()
"""How long a leader may be silent before `accept` takes it for gone."""

sinks = typer.Typer(no_args_is_help=True, help="The sinks of a job outside its root.")

RootOption = Annotated[str, typer.Option(envvar="PENSTOCK_ROOT", help="Where the job lives.")]
JobOption = Annotated[str, typer.Option(help="Which job, if the file has several.")]


@sinks.command("list")
def list_sinks(file: JobFile, root: RootOption, job: JobOption = "", json: AsJson = False) -> None:
    """Ask every sink how far it is. Nothing is changed."""
    found = or_exit(root, lambda: _looked_at(file, root, job))
    if json:
        print_json(found)
        return
    for name, sink in found.items():
        out.print(f"{escape(name)} ({sink['guarantee']}): {escape(_spelt(sink))}")
    if not found:
        out.print("The job has no sinks outside its root.")


@sinks.command()
def accept(
    file: JobFile,
    name: Annotated[str, typer.Argument(metavar="SINK", help="The name of the sink.")],
    root: RootOption,
    job: JobOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let a sink go on from HEAD, whatever it holds. Its rows stay as they are.

    For a sink that has taken epochs of a history that was gone back on, or that is new and cannot
    be given all of the past. What is to be taken out of it must be taken out first. The job must
    not be running.
    """
    opened = or_exit(root, lambda: Root.open(absolute_root(root)))
    with err.status("looking whether the job is running …"):
        head = or_exit(root, lambda: _not_led(opened))
    if not yes:
        typer.confirm(
            f"Let sink {name} go on after epoch {head.epoch}, with the rows it has?", abort=True
        )
    shards = or_exit(root, lambda: _accepted(opened, file, root, job, name))
    out.print(f"Sink {escape(name)} goes on after epoch {head.epoch} ({counted(shards, 'shard')}).")


def _looked_at(file: str, root: str, job: str) -> dict[str, dict[str, Any]]:
    with described(file, root, job or None) as topology:
        opened = Root.open(absolute_root(root))
        return {node.name: _look(opened, topology, node) for node in topology.applied}


def _look(root: Root, topology: Topology, node: SinkNode) -> dict[str, Any]:
    found: dict[str, Any] = {"guarantee": node.sink.guarantee.value, "shards": [], "why": None}
    try:
        with closing(open_sink(node, topology, root.store)) as writer:
            for shard in shards_of(node, topology.partitions):
                cursor = writer.read_cursor(shard.number)
                found["shards"].append(None if cursor is None else cursor.epoch)
    except PenstockError as error:
        found["why"] = str(error)
    return found


def _spelt(sink: dict[str, Any]) -> str:
    if sink["why"] is not None:
        return str(sink["why"])
    epochs = ["no epoch" if epoch is None else f"epoch {epoch}" for epoch in sink["shards"]]
    return ", ".join(epochs) if len(set(epochs)) > 1 else f"{epochs[0]} in every shard"


def _not_led(root: Root) -> Head:
    head, holder = root.head(), root.is_led(LEASE)
    if holder is not None:
        raise Invalid(f"job {head.job}", f"is running: {holder} leads it", "stop it first")
    return head


def _accepted(opened: Root, file: str, root: str, job: str, name: str) -> int:
    """Take the root over, so that no older leader writes any more, and move every cursor."""
    with described(file, root, job or None) as topology:
        nodes = {node.name: node for node in topology.applied}
        if name not in nodes:
            known = ", ".join(nodes) or "it has none outside its root"
            raise Invalid(f"sink {name!r}", "is not one of the job's", f"choose of: {known}")
        with opened.lead(topology.job) as session:
            cursor = _cursor_at(opened, session.head)
            with closing(open_sink(nodes[name], topology, opened.store)) as writer:
                shards = shards_of(nodes[name], topology.partitions)
                for shard in shards:
                    session.tenure.check()
                    writer.accept(shard.number, cursor, session.tenure.token)
    return len(shards)


def _cursor_at(root: Root, head: Head) -> Cursor:
    if head.manifest is None:
        return Cursor.before_all(head.generation)
    reading = Chain(generation=head.generation).manifest(
        head.manifest, head.epoch, Point.READ_MANIFEST
    )
    return Cursor.at(perform(reading, root.handlers))
