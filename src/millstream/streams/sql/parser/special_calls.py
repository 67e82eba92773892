"""Calls with keywords between arguments, bracket constructors, and element access.

They become plain calls: of the functions ARRAY, MAP, ITEM, FIELD, `IS JSON`, and of those in `SPECIAL_ARGUMENTS`, whose
words stand as literals behind the arguments.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.streams.functions.scalars.collections import JSON_VALUE_TYPES
from millstream.streams.plan.types import TypeKind
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.type_parser import parse_type
from millstream.streams.sql.syntax.expressions import CallTerm, CastTerm, LiteralTerm, Operation, Term
from millstream.streams.sql.syntax.script import Span

__all__ = ["SPECIAL_ARGUMENTS", "parse_access", "parse_constructor", "parse_json_question"]

TermParser = Callable[[Cursor], Term]

_SHAPES = ("VALUE", "SCALAR", "ARRAY", "OBJECT")


def parse_constructor(cursor: Cursor, term: TermParser) -> Term | None:
    """ARRAY[...] or MAP[...] if that comes next, else None."""
    token, following = cursor.peek(), cursor.peek(1)
    if token is None or following is None or not token.is_word("ARRAY", "MAP") or not following.is_symbol("["):
        return None
    cursor.advance()
    cursor.advance()
    values = () if cursor.sees_symbol("]") else _list(cursor, term)
    cursor.need_symbol("]")
    return CallTerm(token.text.upper(), values, cursor.since(token.span), token.span)


def parse_access(cursor: Cursor, value: Term, term: TermParser) -> Term:
    """The value with all [key] and .field behind it."""
    start = value.span
    while True:
        here = cursor.here()
        if cursor.take_symbol("["):
            key = term(cursor)
            cursor.need_symbol("]")
            value = CallTerm("ITEM", (value, key), cursor.since(start), here)
        elif isinstance(value, CallTerm | CastTerm) and cursor.take_symbol("."):
            name = cursor.name("a field's name")
            value = CallTerm("FIELD", (value, LiteralTerm(name.text, name.span)), cursor.since(start), name.span)
        else:
            return value


def parse_json_question(cursor: Cursor, value: Term, start: Span, *, negated: bool) -> Term:
    """What stands behind IS [NOT] JSON."""
    shape = next((word for word in _SHAPES if cursor.take(word)), "VALUE")
    span = cursor.since(start)
    call = CallTerm("IS JSON", (value, LiteralTerm(shape, span)), span, span)
    return Operation("NOT", (call,), span) if negated else call


def _list(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    values = [term(cursor)]
    while cursor.take_symbol(","):
        values.append(term(cursor))
    return tuple(values)


def _document_and_path(cursor: Cursor, term: TermParser) -> tuple[Term, Term]:
    document = term(cursor)
    cursor.need_symbol(",")
    return document, term(cursor)


def _json_value(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    document, path = _document_and_path(cursor, term)
    start = cursor.here()
    word = _parse_returning(cursor) if cursor.take("RETURNING") else "STRING"
    defaults: dict[str, Term] = {}
    while cursor.sees("NULL") or cursor.sees("ERROR") or cursor.sees("DEFAULT"):
        default = _default(cursor, term, word)
        cursor.need("ON")
        if not cursor.sees("EMPTY") and not cursor.sees("ERROR"):
            raise cursor.expected_error("EMPTY or ERROR")
        defaults[cursor.advance().text.upper()] = default
    nothing = LiteralTerm(None, start)
    if not defaults and word == "STRING":
        return document, path
    behind = (defaults.get("EMPTY", nothing), defaults.get("ERROR", nothing)) if defaults else ()
    return document, path, LiteralTerm(word, start), *behind


def _parse_returning(cursor: Cursor) -> str:
    start = cursor.here()
    data_type = parse_type(cursor)
    word = next((word for word, known in JSON_VALUE_TYPES.items() if known.kind is data_type.kind), None)
    if word is None:
        message = f"JSON_VALUE cannot return {data_type}."
        raise cursor.unsupported_error(
            message, cursor.since(start), remedy=f"Use one of {', '.join(JSON_VALUE_TYPES)}."
        )
    return word


def _default(cursor: Cursor, term: TermParser, word: str) -> Term:
    start = cursor.here()
    if cursor.take("NULL") or cursor.take("ERROR"):
        return LiteralTerm(None, start)
    cursor.need("DEFAULT")
    value = term(cursor)
    if word == "STRING" and isinstance(value, LiteralTerm) and isinstance(value.value, bool):
        return LiteralTerm(str(value.value).lower(), value.span)
    return CastTerm(value, JSON_VALUE_TYPES[word], True, value.span)


def _json_query(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    document, path = _document_and_path(cursor, term)
    start = cursor.here()
    returned = _queried_type(cursor) if cursor.take("RETURNING") else "STRING"
    wrapper = "WITHOUT"
    if cursor.sees("WITH") or cursor.sees("WITHOUT"):
        wrapper = _wrapper(cursor)
    endings = {"EMPTY": "NULL", "ERROR": "NULL"}
    while any(cursor.sees(word) for word in ("NULL", "ERROR", "EMPTY")):
        ending = _ending(cursor)
        cursor.need("ON")
        if not cursor.sees("EMPTY") and not cursor.sees("ERROR"):
            raise cursor.expected_error("EMPTY or ERROR")
        endings[cursor.advance().text.upper()] = ending
    words = (wrapper, endings["EMPTY"], endings["ERROR"], *(("ARRAY",) if returned == "ARRAY" else ()))
    return document, path, *(LiteralTerm(word, start) for word in words)


def _queried_type(cursor: Cursor) -> str:
    start = cursor.here()
    data_type = parse_type(cursor)
    if data_type.kind is TypeKind.STRING:
        return "STRING"
    if data_type.kind is TypeKind.ARRAY and data_type.elements[0].kind is TypeKind.STRING:
        return "ARRAY"
    message = f"JSON_QUERY cannot return {data_type}."
    raise cursor.unsupported_error(message, cursor.since(start), remedy="It returns a STRING or an ARRAY<STRING>.")


def _wrapper(cursor: Cursor) -> str:
    without = cursor.take("WITHOUT")
    if not without:
        cursor.need("WITH")
    conditional = not without and cursor.take("CONDITIONAL")
    if not without and not conditional:
        cursor.take("UNCONDITIONAL")
    cursor.take("ARRAY")
    cursor.need("WRAPPER")
    return "WITHOUT" if without else "CONDITIONAL" if conditional else "UNCONDITIONAL"


def _ending(cursor: Cursor) -> str:
    if cursor.take("NULL") or cursor.take("ERROR"):
        return "NULL"
    for kind in ("ARRAY", "OBJECT"):
        if cursor.take("EMPTY", kind):
            return f"EMPTY {kind}"
    raise cursor.expected_error("NULL, EMPTY ARRAY, EMPTY OBJECT or ERROR")


def _json_exists(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    document, path = _document_and_path(cursor, term)
    start = cursor.here()
    for word in ("TRUE", "FALSE", "UNKNOWN", "ERROR"):
        if cursor.take(word, "ON", "ERROR"):
            return document, path, LiteralTerm("UNKNOWN" if word == "ERROR" else word, start)
    return document, path


def _json_object(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    start = cursor.here()
    values: list[Term] = []
    while not cursor.sees_symbol(")") and not _sees_nulls(cursor):
        values += _pair(cursor, term)
        if not cursor.take_symbol(","):
            break
    return _nulls(cursor, "NULL", start), *values


def _pair(cursor: Cursor, term: TermParser) -> tuple[Term, Term]:
    if cursor.sees("KEY") and not cursor.sees("KEY", "VALUE"):
        cursor.advance()
    key = term(cursor)
    cursor.need("VALUE")
    return key, term(cursor)


def _json_array(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    start = cursor.here()
    empty = cursor.sees_symbol(")") or _sees_nulls(cursor)
    values = () if empty else _list(cursor, term)
    return _nulls(cursor, "ABSENT", start), *values


def _json_object_aggregate(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    start = cursor.here()
    pair = _pair(cursor, term)
    return *pair, _nulls(cursor, "NULL", start)


def _json_array_aggregate(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    start = cursor.here()
    value = term(cursor)
    return value, _nulls(cursor, "ABSENT", start)


def _sees_nulls(cursor: Cursor) -> bool:
    return cursor.sees("NULL", "ON", "NULL") or cursor.sees("ABSENT", "ON", "NULL")


def _nulls(cursor: Cursor, default: str, start: Span) -> Term:
    word = next((word for word in ("NULL", "ABSENT") if cursor.take(word, "ON", "NULL")), default)
    return LiteralTerm(word, start)


def _overlay(cursor: Cursor, term: TermParser) -> tuple[Term, ...]:
    text = term(cursor)
    if cursor.take_symbol(","):
        return text, *_list(cursor, term)
    cursor.need("PLACING")
    other = term(cursor)
    cursor.need("FROM")
    place = term(cursor)
    return (text, other, place, term(cursor)) if cursor.take("FOR") else (text, other, place)


SPECIAL_ARGUMENTS: dict[str, Callable[[Cursor, TermParser], tuple[Term, ...]]] = {
    "JSON_VALUE": _json_value,
    "JSON_QUERY": _json_query,
    "JSON_EXISTS": _json_exists,
    "JSON_OBJECT": _json_object,
    "JSON_ARRAY": _json_array,
    "JSON_OBJECTAGG": _json_object_aggregate,
    "JSON_ARRAYAGG": _json_array_aggregate,
    "OVERLAY": _overlay,
}
"""What reads the arguments of these calls, up to the closing bracket, by the function's name."""
