"""The words of a SQL92 filter.

Text stands in single quotes, a quote inside of it doubled. Words of the language are known in any case; `--` to the
end of the line and `/* */` are comments.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

from millstream.model.errors import MessageRefused

__all__ = ["MAX_INTEGER", "REMEDY", "FilterToken", "FilterTokenKind", "syntax_error", "tokenize"]

REMEDY = "What a condition may say: docs/filters.md."
"""What to do about a filter that is refused."""

MAX_INTEGER = 2**63 - 1
"""The largest whole number of a filter, as the largest of RocketMQ's longs."""

_MAX_SHOWN_CHARACTERS = 40
"""Characters of a token that an error shows at most."""

_TOKEN = re.compile(
    r"""
      (?P<BLANK>   \s+ | --[^\r\n]* | /\*.*?\*/ )
    | (?P<DECIMAL> (?: \d+\.\d* | \.\d+ ) (?: [eE][+-]?\d+ )? | \d+[eE][+-]?\d+ )
    | (?P<INTEGER> \d+[lL]? )
    | (?P<NAME>    [A-Za-z_$][A-Za-z0-9_$.]* )
    | (?P<TEXT>    '(?: [^'] | '' )*+' )
    | (?P<SYMBOL>  <> | != | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_WORDS = frozenset("AND BETWEEN CONTAINS ENDSWITH FALSE IN IS LIKE NOT NULL OR STARTSWITH TRUE".split())


class FilterTokenKind(Enum):
    """What a token is. A WORD is one of the language, a NAME that of a property."""

    NAME = "name"
    WORD = "word"
    NUMBER = "number"
    TEXT = "text"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class FilterToken:
    """One token at a position (from 0). `source` is as written, words in upper case; `value` that of a literal."""

    kind: FilterTokenKind
    source: str
    position: int
    value: str | int | float = ""

    @property
    def shown(self) -> str:
        """The token for an error's text."""
        return self.source[:_MAX_SHOWN_CHARACTERS] if self.kind is not FilterTokenKind.END else "the end"


def syntax_error(what: str, position: int, found: str) -> MessageRefused:
    """The refusal of a filter that goes on with `found` where `what` should stand; `position` counts from 0."""
    return MessageRefused(
        "ILLEGAL_FILTER",
        f"The filter cannot be read at character {position + 1}: expected {what}, found {found}.",
        remedy=REMEDY,
    )


def tokenize(expression: str) -> list[FilterToken]:
    """The tokens of a filter's text, the last one an END. Raises ILLEGAL_FILTER."""
    tokens: list[FilterToken] = []
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            rest = expression[position : position + _MAX_SHOWN_CHARACTERS]
            if rest[0] == "'":
                raise syntax_error("a quote that ends the text", position, rest)
            if rest[0] == '"':
                raise syntax_error("a text in single quotes", position, "a double quote")
            raise syntax_error("a name, a value or an operator", position, repr(rest[0]))
        if match.lastgroup != "BLANK":
            tokens.append(_token(match, position))
        position = match.end()
    tokens.append(FilterToken(FilterTokenKind.END, "", len(expression)))
    return tokens


def _token(match: re.Match[str], position: int) -> FilterToken:
    source = match.group()
    match match.lastgroup:
        case "DECIMAL":
            number = float(source)
            if math.isinf(number):
                raise syntax_error("a number within the range of a double", position, source[:_MAX_SHOWN_CHARACTERS])
            return FilterToken(FilterTokenKind.NUMBER, source, position, number)
        case "INTEGER":
            return FilterToken(FilterTokenKind.NUMBER, source, position, _whole(source, position))
        case "TEXT":
            return FilterToken(FilterTokenKind.TEXT, source, position, source[1:-1].replace("''", "'"))
        case "NAME" if source.upper() in _WORDS:
            return FilterToken(FilterTokenKind.WORD, source.upper(), position)
        case "NAME":
            return FilterToken(FilterTokenKind.NAME, source, position)
        case _:
            return FilterToken(FilterTokenKind.SYMBOL, source, position)


def _whole(source: str, position: int) -> int:
    digits = source.rstrip("lL").lstrip("0") or "0"
    # Python refuses to read thousands of digits; one more than the limit has is enough to know.
    number = int(digits[: len(str(MAX_INTEGER)) + 1])
    if number > MAX_INTEGER + 1:
        raise syntax_error(f"a number up to {MAX_INTEGER}", position, source[:_MAX_SHOWN_CHARACTERS])
    return number
