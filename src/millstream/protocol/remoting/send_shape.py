"""Sends that are like an earlier one of their connection; see `request_shape.py`.

A producer's sends differ in their number, queue, time and the values of their properties. What fits a shape becomes the
record that is to be stored, without a command between.
"""

from __future__ import annotations

import re
from typing import Any, Final

from millstream.model.message import Address
from millstream.model.properties import KEYS, TAGS, UNIQUE_KEY
from millstream.protocol.record_encoder import PlainRecord
from millstream.protocol.remoting.command import RemotingCommand, decode_json
from millstream.protocol.remoting.request_shape import (
    OPAQUE_DIGITS,
    RequestShape,
    digits_end,
    find_holes,
    number_of,
    split,
)

__all__ = ["SendShape", "SentRecord", "learn_send"]

_OPAQUE_DIGITS: Final = OPAQUE_DIGITS
_QUEUE_DIGITS: Final = 9
_TIME_DIGITS: Final = 18
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_FIRST_PRINTABLE: Final = 0x20
_LAST_PRINTABLE: Final = 0x7E

# What stands in a hole between two pieces of a shape.
_IS_OPAQUE: Final = 0
_IS_QUEUE: Final = 1
_IS_TIME: Final = 2
_IS_VALUE: Final = 3
_IS_ID: Final = 4
_IS_TAG: Final = 5
_IS_KEYS: Final = 6
_KINDS: Final = {UNIQUE_KEY: _IS_ID, TAGS: _IS_TAG, KEYS: _IS_KEYS}

_PLACES: Final = (
    (re.compile(rb'"opaque":(\d+)'), _IS_OPAQUE),
    (re.compile(rb'"e":"((?:[^"\\]|\\.)*)"'), _IS_QUEUE),
    (re.compile(rb'"g":"((?:[^"\\]|\\.)*)"'), _IS_TIME),
)
_PROPERTIES: Final = re.compile(rb'"i":"((?:[^"\\]|\\.)*)"')
_PROPERTY: Final = re.compile(rb"([ -\[\]-~]*)\\u0001([ -\[\]-~]*)\\u0002")
"""A name and a value, of printable characters but for the backslash."""

_PROBES: Final = {
    _IS_OPAQUE: (b"4711", b"815"),
    _IS_QUEUE: (b"7", b"8"),
    _IS_TIME: (b"1700000000001", b"1700000000002"),
}
"""Two values of each, of which one is not that of the header from which a shape is learned."""
_VALUES: Final = (b"A b", b"0B")
_PROBES_OF_ALL: Final = {**_PROBES, **dict.fromkeys((_IS_VALUE, _IS_ID, _IS_TAG, _IS_KEYS), _VALUES)}

_NOBODY: Final = Address("0.0.0.0", 0)


class SentRecord(PlainRecord):
    """A message that a send with the number `opaque` brought."""

    __slots__ = ("opaque",)

    def __init__(
        self,
        opaque: int,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        stored_properties: bytes,
        system_flag: int,
        born_timestamp_ms: int,
        born_host: Address,
    ) -> None:
        PlainRecord.__init__(
            self, topic, queue_id, body, properties, stored_properties, system_flag, born_timestamp_ms, born_host
        )
        self.opaque = opaque


class SendShape(RequestShape):
    """The bytes that sends have in common, and what is between them. `pieces` stand around the holes, whose `kinds` say
    what they hold; `names` are those of the properties."""

    __slots__ = ("_stored", "names", "topic")

    def __init__(self, pieces: list[bytes], kinds: list[int], names: tuple[str, ...], command: RemotingCommand) -> None:
        RequestShape.__init__(self, pieces, kinds, command)
        self.names = names
        # What stands around the values of stored properties.
        starts = [f"{name}\x01".encode() for name in names]
        self._stored = [start if not number else b"\x02" + start for number, start in enumerate(starts)]
        self.topic = command.ext.get("b", "")

    def read(  # noqa: C901 - a case for each kind of hole
        self, data: bytes, start: int, body_start: int, end: int
    ) -> SentRecord | None:
        """The message of the send whose header stands in `data` from `start` to `body_start`, and its body up to `end`;
        None where it does not fit the shape.

        Its system flag and its born host are for the caller to say.
        """
        pieces, kinds, stored = self._pieces, self._kinds, self._stored
        record = SentRecord.__new__(SentRecord)
        record.message_id, record.tag, record.light_queues, record._held = "", None, (), None
        parts: list[bytes] = []
        at, values = start, 0
        for number in range(len(kinds)):
            piece, kind = pieces[number], kinds[number]
            if not data.startswith(piece, at, body_start):
                return None
            at += len(piece)
            begin = at
            if kind < _IS_VALUE:
                most = _OPAQUE_DIGITS if kind == _IS_OPAQUE else _QUEUE_DIGITS if kind == _IS_QUEUE else _TIME_DIGITS
                at = digits_end(data, begin, body_start, most)
                if at < 0:
                    return None
                value = number_of(data, begin, at)
                if kind == _IS_OPAQUE:
                    record.opaque = value
                elif kind == _IS_QUEUE:
                    record.queue_id = value
                else:
                    record.born_timestamp_ms = value
                continue
            at = _value_end(data, begin, body_start)
            if at < 0:
                return None
            text = data[begin:at]
            if kind == _IS_ID:
                record.message_id = text.decode("ascii")
            elif kind != _IS_VALUE:
                if not text.strip() or (kind == _IS_TAG and b"|" in text):
                    return None
                if kind == _IS_TAG:
                    record.tag = text.decode("ascii")
            parts.append(stored[values])
            parts.append(text)
            values += 1
        last = pieces[len(kinds)]
        if at + len(last) != body_start or not data.startswith(last, at, body_start):
            return None
        if values:
            parts.append(b"\x02")
        record.topic = self.topic
        record.body = data[body_start:end]
        record.stored_properties = b"".join(parts)
        record.system_flag = 0
        record.born_host = _NOBODY
        return record

    def command(self, request: Any) -> RemotingCommand:
        """As `RequestShape.command`."""
        ext = self.fields.copy()
        ext["e"], ext["g"] = str(request.queue_id), str(request.born_timestamp_ms)
        if "i" in ext:
            ext["i"] = request.stored_properties.decode("ascii")
        return self.make_command(ext, request.body, request.opaque)


def _value_end(data: bytes, at: int, end: int) -> int:
    """Where the value that begins there is followed by a backslash; -1 where it is not printable ASCII up to there."""
    while at < end:
        byte = data[at]
        if byte == _BACKSLASH:
            return at
        if byte == _QUOTE or byte < _FIRST_PRINTABLE or byte > _LAST_PRINTABLE:
            return -1
        at += 1
    return -1


def learn_send(header: bytes, command: RemotingCommand) -> SendShape | None:
    """The shape of the header that was read as `command`; None where it has none that is certain."""
    holes = find_holes(header, _PLACES) if command.remark is None else None
    if holes is None or "e" not in command.ext or "g" not in command.ext:
        return None
    names: list[str] = []
    if "i" in command.ext:
        found = [*_PROPERTIES.finditer(header)]
        if len(found) != 1:
            return None
        at, end = found[0].span(1)
        while at < end:
            pair = _PROPERTY.match(header, at, end)
            if pair is None:
                return None
            name = pair[1].decode()
            names.append(name)
            holes.append((*pair.span(2), _KINDS.get(name, _IS_VALUE)))
            at = pair.end()
    if len(set(names)) < len(names):
        return None
    holes.sort()
    pieces, tried = split(header, holes, _PROBES_OF_ALL)
    shape = SendShape(pieces, [kind for _, _, kind in holes], tuple(names), command)
    record = shape.read(tried, 0, len(tried), len(tried))
    return shape if record is not None and shape.command(record) == decode_json(tried) else None
