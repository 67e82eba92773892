"""Values of operators on their way to Spark: what does not fit its type is NULL, and ends no job."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.operators.arrow_rows import batch_of

SUM = DataType(TypeKind.DECIMAL, precision=38, scale=6)
LARGEST = Decimal("99999999999999999999999999999999.999999")


def test_a_decimal_number_of_too_many_digits_is_null_and_the_others_stay() -> None:
    values = [Decimal("1.50"), LARGEST, Decimal(10) ** 32, None, LARGEST.copy_negate(), Decimal(-(10**32))]
    (array,) = batch_of([(value,) for value in values], [pa.field("d", pa.decimal128(38, 6))])
    assert array.to_pylist() == [Decimal("1.50"), LARGEST, None, None, LARGEST.copy_negate(), None]


def test_aggregates_of_the_largest_decimals_fit_or_are_null() -> None:
    given = DataType(TypeKind.DECIMAL, precision=38, scale=0)
    for function in ("SUM", "AVG", "VAR_POP", "STDDEV_POP"):
        machine = accumulator_of(AggregateSpec(function, (0,), given, SUM), changing=False)
        state = machine.add(machine.new(), [Decimal(10**37), Decimal(-9 * 10**37), Decimal(9 * 10**37)])
        (array,) = batch_of([(machine.result(state),)], [pa.field("d", pa.decimal128(38, 6))])
        assert array.to_pylist() == [None], function
