"""Words of a script: one pass that knows Flink's quotes, comments and hints and keeps every place.

Flink (Calcite's Java lexer with back-ticks) has strings in single quotes, names in back-ticks and no double quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from millstream.streams.errors import SqlError
from millstream.streams.sql.script import Script, Span

__all__ = ["MAX_NESTING", "MAX_NUMBER_CHARACTERS", "MAX_SCRIPT_CHARACTERS", "Token", "TokenKind", "tokenize"]

MAX_SCRIPT_CHARACTERS = 4 * 1024 * 1024
"""A longer script is refused; thousands of rules fit many times."""

MAX_NUMBER_CHARACTERS = 400
"""A longer number fits no type, and Python would refuse to read it."""

MAX_NESTING = 40
"""Brackets inside brackets. The parser and the binder recurse, and so does what translates the plan."""


class TokenKind(Enum):
    """What a token is; `NAME` is a word in back-ticks."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `text` is the value: without quotes for names and strings."""

    kind: TokenKind
    text: str
    span: Span

    def is_word(self, *words: str) -> bool:
        """Whether this is one of the (upper-case) key words, unquoted."""
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is TokenKind.SYMBOL and self.text == symbol


_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<line_comment>--[^\r\n]*)
    | (?P<hint>/\*\+.*?\*/)
    | (?P<comment>/\*.*?\*/)
    | (?P<string>'[^']*+(?:''[^']*+)*+')
    | (?P<name>`[^`]*+(?:``[^`]*+)*+`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<symbol><=|>=|<>|!=|=>|\|\||[-+*/%=<>().,;\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)

_DEPTHS = {"(": 1, "[": 1, ")": -1, "]": -1}

_STRAY: dict[str, tuple[str, str]] = {
    "'": ("The string is not closed.", "Close it with '; a quote inside is written ''."),
    "`": ("The name is not closed.", "Close it with a back-tick."),
    '"': ("Double quotes are not used.", "Write strings in 'single quotes' and names in `back-ticks`."),
    "@": ("A name with @ must be quoted.", "Write it in back-ticks, as in `@timestamp`."),
    "/": ("The comment is not closed.", "Close it with */."),
    "$": ("Variables such as ${x} are not replaced.", "Put the value into the script."),
}


def tokenize(script: Script) -> list[Token]:
    """All tokens of the script without white space and comments.

    Raises SqlError: SQL_SYNTAX at a character that begins nothing, SQL_UNSUPPORTED at a hint and at too deep nesting.
    """
    text = script.text
    if len(text) > MAX_SCRIPT_CHARACTERS:
        raise script.error("SQL_SCRIPT", f"The script has more than {MAX_SCRIPT_CHARACTERS} characters.", Span(0, 1))
    tokens: list[Token] = []
    depth = 0
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or (match["symbol"] == "/" and text.startswith("/*", place)):
            raise _stray(script, place)
        place = match.end()
        span = Span(match.start(), match.end())
        if match.lastgroup == "hint":
            raise script.error("SQL_UNSUPPORTED", "Hints are not supported.", span, remedy="Leave the hint out.")
        if match.lastgroup in ("space", "comment", "line_comment"):
            continue
        token = _token(match, span)
        _refuse_token(script, token)
        _refuse_glued(script, tokens, token)
        depth += _DEPTHS.get(token.text, 0) if token.kind is TokenKind.SYMBOL else 0
        if depth > MAX_NESTING:
            raise script.error("SQL_UNSUPPORTED", f"More than {MAX_NESTING} brackets inside each other.", span)
        depth = 0 if token.is_symbol(";") else max(0, depth)
        tokens.append(token)
    return tokens


def _token(match: re.Match[str], span: Span) -> Token:
    kind = TokenKind(match.lastgroup)
    text = match[0]
    if kind is TokenKind.STRING:
        text = text[1:-1].replace("''", "'")
    elif kind is TokenKind.NAME:
        text = text[1:-1].replace("``", "`")
    return Token(kind, text, span)


def _refuse_token(script: Script, token: Token) -> None:
    if token.kind is TokenKind.NAME and not token.text:
        raise script.error("SQL_SYNTAX", "The name is empty.", token.span)
    if token.kind is TokenKind.NUMBER and len(token.text) > MAX_NUMBER_CHARACTERS:
        raise script.error("SQL_TYPE", f"The number has more than {MAX_NUMBER_CHARACTERS} characters.", token.span)


def _refuse_glued(script: Script, before: list[Token], token: Token) -> None:
    """X'..', _UTF8'..', 1L and the like would be read as two tokens and mean something else."""
    if not before or before[-1].span.end != token.span.start:
        return
    last = before[-1]
    span = last.span.to(token.span)
    prefixed = last.kind is TokenKind.WORD and (len(last.text) == 1 or last.text.startswith("_"))
    if token.kind is TokenKind.STRING and prefixed:
        raise script.error("SQL_UNSUPPORTED", f"Strings with the prefix {last.text} are not supported.", span)
    if last.kind is TokenKind.NUMBER and token.kind in (TokenKind.WORD, TokenKind.NUMBER):
        raise script.error("SQL_SYNTAX", f"{script.text[span.start : span.end]} is neither a number nor a name.", span)


def _stray(script: Script, place: int) -> SqlError:
    character = script.text[place]
    span = Span(place, place + 1)
    if character not in _STRAY:
        return script.error("SQL_SYNTAX", f"{character!r} means nothing here.", span)
    message, remedy = _STRAY[character]
    return script.error("SQL_UNSUPPORTED" if character == "$" else "SQL_SYNTAX", message, span, remedy=remedy)
