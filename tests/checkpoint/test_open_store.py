"""Which URLs name a store, and which do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.open_store import open_store, without_secrets
from penstock.checkpoint.s3_store import S3Store
from penstock.errors import Invalid
from penstock.ids import Key

KEY = Key("object")


def test_a_path_and_a_file_url_name_the_same_folder(tmp_path: Path) -> None:
    """Shells give paths, settings give URLs."""
    open_store(str(tmp_path / "with space")).put(KEY, b"body")
    found = open_store(f"file://{tmp_path}/with%20space").get(KEY)

    assert found is not None
    assert found.body == b"body"


def test_a_relative_path_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that changes its folder must not take its checkpoints along."""
    monkeypatch.chdir(tmp_path)
    store = open_store("data")
    monkeypatch.chdir("/")
    store.put(KEY, b"body")

    assert (tmp_path / "data" / KEY).read_bytes() == b"body"


def test_a_memory_store_is_shared_by_its_name() -> None:
    """A job and whoever looks at it, in one process."""
    open_store("memory://shared").put(KEY, b"body")

    assert open_store("memory://shared").get(KEY) is not None
    assert open_store("memory://other").get(KEY) is None


def test_a_bucket_needs_no_answer_to_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening asks nobody anything."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    assert isinstance(open_store("s3://bucket/some/prefix"), S3Store)
    assert isinstance(open_store("folder"), DirectoryStore)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3://",
        "s3:///prefix",
        "file://",
        "file:///",
        "memory://",
        "gs://bucket",
        "file://host/x",
        "s3://bucket?x=1",
        "a\0b",
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(url: str) -> None:
    """The message is the manual."""
    with pytest.raises(Invalid) as caught:
        open_store(url)

    assert str(caught.value) == (
        f"store {without_secrets(url)!r} is not something that can be opened: "
        "give a folder, file:///folder, s3://bucket/prefix or memory://name."
    )


def test_a_secret_in_a_url_is_not_repeated() -> None:
    """Messages end up in logs."""
    with pytest.raises(Invalid) as caught:
        open_store("s3://key:secret@bucket/prefix")

    assert "secret" not in str(caught.value)


def test_a_job_on_a_folder_does_not_load_boto3() -> None:
    """Every Python worker would pay for it."""
    script = (
        "import sys; from penstock.checkpoint.open_store import open_store; open_store('/x'); "
        "print('boto3' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
