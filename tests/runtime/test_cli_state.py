"""`penstock state`: what a job remembers, from a shell."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.errors import Invalid
from penstock.ids import Epoch
from penstock.runtime.cli import app
from penstock.runtime.cli_state import parse_key, parse_target
from tests.support.small_job import OPERATOR, SmallJob


def penstock(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    done = CliRunner().invoke(app, ["state", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root of three epochs; the second is pinned."""
    job = SmallJob(DirectoryStore(tmp_path / "root"), tmp_path / "host")
    for number in range(1, 4):
        job.epoch({"ann": number, "123": 5, "[red]": 7})
    job.root.pin("good", Epoch(2))
    return tmp_path / "root"


def test_one_key_is_shown_in_words_and_in_json(root: Path) -> None:
    """As it is now, or as it was then."""
    assert penstock("get", root, OPERATOR, "ann") == (0, "total: 3\n", "")
    assert penstock("get", root, OPERATOR, "ann", "--epoch", "1") == (0, "total: 1\n", "")
    assert penstock("get", root, OPERATOR, "ann", "--epoch", "good") == (0, "total: 2\n", "")
    code, out, err = penstock("get", root, OPERATOR, "ann", "--json")
    assert (code, json.loads(out), err) == (0, {"key": "ann", "states": {"total": 3}}, "")


def test_a_number_may_have_been_meant_as_text(root: Path) -> None:
    """Nobody quotes twice for a shell, but who does is understood."""
    for key in ("123", '"123"'):
        code, out, _ = penstock("get", root, OPERATOR, key, "--json")
        assert (code, json.loads(out)) == (0, {"key": "123", "states": {"total": 5}})


def test_a_key_without_state_is_said_to_have_none(root: Path) -> None:
    """With an exit code that a script can act on."""
    assert penstock("get", root, OPERATOR, "bob") == (1, "There is no state of bob.\n", "")
    code, out, _ = penstock("get", root, OPERATOR, "bob", "--json")
    assert (code, json.loads(out)) == (1, {"key": "bob", "states": {}})


def test_keys_are_listed_and_cut_short(root: Path) -> None:
    """Brackets in a key are a key's, not ours."""
    code, out, err = penstock("scan", root, OPERATOR)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["123: total = 5", "[red]: total = 7", "ann: total = 3"]
    code, out, _ = penstock("scan", root, OPERATOR, "--limit", "2")
    assert out.splitlines()[2:] == ["There are more; raise --limit to see them."]


def test_the_list_in_json_says_the_same(root: Path) -> None:
    """At an earlier epoch as well."""
    code, out, _ = penstock("scan", root, OPERATOR, "--json", "--epoch", "2")
    found = json.loads(out)

    assert (code, found["columns"], found["more"]) == (0, {}, False)
    assert sorted((each["key"], each["states"]["total"]) for each in found["keys"]) == [
        ("123", 5),
        ("[red]", 7),
        ("ann", 2),
    ]
    _, out, _ = penstock("scan", root, OPERATOR, "--json", "--limit", "1")
    assert (len(json.loads(out)["keys"]), json.loads(out)["more"]) == (1, True)


def test_what_is_wrong_is_one_sentence(root: Path) -> None:
    """With what there is instead."""
    code, out, err = penstock("get", root, "nobody", "ann")
    assert (code, out) == (2, "")
    assert "operator nobody has no state in epoch 3; those that have: totals" in err
    code, _, err = penstock("scan", root, OPERATOR, "--epoch", "77")
    assert (code, "epoch 77 is not kept: epochs 1 to 3 are" in err) == (2, True)


def test_a_key_is_json_if_it_can_be() -> None:
    """A list is a key of several columns; an object is none."""
    assert [parse_key(text) for text in ("5", "1.5", '"5"', "true", "ann", '["a", 1]', "{")] == [
        *(5, 1.5, "5", True, "ann", ("a", 1), "{")
    ]
    with pytest.raises(Invalid, match="is an object"):
        parse_key('{"a": 1}')


def test_an_epoch_is_a_number_and_a_pin_a_name() -> None:
    """The same everywhere on the command line."""
    assert [parse_target(text) for text in ("12", "good", "v1.2")] == [12, "good", "v1.2"]
