"""The lexer: one pass with Flink's quotes, comments and hints, and source positions.

Flink (Calcite's Java lexer with back-ticks) has strings in single quotes, names in back-ticks and no double quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum

from millstream.streams.errors import SqlError
from millstream.streams.sql.syntax.script import ENVIRONMENT, PREFIX, Script, Span, Splices, Variables

__all__ = ["MAX_NESTING", "MAX_NUMBER_CHARACTERS", "MAX_SCRIPT_CHARACTERS", "Token", "TokenKind", "tokenize"]

MAX_SCRIPT_CHARACTERS = 4 * 1024 * 1024
"""A longer script is refused; thousands of rules fit many times."""

MAX_NUMBER_CHARACTERS = 400
"""A longer number fits no type, and Python would refuse to read it."""

MAX_NESTING = 40
"""Brackets inside brackets. The parser and the binder recurse, and so does what translates the plan."""


class TokenKind(Enum):
    """What a token is; `NAME` is a word in back-ticks, `BINARY` the digits of X'1F'.

    The symbols /*+ and */ enclose a hint."""

    WORD = "word"
    NAME = "name"
    BINARY = "binary"
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
    | (?P<hint>/\*\+|\*/)
    | (?P<comment>/\*.*?\*/)
    | (?P<string>(?:[uU]&)?'[^']*+(?:''[^']*+)*+')
    | (?P<binary>[xX]'[^']*')
    | (?P<name>`[^`]*+(?:``[^`]*+)*+`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<variable>\$\{[^{}\s]*\})
    | (?P<word>[^\W\d](?:\w|\$(?!\{))*)
    | (?P<symbol><=|>=|<>|!=|=>|\|\||[-+*/%=<>().,;\[\]{}|?^])
    """,
    re.VERBOSE | re.DOTALL,
)

_HEXADECIMAL = re.compile(r"[0-9a-fA-F]*")
_DEPTHS = {"(": 1, "[": 1, ")": -1, "]": -1}
_VARIABLE = re.compile(r"\$\{(?!env:)([^{}\s]*)\}")
_ESCAPE = re.compile(r"\\\\|\\([0-9a-fA-F]{4})|\\\+((?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")

_STRAY: dict[str, tuple[str, str]] = {
    "'": ("The string is not closed.", "Close it with '; a quote inside is written ''."),
    "`": ("The name is not closed.", "Close it with a back-tick."),
    '"': ("Double quotes are not used.", "Write strings in 'single quotes' and names in `back-ticks`."),
    "@": ("A name with @ must be quoted.", "Write it in back-ticks, as in `@timestamp`."),
    "/": ("The comment is not closed.", "Close it with */."),
    "$": ("A variable is written ${name}.", "Give its value with SET 'var.name' = '...'."),
}


def tokenize(script: Script, variables: Variables | None = None) -> list[Token]:
    """All tokens of the script without white space and comments; the places of what a variable gave are the variable's.

    A hint's brackets are the symbols /*+ and */. Raises SqlError: SQL_SYNTAX at a character that begins nothing,
    SQL_VARIABLE at an unknown variable, SQL_UNSUPPORTED at too deep nesting.
    """
    if len(script.text) > MAX_SCRIPT_CHARACTERS:
        raise script.error("SQL_SCRIPT", f"The script has more than {MAX_SCRIPT_CHARACTERS} characters.", Span(0, 1))
    return _Lexer(script, variables or Variables({})).tokens()


class _Lexer:
    """One pass over the text, which grows where variables are replaced; `_spliced` remembers where."""

    def __init__(self, script: Script, variables: Variables) -> None:
        self._script = script
        self._variables = variables
        self._text = script.text
        self._tokens: list[Token] = []
        self._statement = 0
        self._spliced = Splices()

    def tokens(self) -> list[Token]:
        script, depth, place = self._script, 0, 0
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None or (match["symbol"] == "/" and self._text.startswith("/*", place)):
                raise _stray(script, self._text[place], self._spliced.original(Span(place, place + 1)))
            span = Span(match.start(), match.end())
            if match.lastgroup == "variable":
                place = self._splice(match[0], span)
                continue
            place = match.end()
            if match.lastgroup in ("space", "comment", "line_comment"):
                continue
            token = self._token(match, span)
            depth += _DEPTHS.get(token.text, 0) if token.kind is TokenKind.SYMBOL else 0
            if depth > MAX_NESTING:
                message = f"More than {MAX_NESTING} brackets inside each other."
                raise script.error("SQL_UNSUPPORTED", message, self._spliced.original(span))
            if token.is_symbol(";"):
                self._note_setting()
                depth = 0
            depth = max(0, depth)
        if not self._spliced:
            return self._tokens
        return [replace(token, span=self._spliced.original(token.span)) for token in self._tokens]

    def _token(self, match: re.Match[str], span: Span) -> Token:
        kind = TokenKind.SYMBOL if match.lastgroup == "hint" else TokenKind(match.lastgroup)
        text = match[0]
        if kind is TokenKind.BINARY:
            text = self._hexadecimal(text[2:-1], span)
        elif kind is TokenKind.STRING and text[0] != "'":
            text = _unicode(text[3:-1].replace("''", "'"))
        elif kind is TokenKind.STRING:
            text = self._fill_variables(text[1:-1].replace("''", "'"), span)
        elif kind is TokenKind.NAME:
            text = self._fill_variables(text[1:-1].replace("``", "`"), span)
        token = Token(kind, text, span)
        shown = self._spliced.original(span)
        if kind is TokenKind.NAME and not text:
            raise self._script.error("SQL_SYNTAX", "The name is empty.", shown)
        if kind is TokenKind.NUMBER and len(text) > MAX_NUMBER_CHARACTERS:
            message = f"The number has more than {MAX_NUMBER_CHARACTERS} characters."
            raise self._script.error("SQL_TYPE", message, shown)
        self._refuse_glued(token)
        self._tokens.append(token)
        return token

    def _hexadecimal(self, digits: str, span: Span) -> str:
        if len(digits) % 2 or _HEXADECIMAL.fullmatch(digits) is None:
            message = f"X'{digits[:40]}' is no binary string: it takes hexadecimal digits, two for each byte."
            raise self._script.error("SQL_SYNTAX", message, self._spliced.original(span))
        return digits

    def _splice(self, written: str, span: Span) -> int:
        """Put the variable's value in its place; the place to go on at, before a word that touches it."""
        if self._spliced.covers(span.start):
            message = f"The value of a variable names another one: {written}."
            raise self._script.error("SQL_VARIABLE", message, self._spliced.original(span))
        value = self._value(written[2:-1], span)
        if len(self._text) + len(value) > MAX_SCRIPT_CHARACTERS:
            message = f"The script has more than {MAX_SCRIPT_CHARACTERS} characters with its variables."
            raise self._script.error("SQL_SCRIPT", message, self._spliced.original(span))
        self._text = self._text[: span.start] + value + self._text[span.end :]
        self._spliced.add(span, len(value))
        last = self._tokens[-1] if self._tokens else None
        if last is not None and last.kind is TokenKind.WORD and last.span.end == span.start:
            return self._tokens.pop().span.start
        return span.start

    def _fill_variables(self, text: str, span: Span) -> str:
        """A string or a name with the values of its variables; references to the environment stay as they are."""
        return _VARIABLE.sub(lambda found: self._value(found[1], span), text) if "${" in text else text

    def _value(self, name: str, span: Span) -> str:
        if name.startswith(ENVIRONMENT):
            message = "${env:...} stands in the value of a table's option only."
            raise self._script.error("SQL_VARIABLE", message, self._spliced.original(span))
        value = self._variables.find(name)
        if value is None:
            near = get_close_matches(name, self._variables.names, 1)
            hint = f"Did you mean ${{{near[0]}}}?" if near else f"Give it with SET '{PREFIX}{name}' = '...'."
            message = f"There is no variable {name!r}."
            raise self._script.error("SQL_VARIABLE", message, self._spliced.original(span), remedy=hint)
        return value

    def _note_setting(self) -> None:
        """SET and RESET of variables count from the next statement on."""
        words = self._tokens[self._statement : -1]
        self._statement = len(self._tokens)
        if not words or not words[0].is_word("SET", "RESET"):
            return
        equals = next((place for place, token in enumerate(words) if token.is_symbol("=")), len(words))
        key = "".join(token.text for token in words[1:equals])
        if words[0].is_word("RESET") and (not key or key.startswith(PREFIX)):
            self._variables.forget(key.removeprefix(PREFIX) or None)
        elif key.startswith(PREFIX) and equals == len(words) - 2:
            self._variables.assign(key.removeprefix(PREFIX), words[-1].text)

    def _refuse_glued(self, token: Token) -> None:
        """N'..', _UTF8'..', 1L and the like would be read as two tokens and mean something else."""
        if not self._tokens or self._tokens[-1].span.end != token.span.start:
            return
        last = self._tokens[-1]
        span = self._spliced.original(last.span.to(token.span))
        prefixed = last.kind is TokenKind.WORD and (len(last.text) == 1 or last.text.startswith("_"))
        if token.kind is TokenKind.STRING and prefixed:
            message = f"Strings with the prefix {last.text} are not supported."
            raise self._script.error("SQL_UNSUPPORTED", message, span, remedy="Leave it out: scripts are UTF-8.")
        if last.kind is TokenKind.NUMBER and token.kind in (TokenKind.WORD, TokenKind.NUMBER):
            message = f"{self._script.text[span.start : span.end]} is neither a number nor a name."
            raise self._script.error("SQL_SYNTAX", message, span)


def _unicode(text: str) -> str:
    """The value of U&'...': \\0041 and \\+01F600 stand for characters, \\\\ for a backslash."""
    return _ESCAPE.sub(lambda match: "\\" if match[0] == "\\\\" else chr(int(match[1] or match[2], 16)), text)


def _stray(script: Script, character: str, span: Span) -> SqlError:
    if character not in _STRAY:
        return script.error("SQL_SYNTAX", f"{character!r} means nothing here.", span)
    message, remedy = _STRAY[character]
    return script.error("SQL_SYNTAX", message, span, remedy=remedy)
