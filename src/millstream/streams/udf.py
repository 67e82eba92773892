"""The public decorators and types for authors of SQL functions."""

from __future__ import annotations

from millstream.streams.functions.spec import array_of, map_of
from millstream.streams.functions.user_functions.declarations import udaf, udf, udtf
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, Field, TypeKind

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "DOUBLE",
    "INT",
    "STRING",
    "DataType",
    "Field",
    "TypeKind",
    "array_of",
    "map_of",
    "udaf",
    "udf",
    "udtf",
]
