"""Translates CloudEvents SQL (CESQL 1.0) to a SQL92 condition over event properties. Pure.

Brokers evaluate SQL92, so an expression is translated and not evaluated here. What SQL92 here cannot say is refused:
arithmetic, functions, and LIKE with a wildcard in the middle or `_`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NoReturn

from millstream.model.errors import MessageRefused
from millstream.protocol.cloud_events import ATTRIBUTE_PREFIX

__all__ = ["MAX_CESQL_CHARACTERS", "MAX_CESQL_DEPTH", "quote_text", "translate_cesql"]

MAX_CESQL_CHARACTERS: Final = 4_096
"""Characters of an expression at most."""

MAX_CESQL_DEPTH: Final = 16
"""Parentheses and NOTs in each other at most."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<number> \d+ )
    | (?P<name> [A-Za-z][A-Za-z0-9_]* )
    | (?P<symbol> <> | != | <= | >= | [=<>(),*/%+-] )
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_WORDS: Final = frozenset("AND OR XOR NOT LIKE IN EXISTS TRUE FALSE".split())
_COMPARISONS: Final = frozenset(("=", "!=", "<>", "<", "<=", ">", ">="))
_NAME: Final = re.compile("[a-z0-9]{1,64}")
_REMEDY: Final = "docs/http.md says what of CESQL is taken."


def quote_text(text: str) -> str:
    """The text as a literal of SQL92."""
    return "'" + text.replace("'", "''") + "'"


def translate_cesql(expression: str) -> str:
    """The condition of SQL92 that holds where the expression is true. Raises ILLEGAL_FILTER."""
    if len(expression) > MAX_CESQL_CHARACTERS:
        raise _illegal(f"it has {len(expression):,} characters; {MAX_CESQL_CHARACTERS:,} are taken")
    parser = _Parser(_tokens(expression))
    condition = parser.any_of()
    parser.expect_end()
    return condition


def _illegal(words: str) -> MessageRefused:
    return MessageRefused("ILLEGAL_FILTER", f"The CESQL expression cannot be read: {words}.", remedy=_REMEDY)


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, position = [], 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _illegal(f"character {position + 1} is {text[position : position + 20]!r}")
        kind = match.lastgroup
        assert kind is not None
        word = match[kind]
        if kind == "name" and word.upper() in _WORDS:
            kind, word = "word", word.upper()
        found.append((kind, word))
        position = match.end()
    return found


class _Parser:
    """Reads tokens, weakest binding first: OR, XOR, AND, comparisons, NOT."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def any_of(self) -> str:
        """Parts joined by OR."""
        parts = [self._either()]
        while self._take("word", "OR"):
            parts.append(self._either())
        return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"

    def expect_end(self) -> None:
        """Refuse what follows a whole expression."""
        if self._at < len(self._tokens):
            self._refuse("the end")

    def _either(self) -> str:
        found = self._all_of()
        while self._take("word", "XOR"):
            other = self._all_of()
            found = f"(({found} AND NOT {other}) OR (NOT {found} AND {other}))"
        return found

    def _all_of(self) -> str:
        parts = [self._test()]
        while self._take("word", "AND"):
            parts.append(self._test())
        return parts[0] if len(parts) == 1 else "(" + " AND ".join(parts) + ")"

    def _test(self) -> str:
        if self._take("word", "NOT"):
            return f"(NOT {self._read_deeper(self._test)})"
        if self._take("symbol", "("):
            found = self._read_deeper(self.any_of)
            self._expect("symbol", ")")
            return f"({found})"
        if self._take("word", "EXISTS"):
            return f"({self._name()} IS NOT NULL)"
        return self._comparison()

    def _read_deeper(self, read: object) -> str:
        self._depth += 1
        if self._depth > MAX_CESQL_DEPTH:
            raise _illegal(f"it is nested more than {MAX_CESQL_DEPTH} deep")
        assert callable(read)
        found: str = read()
        self._depth -= 1
        return found

    def _comparison(self) -> str:
        if self._peek() == ("word", "TRUE") or self._peek() == ("word", "FALSE"):
            left = self._literal()
            return f"({left} = TRUE)" if self._is_over() else self._refuse("the end, AND, OR or XOR")
        name = self._name()
        if self._take("word", "NOT"):
            return f"(NOT {self._membership(name)})"
        if self._peek() in (("word", "LIKE"), ("word", "IN")):
            return self._membership(name)
        kind, word = self._peek()
        if kind == "symbol" and word in _COMPARISONS:
            self._at += 1
            right = self._name() if self._peek()[0] == "name" else self._literal()
            return f"({name} {'<>' if word == '!=' else word} {right})"
        return f"({name} = TRUE)"

    def _membership(self, name: str) -> str:
        if self._take("word", "LIKE"):
            kind, word = self._peek()
            if kind != "text":
                self._refuse("a pattern in quotes")
            self._at += 1
            return _like(name, word[1:-1])
        self._expect("word", "IN")
        self._expect("symbol", "(")
        items = [self._literal()]
        while self._take("symbol", ","):
            items.append(self._literal())
        self._expect("symbol", ")")
        return f"({name} IN ({', '.join(items)}))"

    def _literal(self) -> str:
        kind, word = self._peek()
        sign = ""
        if (kind, word) == ("symbol", "-"):
            self._at += 1
            sign = "-"
            kind, word = self._peek()
        self._at += 1
        if kind == "text" and not sign:
            return quote_text(re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL))
        if kind == "number":
            return sign + word
        if kind == "word" and word in ("TRUE", "FALSE") and not sign:
            return word
        self._at -= 1
        self._refuse("a text, a number, TRUE or FALSE")

    def _name(self) -> str:
        kind, word = self._peek()
        if kind != "name":
            self._refuse("the name of an attribute")
        self._at += 1
        if self._peek() == ("symbol", "("):
            raise _illegal(f"functions such as {word[:40]} are not taken")
        if not _NAME.fullmatch(word):
            raise _illegal(f"{word[:40]!r} is no name of an attribute: lower-case letters and digits")
        return ATTRIBUTE_PREFIX + word

    def _is_over(self) -> bool:
        kind, word = self._peek()
        return kind == "end" or word in ("AND", "OR", "XOR", ")")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _take(self, kind: str, word: str) -> bool:
        if self._peek() != (kind, word):
            return False
        self._at += 1
        return True

    def _expect(self, kind: str, word: str) -> None:
        if not self._take(kind, word):
            self._refuse(word)

    def _refuse(self, wanted: str) -> NoReturn:
        raise _illegal(f"word {self._at + 1} should be {wanted}, and is {self._peek()[1][:40]}")


def _like(name: str, pattern: str) -> str:
    """A LIKE whose wildcards stand at the ends alone; `\\%` and `\\_` are those characters themselves."""
    parts = re.findall(r"\\.|[^\\]|\\", pattern, flags=re.DOTALL)
    wild = [position for position, part in enumerate(parts) if part in ("%", "_")]
    begins, ends = parts[:1] == ["%"], parts[-1:] == ["%"]
    inner = parts[1 if begins else 0 : len(parts) - (1 if ends else 0)] if len(parts) > 1 else parts
    if len(parts) == 1 and begins:
        return f"({name} IS NOT NULL)"
    if any(part in ("%", "_") for part in inner):
        raise _illegal(f"LIKE is taken with % at the ends alone, not as {pattern[:40]!r}")
    text = quote_text("".join(part[1:] if len(part) > 1 else part for part in inner))
    if not wild:
        return f"({name} = {text})"
    if not inner:
        return f"({name} IS NOT NULL)"
    return f"({name} {'CONTAINS' if begins and ends else 'ENDSWITH' if begins else 'STARTSWITH'} {text})"
