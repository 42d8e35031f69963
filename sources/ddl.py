"""Columns as people write them: `user string not null, clicks long, tags array<string>`.

The words are Spark's, so that a topic, a function's output and a table are declared alike.
"""

import re
from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid

__all__ = ["parse_columns"]

_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "string": pa.string,
    "varchar": pa.string,
    "long": pa.int64,
    "bigint": pa.int64,
    "int": pa.int32,
    "integer": pa.int32,
    "short": pa.int16,
    "smallint": pa.int16,
    "byte": pa.int8,
    "tinyint": pa.int8,
    "double": pa.float64,
    "float": pa.float32,
    "real": pa.float32,
    "boolean": pa.bool_,
    "binary": pa.binary,
    "date": pa.date32,
    "timestamp": lambda: pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": lambda: pa.timestamp("us"),
}
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|`[^`]+`|\d+|[<>(),:])")


def parse_columns(text: str) -> pa.Schema:
    """The schema that `text` describes; `Invalid` shows where it cannot be read."""
    return _Parser(text).schema()


class _Parser:
    """Reads one text, word by word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = _words(text)
        self._at = 0

    def schema(self) -> pa.Schema:
        fields = [self._field(separator=None)]
        while self._accept(","):
            fields.append(self._field(separator=None))
        if self._at < len(self._words):
            raise self._wrong("a comma or the end")
        return pa.schema(fields)

    def _field(self, separator: str | None) -> pa.Field:
        name = self._next("a column's name").strip("`")
        if separator is not None:
            self._expect(separator)
        kind = self._type()
        nullable = not self._accept("not")
        if not nullable:
            self._expect("null")
        return pa.field(name, kind, nullable)

    def _type(self) -> pa.DataType:
        word = self._next("a type").lower()
        if word == "array":
            self._expect("<")
            inner = self._type()
            self._expect(">")
            return pa.list_(inner)
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            return self._struct()
        if word == "decimal":
            return self._decimal()
        if word not in _TYPES:
            self._at -= 1
            raise self._wrong(f"a type: {', '.join(sorted(_TYPES))}, decimal, array, map, struct")
        return _TYPES[word]()

    def _struct(self) -> pa.DataType:
        self._expect("<")
        fields = [self._field(separator=":")]
        while self._accept(","):
            fields.append(self._field(separator=":"))
        self._expect(">")
        return pa.struct(fields)

    def _decimal(self) -> pa.DataType:
        if not self._accept("("):
            return pa.decimal128(10, 0)
        precision = self._number()
        scale = self._number() if self._accept(",") else 0
        self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._wrong("decimal(precision, scale) with up to 38 digits")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdecimal():
            self._at -= 1
            raise self._wrong("a number")
        return int(word)

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._words):
            raise self._wrong(wanted)
        self._at += 1
        return self._words[self._at - 1]

    def _accept(self, word: str) -> bool:
        found = self._at < len(self._words) and self._words[self._at].lower() == word
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._wrong(f"{word!r}")

    def _wrong(self, wanted: str) -> Invalid:
        found = " ".join(self._words[self._at : self._at + 3]) or "the end"
        return Invalid(
            f"columns {self._text[:80]!r}",
            f"have {found!r} where there should be {wanted}",
            "write them like 'user string, clicks long'",
        )


def _words(text: str) -> list[str]:
    words, at, text = [], 0, text.strip()
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            raise Invalid(
                f"columns {text[:80]!r}",
                f"cannot be read from {text[at : at + 10]!r} on",
                "write them like 'user string, clicks long'",
            )
        words.append(found[1])
        at = found.end()
    return words
