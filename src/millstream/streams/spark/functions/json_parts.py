"""What JSON is written of: values whose parts Spark writes as Flink does."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.types import STRING, DataType, TypeKind
from millstream.streams.spark.translation.casts import cast

__all__ = ["json_part"]

_OWN_FORM = (TypeKind.VARIANT, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ, TypeKind.TIME)


def json_part(value: Column, data_type: DataType) -> Column:
    """The value with all its parts so that Spark's `to_json` writes them as Flink does.

    VARIANT, which is carried as a text, becomes Spark's; times become texts of ISO 8601 whose fraction ends with
    its last digit that is not 0 (as those of Java do; those of Spark have a fixed number), with Z for instants.
    """
    if not data_type.holds(*_OWN_FORM):
        return value
    match data_type.kind:
        case TypeKind.VARIANT:
            return F.try_parse_json(value)
        case TypeKind.TIMESTAMP:
            return _iso(value)
        case TypeKind.TIMESTAMP_LTZ:
            return F.concat(_iso(value), F.lit("Z"))
        case TypeKind.TIME:
            return cast(value, data_type, STRING)
        case TypeKind.ARRAY:
            return F.transform(value, lambda one: json_part(one, data_type.elements[0]))
        case TypeKind.MAP:
            return F.transform_values(value, lambda _key, one: json_part(one, data_type.elements[1]))
        case _:
            fields = (json_part(value.getField(of.name), of.type).alias(of.name) for of in data_type.fields)
            return F.when(value.isNotNull(), F.struct(*fields))


def _iso(time: Column) -> Column:
    # Sessions are in UTC; Spark's own text of a time drops zeros at its end.
    return F.translate(time.cast("string"), " ", "T")
