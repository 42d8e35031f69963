import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
DOCUMENTS = sorted(p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


@pytest.mark.parametrize(
    "number", range(len(PYTHON_BLOCK.findall((ROOT / "README.md").read_text())))
)
def test_the_readme_runs_as_it_stands(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader copies the example; it had better work."""
    code = PYTHON_BLOCK.findall((ROOT / "README.md").read_text())[number]
    script = tmp_path / "readme.py"
    script.write_text(code)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """A map with a wrong street is worse than none."""
    links = LINK.findall(document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_demo_shows_what_it_says(tmp_path: Path) -> None:
    """The first thing a new user runs."""
    shown = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "three_leaders.py"), str(tmp_path / "root")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "refused: job demo was taken over by ben-" in shown
    assert "all sound" in shown
    assert "400 rows in 4 retained epochs, each counted once" in shown
