"""Start positions of variable-length values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from millstream.streams.dimension.index_key import Numbers
from millstream.streams.dimension.planes import PlaneReader, PlaneWriters

__all__ = ["SpanReader", "SpanWriter", "flatten_spans"]

_BLOCK: Final = 16
"""Values of which only the first one's start is written down; the others are counted from there."""


class SpanWriter:
    """Lengths of one byte or more each, and the start of every sixteenth value; nothing where all are equally long."""

    def __init__(self, planes: PlaneWriters, name: str, form: dict[str, Any]) -> None:
        self._length = form["length"]
        if self._length is None:
            self._dtype = f"<u{form['width']}"
            self._lengths = planes.make(f"{name}.lengths")
            self._starts = planes.make(f"{name}.starts")
            self._rest = np.empty(0, np.int64)
            self._end = 0

    def append(self, lengths: Numbers) -> None:
        """More values."""
        if self._length is None:
            lengths = np.concatenate([self._rest, lengths])
            whole = len(lengths) // _BLOCK * _BLOCK
            self._write(lengths[:whole])
            self._rest = lengths[whole:]

    def _write(self, lengths: Numbers) -> None:
        sums = lengths.reshape(-1, _BLOCK).sum(axis=1)
        self._starts.append(self._end + np.cumsum(sums) - sums)
        self._end += int(sums.sum())
        self._lengths.append(lengths.astype(self._dtype))

    def finish(self) -> None:
        """No more values come."""
        if self._length is None and len(self._rest):
            self._write(np.pad(self._rest, (0, _BLOCK - len(self._rest))))


class SpanReader:
    """Starts and lengths of chosen values."""

    def __init__(self, planes: PlaneReader, name: str, form: dict[str, Any]) -> None:
        self._length: int | None = form["length"]
        if self._length is None:
            self._lengths = planes.open(f"{name}.lengths", f"<u{form['width']}").reshape(-1, _BLOCK)
            self._starts = planes.open(f"{name}.starts", "<i8")

    @property
    def length(self) -> int | None:
        """The length that all values have."""
        return self._length

    def of(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Where these values start, and how long they are."""
        if self._length is not None:
            return rows * self._length, np.full(len(rows), self._length, np.int64)
        block, place = rows // _BLOCK, rows % _BLOCK
        lengths = self._lengths[block]
        before = np.where(np.arange(_BLOCK) < place[:, None], lengths, 0).sum(axis=1, dtype=np.int64)
        return self._starts[block] + before, lengths[np.arange(len(rows)), place].astype(np.int64)


def flatten_spans(starts: Numbers, lengths: Numbers) -> Numbers:
    """The places of all elements of the spans, one span after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Numbers = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return places
