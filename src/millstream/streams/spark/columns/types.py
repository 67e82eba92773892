"""Maps the plan's types to Spark's and Arrow's.

Both kinds of TIMESTAMP are Spark's TIMESTAMP (an instant in a session pinned to UTC): Spark takes no watermark on
its type without a zone. TIME is kept as milliseconds of the day in an INT.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from millstream.streams.plan.types import DEFAULT_DECIMAL, DataType, Schema, TypeKind

__all__ = ["arrow_schema", "spark_schema", "spark_type"]

_PLAIN: dict[TypeKind, spark.DataType] = {
    TypeKind.NULL: spark.NullType(),
    TypeKind.BOOLEAN: spark.BooleanType(),
    TypeKind.TINYINT: spark.ByteType(),
    TypeKind.SMALLINT: spark.ShortType(),
    TypeKind.INT: spark.IntegerType(),
    TypeKind.BIGINT: spark.LongType(),
    TypeKind.FLOAT: spark.FloatType(),
    TypeKind.DOUBLE: spark.DoubleType(),
    TypeKind.STRING: spark.StringType(),
    TypeKind.BYTES: spark.BinaryType(),
    # Its JSON text: see functions/variants.
    TypeKind.VARIANT: spark.StringType(),
    TypeKind.DATE: spark.DateType(),
    TypeKind.TIME: spark.IntegerType(),
    TypeKind.TIMESTAMP: spark.TimestampType(),
    TypeKind.TIMESTAMP_LTZ: spark.TimestampType(),
    TypeKind.INTERVAL_DAY: spark.DayTimeIntervalType(),
    # Months: workers of Python get no intervals of years.
    TypeKind.INTERVAL_YEAR: spark.IntegerType(),
}


def spark_type(data_type: DataType) -> spark.DataType:
    """Spark's type of `data_type`. Every part is nullable: a decoder and a plan can both bring NULL."""
    match data_type.kind:
        case TypeKind.DECIMAL:
            precision, scale = DEFAULT_DECIMAL
            return spark.DecimalType(data_type.precision or precision, data_type.scale or scale)
        case TypeKind.ARRAY:
            return spark.ArrayType(spark_type(data_type.elements[0]))
        case TypeKind.MAP:
            key, value = data_type.elements
            return spark.MapType(spark_type(key), spark_type(value))
        case TypeKind.ROW:
            return spark.StructType([spark.StructField(part.name, spark_type(part.type)) for part in data_type.fields])
        case kind:
            return _PLAIN[kind]


def spark_schema(schema: Schema) -> spark.StructType:
    """Spark's schema of a relation."""
    return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in schema.fields])


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of record batches of `schema`; it compares types, names and nullability."""
    return to_arrow_schema(schema, timezone="UTC")
