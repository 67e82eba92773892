"""Lexer and grammar of SQL92 filters, weakest binding first."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from millstream.model.errors import MessageRefused
from millstream.model.sql_filter_terms import (
    Condition,
    FilterTerm,
    FilterTermKind,
    between,
    codes_of,
    compare_numbers,
    condition,
    every,
    is_null,
    match_text,
    negate,
    number_of,
    one_of,
    same,
    some,
)

__all__ = [
    "MAX_CONDITIONS",
    "MAX_DEPTH",
    "MAX_INTEGER",
    "MAX_LIST_ITEMS",
    "REMEDY",
    "FilterToken",
    "FilterTokenKind",
    "Parsed",
    "parse",
    "syntax_error",
    "tokenize",
]


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


MAX_DEPTH: Final = 32
"""Parentheses and NOTs inside of each other at most: each costs stack while the filter is read and applied."""

MAX_CONDITIONS: Final = 256
"""Comparisons and tests of a filter at most: each is repeated for each message."""

MAX_LIST_ITEMS: Final = 1024
"""Texts of one IN list at most."""

_ORDERS: Final[dict[str, Callable[[int | float, int | float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_NEGATABLE: Final = "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"


class Parsed(NamedTuple):
    """The condition that a filter's text says, how many comparisons and tests it has, its `FilterTerm.tag_codes`."""

    holds: Condition
    conditions: int
    tag_codes: frozenset[int] | None


def parse(expression: str) -> Parsed:
    """What a filter's text says. Raises ILLEGAL_FILTER with the position and what was expected."""
    parser = _Parser(tokenize(expression))
    term = parser.any()
    parser.end()
    return Parsed(_condition(term), parser.conditions, term.tag_codes)


class _Parser:
    def __init__(self, tokens: list[FilterToken]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self.conditions = 0

    def any(self) -> FilterTerm:
        terms = [self._every()]
        while self._take("OR"):
            terms.append(self._every())
        if len(terms) == 1:
            return terms[0]
        holds = some([_condition(term) for term in terms])
        codes = [term.tag_codes for term in terms if term.tag_codes is not None]
        union = frozenset[int]().union(*codes) if len(codes) == len(terms) else None
        return FilterTerm(FilterTermKind.CONDITION, terms[0].position, holds=holds, tag_codes=union)

    def end(self) -> None:
        token = self._peek()
        if token.source == "LIKE":
            raise syntax_error("CONTAINS, STARTSWITH or ENDSWITH", token.position, "LIKE, which filters do not have")
        if token.kind is not FilterTokenKind.END:
            raise syntax_error("an operator, AND, OR or the end", token.position, token.shown)

    def _every(self) -> FilterTerm:
        terms = [self._not()]
        while self._take("AND"):
            terms.append(self._not())
        if len(terms) == 1:
            return terms[0]
        holds = every([_condition(term) for term in terms])
        codes = [term.tag_codes for term in terms if term.tag_codes is not None]
        common = codes[0].intersection(*codes) if codes else None
        return FilterTerm(FilterTermKind.CONDITION, terms[0].position, holds=holds, tag_codes=common)

    def _not(self) -> FilterTerm:
        token = self._peek()
        if not self._take("NOT"):
            return self._predicate()
        self._descend(token)
        inner = self._not()
        self._depth -= 1
        return FilterTerm(FilterTermKind.CONDITION, token.position, holds=negate(_condition(inner)))

    def _predicate(self) -> FilterTerm:
        left = self._operand()
        token = self._peek()
        if token.source in ("=", "<>", "!="):
            return self._equality(left, self._operator())
        if token.source in _ORDERS:
            self._operator()
            return self._make_test(
                left, compare_numbers(_ordering(left), _ordering(self._operand()), _ORDERS[token.source])
            )
        if self._take("IS"):
            self._count(token)
            is_negated = self._take("NOT")
            self._expect("NULL")
            return self._make_test(left, is_null(left), is_negated=is_negated)
        is_negated = self._take("NOT")
        token = self._peek()
        if token.source in ("BETWEEN", "IN", *_TEXT_TESTS) and token.kind is FilterTokenKind.WORD:
            self._operator()
            return self._test(left, token, is_negated=is_negated)
        if is_negated:
            raise syntax_error(_NEGATABLE, token.position, token.shown)
        return left

    def _equality(self, left: FilterTerm, token: FilterToken) -> FilterTerm:
        right = self._operand()
        if token.source != "=":
            return self._make_test(left, same(left, right), is_negated=True)
        codes = None
        for term, other in ((left, right), (right, left)):
            if other.kind is FilterTermKind.TEXT:
                codes = codes if codes is not None else codes_of(term, frozenset((str(other.value),)))
        return FilterTerm(FilterTermKind.CONDITION, left.position, holds=same(left, right), tag_codes=codes)

    def _test(self, left: FilterTerm, token: FilterToken, *, is_negated: bool) -> FilterTerm:
        if token.source == "BETWEEN":
            low = _ordering(self._operand())
            self._expect("AND")
            high = _ordering(self._operand())
            _check_bounds(low, high)
            return self._make_test(left, between(_ordering(left), low, high), is_negated=is_negated)
        if left.kind is not FilterTermKind.PROPERTY:
            raise syntax_error(f"a property before {token.source}", left.position, left.kind.value)
        if token.source == "IN":
            texts = self._texts()
            codes = None if is_negated else codes_of(left, texts)
            return self._make_test(left, one_of(left, texts), is_negated=is_negated, tag_codes=codes)
        return self._make_test(left, match_text(left, _TEXT_TESTS[token.source], self._text()), is_negated=is_negated)

    def _make_test(
        self, left: FilterTerm, holds: Condition, *, is_negated: bool = False, tag_codes: frozenset[int] | None = None
    ) -> FilterTerm:
        return FilterTerm(
            FilterTermKind.CONDITION, left.position, holds=negate(holds) if is_negated else holds, tag_codes=tag_codes
        )

    def _operand(self) -> FilterTerm:
        token = self._peek()
        self._next += 1
        match token.kind, token.source:
            case FilterTokenKind.NAME, _:
                return FilterTerm(FilterTermKind.PROPERTY, token.position, token.source)
            case FilterTokenKind.TEXT, _:
                return FilterTerm(FilterTermKind.TEXT, token.position, token.value)
            case FilterTokenKind.NUMBER, _:
                return _number(token, token.value)
            case FilterTokenKind.SYMBOL, ("+" | "-"):
                return self._signed_number(token)
            case FilterTokenKind.SYMBOL, "(":
                return self._group(token)
            case FilterTokenKind.WORD, ("TRUE" | "FALSE"):
                is_true = token.source == "TRUE"
                return FilterTerm(FilterTermKind.CONDITION, token.position, holds=lambda _: is_true)
            case FilterTokenKind.WORD, "NULL":
                return FilterTerm(FilterTermKind.NULL, token.position)
        raise syntax_error("a property, a value or (", token.position, token.shown)

    def _signed_number(self, sign: FilterToken) -> FilterTerm:
        token = self._peek()
        self._next += 1
        if token.kind is not FilterTokenKind.NUMBER or isinstance(token.value, str):
            raise syntax_error(f"a number after {sign.source}", token.position, token.shown)
        return _number(sign, -token.value if sign.source == "-" else token.value)

    def _group(self, opened: FilterToken) -> FilterTerm:
        self._descend(opened)
        inner = self.any()
        self._expect(")")
        self._depth -= 1
        return inner

    def _texts(self) -> frozenset[str]:
        opened = self._expect("(")
        texts = [self._text()]
        while self._take(","):
            texts.append(self._text())
            if len(texts) > MAX_LIST_ITEMS:
                raise syntax_error(f"a list of at most {MAX_LIST_ITEMS} texts", opened.position, "more")
        self._expect(")")
        return frozenset(texts)

    def _text(self) -> str:
        token = self._peek()
        if token.kind is not FilterTokenKind.TEXT:
            raise syntax_error("a text in single quotes", token.position, token.shown)
        self._next += 1
        return str(token.value)

    def _peek(self) -> FilterToken:
        return self._tokens[self._next]

    def _take(self, source: str) -> bool:
        token = self._peek()
        if token.source != source or token.kind not in (FilterTokenKind.WORD, FilterTokenKind.SYMBOL):
            return False
        self._next += 1
        return True

    def _expect(self, source: str) -> FilterToken:
        token = self._peek()
        if not self._take(source):
            raise syntax_error(source, token.position, token.shown)
        return token

    def _operator(self) -> FilterToken:
        token = self._peek()
        self._next += 1
        self._count(token)
        return token

    def _count(self, token: FilterToken) -> None:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise syntax_error(f"at most {MAX_CONDITIONS} conditions", token.position, "more")

    def _descend(self, token: FilterToken) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise syntax_error(f"at most {MAX_DEPTH} parentheses and NOTs inside of each other", token.position, "more")


def _number(first: FilterToken, value: str | int | float) -> FilterTerm:
    if value == MAX_INTEGER + 1 and isinstance(value, int):
        raise syntax_error(f"a number up to {MAX_INTEGER}", first.position, first.shown)
    return FilterTerm(FilterTermKind.NUMBER, first.position, value)


def _condition(term: FilterTerm) -> Condition:
    if term.kind is FilterTermKind.TEXT or term.kind is FilterTermKind.NUMBER:
        raise syntax_error("a condition", term.position, term.kind.value)
    return condition(term)


def _ordering(term: FilterTerm) -> FilterTerm:
    """The term as one side of a comparison by size; text that says a number is one, as in RocketMQ."""
    is_number_text = term.kind is FilterTermKind.TEXT and number_of(str(term.value)) is not None
    if term.kind is FilterTermKind.CONDITION or (term.kind is FilterTermKind.TEXT and not is_number_text):
        raise syntax_error("a number or a property", term.position, term.kind.value)
    return term


def _check_bounds(low: FilterTerm, high: FilterTerm) -> None:
    bounds = [number_of(term.value) if isinstance(term.value, str) else term.value for term in (low, high)]
    if FilterTermKind.PROPERTY in (low.kind, high.kind) or bounds[0] is None or bounds[1] is None:
        return
    if bounds[0] > bounds[1]:
        raise MessageRefused(
            "ILLEGAL_FILTER",
            f"The filter cannot be read at character {low.position + 1}: {bounds[0]} AND {bounds[1]} have nothing "
            "between them.",
            remedy=REMEDY,
        )
