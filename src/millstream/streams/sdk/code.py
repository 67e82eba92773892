"""Python functions as plan steps: their inputs, outputs and types."""

from __future__ import annotations

import collections.abc
import inspect
import re
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.types import Field, Schema, TypeKind
from millstream.streams.plan.user_calls import OnError, PythonCode, PythonKind, PythonRows
from millstream.streams.sdk.schemas import Columns, declared_fields, declared_type, schema_of

__all__ = ["ErrorChoice", "import_path", "python_rows"]

ErrorChoice = Literal["dead-letter", "fail", "skip"]
"""What becomes of a row for which a function raises."""

_SEVERAL = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    list,
    collections.abc.Sequence,
)
_VALUE = "value"
_PROGRAM = re.compile(r"__main__|millstream_job(_\w+)?")
"""What a program is called that runs; its workers know it by the name of its file."""


def python_rows(
    node: Node,
    kind: PythonKind,
    function: Callable[..., Any],
    *,
    schema: Columns | None = None,
    on_error: ErrorChoice | None = None,
    keep: tuple[str, ...] = (),
) -> PythonRows:
    """The step that gives the rows of `node` to a function.

    The result has the columns of `schema`, else those that the function's annotation of its result says. Event time
    goes along, and so do the columns `keep`, unless the function makes columns of these names. Raises SqlError.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]
    hints = _hints(function, name)
    row_type = None if kind is PythonKind.MAP_BATCHES else _row_type(function, hints)
    columns = node.schema.names
    reads = columns if row_type is None else _columns_read_by(row_type, columns, name)
    made = _fields_made_by(kind, schema, hints.get("return"), name)
    kept = columns if kind in (PythonKind.FILTER, PythonKind.FOREACH) else _columns_kept(node.schema, keep, made)
    code = PythonCode(name, function, row_type, _root(function), _choice(node, on_error))
    return PythonRows(node, kind, code, reads, made, kept)


def import_path(function: Callable[..., Any]) -> str:
    """`module.name` by which a worker finds the function or class. Raises SqlError for one that no module has."""
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", "")
    if _PROGRAM.fullmatch(module):
        module = Path(getattr(sys.modules.get(module), "__file__", None) or "").stem
    if not module or not name.isidentifier():
        message = f"{name or repr(function)} is not found by a module and a name."
        raise SqlError("SQL_UNKNOWN_FUNCTION", message, remedy="Define it at the top level of a file.")
    return f"{module}.{name}"


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    if not callable(function):
        raise SqlError("SQL_TYPE", f"{function!r} cannot be called.", remedy="Give a function of one row.")
    of = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError) as error:
        raise SqlError(
            "SQL_TYPE", f"The annotations of {name} cannot be read: {error}.", remedy="Correct them."
        ) from None


def _row_type(function: Callable[..., Any], hints: dict[str, Any]) -> type | None:
    """The class of the rows that the function wants: that of its first argument, if it has fields."""
    parameters = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not parameters:
        name = getattr(function, "__qualname__", repr(function))
        raise SqlError("SQL_TYPE", f"{name} takes no argument.", remedy="It is called with one row.")
    hint = hints.get(parameters[0].name)
    has_fields = isinstance(hint, type) and not issubclass(hint, dict) and bool(typing.get_type_hints(hint))
    return typing.cast("type", hint) if has_fields else None


def _columns_read_by(row_type: type, columns: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The columns that a class of rows has fields for."""
    wanted = tuple(of.name for of in declared_fields(row_type))
    missing = [one for one in wanted if one not in columns]
    if missing:
        message = f"{name} wants {', '.join(missing)}, and the stream has no such column."
        raise SqlError("SQL_UNKNOWN_COLUMN", message, remedy=f"Columns: {', '.join(columns)}.")
    return wanted


def _fields_made_by(kind: PythonKind, schema: Columns | None, hint: Any, name: str) -> tuple[Field, ...]:
    if kind in (PythonKind.FILTER, PythonKind.FOREACH):
        return ()
    if schema is not None:
        return schema_of(schema)
    if kind is PythonKind.FLAT_MAP and hint is not None:
        inner = typing.get_args(hint)
        if typing.get_origin(hint) not in _SEVERAL or not inner:
            message = f"{name} gives {hint}, but flat_map takes an Iterator or a list of rows."
            raise SqlError("SQL_TYPE", message, remedy="Annotate it as in -> Iterator[Word], or give schema=.")
        hint = inner[0]
    if hint is None or hint is type(None) or kind is PythonKind.MAP_BATCHES:
        remedy = "Give schema={'word': str}, or annotate it with a dataclass."
        raise SqlError("SQL_TYPE", f"The columns that {name} makes are not known.", remedy=remedy)
    found = declared_type(hint, f"The result of {name}")
    return found.fields if found.kind is TypeKind.ROW else (Field(_VALUE, found),)


def _columns_kept(schema: Schema, keep: tuple[str, ...], made: tuple[Field, ...]) -> tuple[str, ...]:
    names = {of.name for of in made}
    return tuple(of.name for of in schema.fields if (of.rowtime or of.name in keep) and of.name not in names)


def _choice(node: Node, on_error: ErrorChoice | None) -> OnError:
    """What is asked for, else the dead-letter topic; where the rows come from no topic, the end of the job."""
    has_topic = any("topic" in scan.table.options for scan in scans_of(node))
    if on_error is None:
        return OnError.DEAD_LETTER if has_topic else OnError.FAIL
    if on_error not in {one.value for one in OnError}:
        remedy = f"Use one of {', '.join(one.value for one in OnError)}."
        raise SqlError("SQL_OPTION", f"on_error cannot be {on_error!r}.", remedy=remedy)
    if on_error == "dead-letter" and not has_topic:
        message = "Rows that come from no topic have no dead-letter topic."
        raise SqlError("SQL_OPTION", message, remedy="Use on_error='fail' or 'skip'.")
    return OnError(on_error)


def _root(function: Callable[..., Any]) -> str:
    """The directory from which the function's module can be imported; blank if there is none."""
    module = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return ""
    up = 0 if module.__name__ == "__main__" else module.__name__.count(".")
    return str(Path(file).resolve().parents[up])
