"""`penstock sign`: give a root its first signature, or that of a new key."""

from typing import Annotated

import typer
from rich.markup import escape

from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.root import Lease, Root
from penstock.checkpoint.signature import ChainKeys
from penstock.checkpoint.signed_store import SignedStore, chain_keys
from penstock.checkpoint.signing import SignedRoot, Signing
from penstock.errors import Invalid
from penstock.runtime.answers import err, or_exit, out

__all__ = ["sign"]

LEASE = Lease()
"""How long a leader may be silent before it is taken for gone."""


def sign(
    root: Annotated[str, typer.Argument(help="Where the job lives.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    vouch: Annotated[
        bool,
        typer.Option(
            "--vouch",
            help="Sign HEAD although it has no signature and other documents have one: a first "
            "signing was cut short, and you have seen that HEAD is genuine.",
        ),
    ] = False,
) -> None:
    """Sign HEAD, manifests, pins, cursors and requests with the first key of PENSTOCK_CHAIN_KEY.

    Run it once when a key is first set, and after a new key was put first. The job must not be
    running. It declares genuine what the root says now: look at it before.
    """
    signing = or_exit(root, lambda: Signing(open_store(root), chain_keys()))
    with err.status("looking whether the job is running …"):
        or_exit(root, lambda: _refuse_led(root))
    if not yes:
        typer.confirm("Declare what this root says now to be genuine, and sign it?", abort=True)
    _show(or_exit(root, lambda: signing.sign(vouched=vouch)))


def _refuse_led(url: str) -> None:
    """By what HEAD says, signed or not: this only tells whether a process is at work."""
    unsigned = Root(SignedStore(open_store(url), ChainKeys()))
    holder = unsigned.is_led(LEASE)
    if holder is not None:
        raise Invalid("this root", f"is at work: {holder} leads it", "stop the job first")


def _show(done: SignedRoot) -> None:
    pins = f", with the pins {', '.join(done.pins)}" if done.pins else ""
    out.print(
        f"{escape(done.job)} is signed at epoch {done.epoch}{escape(pins)}: "
        f"{done.signed} objects were signed anew."
    )
