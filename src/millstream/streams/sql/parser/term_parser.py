"""Expressions: precedence climbing over Flink's operators.

OVERLAPS: whether two periods have a moment in common.

Calls with words between their arguments: TRIM(BOTH x FROM y), EXTRACT(DAY FROM x), POSITION(x IN y) and so on.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable

from millstream.streams.functions.scalars.times import WITHOUT_BRACKETS
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import Token, TokenKind
from millstream.streams.sql.parser.over_parser import parse_over, parse_sort_items
from millstream.streams.sql.parser.special_calls import (
    SPECIAL_ARGUMENTS,
    parse_access,
    parse_constructor,
    parse_json_question,
)
from millstream.streams.sql.parser.type_parser import (
    TIME_WORDS,
    parse_interval,
    parse_span,
    parse_time_literal,
    parse_type,
)
from millstream.streams.sql.syntax.expressions import (
    BetweenTerm,
    CallTerm,
    CaseTerm,
    CastTerm,
    ExistsTerm,
    InQueryTerm,
    InTerm,
    IntervalTerm,
    IsTerm,
    LiteralTerm,
    NameTerm,
    Operation,
    QuantifiedTerm,
    QueryTerm,
    RowTerm,
    StarTerm,
    Term,
)
from millstream.streams.sql.syntax.script import Span

__all__ = ["SPOKEN_CALLS", "parse_arguments", "parse_keyword_call", "parse_overlaps", "parse_sum", "parse_term"]

_UNIT_FIRST = ("TIMESTAMPADD", "TIMESTAMPDIFF")

SPOKEN_CALLS = ("TRIM", "POSITION", "EXTRACT", "FLOOR", "CEIL", "CEILING", "SUBSTRING", "LEFT", "RIGHT", *_UNIT_FIRST)
"""The functions that may be called so."""


def parse_keyword_call(cursor: Cursor, name: str) -> Term:
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
        arguments = (LiteralTerm(unit.text.upper(), unit.span), *cursor.arguments())
    else:
        first = cursor.sum()
        if name == "POSITION":
            cursor.need("IN")
            arguments = (first, cursor.sum())
        elif name == "SUBSTRING" and cursor.take("FROM"):
            place = cursor.sum()
            arguments = (first, place, cursor.sum()) if cursor.take("FOR") else (first, place)
        elif name in ("FLOOR", "CEIL") and cursor.take("TO"):
            unit = cursor.name("a unit of time")
            arguments = (first, LiteralTerm(unit.text.upper(), unit.span))
        else:
            arguments = (first, *(cursor.arguments() if cursor.take_symbol(",") else ()))
    cursor.need_symbol(")")
    return CallTerm(name, arguments, cursor.since(token.span), token.span)


def _trim_arguments(cursor: Cursor) -> tuple[Term, ...]:
    side = next((word for word in ("BOTH", "LEADING", "TRAILING") if cursor.sees(word)), None)
    start = cursor.here()
    if side is not None:
        cursor.advance()
    blank = LiteralTerm(" ", start)
    if side is not None and cursor.take("FROM"):
        return (cursor.term(), blank, LiteralTerm(side, start))
    first = cursor.term()
    if cursor.take("FROM"):
        return (cursor.term(), first, LiteralTerm(side or "BOTH", start))
    if side is not None:
        raise cursor.expected_error("FROM")
    return (first,)


def parse_overlaps(cursor: Cursor, left: RowTerm, start: Span) -> Term:
    """Two periods, each a start and an end or a length, that have a moment in common."""
    right = cursor.sum()
    if not isinstance(right, RowTerm) or len(right.values) != 2:
        raise cursor.script.error("SQL_SYNTAX", "OVERLAPS stands between two periods: (start, end).", right.span)
    span = cursor.since(start)
    first, second = (_bounds(period) for period in (left, right))
    halves = (Operation("<=", (one, other), span) for one, other in ((first[0], second[1]), (second[0], first[1])))
    return Operation("AND", tuple(halves), span)


def _bounds(period: RowTerm) -> tuple[Term, Term]:
    """The earlier and the later bound of a period."""
    start, end = period.values
    if isinstance(end, IntervalTerm):
        end = Operation("+", (start, end), end.span)
    is_turned = Operation("<", (end, start), period.span)
    bounds = ((end, start), (start, end))
    earlier, later = (CaseTerm(None, ((is_turned, turned),), plain, period.span) for turned, plain in bounds)
    return earlier, later


_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_UNSUPPORTED_WORDS = ("MULTISET",)
_MAX_CHAIN = 200
"""Arithmetic operators of one level in a row; each one nests the tree."""

_Operand = Callable[[Cursor], Term]


def parse_term(cursor: Cursor) -> Term:
    """The expression that comes next."""
    return _parse_connected(cursor, _conjunction, "OR")


def _conjunction(cursor: Cursor) -> Term:
    return _parse_connected(cursor, _negation, "AND")


def _parse_connected(cursor: Cursor, operand: _Operand, word: str) -> Term:
    """Operands of the next level joined by AND or OR, in any number."""
    operands = [operand(cursor)]
    while cursor.take(word):
        operands.append(operand(cursor))
    return _balance(word, operands)


def _balance(word: str, operands: list[Term]) -> Term:
    """The operands grouped in halves: AND and OR do not mind, and a rule of a thousand terms stays a shallow tree."""
    if len(operands) == 1:
        return operands[0]
    middle = (len(operands) + 1) // 2
    left, right = _balance(word, operands[:middle]), _balance(word, operands[middle:])
    return Operation(word, (left, right), left.span.to(right.span))


def _negation(cursor: Cursor) -> Term:
    start = cursor.here()
    negations = 0
    while cursor.take("NOT"):
        negations += 1
    term = _predicate(cursor)
    return Operation("NOT", (term,), cursor.since(start)) if negations % 2 else term


def _predicate(cursor: Cursor) -> Term:
    start = cursor.here()
    left = parse_sum(cursor)
    while True:
        token = cursor.peek()
        if token is not None and token.kind is TokenKind.SYMBOL and token.text in _COMPARISONS:
            cursor.advance()
            operator = "<>" if token.text == "!=" else token.text
            left = _parse_quantified(cursor, operator, left, start) or _parse_comparison(cursor, operator, left, start)
        elif cursor.take("IS"):
            left = _is(cursor, left, start)
        elif isinstance(left, RowTerm) and len(left.values) == 2 and cursor.take("OVERLAPS"):
            left = parse_overlaps(cursor, left, start)
        elif cursor.sees("NOT") or any(cursor.sees(word) for word in ("IN", "BETWEEN", "LIKE", "SIMILAR")):
            negated = cursor.take("NOT")
            term = _membership(cursor, left, start)
            left = Operation("NOT", (term,), cursor.since(start)) if negated else term
        else:
            return left


def _parse_comparison(cursor: Cursor, operator: str, left: Term, start: Span) -> Term:
    return Operation(operator, (left, parse_sum(cursor)), cursor.since(start))


def _parse_quantified(cursor: Cursor, operator: str, left: Term, start: Span) -> Term | None:
    """A comparison with ANY or ALL (SELECT ...), IN for = ANY and NOT IN for <> ALL; None for a plain comparison."""
    following = cursor.peek(1)
    if following is None or not following.is_symbol("(") or not any(map(cursor.sees, ("ANY", "SOME", "ALL"))):
        return None
    of_all = cursor.advance().is_word("ALL")
    cursor.need_symbol("(")
    query = cursor.query()
    cursor.need_symbol(")")
    if (operator, of_all) not in (("=", False), ("<>", True)):
        return QuantifiedTerm(left, operator, of_all, query, cursor.since(start))
    found = InQueryTerm(left, query, cursor.since(start))
    return Operation("NOT", (found,), found.span) if of_all else found


def _is(cursor: Cursor, left: Term, start: Span) -> Term:
    negated = cursor.take("NOT")
    if cursor.take("NULL"):
        return Operation("IS NOT NULL" if negated else "IS NULL", (left,), cursor.since(start))
    for word, value in (("TRUE", True), ("FALSE", False)):
        if cursor.take(word):
            term: Term = IsTerm(left, value, cursor.since(start))
            return Operation("NOT", (term,), cursor.since(start)) if negated else term
    if cursor.take("UNKNOWN"):
        return Operation("IS NOT NULL" if negated else "IS NULL", (left,), cursor.since(start))
    if cursor.take("DISTINCT", "FROM"):
        differs = Operation("IS DISTINCT FROM", (left, parse_sum(cursor)), cursor.since(start))
        return Operation("NOT", (differs,), differs.span) if negated else differs
    if cursor.take("JSON"):
        return parse_json_question(cursor, left, start, negated=negated)
    raise cursor.expected_error("NULL, TRUE, FALSE, UNKNOWN, DISTINCT FROM or JSON")


def _membership(cursor: Cursor, left: Term, start: Span) -> Term:
    if cursor.take("IN"):
        cursor.need_symbol("(")
        if not cursor.sees_symbol("(") and cursor.sees_query():
            query = cursor.query()
            cursor.need_symbol(")")
            return InQueryTerm(left, query, cursor.since(start))
        options = parse_arguments(cursor)
        cursor.need_symbol(")")
        return InTerm(left, options, cursor.since(start))
    if cursor.take("BETWEEN"):
        symmetric = cursor.take("SYMMETRIC")
        cursor.take("ASYMMETRIC")
        low = parse_sum(cursor)
        cursor.need("AND")
        between = BetweenTerm(left, low, parse_sum(cursor), cursor.since(start))
        if not symmetric:
            return between
        return Operation("OR", (between, BetweenTerm(left, between.high, low, between.span)), between.span)
    if cursor.take("LIKE"):
        operator = "LIKE"
    elif cursor.take("SIMILAR"):
        cursor.need("TO")
        operator = "SIMILAR"
    else:
        raise cursor.expected_error("IN, BETWEEN, LIKE or SIMILAR TO")
    operands = [left, parse_sum(cursor)]
    if cursor.take("ESCAPE"):
        operands.append(parse_sum(cursor))
    return Operation(operator, tuple(operands), cursor.since(start))


def parse_sum(cursor: Cursor) -> Term:
    """What may stand on a side of a comparison."""
    return _symbols(cursor, _product, ("+", "-", "||"))


def _product(cursor: Cursor) -> Term:
    return _symbols(cursor, _parse_signed, ("*", "/", "%"))


def _symbols(cursor: Cursor, operand: _Operand, symbols: tuple[str, ...]) -> Term:
    start = cursor.here()
    left = operand(cursor)
    for _ in range(_MAX_CHAIN):
        token = cursor.peek()
        if token is None or token.kind is not TokenKind.SYMBOL or token.text not in symbols:
            return left
        cursor.advance()
        left = Operation(token.text, (left, operand(cursor)), cursor.since(start))
    raise cursor.unsupported_error(f"More than {_MAX_CHAIN} operators in a row.", remedy="Use brackets.")


def _parse_signed(cursor: Cursor) -> Term:
    start = cursor.here()
    minus = False
    while cursor.sees_symbol("-") or cursor.sees_symbol("+"):
        minus ^= cursor.advance().text == "-"
    term = parse_access(cursor, _primary(cursor), parse_term)
    return Operation("NEGATE", (term,), cursor.since(start)) if minus else term


def _primary(cursor: Cursor) -> Term:
    token = cursor.peek()
    if token is None:
        raise cursor.expected_error("an expression")
    if token.kind is TokenKind.STRING:
        return LiteralTerm(cursor.advance().text, token.span)
    if token.kind is TokenKind.BINARY:
        return LiteralTerm(bytes.fromhex(cursor.advance().text), token.span)
    if token.kind is TokenKind.NUMBER:
        return LiteralTerm(_number(cursor, cursor.advance()), token.span)
    if token.is_symbol("("):
        return _parse_brackets(cursor)
    if token.kind is TokenKind.WORD:
        special = parse_constructor(cursor, parse_term) or _special(cursor, token.text.upper())
        if special is not None:
            return special
    return _name_or_call(cursor)


def _number(cursor: Cursor, token: Token) -> int | float | decimal.Decimal:
    if token.text.isdecimal():
        return int(token.text)
    if "e" not in token.text.lower():
        return decimal.Decimal(token.text)
    value = float(token.text)
    if math.isinf(value):
        raise cursor.script.error("SQL_TYPE", f"{token.text} is too large for a DOUBLE.", token.span)
    return value


def _parse_brackets(cursor: Cursor) -> Term:
    start = cursor.advance().span
    if not cursor.sees_symbol("(") and cursor.sees_query():
        query = cursor.query()
        cursor.need_symbol(")")
        return QueryTerm(query, cursor.since(start))
    values = parse_arguments(cursor)
    cursor.need_symbol(")")
    return parse_span(cursor, values[0], start) if len(values) == 1 else RowTerm(values, cursor.since(start))


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
    if word == "INTERVAL" and (string_follows or _signed_string_follows(cursor)):
        return parse_interval(cursor)
    if word == "INTERVAL" and following is not None and following.kind is TokenKind.NUMBER:
        remedy = f"Write INTERVAL '{following.text}' and the unit."
        raise cursor.script.error("SQL_SYNTAX", "The amount of an INTERVAL stands in quotes.", start, remedy=remedy)
    if word == "EXISTS" and calls:
        return _exists(cursor)
    if word in TIME_WORDS and string_follows:
        return parse_time_literal(cursor, word)
    if word in _UNSUPPORTED_WORDS and following is not None and (calls or following.is_symbol("[")):
        raise cursor.unsupported_error(f"{word} as a value is not supported.")
    if word in WITHOUT_BRACKETS and not calls:
        cursor.advance()
        return CallTerm(word, (), start, start)
    if word in SPOKEN_CALLS and calls:
        return parse_keyword_call(cursor, "CEIL" if word == "CEILING" else word)
    return None


def _signed_string_follows(cursor: Cursor) -> bool:
    sign, text = cursor.peek(1), cursor.peek(2)
    return sign is not None and sign.is_symbol("-") and text is not None and text.kind is TokenKind.STRING


def _exists(cursor: Cursor) -> Term:
    start = cursor.advance().span
    cursor.need_symbol("(")
    query = cursor.query()
    cursor.need_symbol(")")
    return ExistsTerm(query, cursor.since(start))


def _case(cursor: Cursor) -> Term:
    start = cursor.advance().span
    operand = None if cursor.sees("WHEN") else parse_term(cursor)
    branches = []
    while cursor.take("WHEN"):
        # Behind CASE x several values may lead to one result.
        conditions = (parse_term(cursor),) if operand is None else parse_arguments(cursor)
        cursor.need("THEN")
        result = parse_term(cursor)
        branches += [(condition, result) for condition in conditions]
    if not branches:
        raise cursor.expected_error("WHEN")
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


def _name_or_call(cursor: Cursor) -> Term:
    token = cursor.clear_name("an expression")
    if token.kind is TokenKind.WORD and cursor.sees_symbol("("):
        return _call(cursor, token.text, token.span)
    parts = [token.text]
    while cursor.take_symbol("."):
        if cursor.sees_symbol("*"):
            cursor.advance()
            return StarTerm(cursor.since(token.span), tuple(parts))
        parts.append(cursor.member("a column's name").text)
    return NameTerm(tuple(parts), cursor.since(token.span))


def _call(cursor: Cursor, name: str, start: Span) -> Term:
    cursor.need_symbol("(")
    distinct = not cursor.take("ALL") and cursor.take("DISTINCT")
    star = cursor.take_symbol("*")
    special = SPECIAL_ARGUMENTS.get(name.upper())
    if special is not None and not star:
        arguments = special(cursor, parse_term)
    else:
        arguments = () if star or cursor.sees_symbol(")") else parse_arguments(cursor)
    known = _without_nulls(cursor, name, arguments)
    order = parse_sort_items(cursor) if cursor.take("ORDER", "BY") else ()
    cursor.need_symbol(")")
    if cursor.take("WITHIN", "GROUP"):
        cursor.need_symbol("(")
        cursor.need("ORDER", "BY")
        order = parse_sort_items(cursor)
        cursor.need_symbol(")")
    span = cursor.since(start)
    condition = known
    if cursor.take("FILTER"):
        cursor.need_symbol("(")
        cursor.need("WHERE")
        term = parse_term(cursor)
        condition = term if known is None else Operation("AND", (known, term), term.span)
        cursor.need_symbol(")")
    over = parse_over(cursor) if cursor.take("OVER") else None
    span = span if over is None else cursor.since(start)
    return CallTerm(name.upper(), arguments, span, start, star, distinct, condition, order, over)


def _without_nulls(cursor: Cursor, name: str, arguments: tuple[Term, ...]) -> Term | None:
    """The condition that IGNORE NULLS behind the argument of ARRAY_AGG means; None for RESPECT NULLS, or neither."""
    start = cursor.here()
    if not cursor.sees("IGNORE", "NULLS") and not cursor.sees("RESPECT", "NULLS"):
        return None
    ignores = cursor.advance().is_word("IGNORE")
    cursor.advance()
    if name.upper() != "ARRAY_AGG" or len(arguments) != 1:
        message = f"{name.upper()} has no choice of NULLS: ARRAY_AGG has."
        remedy = "Write FILTER (WHERE x IS NOT NULL) behind the call."
        raise cursor.unsupported_error(message, cursor.since(start), remedy=remedy)
    return Operation("IS NOT NULL", arguments, arguments[0].span) if ignores else None


def parse_arguments(cursor: Cursor) -> tuple[Term, ...]:
    """Expressions with commas between them."""
    arguments = [parse_term(cursor)]
    while cursor.take_symbol(","):
        arguments.append(parse_term(cursor))
    return tuple(arguments)
