"""What DESCRIBE FUNCTION says of a function."""

from __future__ import annotations

from millstream.streams.functions.spec import FunctionSpec
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.sql.syntax.statements import CreateFunction

__all__ = ["INFO_HEADS", "built_in_rows", "function_rows"]

INFO_HEADS = ("info name", "info value")
"""The columns of what is not a list: each row has a name and a value."""

_Rows = tuple[tuple[str, str], ...]


def function_rows(function: UserFunction, definition: CreateFunction, *, extended: bool) -> _Rows:
    """How a user's function was made; with `extended` also what it takes and gives."""
    rows = (
        ("system function", _word(definition.system)),
        ("temporary", _word(definition.temporary)),
        ("class name", function.path),
        ("function language", definition.language or "PYTHON"),
        ("resource uris", ", ".join(definition.jars)),
    )
    if not extended:
        return rows
    kind = "AGGREGATE" if function.is_aggregate else "SCALAR"
    more = _more(kind, function.deterministic, function.example, str(function.result), function.description)
    return (*rows, *more)


def built_in_rows(spec: FunctionSpec, kind: str, *, extended: bool) -> _Rows:
    """The same of a function that is built in."""
    rows = (("system function", "true"), ("temporary", "false"))
    if not extended:
        return rows
    return (*rows, *_more(kind, spec.deterministic, spec.example, spec.result_shown, spec.description))


def _more(kind: str, deterministic: bool, example: str, result: str, description: str) -> _Rows:
    return (
        ("kind", kind),
        ("requirements", "[]"),
        ("deterministic", _word(deterministic)),
        ("signature", example),
        ("result", result),
        ("description", description),
    )


def _word(value: bool) -> str:
    return str(value).lower()
