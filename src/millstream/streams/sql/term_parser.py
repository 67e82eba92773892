"""Expressions: precedence climbing over Flink's operators."""

from __future__ import annotations

import datetime
import decimal
import re

from millstream.streams.sql.cursor import Cursor
from millstream.streams.sql.lexer import TokenKind
from millstream.streams.sql.script import Span
from millstream.streams.sql.syntax import (
    BetweenTerm,
    CallTerm,
    CaseTerm,
    CastTerm,
    InTerm,
    IntervalTerm,
    IsTerm,
    LiteralTerm,
    NameTerm,
    Operation,
    StarTerm,
    Term,
)
from millstream.streams.sql.type_parser import parse_type

__all__ = ["parse_interval", "parse_term"]

_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_UNITS_S = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_WITHOUT_BRACKETS = ("CURRENT_TIMESTAMP",)
_UNIT_FIRST = ("TIMESTAMPADD", "TIMESTAMPDIFF")
_UNSUPPORTED_WORDS = ("EXISTS", "ROW", "ARRAY", "MAP", "MULTISET")
_MAX_CHAIN = 200
"""Operators of one level in a row; each one nests the tree."""


def parse_term(cursor: Cursor) -> Term:
    """The expression that comes next."""
    return _chain(cursor, _conjunction, {"OR": "OR"})


def _conjunction(cursor: Cursor) -> Term:
    return _chain(cursor, _negation, {"AND": "AND"})


def _chain(cursor: Cursor, operand: object, operators: dict[str, str]) -> Term:
    """Operands of the next level joined by these words, grouped from the left."""
    start = cursor.here()
    left: Term = operand(cursor)  # type: ignore[operator]
    for _ in range(_MAX_CHAIN):
        word = next((word for word in operators if cursor.sees(word)), None)
        if word is None:
            return left
        cursor.advance()
        right = operand(cursor)  # type: ignore[operator]
        left = Operation(operators[word], (left, right), cursor.since(start))
    raise cursor.unsupported(f"More than {_MAX_CHAIN} operators in a row.", remedy="Use brackets or IN.")


def _negation(cursor: Cursor) -> Term:
    start = cursor.here()
    negations = 0
    while cursor.take("NOT"):
        negations += 1
    term = _predicate(cursor)
    return Operation("NOT", (term,), cursor.since(start)) if negations % 2 else term


def _predicate(cursor: Cursor) -> Term:
    start = cursor.here()
    left = _sum(cursor)
    while True:
        token = cursor.peek()
        if token is not None and token.kind is TokenKind.SYMBOL and token.text in _COMPARISONS:
            cursor.advance()
            operator = "<>" if token.text == "!=" else token.text
            left = Operation(operator, (left, _sum(cursor)), cursor.since(start))
        elif cursor.take("IS"):
            left = _is(cursor, left, start)
        elif cursor.sees("NOT") or any(cursor.sees(word) for word in ("IN", "BETWEEN", "LIKE", "SIMILAR")):
            negated = cursor.take("NOT")
            term = _membership(cursor, left, start)
            left = Operation("NOT", (term,), cursor.since(start)) if negated else term
        else:
            return left


def _is(cursor: Cursor, left: Term, start: Span) -> Term:
    negated = cursor.take("NOT")
    if cursor.take("NULL"):
        return Operation("IS NOT NULL" if negated else "IS NULL", (left,), cursor.since(start))
    for word, value in (("TRUE", True), ("FALSE", False)):
        if cursor.take(word):
            term: Term = IsTerm(left, value, cursor.since(start))
            return Operation("NOT", (term,), cursor.since(start)) if negated else term
    if cursor.sees("DISTINCT") or cursor.sees("UNKNOWN") or cursor.sees("JSON"):
        raise cursor.unsupported("Only IS [NOT] NULL, TRUE and FALSE are supported.")
    raise cursor.expected("NULL, TRUE or FALSE")


def _membership(cursor: Cursor, left: Term, start: Span) -> Term:
    if cursor.take("IN"):
        cursor.need_symbol("(")
        if cursor.sees("SELECT"):
            raise cursor.unsupported("IN with a sub-query is not supported.", remedy="List the values.")
        options = _arguments(cursor)
        cursor.need_symbol(")")
        return InTerm(left, options, cursor.since(start))
    if cursor.take("BETWEEN"):
        if cursor.sees("SYMMETRIC"):
            raise cursor.unsupported("BETWEEN SYMMETRIC is not supported.")
        cursor.take("ASYMMETRIC")
        low = _sum(cursor)
        cursor.need("AND")
        return BetweenTerm(left, low, _sum(cursor), cursor.since(start))
    if cursor.take("LIKE"):
        operator = "LIKE"
    elif cursor.take("SIMILAR"):
        cursor.need("TO")
        operator = "SIMILAR"
    else:
        raise cursor.expected("IN, BETWEEN, LIKE or SIMILAR TO")
    operands = [left, _sum(cursor)]
    if cursor.take("ESCAPE"):
        operands.append(_sum(cursor))
    return Operation(operator, tuple(operands), cursor.since(start))


def _sum(cursor: Cursor) -> Term:
    return _symbols(cursor, _product, ("+", "-", "||"))


def _product(cursor: Cursor) -> Term:
    return _symbols(cursor, _signed, ("*", "/", "%"))


def _symbols(cursor: Cursor, operand: object, symbols: tuple[str, ...]) -> Term:
    start = cursor.here()
    left: Term = operand(cursor)  # type: ignore[operator]
    for _ in range(_MAX_CHAIN):
        token = cursor.peek()
        if token is None or token.kind is not TokenKind.SYMBOL or token.text not in symbols:
            return left
        cursor.advance()
        left = Operation(token.text, (left, operand(cursor)), cursor.since(start))  # type: ignore[operator]
    raise cursor.unsupported(f"More than {_MAX_CHAIN} operators in a row.", remedy="Use brackets.")


def _signed(cursor: Cursor) -> Term:
    start = cursor.here()
    minus = False
    while cursor.sees_symbol("-") or cursor.sees_symbol("+"):
        minus ^= cursor.advance().text == "-"
    term = _primary(cursor)
    return Operation("NEGATE", (term,), cursor.since(start)) if minus else term


def _primary(cursor: Cursor) -> Term:
    token = cursor.peek()
    if token is None:
        raise cursor.expected("an expression")
    if token.kind is TokenKind.STRING:
        return LiteralTerm(cursor.advance().text, token.span)
    if token.kind is TokenKind.NUMBER:
        return LiteralTerm(_number(cursor.advance().text), token.span)
    if token.is_symbol("("):
        return _bracketed(cursor)
    if token.kind is TokenKind.WORD:
        special = _special(cursor, token.text.upper())
        if special is not None:
            return special
    return _name_or_call(cursor)


def _number(text: str) -> int | float | decimal.Decimal:
    if text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else decimal.Decimal(text)


def _bracketed(cursor: Cursor) -> Term:
    start = cursor.advance().span
    if cursor.sees("SELECT"):
        raise cursor.unsupported("A sub-query as a value is not supported.")
    term = parse_term(cursor)
    if cursor.sees_symbol(","):
        raise cursor.unsupported("Lists of values as rows are not supported.", cursor.since(start))
    cursor.need_symbol(")")
    return term


def _special(cursor: Cursor, word: str) -> Term | None:
    """What begins with a key word; None for a plain name or function."""
    start = cursor.here()
    following = cursor.peek(1)
    calls = following is not None and following.is_symbol("(")
    string_follows = following is not None and following.kind is TokenKind.STRING
    if word in ("TRUE", "FALSE", "NULL"):
        cursor.advance()
        return LiteralTerm({"TRUE": True, "FALSE": False, "NULL": None}[word], start)
    if word == "CASE":
        return _case(cursor)
    if word in ("CAST", "TRY_CAST") and calls:
        return _cast(cursor)
    if word == "INTERVAL":
        return parse_interval(cursor)
    if word in ("DATE", "TIMESTAMP", "TIME") and string_follows:
        return _time_literal(cursor, word)
    if word in _UNSUPPORTED_WORDS and following is not None and (calls or following.is_symbol("[")):
        raise cursor.unsupported(f"{word} as a value is not supported.")
    if word in _WITHOUT_BRACKETS and not calls:
        cursor.advance()
        return CallTerm(word, (), start, start)
    if (
        word in ("TRIM", "POSITION", "EXTRACT", "FLOOR", "CEIL", "CEILING", "SUBSTRING", "LEFT", "RIGHT", *_UNIT_FIRST)
        and calls
    ):
        return _spoken_call(cursor, "CEIL" if word == "CEILING" else word)
    return None


def _time_literal(cursor: Cursor, word: str) -> Term:
    start = cursor.advance().span
    text = cursor.string().text
    try:
        value = datetime.date.fromisoformat(text) if word == "DATE" else datetime.datetime.fromisoformat(text)
    except ValueError:
        raise cursor.script.error("SQL_SYNTAX", f"{text!r} is no {word}.", cursor.since(start)) from None
    if word == "TIME" or (isinstance(value, datetime.datetime) and value.tzinfo is not None):
        raise cursor.unsupported(f"This {word} literal is not supported.", cursor.since(start))
    return LiteralTerm(value, cursor.since(start))


def _case(cursor: Cursor) -> Term:
    start = cursor.advance().span
    operand = None if cursor.sees("WHEN") else parse_term(cursor)
    branches = []
    while cursor.take("WHEN"):
        condition = parse_term(cursor)
        cursor.need("THEN")
        branches.append((condition, parse_term(cursor)))
    if not branches:
        raise cursor.expected("WHEN")
    otherwise = parse_term(cursor) if cursor.take("ELSE") else None
    cursor.need("END")
    return CaseTerm(operand, tuple(branches), otherwise, cursor.since(start))


def _cast(cursor: Cursor) -> Term:
    token = cursor.advance()
    cursor.need_symbol("(")
    operand = parse_term(cursor)
    cursor.need("AS")
    data_type = parse_type(cursor)
    cursor.need_symbol(")")
    return CastTerm(operand, data_type, token.is_word("TRY_CAST"), cursor.since(token.span))


def parse_interval(cursor: Cursor) -> IntervalTerm:
    """INTERVAL 'n' UNIT, also with fractions of seconds and DAY TO SECOND."""
    start = cursor.here()
    cursor.need("INTERVAL")
    text = cursor.string("a quoted amount, as in INTERVAL '10' SECOND").text.strip()
    unit_token = cursor.name("a unit such as SECOND")
    unit = unit_token.text.upper().removesuffix("S")
    if cursor.take_symbol("("):
        cursor.advance()
        cursor.need_symbol(")")
    if cursor.take("TO"):
        to = cursor.name("a unit").text.upper()
        return IntervalTerm(_compound(cursor, text, unit, to, start), 0, cursor.since(start))
    span = cursor.since(start)
    if unit in _UNITS_S and re.fullmatch(r"-?\d{1,9}(\.\d{1,6})?", text):
        return IntervalTerm(datetime.timedelta(seconds=float(decimal.Decimal(text) * _UNITS_S[unit])), 0, span)
    if unit in _UNITS_MONTHS and re.fullmatch(r"-?\d{1,4}", text):
        return IntervalTerm(None, int(text) * _UNITS_MONTHS[unit], span)
    raise cursor.script.error("SQL_SYNTAX", f"INTERVAL '{text}' {unit_token.text} is no interval.", span)


def _compound(cursor: Cursor, text: str, unit: str, to: str, start: Span) -> datetime.timedelta:
    units = ("DAY", "HOUR", "MINUTE", "SECOND")
    parts = [part for part in re.split(r"[ :]", text) if part]
    if unit in units and to in units and units.index(unit) < units.index(to):
        wanted = units[units.index(unit) : units.index(to) + 1]
        if len(parts) == len(wanted) and all(re.fullmatch(r"\d{1,9}(\.\d{1,6})?", part) for part in parts):
            seconds = sum(decimal.Decimal(part) * _UNITS_S[name] for part, name in zip(parts, wanted, strict=True))
            return datetime.timedelta(seconds=float(seconds))
    raise cursor.script.error("SQL_SYNTAX", f"INTERVAL '{text}' {unit} TO {to} is no interval.", cursor.since(start))


def _spoken_call(cursor: Cursor, name: str) -> Term:
    """Calls with words between their arguments: TRIM(BOTH x FROM y), POSITION(x IN y), EXTRACT(DAY FROM x) ..."""
    token = cursor.advance()
    cursor.need_symbol("(")
    arguments: tuple[Term, ...]
    if name == "TRIM":
        arguments = _trim_arguments(cursor)
    elif name == "EXTRACT" or name in _UNIT_FIRST:
        unit = cursor.name("a unit of time")
        if name == "EXTRACT":
            cursor.need("FROM")
        else:
            cursor.need_symbol(",")
        arguments = (LiteralTerm(unit.text.upper(), unit.span), *_arguments(cursor))
    else:
        first = _sum(cursor)
        if name == "POSITION":
            cursor.need("IN")
            arguments = (first, _sum(cursor))
        elif name == "SUBSTRING" and cursor.take("FROM"):
            place = _sum(cursor)
            arguments = (first, place, _sum(cursor)) if cursor.take("FOR") else (first, place)
        elif name in ("FLOOR", "CEIL") and cursor.take("TO"):
            unit = cursor.name("a unit of time")
            arguments = (first, LiteralTerm(unit.text.upper(), unit.span))
        else:
            arguments = (first, *(_arguments(cursor) if cursor.take_symbol(",") else ()))
    cursor.need_symbol(")")
    return CallTerm(name, arguments, cursor.since(token.span), token.span)


def _trim_arguments(cursor: Cursor) -> tuple[Term, ...]:
    side = next((word for word in ("BOTH", "LEADING", "TRAILING") if cursor.sees(word)), None)
    start = cursor.here()
    if side is not None:
        cursor.advance()
    blank = LiteralTerm(" ", start)
    if side is not None and cursor.take("FROM"):
        return (parse_term(cursor), blank, LiteralTerm(side, start))
    first = parse_term(cursor)
    if cursor.take("FROM"):
        return (parse_term(cursor), first, LiteralTerm(side or "BOTH", start))
    if side is not None:
        raise cursor.expected("FROM")
    return (first,)


def _name_or_call(cursor: Cursor) -> Term:
    token = cursor.name("an expression")
    if token.kind is TokenKind.WORD and cursor.sees_symbol("("):
        return _call(cursor, token.text, token.span)
    parts = [token.text]
    while cursor.take_symbol("."):
        if cursor.sees_symbol("*"):
            cursor.advance()
            return StarTerm(cursor.since(token.span))
        parts.append(cursor.name("a column's name").text)
    if cursor.sees_symbol("["):
        raise cursor.unsupported("Access to elements with [ ] is not supported.")
    return NameTerm(tuple(parts), cursor.since(token.span))


def _call(cursor: Cursor, name: str, start: Span) -> Term:
    cursor.need_symbol("(")
    distinct = cursor.take("DISTINCT")
    star = cursor.take_symbol("*")
    arguments = () if star or cursor.sees_symbol(")") else _arguments(cursor)
    cursor.need_symbol(")")
    span = cursor.since(start)
    condition = None
    if cursor.sees("FILTER"):
        cursor.need("FILTER")
        cursor.need_symbol("(")
        cursor.need("WHERE")
        condition = parse_term(cursor)
        cursor.need_symbol(")")
    if cursor.sees("OVER"):
        raise cursor.unsupported("OVER is not supported.", remedy="Use TUMBLE windows.")
    return CallTerm(name.upper(), arguments, span, start, star, distinct, condition)


def _arguments(cursor: Cursor) -> tuple[Term, ...]:
    arguments = [parse_term(cursor)]
    while cursor.take_symbol(","):
        arguments.append(parse_term(cursor))
    return tuple(arguments)
