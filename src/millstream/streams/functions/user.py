"""Functions that users write in Python: CREATE FUNCTION f AS 'package.module.callable' LANGUAGE PYTHON.

The callable is a function, or a class with a method `eval` as Flink's are. Its annotations give the types; where they
do not say enough, `sql_function` declares them. One that yields rows (an Iterator or Iterable of them) is a table
function: its call is an ARRAY of ROWs, which LATERAL TABLE takes apart.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from millstream.streams.functions.spec import array_of, map_of
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType, Field, TypeKind

__all__ = [
    "USER_PREFIX",
    "UserFunction",
    "UserFunctionProblem",
    "load_user_function",
    "root_of",
    "sql_function",
    "user_callable",
]

USER_PREFIX = "python:"
"""Begins the name of a call of a user's function in a plan; the path of the callable follows."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_DECLARED = "__sql_function__"
_PLAIN = {
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bool: BOOLEAN,
    bytes: DataType(TypeKind.BYTES),
    decimal.Decimal: DataType(TypeKind.DECIMAL, precision=38, scale=18),
    datetime.date: DataType(TypeKind.DATE),
    datetime.datetime: DataType(TypeKind.TIMESTAMP, precision=3),
}
_ROWS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)

F = TypeVar("F", bound=Callable[..., Any])


class UserFunctionProblem(ValueError):
    """A callable that is not there or whose types are not known; `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True, slots=True)
class UserFunction:
    """One function of a user, with what the binder asks of a function.

    `arguments` are the declared types; the last one is `repeated` if it takes any number of values. `call_name` is the
    function's name in a plan.
    """

    name: str
    path: str
    arguments: tuple[DataType, ...]
    optional: int
    repeated: bool
    result: DataType
    is_table: bool
    deterministic: bool
    description: str

    @property
    def call_name(self) -> str:
        return f"{USER_PREFIX}{self.path}"

    @property
    def min_args(self) -> int:
        """How many arguments there are at least."""
        return len(self.arguments) - self.optional - self.repeated

    @property
    def max_args(self) -> int | None:
        """How many there can be; None for any number."""
        return None if self.repeated else len(self.arguments)

    @property
    def example(self) -> str:
        """The call with the types of its arguments."""
        return f"{self.name}({', '.join(map(str, self.arguments))}{', ...' if self.repeated else ''})"

    def type_rule(self, types: Sequence[DataType], literals: Sequence[object] = ()) -> DataType:
        """The type of the result. Raises TypeError with what it wants."""
        for place, (have, wanted) in enumerate(zip(types, self._for_each(types), strict=True), 1):
            if have.kind not in (wanted.kind, TypeKind.NULL) and not (have.is_number and wanted.is_number):
                raise TypeError(f"{wanted} as argument {place}")
        return self.result

    def wanted_types(self, types: Sequence[DataType]) -> list[DataType | None]:
        """The types that the arguments are converted to, None for those that have them."""
        pairs = zip(types, self._for_each(types), strict=True)
        return [None if have.as_nullable() == wanted.as_nullable() else wanted for have, wanted in pairs]

    def _for_each(self, types: Sequence[DataType]) -> list[DataType]:
        return [self.arguments[min(place, len(self.arguments) - 1)] for place in range(len(types))]


@dataclass(frozen=True, slots=True)
class _Declaration:
    arguments: tuple[DataType, ...] | None
    result: DataType | None
    deterministic: bool


def sql_function(
    *, arguments: Sequence[DataType] | None = None, result: DataType | None = None, deterministic: bool = True
) -> Callable[[F], F]:
    """Declares the types of a function or class where its annotations do not; a table function's result is a ROW."""

    def mark(function: F) -> F:
        given = None if arguments is None else tuple(arguments)
        setattr(function, _DECLARED, _Declaration(given, result, deterministic))
        return function

    return mark


def load_user_function(name: str, path: str) -> UserFunction:
    """The function that a path names. Raises UserFunctionProblem."""
    function = user_callable(path)
    declared = _declaration(path, function)
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, ValueError) as error:
        raise UserFunctionProblem(f"The types of {path} cannot be read: {error}.", "Annotate them.") from None
    parameters = list(signature.parameters.values())
    if any(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters):
        raise UserFunctionProblem(f"{path} has arguments that SQL cannot give.", "Give them defaults of its own.")
    arguments = declared.arguments or tuple(
        _type_of(hints.get(one.name), f"The argument {one.name} of {path}") for one in parameters
    )
    element = _element(hints.get("return"))
    is_table = element is not None or inspect.isgeneratorfunction(function)
    result = declared.result or _type_of(element if is_table else hints.get("return"), f"The result of {path}")
    return UserFunction(
        name=name,
        path=path,
        arguments=arguments,
        optional=sum(parameter.default is not inspect.Parameter.empty for parameter in parameters),
        repeated=any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters),
        result=array_of(_as_row(result)) if is_table else result,
        is_table=is_table,
        deterministic=declared.deterministic,
        description=(inspect.getdoc(function) or "").partition("\n")[0],
    )


@cache
def user_callable(path: str, root: str = "") -> Callable[..., Any]:
    """What is called; of a class, `eval` of one object of it. `root` is a directory to look into if need be.

    Raises UserFunctionProblem.
    """
    if not _PATH.fullmatch(path):
        raise UserFunctionProblem(f"{path!r} is no path of a callable.", "Write it as 'package.module.name'.")
    module_name, _, attribute = path.rpartition(".")
    found = getattr(_module(module_name, root), attribute, None)
    if isinstance(found, type):
        found = getattr(_object_of(found, path), "eval", None)
    if not callable(found):
        message = f"{module_name} has no callable {attribute!r}."
        raise UserFunctionProblem(message, "Write a function, or a class with a method eval.")
    return typing.cast("Callable[..., Any]", found)


def _object_of(kind: type, path: str) -> object:
    try:
        return kind()
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        message = f"An object of {path} cannot be made: {type(error).__name__}: {error}."
        raise UserFunctionProblem(message, "Let its constructor take no arguments.") from None


def root_of(path: str) -> str:
    """The directory that the module of a path was imported from; blank if it is not known."""
    module = sys.modules.get(path.rpartition(".")[0])
    file = getattr(module, "__file__", None)
    return "" if module is None or file is None else str(Path(file).parents[module.__name__.count(".")])


def _module(name: str, root: str) -> types.ModuleType:
    if root and root not in sys.path:
        sys.path.append(root)
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        message = f"The module {name} cannot be imported: {type(error).__name__}: {error}."
        raise UserFunctionProblem(message, "Put it where PYTHONPATH finds it.") from None


def _declaration(path: str, function: Callable[..., Any]) -> _Declaration:
    owner = getattr(function, "__self__", function)
    found = getattr(function, _DECLARED, None) or getattr(type(owner), _DECLARED, None)
    if found is not None and not isinstance(found, _Declaration):
        raise UserFunctionProblem(f"{path} has a wrong declaration.", "Use sql_function.")
    return found or _Declaration(None, None, deterministic=True)


def _type_of(hint: Any, what: str) -> DataType:
    """The SQL type of an annotation."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        others = [one for one in inner if one is not type(None)]
        if len(others) == 1:
            return _type_of(others[0], what)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (list, collections.abc.Sequence) and len(inner) == 1:
        return array_of(_type_of(inner[0], what))
    if origin is dict and len(inner) == 2:
        return map_of(_type_of(inner[0], what), _type_of(inner[1], what))
    if origin is tuple and inner and Ellipsis not in inner:
        named = ((f"f{place}", one) for place, one in enumerate(inner))
        return _row(named, what)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return _row(typing.get_type_hints(hint).items(), what)
    shown = "has no annotation" if hint is None else f"is {hint}, which is no type of SQL"
    raise UserFunctionProblem(
        f"{what} {shown}.", "Annotate it, as in (text: str) -> int, or declare it by sql_function."
    )


def _row(parts: collections.abc.Iterable[tuple[str, Any]], what: str) -> DataType:
    return DataType(TypeKind.ROW, fields=tuple(Field(name, _type_of(hint, what)) for name, hint in parts))


def _element(hint: Any) -> Any:
    """What an Iterator or Iterable yields; None for other annotations."""
    inner = typing.get_args(hint)
    return inner[0] if typing.get_origin(hint) in _ROWS and inner else None


def _as_row(data_type: DataType) -> DataType:
    if data_type.kind is TypeKind.ROW:
        return data_type
    return DataType(TypeKind.ROW, fields=(Field("f0", data_type),))
