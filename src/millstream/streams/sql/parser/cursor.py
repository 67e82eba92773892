"""A token cursor, with errors that name what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.streams.errors import SqlError
from millstream.streams.sql.parser.lexer import Token, TokenKind
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import QueryTree
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["Cursor", "Grammar"]

RESERVED = frozenset(
    """
    ALL AND AS BETWEEN BY CASE CAST CREATE CROSS DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FETCH FOR FROM FULL
    GROUP HAVING IN INNER INSERT INTERSECT INTO IS JOIN LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE NATURAL NOT NULL OFFSET
    ON OR ORDER OUTER OVER QUALIFY RIGHT SELECT SET SIMILAR TABLE THEN TRUE TRY_CAST UNION VALUES WHEN WHERE WINDOW WITH
    """.split()
)
"""Words that end an expression or a clause, so they are no names unless in back-ticks."""


_CLEAR_NAMES = (
    "CREATE", "CROSS", "DROP", "END", "EXPLAIN", "FETCH", "FOR", "FULL", "GROUP", "INNER", "INSERT", "LEFT", "LIMIT",
    "NATURAL", "OFFSET", "ORDER", "OUTER", "OVER", "RIGHT", "SET", "TABLE", "VALUES", "WINDOW",
)  # fmt: skip
"""Reserved words that are names where an expression or an alias has to stand and nothing of their clause follows."""

_BEHIND_NAMES = (
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "DESC",
    "ELSE",
    "END",
    "FROM",
    "IN",
    "IS",
    "LIKE",
    "NOT",
    "OR",
    "THEN",
    "WHEN",
)


def _ends_name(token: Token | None) -> bool:
    if token is None or token.is_word(*_BEHIND_NAMES):
        return True
    return token.kind is TokenKind.SYMBOL and token.text not in ("(", "*/")


@dataclass(frozen=True, slots=True)
class Grammar:
    """What stands in itself: a query has expressions, and an expression queries, so that no parser is below the others.

    Each reads what comes next; `sum` is an expression without AND, OR, NOT and comparisons.
    """

    term: Callable[[Cursor], Term]
    sum: Callable[[Cursor], Term]
    arguments: Callable[[Cursor], tuple[Term, ...]]
    query: Callable[[Cursor], QueryTree]


class Cursor:
    """A place in the tokens of a script. Parsers of parts read what holds them by its `grammar`."""

    def __init__(self, script: Script, tokens: list[Token], grammar: Grammar) -> None:
        self.script = script
        self._tokens = tokens
        self._next = 0
        self._grammar = grammar

    def term(self) -> Term:
        """The expression that comes next."""
        return self._grammar.term(self)

    def sum(self) -> Term:
        """The expression that comes next, without AND, OR, NOT and comparisons."""
        return self._grammar.sum(self)

    def arguments(self) -> tuple[Term, ...]:
        """The expressions between commas that come next."""
        return self._grammar.arguments(self)

    def query(self) -> QueryTree:
        """The query that comes next, with all that belongs to it."""
        return self._grammar.query(self)

    def sees_query(self) -> bool:
        """Whether a query comes next, behind any number of opening brackets."""
        ahead = 0
        while (token := self.peek(ahead)) is not None and token.is_symbol("("):
            ahead += 1
        return token is not None and token.is_word("SELECT", "WITH", "VALUES")

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    @property
    def place(self) -> int:
        """How many tokens are read; `return_to` comes back to it."""
        return self._next

    def return_to(self, place: int) -> None:
        """Read again from an earlier place on."""
        self._next = place

    def peek(self, ahead: int = 0) -> Token | None:
        """The token `ahead` of the next one, or None behind the end."""
        place = self._next + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def here(self) -> Span:
        """The next token's place; behind the end, that of the last one's end."""
        token = self.peek()
        if token is not None:
            return token.span
        if not self._tokens:
            return Span(0, 1)
        end = self._tokens[-1].span.end
        return Span(max(0, end - 1), end)

    def since(self, start: Span) -> Span:
        """From `start` to the token read last."""
        return start.to(self._tokens[self._next - 1].span) if self._next else start

    def advance(self) -> Token:
        """The next token; SQL_SYNTAX behind the end."""
        token = self.peek()
        if token is None:
            raise self.expected_error("more")
        self._next += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether these words come next, in this order."""
        return all((token := self.peek(place)) is not None and token.is_word(word) for place, word in enumerate(words))

    def sees_symbol(self, symbol: str) -> bool:
        token = self.peek()
        return token is not None and token.is_symbol(symbol)

    def take(self, *words: str) -> bool:
        """Read these words if they come next."""
        if not self.sees(*words):
            return False
        self._next += len(words)
        return True

    def take_symbol(self, symbol: str) -> bool:
        if not self.sees_symbol(symbol):
            return False
        self._next += 1
        return True

    def need(self, *words: str) -> None:
        """Read these words; SQL_SYNTAX if something else comes."""
        for word in words:
            if not self.take(word):
                raise self.expected_error(word)

    def need_symbol(self, symbol: str) -> Token:
        if not self.sees_symbol(symbol):
            raise self.expected_error(symbol)
        return self.advance()

    def name(self, what: str = "a name") -> Token:
        """A name, in back-ticks or a word that is not reserved."""
        token = self.peek()
        if token is None or token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise self.expected_error(what)
        if token.kind is TokenKind.WORD and token.text.upper() in RESERVED:
            raise self.expected_error(what)
        return self.advance()

    def clear_name(self, what: str = "a name") -> Token:
        """A name, also a reserved word that what stands behind it shows to be one."""
        token, following = self.peek(), self.peek(1)
        if token is None or not token.is_word(*_CLEAR_NAMES) or not _ends_name(following):
            return self.name(what)
        return self.advance()

    def member(self, what: str) -> Token:
        """A name behind a point, where a reserved word is a name as well."""
        token = self.peek()
        if token is None or token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise self.expected_error(what)
        return self.advance()

    def string(self, what: str = "a 'string'") -> Token:
        token = self.peek()
        if token is None or token.kind is not TokenKind.STRING:
            raise self.expected_error(what)
        return self.advance()

    def expected_error(self, what: str) -> SqlError:
        """The error for what comes instead."""
        token = self.peek()
        found = "the end" if token is None else f"{self.script.text[token.span.start : token.span.end][:40]!r}"
        return self.script.error("SQL_SYNTAX", f"Expected {what} but found {found}.", self.here())

    def unsupported_error(self, message: str, span: Span | None = None, *, remedy: str | None = None) -> SqlError:
        return self.script.error("SQL_UNSUPPORTED", message, span or self.here(), remedy=remedy)
