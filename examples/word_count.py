"""Word count: a function called once per event, and the first job most people write.

The lines of a text are a log. A line of Spark makes words of them; the function sees one word at a
time (`each=True`) and emits how often it has come up so far.

    python examples/word_count.py
    penstock run examples/word_count.py --root scratch/word_count/root --until caught-up

The first takes the text below, the second whatever lines have been added since to
scratch/word_count/log, or the log that WORDS_LOG names.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps

FOLDER = "scratch/word_count"
TEXT = """\
The river does not ask the mill
The mill does not ask the grain
The grain was asked by nobody
And the river runs again
"""


@ps.stateful(emits="word string, seen long", each=True)
def count(word: str, event: ps.Event, seen: ps.Value[int]) -> Iterator[dict[str, Any]]:
    """How often a word has come up so far."""
    seen.set(seen.get(0) + 1)
    yield {"word": word, "seen": seen.get()}


def word_job(log: str) -> ps.Job:
    """The job on a log of lines."""
    job = ps.Job("word-count", partitions=2)
    (
        job.read(ps.Log(log), name="lines")
        .transform(lambda df: df.selectExpr("explode(split(lower(line), ' ')) AS word", "_meta"))
        .key_by("word")
        .process(count)
        .write(ps.Table("words"))
    )
    return job


job = word_job(os.environ.get("WORDS_LOG", f"{FOLDER}/log"))


def main(folder: str) -> None:
    """Append the text, count its words, and show the most frequent ones."""
    if not Path(f"{folder}/log").exists():
        ps.Log.create(f"{folder}/log", pa.schema([("line", pa.string())]))
    with ps.Log(f"{folder}/log").producer() as producer:
        producer.append([{"line": line} for line in TEXT.splitlines()])

    word_job(f"{folder}/log").run(f"{folder}/root", until="caught-up", master="local[2]")

    words = ps.read_table(f"{folder}/root", "words", latest_by="word")
    for row in words.sort_by([("seen", "descending"), ("word", "ascending")]).to_pylist()[:5]:
        print(f"{row['seen']:>4}  {row['word']}")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [FOLDER])
