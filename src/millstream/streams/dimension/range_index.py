"""A range index: sorted by start, in layers where the ends ascend as well.

There the matches of a value stand side by side. A range that lies within one of a layer goes to the next layer, and
where ranges are nested deeper than there are layers, the last one holds all others with the largest end of every
sixteen, of every 256, and so on: the blocks are walked down that hold a range which starts before the value and ends
behind it; all but one of them, at each level, hold a match.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.arrow_parts import integers_of, is_integral
from millstream.streams.dimension.index_key import Matches, Numbers
from millstream.streams.dimension.key_values import Flags, Unsigned, valid_flags
from millstream.streams.dimension.planes import PlaneReader, PlaneWriters
from millstream.streams.dimension.spans import flatten_spans

__all__ = ["RangeIndexReader", "RangeIndexWriter", "is_ordered", "ordered_values"]

MAX_LAYERS: Final = 8
"""Layers of an index of ranges; each costs one search, all beyond stands in the last one."""

_FAN_BITS: Final = 4
_FAN: Final = 1 << _FAN_BITS
_SIGN: Final = np.uint64(1 << 63)


def is_ordered(data_type: pa.DataType) -> bool:
    """Whether ranges of the type can be found: numbers up to 64 bits and times."""
    return is_integral(data_type) or pa.types.is_float32(data_type) or pa.types.is_float64(data_type)


def ordered_values(array: pa.Array) -> tuple[Unsigned, Flags]:
    """Numbers that are in the order of the values, and which values there are: NULL and NaN are in no range."""
    valid = valid_flags(array)
    if not (pa.types.is_float32(array.type) or pa.types.is_float64(array.type)):
        return integers_of(array).view(np.uint64) ^ _SIGN, valid
    numbers = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy() + 0.0
    bits = numbers.view(np.uint64)
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return ordered, valid & ~np.isnan(numbers)


class RangeIndexWriter:
    """Writes an index; the ranges come in the order of their starts."""

    def __init__(self, planes: PlaneWriters, name: str, row_width: int) -> None:
        self._planes = planes
        self._name = name
        self._row_width = row_width
        self._layers: list[_LayerWriter] = []

    def append(self, starts: Unsigned, ends: Unsigned, rows: Numbers) -> None:
        """More ranges."""
        place = 0
        while len(starts):
            if place == len(self._layers):
                self._layers.append(_LayerWriter(self._planes, f"{self._name}.{place}", self._row_width))
            layer = self._layers[place]
            place += 1
            if place == MAX_LAYERS:
                layer.append(starts, ends, rows)
                return
            fits = layer.fitting(ends)
            layer.append(starts[fits], ends[fits], rows[fits])
            starts, ends, rows = starts[~fits], ends[~fits], rows[~fits]

    def finish(self) -> dict[str, Any]:
        """What the manifest says of the index."""
        return {"row_width": self._row_width, "levels": [layer.finish() for layer in self._layers]}


class _LayerWriter:
    """Writes one layer."""

    def __init__(self, planes: PlaneWriters, name: str, row_width: int) -> None:
        self._planes = planes
        self._name = name
        self._row_width = row_width
        self._starts = planes.make(f"{name}.starts")
        self._ends = planes.make(f"{name}.ends0")
        self._rows = planes.make(f"{name}.rows")
        self._last_end = np.uint64(0)
        self._ascending = True
        self._largest: list[Unsigned] = []
        self._rest = np.empty(0, np.uint64)

    def fitting(self, ends: Unsigned) -> Flags:
        """Which of the next ranges do not end before one that is here or comes here."""
        fits: Flags = ends >= np.maximum(np.maximum.accumulate(ends), self._last_end)
        return fits

    def append(self, starts: Unsigned, ends: Unsigned, rows: Numbers) -> None:
        """More ranges."""
        if not len(starts):
            return
        self._ascending &= bool(self._last_end <= ends[0]) and bool((ends[1:] >= ends[:-1]).all())
        self._last_end = ends[-1]
        self._starts.append(starts)
        self._ends.append(ends)
        self._rows.append(rows.astype(f"<u{self._row_width}"))
        ends = np.concatenate([self._rest, ends])
        whole = len(ends) // _FAN * _FAN
        self._largest.append(ends[:whole].reshape(-1, _FAN).max(axis=1))
        self._rest = ends[whole:]

    def finish(self) -> int:
        """The levels of ends that there are, one where they ascend."""
        if self._ascending:
            return 1
        levels = 1
        level = np.concatenate([*self._largest, *([[self._rest.max()]] if len(self._rest) else [])]).astype(np.uint64)
        while True:
            self._planes.make(f"{self._name}.ends{levels}").append(level)
            levels += 1
            if len(level) <= _FAN:
                return levels
            level = np.pad(level, (0, -len(level) % _FAN)).reshape(-1, _FAN).max(axis=1)


class RangeIndexReader:
    """Finds the ranges that hold a value."""

    def __init__(self, planes: PlaneReader, name: str, said: dict[str, Any], *, end_included: bool) -> None:
        self._layers = [
            _Layer(planes, f"{name}.{place}", levels, said["row_width"], end_included=end_included)
            for place, levels in enumerate(said["levels"])
        ]

    def find(self, values: Unsigned, valid: Flags) -> Matches:
        """Every range of each valid value, ordered by the value's place, then by row."""
        rows = np.flatnonzero(valid)
        wanted = values[rows]
        # Sorted values are looked up several times as fast as others.
        order = np.argsort(wanted, kind="stable")
        rows, wanted = rows[order], wanted[order]
        found = [layer.find(wanted) for layer in self._layers]
        number = np.concatenate([np.empty(0, np.int64), *(one.probe for one in found)])
        row = np.concatenate([np.empty(0, np.int64), *(one.row for one in found)])
        probe = rows[number]
        order = np.lexsort((row, probe))
        return Matches(probe[order], row[order])


class _Layer:
    """Finds the ranges of one layer."""

    def __init__(self, planes: PlaneReader, name: str, levels: int, row_width: int, *, end_included: bool) -> None:
        self._starts = planes.open(f"{name}.starts", "<u8")
        self._ends = [planes.open(f"{name}.ends{level}", "<u8") for level in range(levels)]
        self._rows = planes.open(f"{name}.rows", f"<u{row_width}")
        self._end_included = end_included

    def find(self, wanted: Unsigned) -> Matches:
        """Pairs of a value's place and a row; the values ascend."""
        after = np.searchsorted(self._starts, wanted, "right").astype(np.int64)
        if len(self._ends) > 1:
            number, place = self._walk(wanted, after)
        else:
            # A range that does not hold its end is behind the value only where it ends above it.
            if self._end_included:
                first = np.searchsorted(self._ends[0], wanted, "left").astype(np.int64)
            else:
                first = np.searchsorted(self._ends[0], wanted, "right").astype(np.int64)
            counts = np.maximum(after - first, 0)
            number, place = np.repeat(np.arange(len(wanted)), counts), flatten_spans(first, counts)
        return Matches(number, self._rows[place].astype(np.int64))

    def _walk(self, wanted: Unsigned, after: Numbers) -> tuple[Numbers, Numbers]:
        top = len(self._ends) - 1
        count = len(self._ends[top])
        number, block = np.repeat(np.arange(len(wanted)), count), np.tile(np.arange(count), len(wanted))
        reaches = np.greater_equal if self._end_included else np.greater
        for level in range(top, -1, -1):
            kept = (block << _FAN_BITS * level) < after[number]
            number, block = number[kept], block[kept]
            kept = reaches(self._ends[level][block], wanted[number])
            number, block = number[kept], block[kept]
            if level:
                number = np.repeat(number, _FAN)
                block = (block[:, None] * _FAN + np.arange(_FAN)).ravel()
                inside = block < len(self._ends[level - 1])
                number, block = number[inside], block[inside]
        return number, block
