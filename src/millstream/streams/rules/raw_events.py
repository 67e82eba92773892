"""Events of which only a few fields are read from their JSON until more is asked for: most of them fit no rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import msgspec
import numpy as np
import orjson

from millstream.streams.rules.event_rows import Distinct, JsonEvents, Places, Raw, Rows, Unread
from millstream.streams.rules.plain import FieldOf

__all__ = ["Event", "EventReader", "RawEvents", "Refused"]

Event = dict[str, Any]

_Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Scalar = str | _Integer | float | bool | None
"""What both JSON readers make the same of."""

_LONGEST_INTEGER: Final = 18
"""Digits of a whole number that is read as one where orjson refuses an event."""

_MAX_REASON_CHARACTERS: Final = 200
_SKIPPER: Final = msgspec.json.Decoder(msgspec.Raw)
_WORDS: Final = {list: "an array", str: "a text", int: "a number", float: "a number", bool: "a truth value"}


class Refused(NamedTuple):
    """A body that is no JSON object: its place among the bodies, and why."""

    place: int
    reason: str


class EventReader:
    """Reads bodies as events: `fields` and `keys` of the event at once, the others where they are asked for.

    `places` says where fields are. An event that holds anything deeper than at its top where fields may be is read
    whole at once.
    """

    def __init__(self, places: Places, fields: Iterable[str], keys: Iterable[str] = ()) -> None:
        self.places = places
        self._given = (tuple(fields), frozenset(keys))
        self.fields = frozenset(field for field in self._given[0] if not places.has_whole_event(field))
        read = {key for field in self.fields for key in places.keys(field)} | self._given[1]
        kinds: dict[str, Any] = dict.fromkeys(read, _Scalar) | dict.fromkeys(places.roots)
        self._decode = msgspec.json.Decoder(TypedDict("Head", kinds, total=False)).decode  # type: ignore[operator]

    def reads(self, fields: tuple[str, ...], keys: frozenset[str]) -> bool:
        """Whether it was made for these."""
        return self._given == (fields, keys)

    def read(self, bodies: Sequence[Raw]) -> tuple[RawEvents, list[Refused]]:
        """The events of the bodies that are JSON objects, in their order, and the others."""
        heads: list[Event] = []
        whole: list[Event | None] = []
        raw: list[Raw] = []
        refused: list[Refused] = []
        deep: set[int] = set()
        decode = self._decode
        for place, body in enumerate(bodies):
            event: Event | None = None
            try:
                if type(body) is not bytes or not body.isascii():
                    str(body, "utf-8")
                head = decode(body)
            except (ValueError, RecursionError):
                found = _whole_or_reason(body)
                if isinstance(found, str):
                    refused.append(Refused(place, found))
                    continue
                head = event = found
                deep.add(len(heads))
            heads.append(head)
            whole.append(event)
            raw.append(body)
        return RawEvents(_Read(self.places, self.fields, heads, whole, raw, deep), range(len(raw))), refused


class _Read(NamedTuple):
    """What was read of a reader's events so far."""

    places: Places
    fields: frozenset[str]
    heads: list[Event]
    whole: list[Event | None]
    raw: list[Raw]
    deep: set[int]
    """Those that may hold fields deeper than at their top."""

    def event(self, row: int) -> Event:
        event = self.whole[row]
        if event is None:
            event = self.whole[row] = _read(self.raw[row])
        return event


class RawEvents:
    """The events of an `EventReader`, whole where they are taken by number. Parts share what they have read."""

    __slots__ = ("_all", "_read", "_rows")

    def __init__(self, read: _Read, rows: Sequence[int]) -> None:
        self._read = read
        self._rows = rows
        self._all: JsonEvents | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> Event:
        return self._read.event(self._rows[place])

    def __iter__(self) -> Iterator[Event]:
        return map(self._read.event, self._rows)

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def heads(self) -> list[Event]:
        """Of each event at least the values of the reader's fields."""
        heads = self._read.heads
        return [heads[row] for row in self._rows]

    @property
    def raw(self) -> list[Raw]:
        """The JSON of each event."""
        raw = self._read.raw
        return [raw[row] for row in self._rows]

    def unread(self) -> Unread:
        whole, raw = self._read.whole, self._read.raw
        places = [place for place, row in enumerate(self._rows) if whole[row] is None]
        return Unread(np.array(places, dtype=np.int64), [raw[self._rows[place]] for place in places])

    def raw_of(self, field: str) -> Sequence[Raw] | None:
        return self.raw if self._read.places.is_whole_event(field) else None

    def distinct(self, field: str) -> Distinct:
        if field in self._read.fields:
            return self._json(self.heads).distinct(field)
        if self._all is None:
            self._all = self._json([self._read.event(row) for row in self._rows])
        return self._all.distinct(field)

    def field_of(self, row: int) -> FieldOf:
        return JsonEvents([self[row]], self._read.places).field_of(0)

    def part(self, rows: Rows) -> RawEvents:
        numbers = self._rows
        return RawEvents(self._read, [numbers[place] for place in rows.tolist()])

    def text(self, row: int) -> str:
        return JsonEvents([self[row]], self._read.places).text(0)

    def _json(self, events: list[Event]) -> JsonEvents:
        deep = self._read.deep
        numbers = [place for place, row in enumerate(self._rows) if row in deep] if deep else []
        return JsonEvents(events, self._read.places, deep=np.array(numbers, dtype=np.int64))


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
