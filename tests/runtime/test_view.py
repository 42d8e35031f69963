"""What a person sees of a running job."""

from io import StringIO

import pytest
from rich.console import Console

from penstock.ids import Epoch
from penstock.runtime.view import LiveView, PlainView


@pytest.mark.parametrize("view", [PlainView, LiveView])
def test_a_failed_epoch_is_shown_while_a_sink_holds_the_job(
    view: type[PlainView] | type[LiveView],
) -> None:
    """Whoever looks must not take a job that is over for one that only waits."""
    shown = StringIO()
    with view(Console(file=shown, width=200)) as looking:
        looking.held({"report": "sink report is away"})
        looking.failed(Epoch(2), "operator 'total' raised KeyError")

    assert "sink report is away" in shown.getvalue()
    assert "epoch 2 failed" in shown.getvalue()
    assert "the job ends: operator 'total' raised KeyError" in shown.getvalue()
