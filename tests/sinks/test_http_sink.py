"""Rows over HTTP: what is sent, what each answer means, and what a server that keeps keys sees."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.checkpoint import MemoryStore
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks import Guarantee, Target
from penstock.sinks.http_line import PAUSE_S_MAX, TRIES_MAX
from penstock.sinks.http_sink import Http, HttpWriter
from tests.support.driving import ManualClock
from tests.support.http_case import Shelf, http_server
from tests.support.s3_stub import Reply, s3_stub
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, in_order, people

SECRET = "s3cr3t-token"
Opening = Callable[..., HttpWriter]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def opened(store: MemoryStore) -> Iterator[Opening]:
    """Open a sink to a shelf: `opened(shelf, batch_rows=2)`."""
    with ExitStack() as stack:

        def open_(shelf: Shelf, path: str = "/in", **settings: Any) -> HttpWriter:
            port = stack.enter_context(http_server(shelf))
            sink = Http("people", f"http://127.0.0.1:{port}{path}", **settings)
            return sink.open(Target(job=JOB, columns=PEOPLE, partitions=2, store=store))

        yield open_


def test_a_batch_says_whose_rows_it_holds(opened: Opening) -> None:
    """Whoever writes the server needs nothing else."""
    shelf = Shelf()
    opened(shelf, batch_rows=2).apply(apply(1, people(1)))

    assert shelf.bodies == [
        {"job": JOB, "sink": "people", "epoch": 1, "rows": people(1)[:2]},
        {"job": JOB, "sink": "people", "epoch": 1, "rows": people(1)[2:]},
    ]
    assert {h["Content-Type"] for h in shelf.headers} == {"application/json"}
    assert len(set(shelf.keys)) == 2


def test_a_row_can_be_a_request_of_its_own(opened: Opening) -> None:
    """For servers that know no batches."""
    shelf = Shelf()
    opened(shelf, per="row").apply(apply(1, people(1)))

    assert shelf.bodies == people(1)
    assert len(set(shelf.keys)) == 3


def once_then(status: int, **headers: str) -> Callable[[int], tuple[int, dict[str, str]]]:
    """Every request is taken; the first answer to each is an error, and the next is not."""
    return lambda number: (status, headers) if number % 2 else (200, {})


@pytest.mark.parametrize("status", [500, 503, 408, 409, 425, 429])
def test_applied_and_then_an_error_is_once_at_a_server_that_keeps_keys(
    opened: Opening, status: int
) -> None:
    """The same key comes again with the same rows."""
    shelf = Shelf(answers=once_then(status))
    writer = opened(shelf, batch_rows=1)
    for epoch in range(1, 4):
        writer.apply(apply(epoch, people(epoch)))

    assert in_order(shelf.rows) == in_order([row for n in range(1, 4) for row in people(n)])
    assert (len(shelf.keys), len(set(shelf.keys))) == (18, 9)


def test_a_server_that_keeps_no_keys_sees_rows_twice(opened: Opening) -> None:
    """At-least-once is what it says, and what it is."""
    shelf = Shelf(honours_keys=False, answers=once_then(500))
    writer = opened(shelf)
    writer.apply(apply(1, people(1)))

    assert in_order(shelf.rows) == in_order(people(1) * 2)
    assert Http("people", "http://host").guarantee is Guarantee.AT_LEAST_ONCE


def test_a_server_that_hangs_up_after_applying_is_asked_again(opened: Opening) -> None:
    """No answer says nothing."""
    shelf = Shelf(answers=lambda number: None if number % 2 else (200, {}))
    writer = opened(shelf)
    writer.apply(apply(1, people(1)))

    assert (in_order(shelf.rows), len(shelf.keys)) == (in_order(people(1)), 2)


def test_keys_are_the_same_after_a_restart(opened: Opening, store: MemoryStore) -> None:
    """A leader that died before it moved the cursor left no trace but the server's."""
    shelf = Shelf()
    opened(shelf).apply(apply(1, people(1)))
    for entry in store.list("cursors/"):
        store.delete(entry.key)
    opened(shelf).apply(apply(1, people(1)))

    assert (shelf.rows, len(shelf.keys), len(set(shelf.keys))) == (people(1), 2, 1)


def test_other_batches_have_other_keys(opened: Opening, store: MemoryStore) -> None:
    """A server that knew the key of three rows by two of them would drop the third."""
    shelf = Shelf()
    opened(shelf, batch_rows=2).apply(apply(1, people(1)))
    for entry in store.list("cursors/"):
        store.delete(entry.key)
    opened(shelf, batch_rows=3).apply(apply(1, people(1)))

    assert {row["user"] for row in shelf.rows} == {row["user"] for row in people(1)}
    assert len(set(shelf.keys)) == 3


def test_a_server_is_left_alone_as_long_as_it_asks(opened: Opening) -> None:
    """But not for longer than there is patience for."""
    asked = iter(["2", "0.5", "100000"])
    shelf = Shelf(
        answers=lambda number: (429, {"Retry-After": next(asked)}) if number < 4 else (200, {})
    )
    writer, clock = opened(shelf), ManualClock()
    writer._line.clock = clock
    before_s = clock.monotonic()
    writer.apply(apply(1, people(1)))

    assert clock.monotonic() - before_s == pytest.approx(2 + 0.5 + PAUSE_S_MAX)


def test_a_server_that_stays_away_is_unavailable(opened: Opening) -> None:
    """The runtime holds the job, and asks again; the cursor has not moved."""
    shelf = Shelf(answers=lambda number: (503, {}))
    writer = opened(shelf)
    writer._line.clock = ManualClock()

    with pytest.raises(
        Unavailable, match=r"sink people at http://.* answered 503: it is sent again"
    ):
        writer.apply(apply(1, people(1)))

    assert (writer.read_cursor(0), len(shelf.keys)) == (None, TRIES_MAX)
    shelf.answers = lambda number: (200, {})
    writer.apply(apply(1, people(1)))
    assert (writer.read_cursor(0), shelf.rows) == (cursor(1), people(1))


def test_a_refusal_stops_the_job_and_can_be_mended(opened: Opening) -> None:
    """What the server says is passed on."""
    shelf = Shelf(answers=lambda number: (400, {}))
    writer = opened(shelf)

    with pytest.raises(Invalid) as caught:
        writer.apply(apply(1, people(1)))

    assert caught.value.found == "refused a request with 400 (no row for you)"
    assert writer.read_cursor(0) is None


PAGE = "<!DOCTYPE html><html><body>nothing here</body></html>"


@pytest.mark.parametrize("status", [200, 301, 400, 403, 404, 502])
def test_a_page_of_a_proxy_is_no_answer_of_the_server(opened: Opening, status: int) -> None:
    """It is sent again, and what the server says itself counts. A page to log in at comes with 200,
    and the rows behind it were counted as delivered."""
    shelf = Shelf(answers=lambda number: (status, {}), says=PAGE)
    writer = opened(shelf)
    writer._line.clock = ManualClock()

    with pytest.raises(Unavailable) as caught:
        writer.apply(apply(1, people(1)))

    page = " with a page of HTML, as proxies do" if status < 500 else ""
    assert caught.value.found == f"answered {status}{page}"
    assert (writer.read_cursor(0), len(shelf.keys)) == (None, TRIES_MAX)
    shelf.says = None
    shelf.answers = lambda number: (200, {})
    writer.apply(apply(1, people(1)))
    assert (writer.read_cursor(0), shelf.rows) == (cursor(1), people(1))


def test_a_refusal_that_was_cut_off_is_no_refusal(store: MemoryStore) -> None:
    """Whatever its status; one that is whole counts, with a body or without."""
    target = Target(job=JOB, columns=PEOPLE, partitions=1, store=store)
    with s3_stub(Reply(400, body=b"no r", length=99)) as stub:
        writer = Http("people", f"{stub.endpoint.url}/in").open(target)
        writer._line.clock = ManualClock()
        with pytest.raises(Unavailable, match="does not answer"):
            writer.apply(apply(1, people(1)))
        assert len(stub.seen) == TRIES_MAX
        stub.replies[:] = [Reply(404)]
        with pytest.raises(Invalid, match="refused a request with 404"):
            writer.apply(apply(1, people(1)))


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)


@pytest.mark.usefixtures("token")
def test_secrets_are_sent_and_never_shown(opened: Opening) -> None:
    """Also if a server repeats what it was sent."""
    shelf = Shelf(answers=lambda number: (404, {}), says=f"no {SECRET} here, Bearer {SECRET}")
    headers = {"Authorization": "Bearer ${HOOK}"}
    writer = opened(shelf, "/in?key=${HOOK}", headers=headers)

    with pytest.raises(Invalid) as caught:
        writer.apply(apply(1, people(1)))

    assert shelf.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert shelf.paths == [f"/in?key={SECRET}"]
    shown = "".join(traceback.format_exception(caught.value))
    assert "refused a request with 404 (no … here, …)" in shown
    assert SECRET not in shown
    assert SECRET not in repr(Http("a", "http://host/${HOOK}", headers=headers))


@pytest.mark.parametrize(
    ("url", "headers", "found"),
    [
        ("ftp://host", {}, "has a URL of another kind"),
        ("http://", {}, "has a URL of another kind"),
        ("http://[::1", {}, "has a URL that is none"),
        ("${HOOK}", {}, "has a URL of another kind"),
        (
            "http://host",
            {"Authorization": "${HOOK}\n"},
            "has a header 'Authorization' with characters that cannot be sent",
        ),
    ],
)
@pytest.mark.usefixtures("token")
def test_what_cannot_be_sent_is_said_before_the_first_row(
    url: str, headers: dict[str, str], found: str
) -> None:
    """A job that could never send anything must not wait for ever."""
    target = Target(job=JOB, columns=PEOPLE, partitions=1, store=MemoryStore())
    with pytest.raises(PenstockError) as caught:
        Http("people", url, headers=headers).open(target)

    assert (type(caught.value), caught.value.found) == (Invalid, found)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.usefixtures("token")
def test_a_whole_url_can_be_a_reference(opened: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a user and a password in it, which are sent as such."""
    shelf = Shelf()
    with http_server(shelf) as port:
        monkeypatch.setenv("HOOK_URL", f"http://ada:p%40ss@127.0.0.1:{port}/in")
        target = Target(job=JOB, columns=PEOPLE, partitions=1, store=MemoryStore())
        Http("people", "${HOOK_URL}").open(target).apply(apply(1, people(1)))

    sent = {name.lower(): value for name, value in shelf.headers[0].items()}
    assert sent["authorization"] == "Basic YWRhOnBAc3M="


@pytest.mark.parametrize(
    "settings", [{"per": "epoch"}, {"batch_rows": 0}, {"window": "soon"}], ids=str
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    """When the job is described, by name."""
    with pytest.raises(Invalid):
        Http("people", "http://host", **settings)


PAGES = [
    "\ufeff<html><body>log in</body></html>",
    '<?xml version="1.0"?>\n<!DOCTYPE html>\n<html></html>',
    "<!-- portal --> <HTML>",
    "\n <head><title>x</title></head>",
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_known_by_its_first_element(opened: Opening, page: str) -> None:
    """Whatever stands before it."""
    writer = opened(Shelf(answers=lambda number: (403, {}), says=page))
    writer._line.clock = ManualClock()

    with pytest.raises(Unavailable, match="answered 403 with a page of HTML"):
        writer.apply(apply(1, people(1)))


@pytest.mark.parametrize("status", [302, 303, 307])
def test_a_redirect_for_now_is_waited_out(opened: Opening, status: int) -> None:
    """A portal sends everyone to its own page until a person has logged in."""
    writer = opened(Shelf(answers=lambda number: (status, {"Location": "/login"}), says=""))
    writer._line.clock = ManualClock()

    with pytest.raises(Unavailable, match=f"answered {status}"):
        writer.apply(apply(1, people(1)))
