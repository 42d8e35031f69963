"""What commands make of roots that were forged: one sentence, and no traceback."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import Corrupt
from penstock.fencing.heartbeat import heartbeat_key
from penstock.ids import Key
from penstock.runtime.dead_letters import _check_letters, _check_places
from penstock.state.declare import schema_flaws
from tests.support.in_process import LocalRun, append, click, clicks_log
from tests.support.letters import command


@ps.stateful(emits="n long", each=True)
def echo(user: str, event: ps.Event) -> Iterator[dict[str, Any]]:
    """Every event."""
    yield {"n": event.n}


@pytest.fixture
def run(tmp_path: Path) -> LocalRun:
    log = clicks_log(tmp_path)
    append(log, [click("ada", 1)])
    job = ps.Job("clicks", partitions=1)
    job.read(log, event_time="at").key_by("user").process(echo).write(ps.Table("out"))
    made = LocalRun(job, tmp_path)
    made.run()
    return made


NOTES = [
    '{"sinks":[1]}',
    '{"sinks":{"calls":5}}',
    '{"sinks":{"calls":{}}}',
    '{"sinks":{"calls":{"epoch":"[/red]","held":null}}}',
    '{"sinks":{"calls":{"epoch":-1,"held":[]}}}',
    '{"sinks":null}',
]


@pytest.mark.parametrize("notes", NOTES)
def test_what_a_heartbeat_says_breaks_no_status(run: LocalRun, notes: str) -> None:
    """It is neither signed nor named by a hash, so it may be anyone's."""
    body = f'{{"holder":"x","count":1,"notes":{notes}}}'.encode()
    run.root.store.put(heartbeat_key(run.root.head().token), body)

    told = command("status", run.url)

    assert told.exit_code == 0
    assert "clicks: epoch 1" in told.output


DECLARED = {"kind": "value", "clock": None, "value": {"is": "int"}}
FORGED: list[Any] = [
    {},
    {"kind": 5},
    {"kind": "value"},
    {"kind": "value", "clock": None},
    {"kind": "value", "clock": None, "value": {}},
    {"kind": "value", "clock": None, "value": {"is": "list"}},
    {"kind": "value", "clock": None, "value": {"is": "record", "fields": 3}},
    {"kind": "value", "clock": None, "value": 7},
    [],
]


@pytest.mark.parametrize("stored", FORGED, ids=str)
def test_a_state_that_is_described_in_other_words_is_damage(stored: Any) -> None:
    """Or a flaw, where it can be told apart; never a bare exception in every task."""
    try:
        flaws = schema_flaws({"seen": stored}, {"seen": DECLARED})
    except Corrupt as told:
        assert told.found == "is described in words that Penstock does not write"
    else:
        assert len(flaws) == 1


LETTERS = pa.schema(
    [
        ("_key", pa.string()),
        ("_error", pa.string()),
        ("_epoch", pa.int64()),
        ("_partition", pa.int32()),
        ("_sequence", pa.int64()),
    ]
)


def test_a_file_of_letters_has_the_columns_of_letters() -> None:
    """A table of the same name with other columns is not shown as dead letters."""
    _check_letters(Key("k"), LETTERS)
    for name in LETTERS.names:
        without = LETTERS.remove(LETTERS.get_field_index(name))
        with pytest.raises(Corrupt, match=f"has a column '{name}' of None"):
            _check_letters(Key("k"), without)
        with pytest.raises(Corrupt, match=f"has a column '{name}' of float"):
            _check_letters(Key("k"), without.append(pa.field(name, pa.float32())))


def test_a_letter_says_where_it_is() -> None:
    """Its name is made of it."""
    row = {"_key": "k", "_error": "e", "_epoch": 1, "_partition": 0, "_sequence": None}
    batch = pa.RecordBatch.from_pylist([row], schema=LETTERS)

    with pytest.raises(Corrupt, match="whose '_sequence' is null"):
        _check_places(Key("k"), batch)
