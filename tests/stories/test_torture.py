from pathlib import Path

from tests.torture.killing import torture


def test_a_killed_process_leaves_nothing_torn(tmp_path: Path) -> None:
    """Thirty deaths here; `make torture` dies five hundred times."""
    found = torture(tmp_path, kills=30, seed=2)
    assert found.torn == []
    assert found.epochs > 10
