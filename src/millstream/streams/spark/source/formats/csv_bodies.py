"""Decodes CSV bodies to Arrow columns: one line each, fields by position, as in Flink's CSV format.

A blank field of a type other than text is NULL: so our sinks and Flink's write it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.decoder import ColumnBuilder, DecodedRows, decoded_rows

__all__ = ["CsvDecoder", "csv_dialect"]

_COMMENT = "#"


class CsvDecoder:
    """Decodes bodies to the columns of `fields`, which are some of the format's, in any order."""

    def __init__(self, text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> None:
        self._dialect = csv_dialect(text)
        self._count = len(text.columns)
        self._comments = text.is_set("allow-comments")
        self._null = text.options.get("csv.null-literal")
        self._element_mark = text.option("array-element-delimiter", ";")
        places = {column.name: place for place, column in enumerate(text.columns)}
        self._columns = [(places[name], kind, ColumnBuilder("", name, kind)) for name, kind in fields]

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows of `bodies`, in their order, without the malformed ones and comments."""
        reasons: dict[int, str] = {}
        comments: set[int] = set()
        rows = [self._row(position, body, reasons, comments) for position, body in enumerate(bodies)]
        columns = [
            builder.build_values([self._value(row[place], kind) if row else None for row in rows], reasons)
            for place, kind, builder in self._columns
        ]
        reasons |= dict.fromkeys(comments, "")
        decoded = decoded_rows(columns, reasons, len(rows))
        malformed = tuple(one for one in decoded.malformed if one.position not in comments)
        return DecodedRows(decoded.columns, malformed, decoded.kept)

    def _row(self, position: int, body: bytes | memoryview, reasons: dict[int, str], comments: set[int]) -> list[str]:
        try:
            text = str(body, "utf-8").rstrip("\r\n")
            if self._comments and text.startswith(_COMMENT):
                comments.add(position)
                return []
            row = next(csv.reader([text], **self._dialect), [])
        except (UnicodeDecodeError, csv.Error) as error:
            reasons[position] = str(error)
            return []
        # A blank line is one blank field.
        row = row or [""]
        if len(row) != self._count:
            reasons[position] = f"the line has {len(row)} fields, the table {self._count}"
            return []
        return row

    def _value(self, text: str, kind: DataType) -> Any:
        if text == self._null or (not text and kind.kind is not TypeKind.STRING):
            return None
        if kind.kind is TypeKind.ARRAY:
            return [self._value(element, kind.elements[0]) for element in text.split(self._element_mark)]
        if kind.kind is TypeKind.ROW:
            parts = text.split(self._element_mark)
            return {of.name: self._value(part, of.type) for of, part in zip(kind.fields, parts, strict=False)}
        return text


def _character(text: str) -> str:
    r"""The character that an option means: `\t` and the like stand for what they are called."""
    return text.encode().decode("unicode_escape") if text.startswith("\\") else text


def csv_dialect(text: BodyFormat) -> dict[str, Any]:
    """What Python's `csv` must be told of the format's options."""
    escape = text.option("escape-character")
    quoted = not text.is_set("disable-quote-character")
    return {
        "delimiter": _character(text.option("field-delimiter", ",")),
        "quotechar": _character(text.option("quote-character", '"')) if quoted else None,
        "quoting": csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        "escapechar": _character(escape) if escape else None,
    }
