"""The index name of each row, with parts from columns or the clock, as in Flink's connector."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import python_values

__all__ = ["IndexNames"]

_PART: Final = re.compile(r"\{([^{}|]+)(?:\|([^{}]*))?\}")
_NOW: Final = "now()"
_LETTERS: Final = re.compile(r"yyyy|yy|MM|dd|HH|mm|ss|SSS|'[^']*'|[^A-Za-z']+")
_WRITTEN: Final = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_DATED: Final = (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ, TypeKind.DATE)

_Text = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Fixed text, or a column's place (None: the clock) with what makes text of its value."""

    fixed: str = ""
    place: int | None = None
    text: _Text | None = None


class IndexNames:
    """Names for rows of `schema`. Raises JobError SINK_FAILED for a column or a pattern that is not there."""

    def __init__(self, pattern: str, schema: Schema, now: Callable[[], datetime.datetime]) -> None:
        self._now = now
        self._pieces = tuple(_pieces(pattern, schema))
        self.is_fixed = all(piece.text is None for piece in self._pieces)
        if self.is_fixed and pattern != pattern.lower():
            words = f"{pattern!r} is no name of an index: it has capital letters."
            raise JobError("SINK_FAILED", words, remedy="Write it in small letters.")

    def of(self, rows: pa.RecordBatch) -> list[str]:
        """The index of each row; NULL is the text null."""
        moment = self._now()
        columns = [
            [piece.fixed if piece.text is None else piece.text(moment)] * rows.num_rows
            if piece.place is None
            else _texts(python_values(rows.column(piece.place)), piece.text)
            for piece in self._pieces
        ]
        return ["".join(parts) for parts in zip(*columns, strict=True)]


def _texts(values: Sequence[Any], text: _Text | None) -> list[str]:
    return ["null" if value is None else str(value) if text is None else text(value) for value in values]


def _pieces(pattern: str, schema: Schema) -> list[_Piece]:
    pieces, behind = [], 0
    for found in _PART.finditer(pattern):
        if found.start() > behind:
            pieces.append(_Piece(pattern[behind : found.start()]))
        pieces.append(_piece_of(found[1].strip(), found[2], schema))
        behind = found.end()
    if behind < len(pattern):
        pieces.append(_Piece(pattern[behind:]))
    return pieces


def _piece_of(name: str, date_pattern: str | None, schema: Schema) -> _Piece:
    if name == _NOW:
        return _Piece(text=_date_text(date_pattern or "yyyy-MM-dd"))
    field = schema.find(name)
    if field is None:
        words = f"The index is named by a column {name!r}, which the table has not."
        raise JobError("SINK_FAILED", words, remedy=f"Columns: {', '.join(schema.names)}.")
    place = schema.names.index(name)
    if date_pattern is None:
        return _Piece(place=place, text=str)
    if field.type.kind not in _DATED:
        words = f"The index is named by {name!r} as a date, but it is {field.type}."
        raise JobError("SINK_FAILED", words, remedy=f"Leave out '|{date_pattern}', or use a time.")
    return _Piece(place=place, text=_date_text(date_pattern))


def _date_text(pattern: str) -> _Text:
    """What writes a date or time in Java's letters, those of them that an index is named by."""
    parts = _LETTERS.findall(pattern)
    if "".join(parts) != pattern or not parts:
        words = f"{pattern!r} is no pattern of a date."
        raise JobError("SINK_FAILED", words, remedy="Use yyyy yy MM dd HH mm ss SSS and quoted text.")

    def write(value: Any) -> str:
        return "".join(_part(part, value) for part in parts)

    return write


def _part(part: str, value: Any) -> str:
    if part == "SSS":
        return f"{getattr(value, 'microsecond', 0) // 1000:03d}"
    if part == "yyyy":
        return f"{value.year:04d}"
    if part in _WRITTEN:
        return str(value.strftime(_WRITTEN[part]))
    return part.strip("'")
