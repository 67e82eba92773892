"""Events whose JSON is parsed partially until more fields are needed, because most match no rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import orjson

from millstream.streams.rules.event_rows import PLAIN_TYPES, Distinct, JsonEvents, Places, Raw, Rows, Unread
from millstream.streams.rules.reference import FieldOf, value_at

__all__ = ["Event", "EventReader", "RawEvents", "RefusedEvent"]

Event = dict[str, Any]

_Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Plain = str | _Integer | None
"""What both JSON readers make the same of, and what equals nothing of another type."""

_Scalar = _Plain | float | bool
"""What both JSON readers make the same of."""

_UNNAMED: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters of keys that msgspec finds in no event."""

_LONGEST_INTEGER: Final = 18
"""Digits of a whole number that is read as one where orjson refuses an event."""

_READ_TOGETHER: Final = 64
"""Bodies that are read by one call where they are simple; one that is not has so many others looked at one by one."""

_MAX_REASON_CHARACTERS: Final = 200
_SKIPPER: Final = msgspec.json.Decoder(msgspec.Raw)
_WORDS: Final = {list: "an array", str: "a text", int: "a number", float: "a number", bool: "a truth value"}


class RefusedEvent(NamedTuple):
    """A body that is no JSON object: its place among the bodies, and why."""

    place: int
    reason: str


class EventReader:
    """Reads bodies as events: `fields` and `keys` of the event at once, the others where they are asked for.

    `places` says where fields are. An event that holds anything deeper than at its top where fields may be is read
    whole at once, and so is one with a number that is not whole, or a truth value, in what is read at once.
    """

    def __init__(self, places: Places, fields: Iterable[str], keys: Iterable[str] = ()) -> None:
        self.places = places
        self._given = (tuple(fields), frozenset(keys))
        self.fields = frozenset(field for field in self._given[0] if not places.has_whole_event(field))
        plain = {key for field in self.fields for key in places.keys(field)}
        self._head = _Head(plain, self._given[1] - plain, places.roots)

    def reads(self, fields: tuple[str, ...], keys: frozenset[str]) -> bool:
        """Whether it was made for these."""
        return self._given == (fields, keys)

    def read(self, bodies: Sequence[Raw], *, are_texts: bool = False) -> tuple[RawEvents, list[RefusedEvent]]:
        """The events of the bodies that are JSON objects, in their order, and the others.

        With `are_texts` all of them are known to be UTF-8.
        """
        heads: list[msgspec.Struct] = []
        whole: dict[int, Event] = {}
        raw: list[Raw] = []
        refused: list[RefusedEvent] = []
        for start in range(0, len(bodies), _READ_TOGETHER):
            several = bodies[start : start + _READ_TOGETHER]
            found = self._simple(several, are_texts=are_texts)
            if found is not None:
                heads += found
                raw += several
                continue
            for place, body in enumerate(several, start):
                event = self._event(body)
                if isinstance(event, str):
                    refused.append(RefusedEvent(place, event))
                    continue
                if isinstance(event, dict):
                    whole[len(heads)] = event
                    event = self._head.of(event)
                heads.append(event)
                raw.append(body)
        deep = np.fromiter(whole, np.int64, len(whole))
        is_whole = np.zeros(len(raw), np.bool_)
        is_whole[deep] = True
        read = _Read(self.places, self.fields, self._head, heads, whole, raw, is_whole, deep, {})
        return RawEvents(read, np.arange(len(raw))), refused

    def _simple(self, bodies: Sequence[Raw], *, are_texts: bool) -> list[msgspec.Struct] | None:
        """The heads of bodies of which none needs a second look; None where one does."""
        try:
            if not are_texts:
                for body in bodies:
                    if type(body) is not bytes or not body.isascii():
                        str(body, "utf-8")
            return list(map(self._head.decode, bodies))
        except (ValueError, RecursionError):
            return None

    def _event(self, body: Raw) -> msgspec.Struct | Event | str:
        """The head of an event, the event where it must be read whole, or why there is none."""
        try:
            if type(body) is not bytes or not body.isascii():
                str(body, "utf-8")
            return self._head.decode(body)
        except (ValueError, RecursionError):
            return _whole_or_reason(body)


class _Head:
    """What is read of each event at once: values of keys that are plain or scalar; of `roots`, that they are not there.

    `decode` makes one of an event's JSON. Raises ValueError where the event must be read whole.
    """

    def __init__(self, plain: Iterable[str], scalar: Iterable[str], roots: Iterable[str]) -> None:
        kinds: dict[str, Any] = {
            **dict.fromkeys(sorted(scalar), _Scalar),
            **dict.fromkeys(sorted(plain), _Plain),
            **dict.fromkeys(sorted(roots)),
        }
        self._names = {key: f"value_{number}" for number, key in enumerate(kinds)}
        fields = [(name, kinds[key], None) for key, name in self._names.items()]
        is_named = not any(map(_UNNAMED.search, kinds))
        rename = {name: key for key, name in self._names.items()} if is_named else None
        self._type = msgspec.defstruct("Head", fields, rename=rename, gc=False)
        self.decode: Callable[[Raw], msgspec.Struct] = (
            msgspec.json.Decoder(self._type).decode if is_named else _read_whole
        )

    def of(self, event: Event) -> msgspec.Struct:
        """The head of an event that was read whole: with values of all types."""
        return self._type(*map(event.get, self._names))

    def has(self, key: str) -> bool:
        """Whether the values of a key are read."""
        return key in self._names

    def column(self, heads: Iterable[msgspec.Struct], key: str) -> list[Any]:
        """The values of a key."""
        return list(map(attrgetter(self._names[key]), heads))

    def rows(self, heads: Iterable[msgspec.Struct], keys: Sequence[str]) -> list[tuple[Any, ...]]:
        """The values of all the keys, head by head."""
        if len(keys) > 1:
            return list(map(attrgetter(*(self._names[key] for key in keys)), heads))
        return list(zip(self.column(heads, keys[0]))) if keys else [() for _ in heads]


def _read_whole(_body: Raw) -> msgspec.Struct:
    raise ValueError("a key that cannot be found")


class _Read(NamedTuple):
    """What was read of a reader's events so far."""

    places: Places
    fields: frozenset[str]
    head: _Head
    heads: list[msgspec.Struct]
    whole: dict[int, Event]
    raw: list[Raw]
    is_whole: np.ndarray[Any, np.dtype[np.bool_]]
    deep: Rows
    """Those that were read whole at once: they may hold fields deeper than at their top."""
    readers: dict[int, FieldOf]
    """Of those among them whose fields were asked for."""

    def event(self, row: int) -> Event:
        event = self.whole.get(row)
        if event is None:
            event = self.whole[row] = _read(self.raw[row])
            self.is_whole[row] = True
        return event

    def deep_reader(self, row: int) -> FieldOf:
        reader = self.readers.get(row)
        if reader is None:
            reader = self.readers[row] = self.places.deep_fields.reader(self.event(row))
        return reader


class RawEvents:
    """The events of an `EventReader`, whole where they are taken by number. Parts share what they have read."""

    __slots__ = ("_all", "_read", "_rows")

    def __init__(self, read: _Read, rows: Rows) -> None:
        self._read = read
        self._rows = rows
        self._all: JsonEvents | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> Event:
        return self._read.event(int(self._rows[place]))

    def __iter__(self) -> Iterator[Event]:
        return map(self._read.event, self._rows.tolist())

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def raw(self) -> list[Raw]:
        """The JSON of each event."""
        return list(map(self._read.raw.__getitem__, self._rows.tolist()))

    def unread(self) -> Unread:
        places = np.flatnonzero(~self._read.is_whole[self._rows])
        return Unread(places, list(map(self._read.raw.__getitem__, self._rows[places].tolist())))

    def raw_of(self, field: str) -> Sequence[Raw] | None:
        return self.raw if self._read.places.is_whole_event(field) else None

    def distinct(self, field: str) -> Distinct:
        if field in self._read.fields:
            return Distinct.of(self._of_heads(field))
        if self._all is None:
            self._all = JsonEvents(list(self), self._read.places, deep=self._deep(), deep_reader=self._deep_reader())
        return self._all.distinct(field)

    def together(self, fields: Sequence[str]) -> Distinct | None:
        read = self._read
        keys = [read.places.keys(field) for field in fields]
        if not read.fields.issuperset(fields) or not all(keys):
            return None
        found = read.head.rows(self._heads(), [key for some in keys for key in some])
        for place in self._deep().tolist():
            field_of = read.deep_reader(int(self._rows[place]))
            values = [field_of(field) for field in fields]
            if not PLAIN_TYPES.issuperset(map(type, values)):
                return None
            # As if each field's first key held its value.
            held = ((value, *(None,) * (len(some) - 1)) for value, some in zip(values, keys, strict=True))
            found[place] = tuple(chain.from_iterable(held))
        rows: list[Hashable] = list(dict.fromkeys(found))
        return Distinct([_first_of_each(row, keys) for row in dict.fromkeys(found)], rows, found)

    def at(self, path: Sequence[str]) -> list[Any]:
        """What each event holds at a path; see `value_at`."""
        if not path or not self._read.head.has(path[0]):
            return [value_at(event, path) for event in self]
        values = self._read.head.column(self._heads(), path[0])
        return values if len(path) == 1 else [value_at({path[0]: value}, path) for value in values]

    def _deep_reader(self, first: int = 0) -> Callable[[int], FieldOf]:
        """The fields of an event by its place behind `first`. Holds what was read, not these events: no cycle."""
        read, rows = self._read, self._rows
        return lambda place: read.deep_reader(int(rows[first + place]))

    def _heads(self) -> list[msgspec.Struct]:
        heads = self._read.heads
        return heads if len(self._rows) == len(heads) else list(map(heads.__getitem__, self._rows.tolist()))

    def _deep(self) -> Rows:
        """The places of the events that may hold fields deeper than at their top."""
        deep = self._read.deep
        return np.flatnonzero(np.isin(self._rows, deep)) if len(deep) else deep

    def _of_heads(self, field: str) -> list[Any]:
        """The values of a field that is read at once."""
        places, heads = self._read.places, self._heads()
        column: list[Any] = [None] * len(heads)
        for key in places.keys(field):
            values = self._read.head.column(heads, key)
            column = [value if held is None else held for held, value in zip(column, values, strict=True)]
            if None not in column:
                break
        if places.is_deep(field):
            for place in self._deep().tolist():
                column[place] = self._read.deep_reader(int(self._rows[place]))(field)
        return column

    def field_of(self, row: int) -> FieldOf:
        return JsonEvents([self[row]], self._read.places, deep_reader=self._deep_reader(row)).field_of(0)

    def part(self, rows: Rows) -> RawEvents:
        return RawEvents(self._read, self._rows[rows])

    def text(self, row: int) -> str:
        return JsonEvents([self[row]], self._read.places).text(0)


def _first_of_each(row: tuple[Any, ...], keys: Sequence[Sequence[str]]) -> tuple[Any, ...]:
    """For each field the first value that is there, of a row of the values of all their keys."""
    values = iter(row)
    return tuple(next((one for one in list(islice(values, len(some))) if one is not None), None) for some in keys)


def _whole_or_reason(body: Raw) -> Event | str:
    """The event of a body that its head could not be read of; a text says why there is none."""
    try:
        event = orjson.loads(body)
    except ValueError as refusal:
        if not _is_json(body):
            return str(refusal)[:_MAX_REASON_CHARACTERS]
        event = _read(body)
    if isinstance(event, dict):
        return event
    return f"an event is a JSON object, not {_WORDS.get(type(event), 'null')}"


def _is_json(body: Raw) -> bool:
    try:
        str(body, "utf-8")
        _SKIPPER.decode(body)
    except (ValueError, RecursionError):
        return False
    return True


def _read(body: Raw) -> Event:
    """The event of a body whose head was read. A number too large for a float is infinite."""
    try:
        event: Event = orjson.loads(body)
    except ValueError:
        event = json.loads(bytes(body), parse_int=_integer)
    return event


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
