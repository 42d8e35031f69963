"""Which names in a folder are files of a source, and what their format is.

Whoever writes files gives an unfinished one a name that says so; such names are left alone, and
so is everything in a folder of such a name. Of the others the pattern decides, which sees the
whole path below the folder.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from typing import Literal, TypeAlias, get_args

__all__ = ["FORMATS", "FileFormat", "Names", "is_compressed", "is_ignored"]

FileFormat: TypeAlias = Literal["parquet", "jsonl", "csv"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

_SUFFIXES: dict[FileFormat, str] = {
    "parquet": r"\.parquet",
    "jsonl": r"\.(?:jsonl|ndjson)(?:\.gz)?",
    "csv": r"\.csv(?:\.gz)?",
}
_ENDINGS = {name: re.compile(rf"{s}\Z", re.IGNORECASE) for name, s in _SUFFIXES.items()}
_ANY_ENDING = re.compile(rf"(?:{'|'.join(_SUFFIXES.values())})\Z", re.IGNORECASE)
_IGNORED = re.compile(r"(?:\A|/)[._]|(?:\.tmp|\.part|\.crdownload|~)(?:/|\Z)")


def is_ignored(path: str) -> bool:
    """Whether any part of a path says that it is hidden or not finished."""
    return _IGNORED.search(path) is not None


def is_compressed(path: str) -> bool:
    """Whether a text file must be unpacked to be read."""
    return path.lower().endswith(".gz")


@dataclass(frozen=True, slots=True)
class Names:
    """The names a source reads."""

    format: FileFormat | None = None
    """None: the suffix tells, file by file."""
    pattern: str | None = None
    """None: whatever has a suffix of the format."""

    def wanted(self) -> Callable[[str], bool]:
        """A test of paths below the folder, quick enough for a million of them."""
        fits = self._fits()
        return lambda path: fits(path) is not None and not is_ignored(path)

    def format_of(self, path: str) -> FileFormat:
        """The format a file is read in; `ValueError` if nothing tells."""
        if self.format is not None:
            return self.format
        for name, ending in _ENDINGS.items():
            if ending.search(path):
                return name
        raise ValueError("its suffix does not tell its format, and the source was given none")

    def _fits(self) -> Callable[[str], object]:
        if self.pattern is not None:
            return re.compile(translate(self.pattern)).match
        return (_ANY_ENDING if self.format is None else _ENDINGS[self.format]).search
