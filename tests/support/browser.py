"""A real browser without a window: what a page looks like, and what it measures there."""

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

from tests.support.versity import out_of_reach

NAMES = ("chromium", "chromium-browser", "google-chrome")
LOOK_S_MAX = 120
_OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
_ASKED = "<pre id='measured'></pre><script>document.getElementById('measured').textContent = "


def browser() -> str:
    """The program; else the test is skipped."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        out_of_reach("there is no chromium here: `make servers` installs what tests need")
    return found


def screenshot(page: Path, *, dark: bool = False, size: tuple[int, int] = (1200, 1600)) -> Path:
    """What a page looks like, as a PNG beside it."""
    picture = page.with_name(f"{page.stem}{'-dark' if dark else ''}.png")
    _run(page, [f"--screenshot={picture}"], dark, size)
    return picture


def measured(
    page: Path, asked: str, *, dark: bool = False, size: tuple[int, int] = (1200, 1600)
) -> Any:
    """What an expression of JavaScript gives on a page, once that is laid out. The page itself has
    no script: it is asked in a copy."""
    copy = page.with_name(f"{page.stem}-asked.html")
    question = f"{_ASKED}JSON.stringify({asked});</script></body>"
    copy.write_text(page.read_text().replace("</body>", question))
    told = _run(copy, ["--dump-dom"], dark, size)
    found = told.partition('<pre id="measured">')[2].partition("</pre>")[0]
    assert found, told[-2000:]
    return json.loads(found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def picture_size(picture: Path) -> tuple[int, int]:
    """How wide and high a PNG is."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def _run(page: Path, wish: list[str], dark: bool, size: tuple[int, int]) -> str:
    profile = page.with_name(f"{page.stem}.profile")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    window = f"--window-size={size[0]},{size[1]}"
    done = subprocess.run(
        [browser(), *_OPTIONS, scheme, f"--user-data-dir={profile}", window, *wish, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=LOOK_S_MAX,
        check=False,
    )
    shutil.rmtree(profile, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
