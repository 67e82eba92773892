"""Flink's data types as declared; translation chooses the engine's types.

Time: `TIMESTAMP(p)` has no zone, `TIMESTAMP_LTZ(p)` is an instant. Both run as instants in a session pinned to UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "DEFAULT_DECIMAL",
    "DOUBLE",
    "INT",
    "INTEGER_KINDS",
    "MAX_DIGITS",
    "NULL",
    "STRING",
    "TOLD_IF_SET",
    "VARIANT",
    "DataType",
    "Field",
    "Schema",
    "TypeKind",
]

TOLD_IF_SET = {"told": "if set"}
"""Metadata of a field that plans had not always: those in which it has its default are the plans that they were."""


class TypeKind(Enum):
    """The families of types; the values are Flink's spelling."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    BYTES = "BYTES"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    INTERVAL_DAY = "INTERVAL DAY TO SECOND"
    INTERVAL_YEAR = "INTERVAL YEAR TO MONTH"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"
    VARIANT = "VARIANT"


INTEGER_KINDS = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
"""The whole numbers, the narrowest first."""

_SIZED = {
    (TypeKind.STRING, False): "VARCHAR",
    (TypeKind.STRING, True): "CHAR",
    (TypeKind.BYTES, False): "VARBINARY",
    (TypeKind.BYTES, True): "BINARY",
}
_WIDE = (TypeKind.STRING, TypeKind.BYTES, TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW, TypeKind.VARIANT)
MAX_DIGITS = 38
"""Digits of the longest DECIMAL."""

DEFAULT_DECIMAL = (10, 0)
"""Precision and scale of a DECIMAL that declares none, as in Flink."""

_NUMBERS = (*INTEGER_KINDS, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL)


@dataclass(frozen=True, slots=True)
class DataType:
    """One type. `precision` counts digits (DECIMAL, second fractions of times), characters or bytes at most.

    A text or bytes of that very length, CHAR and BINARY, is `fixed`. `elements` holds the element of an ARRAY, key and
    value of a MAP; `fields` those of a ROW.
    """

    kind: TypeKind
    nullable: bool = True
    precision: int | None = None
    scale: int | None = None
    elements: tuple[DataType, ...] = ()
    fields: tuple[Field, ...] = ()
    fixed: bool = field(default=False, metadata=TOLD_IF_SET)

    @property
    def has_one_width(self) -> bool:
        """Whether all values take the same number of bytes."""
        return self.kind not in _WIDE

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGER_KINDS

    @property
    def is_number(self) -> bool:
        return self.kind in _NUMBERS

    @property
    def is_timestamp(self) -> bool:
        return self.kind in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)

    def holds(self, *kinds: TypeKind) -> bool:
        """Whether this is of one of the kinds, or has one inside."""
        inside = (*self.elements, *(field.type for field in self.fields))
        return self.kind in kinds or any(data_type.holds(*kinds) for data_type in inside)

    def as_nullable(self, nullable: bool = True) -> DataType:
        """The same type with that nullability."""
        return replace(self, nullable=nullable)

    @property
    def is_sized(self) -> bool:
        """Whether values are cut, or filled, to a length."""
        return self.precision is not None and self.kind in (TypeKind.STRING, TypeKind.BYTES)

    def __str__(self) -> str:
        text = self.kind.value
        if self.kind is TypeKind.DECIMAL:
            text = f"DECIMAL({self.precision}, {self.scale})"
        elif self.kind in (TypeKind.ARRAY, TypeKind.MAP):
            text = f"{text}<{', '.join(map(str, self.elements))}>"
        elif self.kind is TypeKind.ROW:
            text = f"ROW<{', '.join(f'{field.name} {field.type}' for field in self.fields)}>"
        elif self.precision is not None:
            text = f"{_SIZED.get((self.kind, self.fixed), text)}({self.precision})"
        return text if self.nullable else f"{text} NOT NULL"


@dataclass(frozen=True, slots=True)
class Field:
    """One column. `rowtime` marks an event-time attribute: a timestamp that has a watermark.

    `proctime` marks a processing-time attribute: the clock of the micro-batch in which a row is looked at.
    """

    name: str
    type: DataType
    rowtime: bool = False
    proctime: bool = False

    @property
    def is_time_attribute(self) -> bool:
        """Whether windows, OVER and the like can stand on it."""
        return self.rowtime or self.proctime


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a relation, in order; names are unique and case-sensitive."""

    fields: tuple[Field, ...]

    def find(self, name: str) -> Field | None:
        """The column of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


NULL = DataType(TypeKind.NULL)
BOOLEAN = DataType(TypeKind.BOOLEAN)
INT = DataType(TypeKind.INT)
BIGINT = DataType(TypeKind.BIGINT)
DOUBLE = DataType(TypeKind.DOUBLE)
STRING = DataType(TypeKind.STRING)
VARIANT = DataType(TypeKind.VARIANT)
