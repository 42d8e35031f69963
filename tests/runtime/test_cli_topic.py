"""`penstock topic` from making a topic to tidying it up."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.runtime.cli import app
from penstock.runtime.cli_topic import LINES_AT_ONCE

COLUMNS = "user string not null, n long, at timestamp"


def penstock(*arguments: str | Path, given: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    done = CliRunner().invoke(app, ["topic", *map(str, arguments)], input=given)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """An empty topic, compacted by user, with two partitions."""
    made = tmp_path / "clicks"
    options = ("--partitions", "2", "--key", "user", "--event-time", "at", "--compacted")
    assert penstock("create", made, "--columns", COLUMNS, *options)[0] == 0
    return made


def rows(topic: Path, *options: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in penstock("tail", topic, *options)[1].splitlines()]


def test_lines_go_in_and_come_out(topic: Path, tmp_path: Path) -> None:
    """From standard input and from a file, with times written out, empty lines left out."""
    lines = '{"user":"a","n":1,"at":"2026-01-01T00:00:00Z"}\n\n{"user":"a","n":2}\n'
    assert penstock("append", topic, given=lines) == (0, "Appended 3 lines.\n", "")
    (tmp_path / "more.jsonl").write_text('{"user":"a","n":3}')
    assert penstock("append", topic, tmp_path / "more.jsonl", "--producer", "me")[0] == 0
    partition = rows(topic)[0]["_partition"]
    expected = [
        {"_partition": partition, "_offset": 0, "user": "a", "n": 1, "at": "2026-01-01T00:00:00Z"},
        {"_partition": partition, "_offset": 1, "user": "a", "n": 2, "at": None},
        {"_partition": partition, "_offset": 2, "user": "a", "n": 3, "at": None},
    ]
    assert rows(topic) == expected
    assert rows(topic, "-n", "1") == expected[2:]


def test_a_topic_is_described(topic: Path) -> None:
    """In words and in JSON, the same numbers."""
    penstock("append", topic, "--partition", "1", given='{"user":"a","n":1}\n')
    code, said, _ = penstock("describe", topic)
    assert code == 0
    assert "at timestamp[us, tz=UTC]" in said
    found = json.loads(penstock("describe", topic, "--json")[1])
    assert found["columns"] == {"user": "string", "n": "int64", "at": "timestamp[us, tz=UTC]"}
    assert [(c["earliest"], c["latest"], c["rows"]) for c in found["contents"]] == [
        (0, 0, 0),
        (0, 1, 1),
    ]


def test_compacting_keeps_the_last_of_each_key(topic: Path) -> None:
    """And says what it did."""
    lines = "".join(f'{{"user":"a","n":{n}}}\n' for n in range(5))
    penstock("append", topic, "--partition", "0", given=lines)
    done = json.loads(penstock("compact", topic, "--json")[1])
    assert done["compacted"][0] == {
        "stop": 5,
        "rows_before": 5,
        "rows_after": 1,
        "segments_before": 1,
        "segments_after": 1,
    }
    assert [row["n"] for row in rows(topic)] == [4]
    assert penstock("compact", topic)[0] == 0


def test_a_topic_can_grow(topic: Path) -> None:
    """More partitions, and columns that may be null."""
    penstock("append", topic, "--partition", "0", given='{"user":"a"}\n')
    assert penstock("change", topic, "--partitions", "3", "--add", "country string")[0] == 0
    penstock("append", topic, "--partition", "2", given='{"user":"b","country":"KR"}\n')
    assert [row["country"] for row in rows(topic)] == [None, "KR"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"user":"a","n":"x"}', "row 0, column 'n' (rows are counted from line 10001) is 'x'"),
        ('{"n":1}', "column 'user'"),
        ('{"user":"a","m":1}', "column 'm'"),
        ("nonsense", "line 10001 is no JSON object"),
        ("[1]", "line 10001 is no JSON object"),
        ('{"user":"a","at":"noon"}', "column 'at'"),
    ],
)
def test_a_line_that_does_not_fit_is_named_with_what_is_in(
    topic: Path, line: str, says: str
) -> None:
    """What came before it in whole steps is in the log; nothing else is."""
    good = '{"user":"a","n":1}\n' * LINES_AT_ONCE
    code, _, said = penstock("append", topic, "--partition", "0", given=good + line + "\n")
    assert code == 2
    assert says in said
    assert "the first 10,000 lines are in the log" in said
    assert len(rows(topic, "-n", "20000")) == LINES_AT_ONCE


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "{topic}", "--columns", "a string"), "exists already"),
        (("create", "{topic}2", "--columns", "a strin"), "where there should be a type"),
        (("create", "{topic}2", "--columns", "a string", "--key", "b"), "column 'b'"),
        (("create", "{topic}2", "--columns", "a string", "--compacted"), "no key"),
        (("create", "{topic}2", "--columns", "a string", "--keep", "soon"), "length of time"),
        (("describe", "{topic}2"), "does not exist"),
        (("tail", "{topic}2"), "does not exist"),
        (("change", "{topic}", "--partitions", "1"), "can only become more"),
        (("change", "{topic}", "--add", "user long"), "column 'user'"),
        (("append", "{topic}", "/nowhere"), "cannot be read"),
        (("append", "{topic}", "--partition", "7"), "partition 7 does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    topic: Path, arguments: tuple[str, ...], says: str
) -> None:
    """And a non-zero exit."""
    given = [argument.replace("{topic}", str(topic)) for argument in arguments]
    code, _, said = penstock(*given, given='{"user":"a"}\n')
    assert code == 2
    assert says in said.replace("\n", " ")
