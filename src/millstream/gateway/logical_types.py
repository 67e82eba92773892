"""Column types in the notation of Flink's REST API."""

from __future__ import annotations

from typing import Any, Final

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["logical_type"]

_MAX_LENGTH: Final = 2**31 - 1
"""The length of a text or of bytes that have no limit, as Flink has it."""

_DEFAULT_PRECISIONS: Final = {
    TypeKind.TIME: ("TIME_WITHOUT_TIME_ZONE", 0),
    TypeKind.TIMESTAMP: ("TIMESTAMP_WITHOUT_TIME_ZONE", 6),
    TypeKind.TIMESTAMP_LTZ: ("TIMESTAMP_WITH_LOCAL_TIME_ZONE", 6),
}
_NAMES: Final = {TypeKind.INT: "INTEGER"}


def logical_type(data_type: DataType) -> dict[str, Any]:
    """The type as JSON, as Flink's LogicalTypeJsonSerializer writes it.

    A VARIANT is a VARCHAR: its values are shown as JSON texts, and clients before Flink 2.3 do not know it.
    """
    if data_type.kind is TypeKind.NULL:
        return {"type": "NULL"}
    name, details = _details(data_type)
    return {"type": name, "nullable": data_type.nullable, **details}


def _details(of: DataType) -> tuple[str, dict[str, Any]]:
    match of.kind:
        case TypeKind.STRING | TypeKind.VARIANT:
            return ("CHAR" if of.fixed else "VARCHAR"), {"length": _length(of)}
        case TypeKind.BYTES:
            return ("BINARY" if of.fixed else "VARBINARY"), {"length": _length(of)}
        case TypeKind.DECIMAL:
            return "DECIMAL", {"precision": 10 if of.precision is None else of.precision, "scale": of.scale or 0}
        case TypeKind.TIME | TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            name, default = _DEFAULT_PRECISIONS[of.kind]
            return name, {"precision": default if of.precision is None else of.precision}
        case TypeKind.INTERVAL_DAY:
            return "INTERVAL_DAY_TIME", {"precision": 2, "fractionalPrecision": 3, "resolution": "DAY_TO_SECOND"}
        case TypeKind.INTERVAL_YEAR:
            return "INTERVAL_YEAR_MONTH", {"precision": 4, "resolution": "YEAR_TO_MONTH"}
        case TypeKind.ARRAY:
            return "ARRAY", {"elementType": logical_type(of.elements[0])}
        case TypeKind.MAP:
            key, value = of.elements
            return "MAP", {"keyType": logical_type(key), "valueType": logical_type(value)}
        case TypeKind.ROW:
            fields = [{"name": field.name, "fieldType": logical_type(field.type)} for field in of.fields]
            return "ROW", {"fields": fields}
        case _:
            return _NAMES.get(of.kind, of.kind.value), {}


def _length(of: DataType) -> int:
    return of.precision if of.precision is not None and of.kind is not TypeKind.VARIANT else _MAX_LENGTH
