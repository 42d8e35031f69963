"""Lines that are cut while a job runs: what came about is told, and nothing is lost or doubled."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.dressing import dressed
from penstock.chaos.line_faults import LineFault, Lines
from penstock.chaos.rerouting import address_of, rerouted
from penstock.errors import Invalid, Unavailable
from penstock.sinks import AppliedSink, Writer
from tests.support import databases
from tests.support.in_process import CLICKS, SETTINGS, LocalRun, append, click, clicks_log
from tests.support.postgres_case import new_table, plain_client, rows_in, target
from tests.support.redis_case import plain_client as redis_client
from tests.support.redis_case import rows_in as redis_rows
from tests.support.servers import free_port
from tests.support.sink_cases import apply, people

SMALL = replace(SETTINGS, limits=ps.Limits(records=9))
SOON_S = 30.0
"""Longer than anything here takes: nobody waits for it unless a test fails."""

pytestmark = pytest.mark.usefixtures("passwords")

Arm = Callable[[Lines], LineFault]


def lines_to(sink: ps.Postgres | ps.Redis) -> Lines:
    address = address_of(sink)
    assert address is not None
    return Lines({sink.name: address})


def some_clicks() -> list[dict[str, Any]]:
    return [click(f"user {n % 7}", n, n) for n in range(40)]


def run_through(lines: Lines, sink: ps.Postgres | ps.Redis, folder: Path) -> None:
    """A job that writes what it reads, by the way of these lines; run to its end."""
    log = clicks_log(folder, partitions=2, key="user")
    append(log, some_clicks())
    job = ps.Job("clicks", partitions=2)
    job.read(log, event_time="at").write(sink)
    by_lines = dressed(job, sinks=lambda each: rerouted(each, lines.ports[each.name]))
    LocalRun(by_lines, folder).run(SMALL)


FAULTS: dict[str, tuple[Arm, str]] = {
    "a request": (lambda lines: lines.cut_before("people"), "cut before a request, once"),
    "a later request": (lambda lines: lines.cut_before("people", 30), "cut before a request, once"),
    "an answer": (lambda lines: lines.cut_after("people"), "cut before an answer, once"),
    "some time": (lambda lines: lines.away("people", 0.3), "away for 0.3 s, "),
}
COMMIT: tuple[Arm, str] = (
    lambda lines: lines.cut_after_commit("people"),
    "cut before the answer to COMMIT, once",
)


@pytest.mark.parametrize(
    ("arm", "told"), [*FAULTS.values(), COMMIT], ids=[*FAULTS, "the answer to COMMIT"]
)
def test_a_postgres_has_every_row_once(
    arm: Arm, told: str, postgres_server: databases.Postgres, tmp_path: Path
) -> None:
    """Wherever the line is cut."""
    table = new_table()
    sink = ps.Postgres("people", postgres_server.dsn(), table=table, create=True)
    with lines_to(sink) as lines:
        fault = arm(lines)
        run_through(lines, sink, tmp_path)

        assert fault.wait(SOON_S)
        assert fault.text.startswith(f"the line to sink people was {told}")
    with plain_client(postgres_server) as client:
        found = rows_in(client, table, CLICKS.names)
    assert sorted(found, key=lambda row: row["n"]) == some_clicks()


@pytest.mark.parametrize(("arm", "told"), list(FAULTS.values()), ids=list(FAULTS))
def test_a_redis_comes_to_hold_every_row(
    arm: Arm, told: str, redis_server: databases.Redis, tmp_path: Path
) -> None:
    """Wherever the line is cut."""
    prefix = f"{new_table()}:"
    sink = ps.Redis("people", redis_server.url(), key="n", prefix=prefix)
    with lines_to(sink) as lines:
        fault = arm(lines)
        run_through(lines, sink, tmp_path)

        assert fault.wait(SOON_S)
        assert told in fault.text
    with redis_client(redis_server) as client:
        found = redis_rows(client, prefix, CLICKS)
    assert sorted(found, key=lambda row: row["n"]) == some_clicks()


def opened(lines: Lines, server: databases.Postgres) -> Writer:
    sink = ps.Postgres("people", server.dsn(), table=new_table(), create=True)
    other = rerouted(sink, lines.ports["people"])
    assert isinstance(other, AppliedSink)
    return other.open(target())


def test_a_line_that_nobody_uses_is_not_cut(postgres_server: databases.Postgres) -> None:
    """A fault that never happened is told as that."""
    with Lines({"people": ("127.0.0.1", postgres_server.port)}) as lines:
        fault = lines.away("people", 0.0)

        assert not fault.wait(SOON_S)
        assert fault.text == ("the line to sink people was not away for 0 s: nothing came by")


def test_a_fault_that_is_withdrawn_does_nothing(postgres_server: databases.Postgres) -> None:
    """Nor does one whose place another has taken."""
    with Lines({"people": ("127.0.0.1", postgres_server.port)}) as lines:
        withdrawn = lines.cut_before("people")
        withdrawn.withdraw()
        writer = opened(lines, postgres_server)
        replaced, last = lines.cut_before("people"), lines.cut_after_commit("people")
        with pytest.raises(Unavailable):
            writer.apply(apply(1, people(1)))
        writer.apply(apply(1, people(1)))
        writer.close()

        assert (withdrawn.wait(SOON_S), replaced.wait(SOON_S), last.wait(SOON_S)) == (
            False, False, True,
        )  # fmt: skip
        assert last.cuts == 1


def test_a_line_to_nobody_is_refused() -> None:
    """With those there are; and a server that refuses connections is away."""
    with Lines({"people": ("127.0.0.1", free_port())}) as lines:
        with pytest.raises(Invalid, match="sink others has no line here: use one of: people"):
            lines.cut_before("others")
        sink = ps.Postgres("people", f"host=127.0.0.1 port={lines.ports['people']} user=etl")
        with pytest.raises(Unavailable):
            sink.open(target())
