"""Column declarations in Python: a dataclass, a msgspec.Struct, a mapping, or SQL text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.streams.errors import SqlError
from millstream.streams.functions.user_functions.user import UserFunctionProblem, type_of
from millstream.streams.plan.types import DataType, Field, TypeKind
from millstream.streams.sdk.sql_text import quote_name
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["Columns", "column_text", "declared_fields", "declared_type", "schema_of", "type_text"]

Columns = str | type | Mapping[str, Any]
"""A schema: "host STRING, amount BIGINT"; a dataclass, named tuple or msgspec.Struct; or names with their types, each
of which is a Python annotation, a text of SQL or a `DataType`."""


def column_text(columns: Columns) -> str:
    """The columns as CREATE TABLE lists them. Raises SqlError SQL_TYPE for an annotation that is no type."""
    if isinstance(columns, str):
        return columns.strip().rstrip(",")
    if isinstance(columns, type):
        return ", ".join(f"{quote_name(field.name)} {type_text(field.type)}" for field in declared_fields(columns))
    return ", ".join(f"{quote_name(name)} {_declare_type(name, of)}" for name, of in columns.items())


def schema_of(columns: Columns) -> tuple[Field, ...]:
    """The columns with their types. Raises SqlError for a text that does not list columns."""
    if isinstance(columns, type):
        return declared_fields(columns)
    statement = f"CREATE TABLE t ({column_text(columns)}) WITH ('connector' = 'blackhole')"
    session = SqlSession()
    session.compile(statement)
    (table,) = session.catalog.tables.values()
    return table.table.schema.fields


def declared_fields(columns: type) -> tuple[Field, ...]:
    """The fields of a class. Raises SqlError SQL_TYPE for a class without fields."""
    row = declared_type(columns, f"The class {columns.__name__}")
    if row.kind is not TypeKind.ROW:
        message = f"{columns.__name__} has no fields."
        raise SqlError("SQL_TYPE", message, remedy="Use a dataclass, a named tuple or a msgspec.Struct.")
    return row.fields


def declared_type(hint: Any, what: str) -> DataType:
    """The type of an annotation; `what` is in the error's words. Raises SqlError SQL_TYPE."""
    if isinstance(hint, DataType):
        return hint
    try:
        return type_of(hint, what)
    except UserFunctionProblem as problem:
        raise SqlError("SQL_TYPE", problem.message, remedy=problem.remedy) from None


def type_text(data_type: DataType) -> str:
    """A type as CREATE TABLE takes it, with quoted names in a ROW."""
    match data_type.kind:
        case TypeKind.ROW:
            text = f"ROW<{', '.join(f'{quote_name(of.name)} {type_text(of.type)}' for of in data_type.fields)}>"
        case TypeKind.ARRAY | TypeKind.MAP:
            text = f"{data_type.kind.value}<{', '.join(map(type_text, data_type.elements))}>"
        case _:
            return str(data_type)
    return text if data_type.nullable else f"{text} NOT NULL"


def _declare_type(name: str, of: Any) -> str:
    if isinstance(of, str):
        return of
    return type_text(declared_type(of, f"The column {name}"))
