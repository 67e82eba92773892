"""Storage forms of columns: offsets from a minimum, texts without offsets, dictionaries.

The forms, as a manifest says them: "number" (`width` bytes above `least`), "raw" (the type's own bytes), "bytes" and
"repeated" (spans, see `spans`; all bytes, or the elements as a column), "named" (numbers of texts), "struct" (a column
for each field), "nothing". Where `nulls`, a bit for each value tells those that are there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.arrow_parts import elements_of, from_integers, integers_of, parts_of, validity
from millstream.streams.dimension.column_facts import ColumnFacts
from millstream.streams.dimension.index_key import Numbers
from millstream.streams.dimension.key_values import Flags, valid_flags
from millstream.streams.dimension.planes import PlaneReader, PlaneWriters, read_array, written_array
from millstream.streams.dimension.spans import SpanReader, SpanWriter, flatten_spans
from millstream.streams.errors import DimensionError

__all__ = ["ColumnReader", "ColumnWriter"]

_BYTE_BITS: Final = 8
_WINDOW_BYTES: Final = 64
"""Texts up to this long are read as windows of equal length."""


class ColumnWriter:
    """Writes the values of one column in the form that its facts chose."""

    def __init__(self, planes: PlaneWriters, name: str, data_type: pa.DataType, facts: ColumnFacts) -> None:
        self.form = form = facts.form()
        self._type = data_type
        self._parts: list[ColumnWriter] = []
        self._bits = planes.make(f"{name}.valid") if form["nulls"] else None
        self._bits_left = np.empty(0, np.bool_)
        self._values = planes.make(f"{name}.values") if form["form"] in ("number", "raw", "bytes", "named") else None
        if form["form"] in ("bytes", "repeated"):
            self._spans = SpanWriter(planes, name, form)
        if form["form"] == "named":
            self._distinct = facts.distinct
            planes.make(f"{name}.names").append(written_array(self._distinct))
        for place, (part, child) in enumerate(zip(parts_of(data_type), facts.children, strict=True)):
            self._parts.append(ColumnWriter(planes, f"{name}.{place}", part, child))

    def append(self, array: pa.Array) -> None:
        """More values."""
        if self._bits is not None:
            flags = np.concatenate([self._bits_left, valid_flags(array)])
            whole = len(flags) // _BYTE_BITS * _BYTE_BITS
            self._bits.append(np.packbits(flags[:whole], bitorder="little"))
            self._bits_left = flags[whole:]
        match self.form["form"]:
            case "number":
                self._append_numbers(integers_of(array) - self.form["least"])
            case "named":
                self._append_numbers(pc.fill_null(pc.index_in(array, self._distinct), 0).to_numpy())
            case "raw":
                width = self.form["width"]
                assert self._values is not None
                buffer = array.buffers()[1]
                self._values.append(memoryview(buffer)[array.offset * width : (array.offset + len(array)) * width])
            case "bytes":
                self._append_bytes(array)
            case "repeated":
                lengths, elements = elements_of(array)
                self._spans.append(lengths)
                self._parts[0].append(elements)
            case "struct":
                for place, part in enumerate(self._parts):
                    part.append(pc.struct_field(array, [place]))

    def _append_numbers(self, numbers: Numbers) -> None:
        if self.form["width"]:
            assert self._values is not None
            self._values.append(numbers.astype(f"<u{self.form['width']}"))

    def _append_bytes(self, array: pa.Array) -> None:
        assert self._values is not None
        blank = b"\0" * (self.form["length"] or 0)
        large = array.cast(pa.large_binary())
        filled = large.fill_null(blank) if large.null_count else large
        offsets = np.frombuffer(filled.buffers()[1], np.int64, len(filled) + 1, filled.offset * 8)
        self._spans.append(np.diff(offsets))
        content = filled.buffers()[2]
        if content is not None and offsets[-1] > offsets[0]:
            self._values.append(memoryview(content)[offsets[0] : offsets[-1]])

    def finish(self) -> None:
        """No more values come."""
        if self._bits is not None and len(self._bits_left):
            self._bits.append(np.packbits(self._bits_left, bitorder="little"))
        if self.form["form"] in ("bytes", "repeated"):
            self._spans.finish()
        if self.form["form"] == "bytes":
            assert self._values is not None
            # So that a window at the last text lies within the file.
            self._values.append(bytes(_WINDOW_BYTES))
        for part in self._parts:
            part.finish()


class ColumnReader:
    """Gives chosen values of one column."""

    def __init__(self, planes: PlaneReader, name: str, data_type: pa.DataType, form: dict[str, Any]) -> None:
        self._type = data_type
        self._form = form
        self._bits = planes.open(f"{name}.valid") if form["nulls"] else None
        self._values = np.empty(0, np.uint8)
        match form["form"]:
            case "number" | "named" if form["width"]:
                self._values = planes.open(f"{name}.values", f"<u{form['width']}")
            case "raw":
                self._values = planes.open(f"{name}.values", f"V{form['width']}")
            case "bytes":
                self._values = planes.open(f"{name}.values")
        if form["form"] in ("bytes", "repeated"):
            self._spans = SpanReader(planes, name, form)
        if form["form"] == "named":
            self._distinct = read_array(planes.open(f"{name}.names"))
        pairs = zip(parts_of(data_type), form.get("parts", ()), strict=True)
        self._parts = [ColumnReader(planes, f"{name}.{place}", *pair) for place, pair in enumerate(pairs)]

    def take(self, rows: Numbers) -> pa.Array:
        """The values of these rows, in that order."""
        valid = self._valid(rows)
        match self._form["form"]:
            case "nothing":
                return pa.nulls(len(rows), self._type)
            case "number":
                return from_integers(self._numbers(rows) + self._form["least"], valid, self._type)
            case "named":
                places = pa.array(self._numbers(rows), mask=None if valid is None else ~valid)
                return self._distinct.take(places)
            case "raw":
                content = pa.py_buffer(self._values[rows])
                return pa.Array.from_buffers(self._type, len(rows), [validity(valid), content])
            case "bytes":
                return self._take_bytes(rows, valid)
            case "repeated":
                return self._take_repeated(rows, valid)
            case _:
                parts = [part.take(rows) for part in self._parts]
                children = [self._type.field(place) for place in range(self._type.num_fields)]
                if not children:
                    return pa.Array.from_buffers(self._type, len(rows), [validity(valid)])
                mask = None if valid is None else pa.array(~valid)
                return pa.StructArray.from_arrays(parts, fields=children, mask=mask)

    def _valid(self, rows: Numbers) -> Flags | None:
        if self._bits is None:
            return None
        flags: Flags = (self._bits[rows // _BYTE_BITS] >> (rows % _BYTE_BITS).astype(np.uint8) & 1).astype(np.bool_)
        return flags

    def _numbers(self, rows: Numbers) -> Numbers:
        return self._values[rows].astype(np.int64) if self._form["width"] else np.zeros(len(rows), np.int64)

    def _take_bytes(self, rows: Numbers, valid: Flags | None) -> pa.Array:
        starts, lengths = self._spans.of(rows)
        if self._spans.length is not None and valid is not None:
            lengths[~valid] = 0
        large = pa.types.is_large_string(self._type) or pa.types.is_large_binary(self._type)
        offsets = self._offsets(lengths, np.int64 if large else np.int32)
        width = int(lengths.max()) if len(lengths) else 0
        if width and self._spans.length is not None:
            equal = self._values[: len(self._values) // width * width].view(f"V{width}")
            content = equal[rows if valid is None else rows[valid]]
        elif 0 < width <= _WINDOW_BYTES:
            windows = np.lib.stride_tricks.as_strided(self._values, (len(self._values) - width + 1, width), (1, 1))
            content = windows[starts][np.arange(width) < lengths[:, None]]
        else:
            content = self._values[flatten_spans(starts, lengths)]
        buffers = [validity(valid), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
        return pa.Array.from_buffers(self._type, len(rows), buffers)

    def _take_repeated(self, rows: Numbers, valid: Flags | None) -> pa.Array:
        starts, lengths = self._spans.of(rows)
        offsets = self._offsets(lengths, np.int32)
        elements = self._parts[0].take(flatten_spans(starts, lengths))
        mask = None if valid is None else pa.array(~valid)
        if pa.types.is_map(self._type):
            keys, items = elements.field(0), elements.field(1)
            return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=self._type, mask=mask)
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=self._type, mask=mask)

    def _offsets(self, lengths: Numbers, dtype: Any) -> np.ndarray:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > np.iinfo(dtype).max:
            words = f"{len(lengths):,} rows have {offsets[-1]:,} bytes or elements of {self._type}"
            raise DimensionError(
                "DIMENSION_TOO_LARGE", f"{words}, too many for one batch.", remedy="Take fewer at once."
            )
        return offsets.astype(dtype)
