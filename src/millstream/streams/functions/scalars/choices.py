"""Choices and questions about values."""

from __future__ import annotations

from millstream.streams.functions.common_type import common_type
from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin
from millstream.streams.plan.types import BOOLEAN, STRING, DataType

__all__ = ["CHOICES"]

_NEVER_NULL = BOOLEAN.as_nullable(False)


def _common(given: ArgumentTypes) -> DataType:
    return common_type(given.types)


def _type_of_choice(given: ArgumentTypes) -> DataType:
    return common_type(given.types[1:])


def _first(given: ArgumentTypes) -> DataType:
    common_type(given.types)
    return given.types[0].as_nullable()


CHOICES: tuple[FunctionSpec, ...] = (
    FunctionSpec("COALESCE", "values... COMMON", _common, "The first that is not NULL.", "COALESCE(NULL, 1)", "1"),
    FunctionSpec("NULLIF", "value ANY, other ANY", _first, "NULL if both are equal, else the first.", "NULLIF(5, 0)", "5"),
    FunctionSpec("IF", "condition BOOLEAN, then COMMON, otherwise COMMON", _type_of_choice, "The second if the condition holds, else the third.", "IF(5 > 3, 5, 3)", "5"),
    FunctionSpec("IFNULL", "value COMMON, replacement COMMON", _common, "The first, or the second where it is NULL.", "IFNULL(NULL, 5)", "5"),
    FunctionSpec("NVL", "value COMMON, replacement COMMON", _common, "The same as IFNULL.", "NVL(NULL, 7)", "7", Origin.BLINK),
    FunctionSpec("GREATEST", "values... COMMON", _common, "The greatest; NULL if one is.", "GREATEST(1, 3, 2)", "3"),
    FunctionSpec("LEAST", "values... COMMON", _common, "The least; NULL if one is.", "LEAST(3, 1)", "1"),
    FunctionSpec("IS_ALPHA", "value PRINTABLE", _NEVER_NULL, "Whether all characters are letters.", "IS_ALPHA('ab')", "TRUE"),
    FunctionSpec("IS_DIGIT", "value PRINTABLE", _NEVER_NULL, "Whether all characters are digits.", "IS_DIGIT('12')", "TRUE"),
    FunctionSpec("IS_DECIMAL", "value PRINTABLE", _NEVER_NULL, "Whether the text is a number.", "IS_DECIMAL('-1.5')", "TRUE"),
    FunctionSpec("TYPEOF", "value ANY [, full BOOLEAN]", STRING.as_nullable(False), "The type of the value.", "TYPEOF(CAST(1 AS BIGINT))", "'BIGINT NOT NULL'"),
)  # fmt: skip
"""Their rows of the registry."""
