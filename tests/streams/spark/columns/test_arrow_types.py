"""Arrow's types, told without Spark, are those that Spark itself expects."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_type

from millstream.streams.plan.types import DataType, Field, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.columns.types import spark_type

INT, STRING = DataType(TypeKind.INT), DataType(TypeKind.STRING)
WITHIN = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)
TYPES = [
    *(DataType(kind) for kind in TypeKind if kind not in WITHIN),
    DataType(TypeKind.DECIMAL, precision=38, scale=18),
    DataType(TypeKind.DECIMAL, precision=5, scale=0),
    DataType(TypeKind.ARRAY, elements=(STRING,)),
    DataType(TypeKind.MAP, elements=(STRING, DataType(TypeKind.ARRAY, elements=(INT,)))),
    DataType(TypeKind.ROW, fields=(Field("a", INT), Field("b", DataType(TypeKind.ROW, fields=(Field("c", STRING),))))),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_a_type_is_what_spark_makes_of_it(data_type: DataType) -> None:
    assert arrow_type(data_type).equals(to_arrow_type(spark_type(data_type), timezone="UTC"), check_metadata=False)
    assert str(arrow_type(data_type)) == str(to_arrow_type(spark_type(data_type), timezone="UTC"))
