import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
DOCUMENTS = sorted(p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


@pytest.mark.slow
def test_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """A reader copies the examples one after the other; they had better work."""
    said = []
    for number, code in enumerate(PYTHON_BLOCK.findall((ROOT / "README.md").read_text())):
        script = tmp_path / f"readme_{number}.py"
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        said.append(done.stdout)

    assert said[0] == "[{'user': 'bob', 'clicks': 3}, {'user': 'ada', 'clicks': 3}]\n"
    assert said[1] == "2\n2\n2\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """A map with a wrong street is worse than none."""
    links = LINK.findall(document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_three_leaders_show_what_they_say(tmp_path: Path) -> None:
    """What the commit core promises, without Spark and in seconds."""
    shown = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "three_leaders.py"), str(tmp_path / "root")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "refused: job demo was taken over by ben-" in shown
    assert "all sound" in shown
    assert "400 rows in 4 retained epochs, each counted once" in shown
