"""Events as the rule stage reads them: field by field, from parsed JSON or an Arrow record batch.

The fields of events that hold some deeper than at their top: what is on the way to them is looked up once an event.

A text on the way that spells a JSON object is read once so, however many fields are asked of the event.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.rules.reference import (
    FIELD_SEPARATOR,
    FieldOf,
    Gathered,
    field_reader,
    is_presence,
    spelled_object,
    value_at,
    whole_text,
)

__all__ = [
    "PLAIN_TYPES",
    "ArrowEvents",
    "DeepFields",
    "Distinct",
    "EventRows",
    "JsonEvents",
    "Places",
    "Raw",
    "Rows",
    "Unread",
]

_MANY: Final = object()
"""In the place of a list on the way to a field: what its elements hold is gathered for each field."""

_Place = tuple[tuple[str, ...], str, Sequence[str]]
"""The keys on the way to a field, its own key, and both."""


class DeepFields:
    """Makes readers of events by one set of `paths`, each of which says what `plain.field_reader` says."""

    def __init__(self, paths: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._paths = paths
        self._places: dict[str, tuple[_Place, ...]] = {}

    def reader(self, event: Mapping[str, Any]) -> FieldOf:
        """The fields of one event, which is not to change meanwhile."""
        holders: dict[tuple[str, ...], Any] = {(): event}
        all_places = self._places

        def read(name: str) -> Any:
            places = all_places.get(name)
            if places is None:
                places = all_places[name] = self._places_of(name)
            for above, key, path in places:
                if above in holders:
                    holder = holders[above]
                else:
                    holder = holders[above] = _holder(event, above)
                if holder is None:
                    continue
                value = value_at(event, path) if holder is _MANY else holder.get(key)
                if value is not None and not (type(value) is Gathered and FIELD_SEPARATOR in name):
                    return value
            return None if places else field_reader(event, self._paths)(name)

        return read

    def _places_of(self, name: str) -> tuple[_Place, ...]:
        """Where a field is; nowhere, where it is no value of the event: its whole text, or whether it has another."""
        paths = self._paths.get(name)
        if paths is None:
            paths = () if is_presence(name) else ((name,),)
        return tuple((tuple(path[:-1]), path[-1], path) for path in paths) if all(paths) else ()


def _holder(event: Mapping[str, Any], above: Sequence[str]) -> Any:
    """The object at the end of `above`, `_MANY` for a list, None where there is neither."""
    value = value_at(event, above)
    if isinstance(value, str):
        value = spelled_object(value)
    elif isinstance(value, list):
        return _MANY
    return value if isinstance(value, Mapping) else None


Rows = np.ndarray[Any, np.dtype[np.int64]]
"""Numbers of rows, ascending."""

Raw = bytes | memoryview
"""The JSON of an event, in UTF-8."""

Paths = Mapping[str, Sequence[Sequence[str]]]

PLAIN_TYPES: Final = frozenset({str, int, type(None)})
"""Types whose equal values are the same value; True equals 1 and 1.0 equals 1, so others are distinguished by type."""


class Distinct:
    """The different values of one field; `codes` says which of them each row holds, once it is asked."""

    __slots__ = ("_codes", "_column", "keys", "repeats", "values")

    def __init__(
        self, values: list[Any], keys: list[Hashable], column: list[Any] | None = None, codes: Rows | None = None
    ) -> None:
        self.values = values
        self.keys = keys
        """One for each value, equal only for values that are the same in every way."""
        self.repeats = True
        """Whether it is worth while to remember values."""
        self._column = column
        self._codes = codes

    @classmethod
    def of(cls, column: list[Any]) -> Distinct:
        """The different ones of a column, in the order of their first rows."""
        if PLAIN_TYPES.issuperset(map(type, column)):
            values = list(dict.fromkeys(column))
            return cls(values, values, column, np.arange(len(column)) if len(values) == len(column) else None)
        keyed = [_key(value) for value in column]
        first: dict[Hashable, Any] = {}
        for key, value in zip(keyed, column, strict=True):
            first.setdefault(key, value)
        return cls(list(first.values()), list(first), keyed)

    @classmethod
    def of_each(cls, column: list[Any]) -> Distinct:
        """A column of long texts that hardly repeat: each row counts as a value of its own."""
        found = cls(column, column, codes=np.arange(len(column)))
        found.repeats = False
        return found

    @property
    def codes(self) -> Rows:
        """For each row the number of its value."""
        if self._codes is None:
            numbers = {key: number for number, key in enumerate(self.keys)}
            column = self._column or []
            self._codes = np.fromiter(map(numbers.__getitem__, column), dtype=np.int64, count=len(column))
        return self._codes


def _key(value: Any) -> Hashable:
    kind = type(value)
    return value if kind in PLAIN_TYPES else (kind, repr(value))


class Unread(NamedTuple):
    """Events of which little was read so far, by their rows, and their JSON. Each holds all fields at its top."""

    rows: Rows
    raw: Sequence[Raw]


class EventRows(Protocol):
    """Events of one batch. A field that is not there reads as None."""

    @property
    def count(self) -> int:
        """How many events."""

    def distinct(self, field: str) -> Distinct:
        """The field's values over all events."""

    def together(self, fields: Sequence[str]) -> Distinct | None:
        """The different tuples of the fields' values, where they are at hand and True is no 1; None elsewhere."""

    def raw_of(self, field: str) -> Sequence[Raw] | None:
        """The JSON of each event, where the field is the whole event's text and its JSON is known."""

    def unread(self) -> Unread | None:
        """The events that it costs something to look into; None where all of them were read."""

    def field_of(self, row: int) -> FieldOf:
        """The fields of one event."""

    def part(self, rows: Rows) -> EventRows:
        """These events alone, numbered from 0."""

    def text(self, row: int) -> str:
        """The event as JSON."""


class JsonEvents:
    """Events that were parsed from JSON; `paths` says where they hold the fields, as in a rule set.

    `raw` are the texts in UTF-8 that they were parsed from: with them, words in whole events are found sooner.
    `deep` are the rows that hold anything where some path goes deeper than to the top, where that is known, and
    `deep_reader` gives the fields of one of them.
    """

    __slots__ = ("_deep", "_deep_reader", "_events", "_places", "_raw", "_readers")

    def __init__(
        self,
        events: Sequence[Mapping[str, Any]],
        paths: Paths | Places,
        raw: Sequence[Raw] | None = None,
        deep: Rows | None = None,
        deep_reader: Callable[[int], FieldOf] | None = None,
    ) -> None:
        self._events = events
        self._places = paths if isinstance(paths, Places) else Places(paths)
        self._deep = deep
        self._readers: dict[int, FieldOf] = {}
        self._deep_reader = deep_reader
        self._raw = raw

    @property
    def count(self) -> int:
        return len(self._events)

    def raw_of(self, field: str) -> Sequence[Raw] | None:
        return self._raw if self._places.is_whole_event(field) else None

    def unread(self) -> Unread | None:
        return None

    def together(self, fields: Sequence[str]) -> Distinct | None:
        return None

    def distinct(self, field: str) -> Distinct:
        if self._places.is_whole_event(field):
            return Distinct.of_each(list(map(whole_text, self._events)))
        return Distinct.of(self._column(field))

    def _column(self, field: str) -> list[Any]:
        first, *others = self._places.keys(field) or (None,)
        if first is None:
            column: list[Any] = [None] * self.count
        else:
            column = [event.get(first) for event in self._events]
        for key in others:
            if None not in column:
                break
            column = [
                event.get(key) if value is None else value for event, value in zip(self._events, column, strict=True)
            ]
        if self._places.has_whole_event(field):
            return [self.field_of(row)(field) for row in range(self.count)]
        if self._places.is_deep(field):
            for row in self._deep_rows().tolist():
                column[row] = self._reader(row)(field)
        return column

    def _reader(self, row: int) -> FieldOf:
        if self._deep_reader is not None:
            return self._deep_reader(row)
        reader = self._readers.get(row)
        if reader is None:
            reader = self._readers[row] = self._places.deep_fields.reader(self._events[row])
        return reader

    def _deep_rows(self) -> Rows:
        """Events with a key at which some path goes deeper."""
        if self._deep is None:
            shallow = self._places.roots.isdisjoint
            self._deep = np.array([row for row, event in enumerate(self._events) if not shallow(event)], dtype=np.int64)
        return self._deep

    def field_of(self, row: int) -> FieldOf:
        event, places = self._events[row], self._places
        if not places.roots.isdisjoint(event):
            return self._reader(row)

        def read(field: str) -> Any:
            for key in places.keys(field):
                value = event.get(key)
                if value is not None:
                    return value
            if is_presence(field):
                return field_reader(event, places.paths)(field)
            return whole_text(event) if places.has_whole_event(field) else None

        return read

    def part(self, rows: Rows) -> JsonEvents:
        events, raw, numbers = self._events, self._raw, rows.tolist()
        part = JsonEvents(
            [events[row] for row in numbers], self._places, None if raw is None else [raw[row] for row in numbers]
        )
        if self._deep is not None:
            part._deep = np.flatnonzero(np.isin(rows, self._deep)) if len(self._deep) else self._deep
        return part

    def text(self, row: int) -> str:
        return _json(self._events[row])


class Places:
    """Where events hold fields, distinguished by how far down: most events hold all of theirs at the top."""

    __slots__ = ("_deep", "_keys", "deep_fields", "paths", "roots")

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.roots = frozenset(path[0] for some in paths.values() for path in some if len(path) > 1)
        """Keys of the event at which some path goes deeper."""
        self.deep_fields = DeepFields(paths)
        self._keys: dict[str, tuple[str, ...]] = {}
        self._deep: dict[str, bool] = {}

    def keys(self, field: str) -> tuple[str, ...]:
        """The keys of an event that may hold the field, without deeper ones."""
        keys = self._keys.get(field)
        if keys is None:
            keys = tuple(path[0] for path in self.paths.get(field, ((field,),)) if len(path) == 1)
            self._keys[field] = keys
        return keys

    def is_deep(self, field: str) -> bool:
        """Whether some events hold the field deeper."""
        deep = self._deep.get(field)
        if deep is None:
            deep = self._deep[field] = any(len(path) > 1 for path in self.paths.get(field, ()))
        return deep

    def is_whole_event(self, field: str) -> bool:
        """Whether the field is the text of the whole event."""
        paths = self.paths.get(field, ())
        return bool(paths) and not paths[0]

    def has_whole_event(self, field: str) -> bool:
        """Whether the field is the text of the whole event where nothing else is found."""
        return any(not path for path in self.paths.get(field, ()))


class ArrowEvents:
    """The rows of a record batch; the first key of a field's path is a column.

    Values are what Arrow makes of them in Python. Binary ones are texts: their bytes as UTF-8, where those are none as
    lone surrogates (`surrogateescape`), so that nothing of them is lost.
    """

    __slots__ = ("_batch", "_paths", "_rows")

    def __init__(self, batch: pa.RecordBatch, paths: Paths, rows: Rows | None = None) -> None:
        self._batch = batch
        self._paths = paths
        self._rows = rows

    @property
    def count(self) -> int:
        return int(self._batch.num_rows) if self._rows is None else len(self._rows)

    def distinct(self, field: str) -> Distinct:
        paths = self._paths.get(field, ((field,),))
        if len(paths) == 1 and len(paths[0]) == 1:
            column = self._arrow(paths[0][0])
            if column is None:
                return Distinct.of([None] * self.count)
            if _is_encodable(column.type):
                return _encode_distinct(column)
            return Distinct.of(_python(column))
        if () in map(tuple, paths):
            return Distinct.of([self.field_of(row)(field) for row in range(self.count)])
        keys = dict.fromkeys(path[0] for path in paths)
        columns = {key: _python(column) for key in keys if (column := self._arrow(key)) is not None}
        rows = ({key: values[row] for key, values in columns.items()} for row in range(self.count))
        return Distinct.of([field_reader(row, self._paths)(field) for row in rows])

    def raw_of(self, field: str) -> Sequence[Raw] | None:
        return None

    def unread(self) -> Unread | None:
        return None

    def together(self, fields: Sequence[str]) -> Distinct | None:
        return None

    def _arrow(self, key: str) -> pa.Array | None:
        place = self._batch.schema.get_field_index(key)
        if place < 0:
            return None
        column = self._batch.column(place)
        return column if self._rows is None else column.take(pa.array(self._rows))

    def _event(self, row: int) -> dict[str, Any]:
        place = row if self._rows is None else int(self._rows[row])
        return {
            name: _python(self._batch.column(number).slice(place, 1))[0]
            for number, name in enumerate(self._batch.schema.names)
        }

    def field_of(self, row: int) -> FieldOf:
        return field_reader(self._event(row), self._paths)

    def part(self, rows: Rows) -> ArrowEvents:
        return ArrowEvents(self._batch, self._paths, rows if self._rows is None else self._rows[rows])

    def text(self, row: int) -> str:
        return _json(self._event(row))


def _is_encodable(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer))


def _encode_distinct(column: pa.Array) -> Distinct:
    found = pc.dictionary_encode(column, null_encoding="encode")
    values = found.dictionary.to_pylist()
    return Distinct(values, values, codes=found.indices.to_numpy(zero_copy_only=False).astype(np.int64))


def _python(column: pa.Array) -> list[Any]:
    made: Callable[[Any], Any] = _texts if _holds_bytes(column.type) else _same
    return [made(value) for value in column.to_pylist()]


def _holds_bytes(kind: pa.DataType) -> bool:
    return "binary" in str(kind)


def _same(value: Any) -> Any:
    return value


def _texts(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return [_texts(one) for one in value]
    if isinstance(value, dict):
        return {key: _texts(one) for key, one in value.items()}
    return value


def _json(event: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(event).decode()
    except (TypeError, ValueError):
        return repr(event)
