"""The page of a chaos run: what it says, that it needs nothing else, and that it is looked at."""

import re
from pathlib import Path

import msgspec
import pytest

from penstock.chaos.chaos_report import HISTORY_MAX, chaos_page
from penstock.chaos.chaos_timeline import run_timeline
from penstock.chaos.distribution import Dot, Sample, distribution
from penstock.chaos.findings import Check, Ledger, Verdict
from penstock.chaos.history import (
    ChaosRun,
    Committed,
    Ended,
    Family,
    Happening,
    Held,
    Led,
    Missed,
    Noted,
    Retried,
    Started,
    Struck,
    commits,
    strikes,
)
from penstock.chaos.telling import TOLD_CHARS_MAX, clock, lasting, told
from tests.support.browser import measured, picture_size, screenshot
from tests.support.chaos_runs import EPOCHS, FAULTS, made_run
from tests.support.pages import LOOKED_AT, Text

EVIL = "<script>alert('x')</script>\"><img src=x onerror=y>"


def wrong(found: str = "is there twice", *more: int | None) -> Check:
    """A check that has found something at epoch 47, and at others."""
    ledger = Ledger("sink clicks", "It holds each row that was committed, once.")
    ledger.count("rows compared", 88_000)
    for epoch in (47, *more):
        ledger.wrong("I4", "row (ana, 47)", found, epoch)
    return ledger.check()


def doubtful() -> Check:
    """A check that could not look at something."""
    ledger = Ledger("sink clicks", "It holds each row that was committed, once.")
    ledger.unknown("sink clicks", "the broker is away")
    ledger.note("its topic is compacted")
    return ledger.check()


def with_happenings(run: ChaosRun, *happenings: Happening) -> ChaosRun:
    return msgspec.structs.replace(run, happenings=happenings)


@pytest.fixture(scope="module")
def valid() -> ChaosRun:
    """A run after which everything is as it must be."""
    return made_run()


@pytest.fixture(scope="module")
def invalid() -> ChaosRun:
    """A run after which a sink holds a row twice."""
    return made_run(7, wrong("is there twice", 120, None))


def test_the_verdict_stands_on_top(valid: ChaosRun) -> None:
    """And what it is of, down to the command that does the same again."""
    page = Text(chaos_page(valid))

    rows = sum(each.rows_in for each in commits(valid.happenings))
    top = page.text.partition("What was run")[0]
    assert f"✓ valid {FAULTS} faults, and all that was checked is as it must be." in top
    assert f"Job shop with seed 7: {FAULTS} faults, {rows:,} records in {EPOCHS} epochs" in top
    assert "Asked for, and never happened: disk.full." in top
    run = page.text.partition("What was run")[2].partition("What happened")[0]
    for fact in ("job shop", "seed 7", f"epochs {EPOCHS}", "take-overs 3", valid.command):
        assert fact in run


def test_the_first_violation_says_most_and_is_shown_with_what_happened_around_it(
    invalid: ChaosRun,
) -> None:
    """Who led, what had been done to the job: five lines before, five behind."""
    text = chaos_page(invalid)
    page = Text(text)

    assert "✕ invalid Row (ana, 47) is there twice." in page.text
    epochs = [each.epoch if isinstance(each, Committed) else 0 for each in invalid.happenings]
    at = epochs.index(47)
    around = [told(each) for each in invalid.happenings[at - 5 : at + 6]]
    first = text.partition("what happened</th>")[2].partition("</tbody>")[0]
    rows = first.partition("<tbody>")[2].split("</tr>")[:-1]
    assert [Text(row).text.partition(" ")[2] for row in rows] == around
    assert ['class="here"' in row for row in rows] == [n == 5 for n in range(11)]
    assert "It belongs to no epoch in particular." in page.text


def test_a_violation_of_an_epoch_that_was_not_seen_says_so(valid: ChaosRun) -> None:
    """Of another epoch nothing is shown in its place."""
    run = msgspec.structs.replace(valid, checks=(wrong("is odd", 4000),))

    assert "Epoch 4,000 was not committed in this run." in Text(chaos_page(run)).text


def test_what_is_not_known_is_told_on_top_if_nothing_is_wrong() -> None:
    """Unknown is a verdict of its own, and a note is none."""
    page = Text(chaos_page(made_run(7, doubtful())))

    said = "? unknown Not everything could be looked at: sink clicks: the broker is away"
    assert said in page.text
    assert "Worth knowing: its topic is compacted" in page.text


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.UNKNOWN])
def test_a_verdict_without_a_finding_is_not_softened(valid: ChaosRun, verdict: Verdict) -> None:
    """The page repeats what was decided, whether or not a check says why."""
    page = Text(chaos_page(msgspec.structs.replace(valid, verdict=verdict)))

    assert f" {verdict} " in page.text.partition("Job shop")[0]
    assert "as it must be" not in page.text


def test_violations_that_are_not_listed_are_counted(valid: ChaosRun) -> None:
    """Lists are bounded, counts are not."""
    check = msgspec.structs.replace(wrong(), violations_total=1205)
    page = Text(chaos_page(msgspec.structs.replace(valid, checks=(check,))))

    assert "And 1,204 violations more." in page.text


def test_every_fault_is_in_it(valid: ChaosRun) -> None:
    """On the timeline, in the count of its kind, among the times of recovery, in the history."""
    text = chaos_page(valid)
    page = Text(text)

    struck = strikes(valid.happenings)
    assert len(struck) == FAULTS
    assert {each.family for each in struck} == set(Family)
    for each in struck:
        assert f"{clock(each.at_s)} {told(each)}" in page.text
        assert f"{clock(each.at_s)}, {told(each)}" in page.text
        assert f"{each.fault} at {clock(each.at_s)}: " in page.text
    for fault, times in valid.faults.items():
        assert f"{times} {fault}" in page.text
    assert '<li class="doubt"><b>0</b>disk.full' in text
    assert "did not come about: the disk has 40 GB left" in page.text


def test_the_timeline_has_a_lane_for_what_occurs_and_none_for_what_does_not(
    valid: ChaosRun,
) -> None:
    """An empty lane takes room and says nothing."""
    full = run_timeline(valid)
    lanes = re.findall(r'<text class="name"[^>]*>([^<]*)</text>', full)

    families = [f"{family} faults" for family in Family]
    above, below = ["rows/s", "lag", "commits"], ["drivers", "", "take-overs"]
    assert lanes == [*above, *families, *below, "restores", "retries", "held"]
    first, last = valid.happenings[0], valid.happenings[-1]
    small = run_timeline(with_happenings(valid, first, last))
    assert re.findall(r'<text class="name"[^>]*>([^<]*)</text>', small) == ["drivers"]
    assert run_timeline(with_happenings(valid)) == ""


def test_commits_that_were_seen_at_one_moment_are_one_bar(valid: ChaosRun) -> None:
    """Whoever looks once a second sees several at once; their throughput is not infinite."""
    seen = [
        Committed(at_s=at, driver=1, epoch=n, rows_in=1000, rows_out=1, seconds=0.5)
        for n, at in enumerate((10.0, 20.0, 20.0, 20.001, 30.0), 1)
    ]
    picture = run_timeline(with_happenings(valid, *seen))

    rates = re.findall(r"<title>(\S+, epochs? .*?rows/s.*?)</title>", picture)
    assert rates == [
        "0:10.0, epoch 1: 2,000 rows/s (1,000 rows in 0.50 s)",
        "0:20.0, epoch 2: 100 rows/s (1,000 rows in 10.0 s)",
        "0:30.0, epochs 3 to 5: 300 rows/s (3,000 rows in 10.0 s)",
    ]


def test_drivers_that_run_at_once_are_not_drawn_over_each_other(valid: ChaosRun) -> None:
    """One stands by while another leads; the one that was killed makes room for its successor."""
    picture = run_timeline(valid)
    spans = re.findall(
        r'<rect class="(?:pale|plain-tint|faint)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*>'
        r"<title>[^<]*driver \d is started",
        picture,
    )

    for at, (x, y, width) in enumerate(spans):
        for other, other_y, _ in spans[at + 1 :]:
            assert y != other_y or not float(x) <= float(other) < float(x) + float(width) - 1
    assert len({y for _, y, _ in spans}) == 2
    assert picture.count('<rect class="faint"') == 1, "driver 2, once driver 3 leads"
    assert "driver 2 ends fenced, as another one leads" in picture


def test_a_sink_holds_the_job_until_it_is_back_or_the_driver_is_gone(valid: ChaosRun) -> None:
    """Or to the end of the run."""
    away = {"totals": "connection refused"}
    picture = run_timeline(
        with_happenings(
            valid,
            Held(at_s=10, driver=1, sinks=away),
            Held(at_s=14, driver=1),
            Held(at_s=20, driver=1, sinks=away),
            Ended(at_s=25.5, driver=1, code=-9),
            Held(at_s=30, driver=2, sinks=away),
            Noted(at_s=60, text="that was it"),
        )
    )

    lasted = re.findall(r"<title>(\S+, for [\d.]+ s): driver \d is held by", picture)
    assert lasted == ["0:10.0, for 4.00 s", "0:20.0, for 5.50 s", "0:30.0, for 30.0 s"]


def test_times_of_recovery_are_told_by_kind_of_fault(valid: ChaosRun) -> None:
    """With the worst, and with how often nothing was committed any more."""
    moments = [(0, 2.0), (10, 4.0), (20, 1.0), (30, 3.0)]
    lines: list[Happening] = []
    for number, (at, took) in enumerate(moments):
        lines += [
            Struck(at_s=at, fault="worker.kill", family=Family.WORKER, text="killed"),
            Committed(
                at_s=at + took, driver=1, epoch=2 * number + 1, rows_in=1, rows_out=1, seconds=1
            ),
            Committed(
                at_s=at + 5, driver=1, epoch=2 * number + 2, rows_in=1, rows_out=1, seconds=1
            ),
        ]
    lines.append(Struck(at_s=40, fault="driver.kill", family=Family.DRIVER, text="killed"))
    page = Text(chaos_page(with_happenings(valid, *lines)))

    told_of = page.text.partition("not recovered no fault")[2].partition("Checks")[0]
    assert told_of.split("worker.kill")[0].strip() == "4 1.00 s 2.00 s 4.00 s 4.00 s –"
    assert "worker.kill 4 1.00 s 2.00 s 4.00 s 4.00 s –" in told_of
    assert "driver.kill 1 – – – – 1" in told_of
    assert "driver.kill at 0:40.0: nothing was committed after it" in page.text


def test_a_distribution_shows_each_time_and_the_median() -> None:
    """What never came to an end is beyond the axis."""
    dots = (Dot(1.0, "one"), Dot(5.0, "five"), Dot(2.0, "two"), Dot(None, "never <any>"))
    sample = Sample("x" * 40, dots)
    picture = distribution([sample, Sample("none", ())])

    assert (sample.quantile(0.0), sample.quantile(0.5), sample.quantile(0.9)) == (1.0, 2.0, 5.0)
    assert (sample.never, Sample("none", ()).quantile(0.5)) == (1, None)
    assert picture.count('<circle class="fault"') == 3
    assert picture.count('<circle class="bad"') == 1
    assert "never &lt;any&gt;" in picture
    assert picture.count("<title>median 2.00 s</title>") == 1
    assert distribution([]).startswith("<svg")


def test_of_many_times_those_in_the_middle_are_a_band() -> None:
    """A hundred dots upon each other show nothing but where they are."""
    dots = tuple(Dot(n / 10, f"dot {n}") for n in range(1, 101))
    picture = distribution([Sample("many", dots, "plain")])

    outside = [f"dot {n}" for n in (*range(1, 10), *range(91, 101))]
    assert re.findall(r"<title>(dot \d+)<", picture) == outside
    assert "from the 10th of a hundred to the 90th: 1.00 s to 9.00 s" in picture


def test_a_long_history_is_cut_in_the_middle_and_says_so(valid: ChaosRun) -> None:
    """Nobody reads more, and a browser would have to show it."""
    lines = [Noted(at_s=n, text=f"line {n}.") for n in range(HISTORY_MAX + 500)]
    page = Text(chaos_page(with_happenings(valid, *lines)))

    half = HISTORY_MAX // 2
    gap = page.text.partition(f"line {half - 1}.")[2].partition(f"line {half + 500}.")[0]
    assert "500 lines between these are left out" in gap
    assert len(re.findall(r"line \d+\.", page.text)) == HISTORY_MAX


def test_a_run_in_which_nothing_happened_has_a_page(valid: ChaosRun) -> None:
    """A job that does not even start is when one is needed."""
    bare = msgspec.structs.replace(valid, happenings=(), checks=(), faults={}, asked={})
    page = Text(chaos_page(bare))

    assert "Job shop with seed 7: 0 faults, 0 records in 0 epochs" in page.text


def hostile(run: ChaosRun) -> ChaosRun:
    """A run in which everything that is text is made to become part of the page."""
    lines: list[Happening] = [
        Started(at_s=0, driver=1),
        Ended(at_s=1, driver=1, code=1, said=EVIL),
        Committed(at_s=2, driver=1, epoch=47, rows_in=1, rows_out=1, seconds=1, restores={EVIL: 1}),
        Retried(at_s=3, driver=1, epoch=48, why=EVIL),
        Held(at_s=4, driver=1, sinks={EVIL: EVIL}),
        Struck(at_s=5, fault=EVIL, family=Family.SINK, text=EVIL),
        Missed(at_s=6, fault=EVIL, family=Family.SINK, why=EVIL),
        Noted(at_s=7, text=EVIL),
    ]
    ledger = Ledger(EVIL, EVIL)
    ledger.count(EVIL)
    ledger.wrong(EVIL, EVIL, EVIL, 47)
    ledger.unknown(EVIL, EVIL)
    ledger.note(EVIL)
    return msgspec.structs.replace(
        run,
        penstock=EVIL,
        job=EVIL,
        command=EVIL,
        asked={EVIL: EVIL},
        faults={EVIL: 0},
        happenings=tuple(lines),
        checks=(ledger.check(),),
        verdict=ledger.verdict,
    )


def test_nothing_of_a_job_becomes_part_of_the_page(valid: ChaosRun) -> None:
    """A row may hold anything, and so may the last words of a driver."""
    page = Text(chaos_page(hostile(valid)))

    assert {"script", "img"} & set(page.tags) == set()
    assert page.text.count(EVIL) > 20


def test_the_page_needs_nothing_else(invalid: ChaosRun) -> None:
    """No script, no font, no picture from elsewhere: it can be mailed."""
    text = chaos_page(invalid)
    page = Text(text)

    assert page.links == []
    assert {"script", "link", "img", "iframe"} & set(page.tags) == set()
    assert re.findall(r"url\(|@import|https?://", text) == []
    assert len(text) < 400_000


@pytest.mark.parametrize(
    ("happening", "line"),
    [
        (Started(at_s=0, driver=1), "driver 1 is started"),
        (Started(at_s=0, driver=2, standby=True), "driver 2 is started, to stand by"),
        (Led(at_s=0, driver=1, epoch=0), "driver 1 leads at first"),
        (Led(at_s=0, driver=2, epoch=1041), "driver 2 leads after epoch 1,041"),
        (Ended(at_s=0, driver=1, code=0), "driver 1 ends"),
        (
            Ended(at_s=0, driver=1, code=3, said="token 4 is in HEAD"),
            "driver 1 ends fenced, as another one leads: token 4 is in HEAD",
        ),
        (Ended(at_s=0, driver=1, code=-9), "driver 1 is ended by SIGKILL"),
        (Ended(at_s=0, driver=1, code=-250), "driver 1 is ended by signal 250"),
        (
            Ended(at_s=0, driver=1, code=2, said="no\n  disk"),
            "driver 1 ends with exit code 2: no disk",
        ),
        (
            Committed(at_s=0, driver=1, epoch=7, rows_in=4000, rows_out=12, seconds=1.25),
            "epoch 7 is committed by driver 1: 4,000 rows in, 12 out, 1.25 s",
        ),
        (
            Committed(
                at_s=0,
                driver=1,
                epoch=8,
                rows_in=1,
                rows_out=0,
                seconds=75,
                retries=1,
                restores={"the whole changelog": 1, "snapshot files from the store": 3},
                lag=9000,
            ),
            "epoch 8 is committed by driver 1: 1 row in, 0 out, 1 min 15 s; lag 9,000; 1 retry; "
            "1 partition restored: the whole changelog, "
            "3 partitions restored: snapshot files from the store",
        ),
        (
            Retried(at_s=0, driver=1, epoch=8, why="a task is lost"),
            "epoch 8 is tried again by driver 1: a task is lost",
        ),
        (
            Held(at_s=0, driver=1, sinks={"a": "refused", "b": "gone"}),
            "driver 1 is held by sink a: refused; sink b: gone",
        ),
        (Held(at_s=0, driver=1), "every sink is back; driver 1 goes on"),
        (
            Struck(at_s=0, fault="store.slow", family=Family.STORE, text="800 ms"),
            "store.slow: 800 ms",
        ),
        (
            Missed(at_s=0, fault="disk.full", family=Family.DISK, why="no disk"),
            "disk.full was due and did not come about: no disk",
        ),
        (Noted(at_s=0, text="the job caught up"), "the job caught up"),
        (Noted(at_s=0, text="x" * 5000), "x" * (TOLD_CHARS_MAX - 1) + "…"),
    ],
)
def test_a_happening_is_told_in_one_line(happening: Happening, line: str) -> None:
    """On a page and on a terminal alike."""
    assert told(happening) == line


def test_times_are_rounded_before_they_are_told() -> None:
    """There is no sixtieth second."""
    assert [clock(at) for at in (0, 59.94, 59.96, 3599.97)] == [
        "0:00.0",
        "0:59.9",
        "1:00.0",
        "1:00:00.0",
    ]
    took = (0.004, 9.994, 9.996, 59.94, 59.96, 3599.7, 11520)
    assert [lasting(seconds) for seconds in took] == [
        "0.00 s",
        "9.99 s",
        "10.0 s",
        "59.9 s",
        "1 min 0 s",
        "1 h 0 min",
        "3 h 12 min",
    ]


@pytest.mark.parametrize(
    ("verdict", "colour", "dark_colour"),
    [
        (Verdict.VALID, "rgb(26, 127, 75)", "rgb(76, 195, 138)"),
        (Verdict.INVALID, "rgb(192, 52, 43)", "rgb(255, 122, 110)"),
        (Verdict.UNKNOWN, "rgb(168, 100, 0)", "rgb(232, 171, 76)"),
    ],
)
def test_it_is_looked_at_in_a_real_browser(
    tmp_path: Path, verdict: Verdict, colour: str, dark_colour: str
) -> None:
    """By day and by night, on a wide screen and on a narrow one: nothing is cut off."""
    run = {
        Verdict.VALID: made_run(7),
        Verdict.INVALID: made_run(8, wrong("is there twice " + "x" * 300, 120)),
        Verdict.UNKNOWN: made_run(9, doubtful()),
    }[verdict]
    page = tmp_path / "chaos.html"
    page.write_text(chaos_page(run))

    for dark in (False, True):
        picture = screenshot(page, dark=dark)
        assert picture_size(picture) == (1200, 1600)
        assert picture.stat().st_size > 30_000
    wide = measured(page, LOOKED_AT)
    assert wide["heading"].endswith(verdict)
    assert (wide["colour"], wide["ground"]) == (colour, "rgb(245, 246, 248)")
    opened = {Verdict.VALID: 0, Verdict.INVALID: 2, Verdict.UNKNOWN: 1}[verdict]
    assert (wide["overflows"], wide["cut"], wide["opened"]) == (False, 0, opened)
    assert wide["bars"] > 2 * EPOCHS
    assert wide["marks"] > 2 * FAULTS
    night = measured(page, LOOKED_AT, dark=True)
    assert (night["colour"], night["ground"]) == (dark_colour, "rgb(18, 22, 26)")
    narrow = measured(page, LOOKED_AT, size=(520, 900))
    assert (narrow["overflows"], narrow["cut"], narrow["bars"]) == (False, 0, wide["bars"])
