"""Sends that are like an earlier one of their connection: read by comparing instead of parsing, many at a time.

A producer's sends differ in their number, queue, time and the values of their properties; all other bytes of their JSON
headers stay the same. A shape keeps those bytes, and the command that they make. What fits it becomes the record that
is to be stored, without a command between. What does not fit is read in the general way, which a shape agrees with: it
is used only after it has read a header with other values as that way reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.model.message import Address
from millstream.model.properties import KEYS, TAGS, UNIQUE_KEY
from millstream.protocol.record_encoder import PlainRecord
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand, decode_json

__all__ = [
    "MAX_SHAPES",
    "SHAPE_PATIENCE",
    "SendRun",
    "SendShape",
    "SendShapes",
    "SentRecord",
    "as_commands",
    "learn_shape",
]

MAX_SHAPES: Final = 8
"""Shapes that are kept of one connection at most, as of a producer that sends to four topics, with a key or without."""

SHAPE_PATIENCE: Final = 256
"""Sends in a row that fit no shape before all of the connection are forgotten and others learned."""

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_JSON: Final = HeaderType.JSON
_OPAQUE_DIGITS: Final = 10
_QUEUE_DIGITS: Final = 9
_TIME_DIGITS: Final = 18
_ZERO: Final = 0x30
_NINE: Final = 0x39
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

_NOBODY: Final = Address("0.0.0.0", 0)
_IS_COMPILED: Final = not __file__.endswith(".py")


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


class SendShape:
    """The bytes that sends have in common, and what is between them. `pieces` stand around the holes, whose `kinds` say
    what they hold; `names` are those of the properties. `command` is one of these sends.

    `fields` are those of all of them; what they say of queue, time and properties is of that one alone.
    """

    __slots__ = (
        "_flag", "_kinds", "_language", "_pieces", "_stored", "_version", "code", "fields", "names", "topic",
    )  # fmt: skip

    def __init__(self, pieces: list[bytes], kinds: list[int], names: tuple[str, ...], command: RemotingCommand) -> None:
        self.fields = dict(command.ext)
        self.names = names
        self._pieces = pieces
        self._kinds = kinds
        # What stands around the values of stored properties.
        starts = [f"{name}\x01".encode() for name in names]
        self._stored = [start if not number else b"\x02" + start for number, start in enumerate(starts)]
        self.topic = command.ext.get("b", "")
        self.code = command.code
        self._flag = command.flag
        self._language = command.language
        self._version = command.version

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
                value = 0
                most = _OPAQUE_DIGITS if kind == _IS_OPAQUE else _QUEUE_DIGITS if kind == _IS_QUEUE else _TIME_DIGITS
                while at < body_start and _ZERO <= data[at] <= _NINE:
                    if at - begin == most:
                        return None
                    value = value * 10 + data[at] - _ZERO
                    at += 1
                digits = at - begin
                if not digits or (digits > 1 and data[begin] == _ZERO):
                    return None
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

    def command(self, record: SentRecord) -> RemotingCommand:
        """The send that brought a record of this shape, as the general way reads it."""
        ext = self.fields.copy()
        ext["e"], ext["g"] = str(record.queue_id), str(record.born_timestamp_ms)
        if "i" in ext:
            ext["i"] = record.stored_properties.decode("ascii")
        return RemotingCommand(
            self.code, ext, record.body, record.opaque, self._flag, None, self._language, self._version, _JSON
        )


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


class SendRun:
    """Sends of one shape that followed one another on a connection."""

    __slots__ = ("records", "shape")

    def __init__(self, shape: SendShape) -> None:
        self.shape = shape
        self.records: list[SentRecord] = []

    def commands(self, start: int = 0, end: int | None = None) -> list[RemotingCommand]:
        """The same as requests, those from `start` up to but without `end`."""
        return [self.shape.command(record) for record in self.records[start:end]]


def as_commands(requests: Iterable[RemotingCommand | SendRun]) -> Iterator[RemotingCommand]:
    """Each request, those of runs as well."""
    for one in requests:
        if isinstance(one, SendRun):
            yield from one.commands()
        else:
            yield one


def learn_shape(header: bytes, command: RemotingCommand) -> SendShape | None:
    """The shape of the header that was read as `command`; None where it has none that is certain."""
    if command.remark is not None:
        return None
    holes = []
    for place, kind in _PLACES:
        found = [*place.finditer(header)]
        if len(found) != 1:
            return None
        holes.append((*found[0].span(1), kind))
    if "e" not in command.ext or "g" not in command.ext:
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
    pieces, at = [], 0
    for begin, end, _ in holes:
        pieces.append(header[at:begin])
        at = end
    pieces.append(header[at:])
    shape = SendShape(pieces, [kind for _, _, kind in holes], tuple(names), command)
    probe = bytearray(pieces[0])
    for (begin, end, kind), piece in zip(holes, pieces[1:], strict=True):
        one, other = _PROBES.get(kind, _VALUES)
        probe += (one if header[begin:end] != one else other) + piece
    tried = bytes(probe)
    record = shape.read(tried, 0, len(tried), len(tried))
    return shape if record is not None and shape.command(record) == decode_json(tried) else None


class SendShapes:
    """The shapes of one connection. `last` is the one that the last send fitted.

    `learns` where they save time: byte by byte in plain Python costs more than the general way.
    """

    __slots__ = ("_learns", "_misses", "_shapes", "last")

    def __init__(self, *, learns: bool = _IS_COMPILED) -> None:
        self.last: SendShape | None = None
        self._learns = learns
        self._shapes: list[SendShape] = []
        self._misses = 0

    def read(self, data: bytes, start: int, body_start: int, end: int) -> SentRecord | None:
        """The message of the send whose JSON header stands in `data` from `start` to `body_start`, and its body up to
        `end`, if it fits a shape, which is `last` then; None where `decode` has to read it."""
        last = self.last
        if last is None:
            return None
        record = last.read(data, start, body_start, end)
        if record is None:
            for shape in self._shapes:
                if shape is not last:
                    record = shape.read(data, start, body_start, end)
                    if record is not None:
                        self.last = shape
                        break
        if record is not None:
            self._misses = 0
        return record

    def decode(self, data: bytes, start: int, body_start: int, end: int) -> RemotingCommand:
        """The command whose JSON header stands there, read in the general way; the next one may be like it.

        PROTOCOL_VIOLATION where it cannot be read.
        """
        header = data[start:body_start]
        command = decode_json(header, data[body_start:end])
        if self._learns and command.code == _SEND and not command.flag:
            self._note_miss(header, command)
        return command

    def _note_miss(self, header: bytes, command: RemotingCommand) -> None:
        self._misses += 1
        if self._misses > SHAPE_PATIENCE:
            self._shapes.clear()
            self._misses = 0
        if len(self._shapes) < MAX_SHAPES:
            learned = learn_shape(header, command)
            if learned is not None:
                self._shapes.append(learned)
                self.last = learned
