"""Statistics of a column's values, by which its storage form is chosen."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.arrow_parts import (
    elements_of,
    integers_of,
    is_bytes,
    is_integral,
    is_repeated,
    parts_of,
)
from millstream.streams.dimension.index_key import Numbers
from millstream.streams.dimension.key_values import valid_flags
from millstream.streams.dimension.planes import unsigned_width

__all__ = ["ColumnFacts"]

MAX_DISTINCT: Final = 65_536
"""Different texts of a column up to which they are stored once each and named by numbers."""

MAX_DISTINCT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the different texts of a column up to which they are stored once each."""

_DOUBTFUL: Final = 4_096
"""Different texts beyond which a column is given up whose values hardly repeat."""


class ColumnFacts:
    """Counts of one column; `children` are those of a nested type's parts."""

    def __init__(self, data_type: pa.DataType) -> None:
        self._type = data_type
        self._has_null = False
        self._least: int | None = None
        self._most: int | None = None
        self._values = 0
        self._bytes = 0
        self._distinct: set[Any] | None = set() if is_bytes(data_type) else None
        self._distinct_bytes = 0
        self._children = [ColumnFacts(part) for part in parts_of(data_type)]

    def add(self, array: pa.Array) -> None:
        """More values."""
        self._has_null |= bool(array.null_count)
        self._values += len(array)
        if not len(array):
            return
        if is_bytes(self._type):
            lengths = pc.binary_length(array.drop_null()).to_numpy()
            self._note(lengths)
            self._bytes += int(lengths.sum())
            self._note_distinct(array)
        elif is_repeated(self._type):
            lengths, elements = elements_of(array)
            self._note(lengths)
            self._children[0].add(elements)
        elif pa.types.is_struct(self._type):
            for place, child in enumerate(self._children):
                child.add(pc.struct_field(array, [place]))
        elif is_integral(self._type):
            numbers = integers_of(array)
            self._note(numbers[valid_flags(array)] if array.null_count else numbers)

    def _note(self, numbers: Numbers) -> None:
        if len(numbers):
            least, most = int(numbers.min()), int(numbers.max())
            self._least = least if self._least is None else min(self._least, least)
            self._most = most if self._most is None else max(self._most, most)

    def _note_distinct(self, array: pa.Array) -> None:
        if self._distinct is None:
            return
        before = len(self._distinct)
        fresh = [one for one in pc.unique(array).to_pylist() if one is not None and one not in self._distinct]
        self._distinct.update(fresh)
        self._distinct_bytes += sum(map(len, fresh))
        too_many = len(self._distinct) > MAX_DISTINCT or self._distinct_bytes > MAX_DISTINCT_BYTES
        if too_many or (before > _DOUBTFUL and before > self._values // 2):
            self._distinct = None

    def form(self) -> dict[str, Any]:
        """How the column is to be stored, as the manifest says it."""
        return {**self._form_of_values(), "nulls": self._has_null}

    def _form_of_values(self) -> dict[str, Any]:
        least, most = self._least or 0, self._most or 0
        if pa.types.is_null(self._type):
            return {"form": "nothing"}
        if is_integral(self._type):
            return {"form": "number", "least": least, "width": unsigned_width(most - least)}
        if is_bytes(self._type):
            if self._pays_to_name():
                assert self._distinct is not None
                return {"form": "named", "width": unsigned_width(max(0, len(self._distinct) - 1))}
            return {"form": "bytes", **self._spans()}
        if is_repeated(self._type):
            return {"form": "repeated", **self._spans(), "parts": [self._children[0].form()]}
        if pa.types.is_struct(self._type):
            return {"form": "struct", "parts": [child.form() for child in self._children]}
        return {"form": "raw", "width": self._type.bit_width // 8}

    def _spans(self) -> dict[str, Any]:
        """Where all have one length, it is not written down; NULL is stored as if it had it."""
        least, most = self._least or 0, self._most or 0
        return {"length": most if least == most else None, "width": unsigned_width(most)}

    def _pays_to_name(self) -> bool:
        if self._distinct is None:
            return False
        named = self._distinct_bytes + 8 * len(self._distinct)
        named += self._values * unsigned_width(max(0, len(self._distinct) - 1))
        return named < self._bytes

    @property
    def distinct(self) -> pa.Array:
        """The different texts of a column whose form is "named"."""
        assert self._distinct is not None
        return pa.array(sorted(self._distinct), self._type)

    @property
    def children(self) -> list[ColumnFacts]:
        """Those of the parts of a nested type."""
        return self._children
