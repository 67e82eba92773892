"""Statements of a text that is still being typed."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Typed", "split_statements"]

_PIECE = re.compile(r"--[^\n]*|/\*.*?\*/|/\*|'(?:[^']|'')*'|`(?:[^`]|``)*`|[\w$]+|\s+|.", re.DOTALL)
_OPENERS = ("'", "`", "/*")
_SET_BEGINNINGS = (["BEGIN", "STATEMENT", "SET"], ["EXECUTE", "STATEMENT", "SET", "BEGIN"])
_EXPLAIN = "EXPLAIN"


@dataclass(frozen=True, slots=True)
class Typed:
    """`statements` are whole, without their semicolons; `rest` is what is not ended yet, blank where nothing is."""

    statements: tuple[str, ...]
    rest: str


def split_statements(text: str) -> Typed:
    """Split at each semicolon that ends a statement: not inside of quotes, comments and statement sets."""
    statements: list[str] = []
    start, depth = 0, 0
    words: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in _OPENERS:
            # Everything behind an open quote or comment belongs to it.
            return Typed(tuple(statements), text[start:])
        if piece.isspace() or piece.startswith(("--", "/*")):
            continue
        if piece == ";" and depth == 0:
            if words:
                statements.append(text[start : match.start()].strip())
            start, words = match.end(), []
            continue
        words.append(piece.upper())
        depth = _depth(words, depth)
    return Typed(tuple(statements), text[start:] if words else "")


def _depth(words: list[str], depth: int) -> int:
    """How many ENDs the statement waits for after its last word; only statement sets wait."""
    said = words[1:] if words[0] == _EXPLAIN else words
    if said in _SET_BEGINNINGS:
        return 1
    if depth and said[-1] == "CASE":
        return depth + 1
    return depth - 1 if depth and said[-1] == "END" else depth
