"""How often each word came, told anew with every change.

Run it:  millstream quickstart        (in another terminal)
         python examples/datastream/word_count.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from samples import NAMESERVER, send

from millstream.streams.sdk import Row, StreamBuilder

LINES = ["to be or not to be", "that is the question", "whether it is nobler"]


class Word(NamedTuple):
    """One word."""

    word: str


def words(row: Row) -> Iterator[Word]:
    """The words of a line."""
    return map(Word, row.line.split())


def main() -> StreamBuilder:
    """The job, with lines to try it on."""
    send("lines", [{"line": line} for line in LINES])
    builder = StreamBuilder("word-count", nameserver=NAMESERVER)
    lines = builder.source("lines", schema={"line": str})
    lines.flat_map(words).key_by("word").count(name="n").print("count")
    return builder


if __name__ == "__main__":
    main().run_bounded()
