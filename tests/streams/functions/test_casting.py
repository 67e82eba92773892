"""What CAST is defined for."""

from __future__ import annotations

import pytest

from millstream.streams.functions.casting import at_length, can_cast, common_type, keeps_length, same_shape
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


def sized(kind: TypeKind, length: int | None = None, *, fixed: bool = False) -> DataType:
    return DataType(kind, precision=length, fixed=fixed)


TEXT = TypeKind.STRING


@pytest.mark.parametrize(
    ("source", "target", "keeps"),
    [
        (STRING, STRING, True), (STRING, sized(TEXT, 3), False), (sized(TEXT, 3), STRING, True),
        (sized(TEXT, 3), sized(TEXT, 3), True), (sized(TEXT, 4), sized(TEXT, 3), False),
        (sized(TEXT, 2, fixed=True), sized(TEXT, 3), True), (sized(TEXT, 3), sized(TEXT, 3, fixed=True), False),
        (sized(TEXT, 2, fixed=True), sized(TEXT, 3, fixed=True), False),
        (sized(TEXT, 3, fixed=True), sized(TEXT, 3, fixed=True), True),
    ],
)  # fmt: skip
def test_a_type_says_whether_its_values_have_a_length_already(source: DataType, target: DataType, keeps: bool) -> None:
    assert keeps_length(source, target) is keeps


def test_values_are_brought_to_a_length_alike_in_python() -> None:
    assert at_length("abcdef", sized(TEXT, 3)) == "abc"
    assert at_length("a", sized(TEXT, 3)) == "a"
    assert at_length("a", sized(TEXT, 3, fixed=True)) == "a  "
    assert at_length(b"a", sized(TypeKind.BYTES, 3, fixed=True)) == b"a\0\0"
    assert at_length("abc", STRING) == "abc"


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (STRING, sized(TEXT, 3), "STRING"), (sized(TEXT, 2), sized(TEXT, 3), "VARCHAR(3)"),
        (sized(TEXT, 3, fixed=True), sized(TEXT, 3, fixed=True), "CHAR(3)"),
        (sized(TEXT, 2, fixed=True), sized(TEXT, 3, fixed=True), "VARCHAR(3)"),
    ],
)  # fmt: skip
def test_the_common_type_of_texts_is_as_long_as_the_longest(left: DataType, right: DataType, common: str) -> None:
    assert str(common_type([left, right])) == str(common_type([right, left])) == common


ROWS = "STRING BYTES BOOLEAN DECIMAL TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DATE TIME TIMESTAMP TIMESTAMP_LTZ"
MATRIX = """
STRING        Y Y Y Y Y Y Y Y Y Y Y Y Y Y
BYTES         Y Y . . . . . . . . . . . .
BOOLEAN       Y . Y Y Y Y Y Y Y Y . . . .
DECIMAL       Y . . Y Y Y Y Y Y Y . . . .
TINYINT       Y . Y Y Y Y Y Y Y Y . . . .
SMALLINT      Y . Y Y Y Y Y Y Y Y . . . .
INT           Y . Y Y Y Y Y Y Y Y . . . .
BIGINT        Y . Y Y Y Y Y Y Y Y . . . .
FLOAT         Y . . Y Y Y Y Y Y Y . . . .
DOUBLE        Y . . Y Y Y Y Y Y Y . . . .
DATE          Y . . . . . . . . . Y . Y Y
TIME          Y . . . . . . . . . . Y Y Y
TIMESTAMP     Y . . . . . . . . . Y Y Y Y
TIMESTAMP_LTZ Y . . . . . . . . . Y Y Y Y
"""


@pytest.mark.parametrize("row", MATRIX.strip().splitlines())
def test_a_kind_becomes_what_it_becomes_in_flink(row: str) -> None:
    source, *marks = row.split()
    possible = [name for name in ROWS.split() if can_cast(DataType(TypeKind[source]), DataType(TypeKind[name]))]
    assert possible == [name for name, mark in zip(ROWS.split(), marks, strict=True) if mark == "Y"]
