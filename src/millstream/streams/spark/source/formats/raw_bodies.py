"""Decodes bodies that are one value each, as in Flink's raw format: text, bytes, or a binary number."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.decoder import DecodedRows, decoded_rows

__all__ = ["NUMBER_LAYOUTS", "RawDecoder", "byte_order"]

NUMBER_LAYOUTS = {
    TypeKind.BOOLEAN: "?",
    TypeKind.TINYINT: "b",
    TypeKind.SMALLINT: "h",
    TypeKind.INT: "i",
    TypeKind.BIGINT: "q",
    TypeKind.FLOAT: "f",
    TypeKind.DOUBLE: "d",
}
"""How numbers stand in a body, for `struct`, behind the byte order."""


def byte_order(text: BodyFormat) -> str:
    """The mark of `struct`."""
    return "<" if text.option("endianness").lower() == "little-endian" else ">"


class RawDecoder:
    """Decodes bodies to the one column, or to none if it is not read."""

    def __init__(self, text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> None:
        self._fields = fields
        self._value = _reader(text, fields[0][1]) if fields else None

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows of `bodies`, in their order, without the malformed ones."""
        if self._value is None:
            return DecodedRows((), (), None)
        reasons: dict[int, str] = {}
        values: list[Any] = []
        for position, body in enumerate(bodies):
            try:
                values.append(self._value(body))
            except (UnicodeDecodeError, struct.error) as error:
                reasons[position] = str(error)
                values.append(None)
        return decoded_rows([pa.array(values, arrow_type(self._fields[0][1]))], reasons, len(values))


def _reader(text: BodyFormat, kind: DataType) -> Callable[[bytes | memoryview], Any]:
    if kind.kind is TypeKind.STRING:
        return lambda body: str(body, "utf-8")
    if kind.kind is TypeKind.BYTES:
        return bytes
    if kind.kind in NUMBER_LAYOUTS:
        layout = struct.Struct(byte_order(text) + NUMBER_LAYOUTS[kind.kind])
        return lambda body: layout.unpack(body)[0]
    raise JobError("JOB_FAILED", f"The format raw holds no {kind}.")
