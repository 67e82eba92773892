"""What CAST is defined for."""

from __future__ import annotations

import pytest

from millstream.streams.functions.casting import can_cast, same_shape
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, DataType, Field, TypeKind

DATE = DataType(TypeKind.DATE)
TIME = DataType(TypeKind.TIME, precision=0)
TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
BYTES = DataType(TypeKind.BYTES)
INTS = DataType(TypeKind.ARRAY, elements=(INT,))
TEXTS = DataType(TypeKind.ARRAY, elements=(STRING,))
PLACE = DataType(TypeKind.ROW, fields=(Field("city", STRING), Field("zip", INT)))


@pytest.mark.parametrize(
    ("source", "target"),
    [(INT, STRING), (STRING, TIMESTAMP), (BOOLEAN, DOUBLE), (BIGINT, BOOLEAN), (TIMESTAMP, DATE), (DATE, TIMESTAMP),
     (NULL, PLACE), (PLACE, STRING), (INTS, TEXTS), (BYTES, STRING), (STRING, BYTES)],
)  # fmt: skip
def test_these_are_possible(source: DataType, target: DataType) -> None:
    assert can_cast(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [(DOUBLE, BOOLEAN), (TIMESTAMP, BIGINT), (INT, TIMESTAMP), (BOOLEAN, DATE), (STRING, INTS), (PLACE, INTS),
     (DATE, TIME), (BYTES, INT), (INT, BYTES)],
)  # fmt: skip
def test_these_are_not(source: DataType, target: DataType) -> None:
    assert not can_cast(source, target)


def test_the_shape_of_a_type_is_its_kinds_and_names_and_not_its_lengths() -> None:
    longer = DataType(TypeKind.STRING, nullable=False, precision=9)
    assert same_shape(PLACE, DataType(TypeKind.ROW, fields=(Field("city", longer), Field("zip", INT))))
    assert not same_shape(PLACE, DataType(TypeKind.ROW, fields=(Field("city", STRING), Field("zap", INT))))
    assert not same_shape(PLACE, DataType(TypeKind.ROW, fields=(Field("city", STRING),)))
    assert not same_shape(INTS, TEXTS)
