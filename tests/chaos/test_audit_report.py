"""The page of an audit: what it says, that it needs nothing else, and that it can be looked at."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import penstock as ps
from penstock.chaos.audit import Audit
from penstock.chaos.audit_report import BARS_MAX, audit_page
from penstock.chaos.findings import Ledger, Verdict, worst
from penstock.chaos.timeline import Bar, Lane, Mark, Span, Tick, timeline
from penstock.ids import Epoch
from tests.support.audits import Scene, counting_job
from tests.support.browser import measured, picture_size, screenshot
from tests.support.pages import LOOKED_AT, Text

ROOT = "s3://bucket/jobs/counts"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """The audit of a sound job."""
    folder = tmp_path_factory.mktemp("report")
    sinks = (ps.Table("totals"), ps.Memory(f"shelf-{folder.name}"))
    scene = Scene(folder, lambda log: counting_job(log, *sinks))
    scene.epochs(6)
    return scene.done()


def with_findings(done: Audit, *violations: tuple[str, int | None], doubts: int = 0) -> Audit:
    """The same, with a check that has found something."""
    ledger = Ledger("table totals", "Every row is there once.")
    for found, epoch in violations:
        ledger.wrong("I7", "tables/totals/1.arrow", found, epoch)
    for number in range(doubts):
        ledger.unknown(f"sink {number}", "it is away")
    checks = (*done.audited.checks, ledger.check())
    verdict = worst(check.verdict for check in checks)
    return replace(
        done, audited=msgspec.structs.replace(done.audited, checks=checks, verdict=verdict)
    )


def test_the_verdict_stands_on_top(sound: Audit) -> None:
    """And what it is of."""
    page = Text(audit_page(sound, ROOT))

    top = page.text.partition("What was looked at")[0]
    assert "✓ valid All that was looked at is what was committed" in top
    assert "Job counts, epochs 1 to 6" in top
    for check in sound.audited.checks:
        assert check.name in page.text
    head = sound.audited.head
    assert head is not None
    assert head.sha256 in page.text


def test_the_first_violation_is_told_on_top_and_all_with_what_is_around_them(
    sound: Audit,
) -> None:
    """The epochs before and behind, who led, what was read."""
    done = with_findings(
        sound, ("is missing", 3), ("hashes to something else", 6), ("is odd", None)
    )
    page = Text(audit_page(done, ROOT))

    assert "✕ invalid Tables/totals/1.arrow is missing." in page.text
    assert "3 violations" in page.text
    around = page.text.partition("is missing (table totals)")[2].partition("hashes")[0]
    assert [f"clicks/0 {n}" in around for n in (0, 3, 6, 9, 12)] == [True] * 5
    assert all(told.commit[:12] in around for told in done.story[:5])
    assert done.story[5].commit[:12] not in around


def test_what_could_not_be_looked_at_is_listed(sound: Audit) -> None:
    """Unknown is a verdict of its own."""
    page = Text(audit_page(with_findings(sound, doubts=2), ROOT))

    assert "? unknown Not everything could be looked at: sink 0: it is away" in page.text
    assert "What could not be looked at sink 0: it is away sink 1: it is away" in page.text


def test_nothing_of_a_job_becomes_part_of_the_page(sound: Audit) -> None:
    """A row may hold anything."""
    evil = "<script>alert('x')</script>\"><img src=x onerror=y>"
    done = with_findings(sound, (evil, 3), doubts=1)
    page = Text(audit_page(done, f"s3://bucket/{evil}"))

    assert {"script", "img"} & set(page.tags) == set()
    assert evil in page.text


def test_the_page_needs_nothing_else(sound: Audit) -> None:
    """No script, no font, no picture from elsewhere: it can be mailed."""
    text = audit_page(with_findings(sound, ("is missing", 3)), ROOT)
    page = Text(text)

    assert page.links == []
    assert {"script", "link", "img", "iframe"} & set(page.tags) == set()
    assert re.findall(r"url\(|@import|https?://", text) == []


def test_a_long_history_has_as_many_bars_as_can_be_seen(sound: Audit) -> None:
    """Several epochs are one bar then."""
    first = sound.story[0]
    story = [replace(first, epoch=Epoch(n), token=1 + n // 4000) for n in range(1, 10_001)]
    text = audit_page(replace(sound, story=story), ROOT)

    assert 2 * BARS_MAX * 0.9 < text.count("<rect") < 2 * BARS_MAX + 20
    assert "epochs 1 to 42" in text
    assert len(text) < 200_000


def test_a_timeline_is_drawn_from_lanes_of_any_kind() -> None:
    """A run with faults is drawn by the same."""
    picture = timeline(
        [
            Lane(name="rows", bars=[Bar(0, 1, 5, "five"), Bar(1, 2, 0, "none")]),
            Lane(name="driver", spans=[Span(0, 4, "led", label="token 1")]),
            Lane(name="faults", marks=[Mark(2, "killed <here>", "bad")]),
        ],
        [Tick(0, "0 s"), Tick(4, "4 s", "the end")],
        0,
        4,
    )

    assert (picture.count("<rect"), picture.count("<circle"), picture.count("<line")) == (3, 1, 4)
    assert "killed &lt;here&gt;" in picture
    assert ">token 1</text>" in picture
    assert timeline([], [], 0, 0).startswith("<svg")


@pytest.mark.parametrize(
    ("verdict", "colour", "dark_colour"),
    [
        (Verdict.VALID, "rgb(26, 127, 75)", "rgb(76, 195, 138)"),
        (Verdict.INVALID, "rgb(192, 52, 43)", "rgb(255, 122, 110)"),
        (Verdict.UNKNOWN, "rgb(168, 100, 0)", "rgb(232, 171, 76)"),
    ],
)
def test_it_is_looked_at_in_a_real_browser(
    sound: Audit, tmp_path: Path, verdict: Verdict, colour: str, dark_colour: str
) -> None:
    """By day and by night, on a wide screen and on a narrow one: nothing is cut off."""
    long_name = "x" * 300
    done = {
        Verdict.VALID: sound,
        Verdict.INVALID: with_findings(sound, (f"is missing {long_name}", 3), ("is odd", 5)),
        Verdict.UNKNOWN: with_findings(sound, doubts=3),
    }[verdict]
    page = tmp_path / "audit.html"
    page.write_text(audit_page(done, f"s3://bucket/{long_name}"))

    for dark in (False, True):
        picture = screenshot(page, dark=dark)
        assert picture_size(picture) == (1200, 1600)
        assert picture.stat().st_size > 30_000
    wide = measured(page, LOOKED_AT)
    assert wide["heading"].endswith(verdict)
    assert (wide["colour"], wide["ground"]) == (colour, "rgb(245, 246, 248)")
    assert (wide["overflows"], wide["cut"], wide["opened"]) == (False, 0, verdict == "invalid")
    assert (wide["bars"] >= 12, wide["marks"]) == (True, 2 if verdict == "invalid" else 0)
    night = measured(page, LOOKED_AT, dark=True)
    assert (night["colour"], night["ground"]) == (dark_colour, "rgb(18, 22, 26)")
    narrow = measured(page, LOOKED_AT, size=(520, 900))
    assert (narrow["overflows"], narrow["bars"]) == (False, wide["bars"])
