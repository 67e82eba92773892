"""Decodes JSON bodies to Arrow columns: only needed fields; an invalid body does not affect others.

Flink's JSON format is the model: a STRING column takes any JSON value (objects and arrays as compact text), numbers
are accepted as text, a missing field is NULL. The bodies are read by msgspec into a generated Struct of the wanted
fields, then each column is converted at once; only a column with an odd value goes value by value.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.moment import FIRST_MS, LAST_MS
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type as arrow_type_of
from millstream.streams.spark.source.values import Converter, converter

__all__ = ["ColumnBuilder", "DecodedRows", "JsonDecoder", "Malformed", "decoded_rows"]

_MAX_REASON_CHARACTERS = 200
_MILLISECOND_PRECISION = 3
_FIRST_US, _LAST_US = FIRST_MS * 1000, LAST_MS * 1000 + 999


@dataclass(frozen=True, slots=True)
class Malformed:
    """A body that is no row: its place among the bodies and why."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Columns of the rows that could be read. `kept` holds their places among the bodies, None where all were.

    A body that tells an update has two places. `kinds` are the numbers of the rows' kinds, None: all are inserts.
    """

    columns: tuple[pa.Array, ...]
    malformed: tuple[Malformed, ...]
    kept: pa.Array | None
    kinds: pa.Array | None = None


class JsonDecoder:
    """Decodes bodies to the columns of `fields`, in that order. Holds no state between calls.

    With `complete` a body without one of the fields is malformed.
    """

    def __init__(self, fields: Sequence[tuple[str, DataType]], *, complete: bool = False) -> None:
        self._columns = _builders(fields)
        row_type = _row_type(self._columns, complete=complete)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row_type)
        self._blank = row_type(*[None] * len(fields))

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows of `bodies`, in their order, without the malformed ones."""
        reasons: dict[int, str] = {}
        rows = self._rows(bodies, reasons)
        return decoded_rows([column.build(rows, reasons) for column in self._columns], reasons, len(rows))

    def _rows(self, bodies: Sequence[bytes | memoryview], reasons: dict[int, str]) -> list[Any]:
        decode = self._decoder.decode
        try:
            return [decode(body) for body in bodies]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        rows = []
        for position, body in enumerate(bodies):
            try:
                rows.append(decode(body))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                reasons[position] = str(error)[:_MAX_REASON_CHARACTERS]
                rows.append(self._blank)
        return rows


def decoded_rows(columns: Sequence[pa.Array], reasons: dict[int, str], count: int) -> DecodedRows:
    """The rows of `count` bodies without those that have a reason, by their places."""
    if not reasons:
        return DecodedRows(tuple(columns), (), None)
    kept = pa.array([position for position in range(count) if position not in reasons], pa.int32())
    malformed = tuple(Malformed(position, reasons[position]) for position in sorted(reasons))
    return DecodedRows(tuple(column.take(kept) for column in columns), malformed, kept)


def _builders(fields: Sequence[tuple[str, DataType]], above: str = "") -> tuple[ColumnBuilder, ...]:
    return tuple(ColumnBuilder(f"f{number}", name, data_type, above) for number, (name, data_type) in enumerate(fields))


def _row_type(columns: Sequence[ColumnBuilder], *, complete: bool = False) -> Any:
    """The Struct into which msgspec reads those columns and nothing else."""
    return msgspec.defstruct(
        "JsonRow",
        [
            (column.attribute, column.annotation) if complete else (column.attribute, column.annotation, None)
            for column in columns
        ],
        rename={column.attribute: column.name for column in columns},
        gc=False,
    )


class ColumnBuilder:
    """One column: how the JSON value is read and how a list of values becomes an Arrow array.

    A ROW is read into a Struct of its own, and built field by field. `above` are the names of the rows that it is in.
    """

    def __init__(self, attribute: str, name: str, data_type: DataType, above: str = "") -> None:
        self.attribute = attribute
        self.name = name
        self._path = f"{above}{name}"
        # A Decimal is read from the digits; by way of a float it would lose some.
        self.annotation: Any = decimal.Decimal | None if data_type.kind is TypeKind.DECIMAL else Any
        self._fields: tuple[ColumnBuilder, ...] = ()
        if data_type.kind is TypeKind.ROW and data_type.fields:
            self._fields = _builders([(field.name, field.type) for field in data_type.fields], f"{self._path}.")
            nested = _row_type(self._fields)
            self.annotation = nested | None
            self._blank = nested(*[None] * len(self._fields))
        self._type = arrow_type_of(data_type)
        self._fast = _FAST.get(data_type.kind)
        self._truncate = (data_type.precision or _MILLISECOND_PRECISION) <= _MILLISECOND_PRECISION
        self._convert: Converter = converter(data_type)

    def build(self, rows: list[Any], reasons: dict[int, str]) -> pa.Array:
        """The column's values; a place with a value that does not fit gets a reason and NULL."""
        attribute = self.attribute
        values = [getattr(row, attribute) for row in rows]
        return self._build_rows(values, reasons) if self._fields else self.build_values(values, reasons)

    def _build_rows(self, values: list[Any], reasons: dict[int, str]) -> pa.Array:
        absent = [value is None for value in values]
        rows = [self._blank if value is None else value for value in values]
        arrays = [field.build(rows, reasons) for field in self._fields]
        return pa.StructArray.from_arrays(arrays, fields=list(self._type), mask=pa.array(absent, pa.bool_()))

    def build_values(self, values: list[Any], reasons: dict[int, str]) -> pa.Array:
        """The same of values as JSON has them; texts stand for numbers too."""
        if self._fast is not None:
            try:
                return self._fast(values, self._type, self._truncate)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
                pass
        return self._one_by_one(values, reasons)

    def _one_by_one(self, values: list[Any], reasons: dict[int, str]) -> pa.Array:
        convert = self._convert
        converted: list[Any] = []
        for position, value in enumerate(values):
            try:
                converted.append(None if value is None else convert(value))
            except (ValueError, TypeError, ArithmeticError, LookupError) as error:
                reasons.setdefault(position, f"{self._path}: {error}"[:_MAX_REASON_CHARACTERS])
                converted.append(None)
        return pa.array(converted, self._type)


def _plain(values: list[Any], arrow_type: pa.DataType, _truncate: bool) -> pa.Array:
    return pa.array(values, arrow_type)


def _numbers(values: list[Any], arrow_type: pa.DataType, _truncate: bool) -> pa.Array:
    # Without a type first: given one, Arrow would take true for 1, and only in batches without text.
    inferred = pa.array(values)
    if pa.types.is_boolean(inferred.type):
        raise pa.ArrowTypeError("booleans are no numbers")
    return inferred.cast(arrow_type)


def _timestamps(values: list[Any], arrow_type: pa.DataType, truncate: bool) -> pa.Array:
    texts = pa.array(values, pa.string())
    try:
        instants = texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        instants = texts.cast(pa.timestamp("us", "UTC"))
    numbers = instants.cast(pa.int64())
    # Arrow takes the year 0, and goes beyond 9999 where a zone says so. Python and what reads tables have neither.
    if pc.any(pc.or_(pc.less(numbers, _FIRST_US), pc.greater(numbers, _LAST_US))).as_py():
        raise pa.ArrowInvalid("the year is none of 1 to 9999")
    if truncate:
        numbers = pc.multiply(pc.divide(numbers, 1000), 1000)
    return numbers.cast(arrow_type)


_FAST: dict[TypeKind, Callable[[list[Any], pa.DataType, bool], pa.Array]] = {
    TypeKind.STRING: _plain,
    TypeKind.BOOLEAN: _plain,
    TypeKind.TINYINT: _numbers,
    TypeKind.SMALLINT: _numbers,
    TypeKind.INT: _numbers,
    TypeKind.BIGINT: _numbers,
    TypeKind.FLOAT: _numbers,
    TypeKind.DOUBLE: _numbers,
    TypeKind.TIMESTAMP: _timestamps,
    TypeKind.TIMESTAMP_LTZ: _timestamps,
}
"""Columns that Arrow converts in one call, and refuses where a value needs a closer look."""
