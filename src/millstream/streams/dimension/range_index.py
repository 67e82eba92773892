"""An index of ranges: sorted by their starts, with the largest end of every sixteen, of every 256, and so on.

Where the ends ascend as the starts do, which they do unless a range lies within another one, the matches of a value
stand side by side. Otherwise the blocks are walked down that hold a range which starts before the value and ends
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
from millstream.streams.dimension.spans import flat_places

__all__ = ["RangeIndexReader", "RangeIndexWriter", "is_ordered", "ordered_values"]

_FAN: Final = 16
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
        self._starts = planes.make(f"{name}.starts")
        self._ends = planes.make(f"{name}.ends0")
        self._rows = planes.make(f"{name}.rows") if row_width else None
        self._entries = 0
        self._last_end = 0
        self._ascending = True
        self._largest: list[Unsigned] = []
        self._rest = np.empty(0, np.uint64)

    def append(self, starts: Unsigned, ends: Unsigned, rows: Numbers) -> None:
        """More ranges."""
        if not len(starts):
            return
        self._ascending &= self._last_end <= int(ends[0]) and bool((ends[1:] >= ends[:-1]).all())
        self._last_end = int(ends[-1])
        self._entries += len(starts)
        self._starts.append(starts)
        self._ends.append(ends)
        if self._rows is not None:
            self._rows.append(rows.astype(f"<u{self._row_width}"))
        ends = np.concatenate([self._rest, ends])
        whole = len(ends) // _FAN * _FAN
        self._largest.append(ends[:whole].reshape(-1, _FAN).max(axis=1))
        self._rest = ends[whole:]

    def finish(self) -> dict[str, Any]:
        """What the manifest says of the index."""
        levels = 1
        if not self._ascending:
            level = np.concatenate([*self._largest, *([[self._rest.max()]] if len(self._rest) else [])])
            level = level.astype(np.uint64)
            while True:
                self._planes.make(f"{self._name}.ends{levels}").append(level)
                levels += 1
                if len(level) <= _FAN:
                    break
                level = np.pad(level, (0, -len(level) % _FAN)).reshape(-1, _FAN).max(axis=1)
        return {"row_width": self._row_width, "entries": self._entries, "levels": levels}


class RangeIndexReader:
    """Finds the ranges that hold a value."""

    def __init__(self, planes: PlaneReader, name: str, said: dict[str, Any], *, end_included: bool) -> None:
        self._starts = planes.open(f"{name}.starts", "<u8")
        self._ends = [planes.open(f"{name}.ends{level}", "<u8") for level in range(said["levels"])]
        width = said["row_width"]
        self._rows = planes.open(f"{name}.rows", f"<u{width}") if width else None
        self._end_included = end_included

    def find(self, values: Unsigned, valid: Flags) -> Matches:
        """Every range of each valid value, ordered by the value's place, then by row."""
        asked = np.flatnonzero(valid)
        if not len(self._starts) or not len(asked):
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
        wanted = values[asked]
        # Sorted values are looked up several times as fast as others.
        order = np.argsort(wanted, kind="stable")
        asked, wanted = asked[order], wanted[order]
        after = np.searchsorted(self._starts, wanted, "right").astype(np.int64)
        if len(self._ends) == 1:
            ends = self._ends[0]
            # Ends at the value itself lie before the first match where a range does not hold its end.
            if self._end_included:
                first = np.searchsorted(ends, wanted, "left").astype(np.int64)
            else:
                first = np.searchsorted(ends, wanted, "right").astype(np.int64)
            counts = np.maximum(after - first, 0)
            probe, place = np.repeat(asked, counts), flat_places(first, counts)
        else:
            probe, place = self._walked(asked, wanted, after)
        row = place if self._rows is None else self._rows[place].astype(np.int64)
        order = np.lexsort((row, probe))
        return Matches(probe[order], row[order])

    def _walked(self, asked: Numbers, wanted: Unsigned, after: Numbers) -> tuple[Numbers, Numbers]:
        top = len(self._ends) - 1
        count = len(self._ends[top])
        number, block = np.repeat(np.arange(len(asked)), count), np.tile(np.arange(count), len(asked))
        for level in range(top, -1, -1):
            reaches = np.greater_equal if self._end_included else np.greater
            kept = (block << 4 * level) < after[number]
            number, block = number[kept], block[kept]
            kept = reaches(self._ends[level][block], wanted[number])
            number, block = number[kept], block[kept]
            if level:
                number = np.repeat(number, _FAN)
                block = (block[:, None] * _FAN + np.arange(_FAN)).ravel()
                inside = block < len(self._ends[level - 1])
                number, block = number[inside], block[inside]
        return asked[number], block
