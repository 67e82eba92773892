"""User functions in Python: CREATE FUNCTION f AS 'package.module:callable' LANGUAGE PYTHON.

The callable is a function, or a class with a method `eval` as Flink's are. Its annotations give the types; where they
do not say enough, a decorator of `declarations` does. One that yields rows (an Iterator or Iterable of them) is a table
function: its call is an ARRAY of ROWs, which LATERAL TABLE takes apart. A class with an accumulator is an aggregate.
"""

from __future__ import annotations

import collections.abc
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
from typing import Any

from millstream.streams.functions.spec import array_of, map_of
from millstream.streams.functions.user_functions.calling import column_hint
from millstream.streams.functions.user_functions.declarations import Declaration, declaration_of, sql_function
from millstream.streams.functions.user_functions.user_aggregates import (
    AggregateMethods,
    aggregate_methods,
    is_aggregate,
)
from millstream.streams.plan.expressions import USER_PREFIX
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType, Field, TypeKind

__all__ = [
    "USER_PREFIX",
    "UserFunction",
    "UserFunctionProblem",
    "load_user_function",
    "root_of",
    "sql_function",
    "type_of",
    "user_aggregate",
    "user_callable",
    "user_marked",
]

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*")
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
_ROWS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_NAMED_PARTS = ("__dataclass_fields__", "_fields", "__struct_fields__")
"""What dataclasses, named tuples and msgspec.Structs have."""


class UserFunctionProblem(ValueError):
    """A callable that is not there or whose types are not known; `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True, slots=True)
class UserFunction:
    """One function of a user, with what the binder asks of a function.

    `arguments` are the declared types; the last one is `repeated` if it takes any number of values. `call_name` is the
    function's name in a plan. An aggregate `retracts` or `merges` if its class has the method.
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
    is_aggregate: bool = False
    retracts: bool = False
    merges: bool = False

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


def load_user_function(name: str, path: str) -> UserFunction:
    """The function that a path names. Raises UserFunctionProblem."""
    path = _dotted_path_of(path)
    found = _find_object(path)
    declaration = _declaration(path, found)
    if is_aggregate(found):
        return _aggregate(name, path, found, declaration)
    if declaration.is_aggregate:
        remedy = "Give its class create_accumulator, accumulate and get_value, or add and result."
        raise UserFunctionProblem(f"{path} is declared as an aggregate, but has not its methods.", remedy)
    function = user_callable(path)
    parameters, hints = _signature(path, function)
    arguments = declaration.arguments or _arguments(path, parameters, hints)
    element = _element(hints.get("return"))
    is_table = element is not None or declaration.is_table or _yields(function)
    result = _result(path, declaration, element if element is not None else hints.get("return"))
    return UserFunction(
        name=name,
        path=path,
        arguments=arguments,
        optional=sum(parameter.default is not inspect.Parameter.empty for parameter in parameters),
        repeated=_is_repeated(parameters),
        result=array_of(_as_row(result)) if is_table else result,
        is_table=is_table,
        deterministic=declaration.deterministic,
        description=(inspect.getdoc(function) or "").partition("\n")[0],
    )


def _aggregate(name: str, path: str, kind: type, said: Declaration) -> UserFunction:
    methods = user_aggregate(path)
    parameters, hints = _signature(path, methods.add_hints, methods.skipped)
    _, result_hints = _signature(path, methods.result_hints)
    return UserFunction(
        name=name,
        path=path,
        arguments=said.arguments if said.arguments is not None else _arguments(path, parameters, hints),
        optional=sum(parameter.default is not inspect.Parameter.empty for parameter in parameters),
        repeated=_is_repeated(parameters),
        result=_result(path, said, result_hints.get("return")),
        is_table=False,
        deterministic=True,
        description=(inspect.getdoc(kind) or "").partition("\n")[0],
        is_aggregate=True,
        retracts=methods.retract is not None,
        merges=methods.merge is not None,
    )


def _signature(
    path: str, function: Callable[..., Any], skipped: int = 0
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters behind the first `skipped`, and the annotations."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[skipped:]
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, ValueError) as error:
        raise UserFunctionProblem(f"The types of {path} cannot be read: {error}.", "Annotate them.") from None
    if any(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters):
        raise UserFunctionProblem(f"{path} has arguments that SQL cannot give.", "Give them defaults of its own.")
    return parameters, hints


def _arguments(path: str, parameters: Sequence[inspect.Parameter], hints: dict[str, Any]) -> tuple[DataType, ...]:
    return tuple(_type_of(hints.get(one.name), f"The argument {one.name} of {path}") for one in parameters)


def _result(path: str, said: Declaration, hint: Any) -> DataType:
    """The declared type, of SQL or Python's, or that of the annotation."""
    if isinstance(said.result, DataType):
        return said.result
    return _type_of(hint if said.result is None else said.result, f"The result of {path}")


def _is_repeated(parameters: Sequence[inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)


def _yields(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


@cache
def user_callable(path: str, root: str = "") -> Callable[..., Any]:
    """What is called; of a class, `eval` of one object of it. `root` is a directory to look into if need be.

    Raises UserFunctionProblem.
    """
    found = _find_object(path, root)
    if isinstance(found, type):
        found = getattr(_object_of(found, path), "eval", None)
    if not callable(found):
        module_name, _, attribute = _dotted_path_of(path).rpartition(".")
        message = f"{module_name} has no callable {attribute!r}."
        raise UserFunctionProblem(message, "Write a function, or a class with a method eval.")
    return typing.cast("Callable[..., Any]", found)


def user_marked(path: str, root: str = "") -> Any:
    """What a decorator may have marked: the function, or the class. Raises UserFunctionProblem."""
    return _find_object(path, root)


@cache
def user_aggregate(path: str, root: str = "") -> AggregateMethods:
    """The methods of a class that is an aggregate. Raises UserFunctionProblem."""
    found = _find_object(path, root)
    if not is_aggregate(found):
        raise UserFunctionProblem(f"{path} is no aggregate.", "Write a class with add and result.")
    try:
        return aggregate_methods(found)
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        raise _cannot_be_made(path, error) from None


def _find_object(path: str, root: str = "") -> Any:
    """What the path names; None if its module has nothing of that name."""
    if not _PATH.fullmatch(path):
        raise UserFunctionProblem(f"{path!r} is no path of a callable.", "Write it as 'package.module:name'.")
    module_name, _, attribute = _dotted_path_of(path).rpartition(".")
    return getattr(_module(module_name, root), attribute, None)


def _dotted_path_of(path: str) -> str:
    """The path with a point before the name, whichever way it is written."""
    return path.replace(":", ".", 1)


def _object_of(kind: type, path: str) -> object:
    try:
        return kind()
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        raise _cannot_be_made(path, error) from None


def _cannot_be_made(path: str, error: Exception) -> UserFunctionProblem:
    message = f"An object of {path} cannot be made: {type(error).__name__}: {error}."
    return UserFunctionProblem(message, "Let its constructor take no arguments.")


def root_of(path: str) -> str:
    """The directory that the module of a path was imported from; blank if it is not known."""
    module = sys.modules.get(_dotted_path_of(path).rpartition(".")[0])
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


def _declaration(path: str, found: object) -> Declaration:
    try:
        return declaration_of(found)
    except TypeError as error:
        raise UserFunctionProblem(f"{path} {error}.", "Use udf, udtf or udaf of millstream.streams.udf.") from None


def type_of(hint: Any, what: str) -> DataType:
    """The SQL type of an annotation; `what` begins the words of the error. Raises UserFunctionProblem."""
    return _type_of(hint, what)


def _type_of(hint: Any, what: str) -> DataType:
    """The SQL type of an annotation; of a column that of one of its values."""
    hint = column_hint(hint)
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
    if isinstance(hint, type) and any(hasattr(hint, name) for name in _NAMED_PARTS):
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
