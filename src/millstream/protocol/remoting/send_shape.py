"""Decodes send headers that resemble an earlier one of the connection by comparison, without parsing.

A producer's sends differ in their number, queue, time and properties; all other bytes of their JSON headers stay the
same. A shape keeps those bytes, and the command that they make. What does not fit it is read in the general way, which
a shape agrees with: it is used only after it has read a header with other values as that way reads it.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand, decode_json

__all__ = ["MAX_SHAPES", "SHAPE_PATIENCE", "SendShape", "SendShapes", "learn_shape"]

MAX_SHAPES: Final = 4
"""Shapes that are kept of one connection at most, as of a producer that sends to four topics."""

SHAPE_PATIENCE: Final = 256
"""Sends in a row that fit no shape before all of the connection are forgotten and others learned."""

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_JSON: Final = HeaderType.JSON
_OPAQUE_DIGITS: Final = 10
_ZERO: Final = 0x30
_NINE: Final = 0x39
_QUOTE: Final = 0x22
_FIRST_PRINTABLE: Final = 0x20
_LAST_PRINTABLE: Final = 0x7E

_PLACES: Final = {name: re.compile(rb'"%s":"((?:[^"\\]|\\.)*)"' % name.encode()) for name in ("e", "g", "i")}
"""Where queue, born time and properties stand."""

_OPAQUE: Final = re.compile(rb'"opaque":(\d+)')
_PROBES: Final = {"e": ("7", "8"), "g": ("1700000000001", "1700000000002"), "i": ("A\\u0001b\\u0002", "\\u0001B")}
"""Two values of each, of which one is not that of the header from which a shape is learned."""
_OPAQUES: Final = (b"4711", b"815")

_IS_COMPILED: Final = not __file__.endswith(".py")


class SendShape:
    """The bytes that sends have in common, and what is between them. `pieces` stand around the `names`: those of text
    fields, and a blank one for the opaque. `command` is one of these sends."""

    __slots__ = ("_code", "_ext", "_flag", "_language", "_names", "_pieces", "_version")

    def __init__(self, pieces: list[bytes], names: list[str], command: RemotingCommand) -> None:
        self._pieces = pieces
        self._names = names
        self._ext = dict(command.ext)
        self._code = command.code
        self._flag = command.flag
        self._language = command.language
        self._version = command.version

    def read(self, data: bytes, start: int, body_start: int, end: int) -> RemotingCommand | None:
        """The command whose header stands in `data` from `start` to `body_start`, and its body up to `end`; None where
        it does not fit the shape."""
        pieces, names = self._pieces, self._names
        ext: dict[str, str] = self._ext.copy()
        at, opaque = start, 0
        for number in range(len(names)):
            piece, name = pieces[number], names[number]
            if not data.startswith(piece, at, body_start):
                return None
            at += len(piece)
            begin = at
            at = _text_end(data, begin, body_start) if name else _digits_end(data, begin, body_start)
            if at < 0:
                return None
            if name:
                text = data[begin:at].decode("ascii")
                if "\\" in text:
                    text = text.replace("\\u0001", "\x01").replace("\\u0002", "\x02")
                    if "\\" in text:
                        return None
                ext[name] = text
                continue
            for place in range(begin, at):
                opaque = opaque * 10 + data[place] - _ZERO
        last = pieces[len(names)]
        if at + len(last) != body_start or not data.startswith(last, at, body_start):
            return None
        return RemotingCommand(
            self._code, ext, data[body_start:end], opaque, self._flag, None, self._language, self._version, _JSON
        )


def _text_end(data: bytes, at: int, end: int) -> int:
    """Where the text that begins there has its quotation mark; -1 where it is not printable ASCII up to there."""
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            return at
        if byte < _FIRST_PRINTABLE or byte > _LAST_PRINTABLE:
            return -1
        at += 1
    return -1


def _digits_end(data: bytes, start: int, end: int) -> int:
    """Where the digits that begin there end; -1 where there are none, or more or others than an opaque's."""
    at = start
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    digits = at - start
    return at if 0 < digits <= _OPAQUE_DIGITS and (digits == 1 or data[start] != _ZERO) else -1


def learn_shape(header: bytes, command: RemotingCommand) -> SendShape | None:
    """The shape of the header that was read as `command`; None where it has none that is certain."""
    if command.remark is not None:
        return None
    holes = []
    for name, place in (*_PLACES.items(), ("", _OPAQUE)):
        found = [*place.finditer(header)]
        if len(found) == 1 and (not name or name in command.ext):
            holes.append((*found[0].span(1), name))
    holes.sort()
    pieces, at = [], 0
    for start, end, _ in holes:
        pieces.append(header[at:start])
        at = end
    pieces.append(header[at:])
    shape = SendShape(pieces, [name for _, _, name in holes], command)
    probe = bytearray(pieces[0])
    for (start, end, name), piece in zip(holes, pieces[1:], strict=True):
        value = header[start:end]
        one, other = (text.encode() for text in _PROBES[name]) if name else _OPAQUES
        probe += (one if value != one else other) + piece
    tried = bytes(probe)
    read = shape.read(tried, 0, len(tried), len(tried))
    return shape if read is not None and read == decode_json(tried) else None


class SendShapes:
    """The shapes of one connection.

    `learns` where they save time: byte by byte in plain Python costs more than the general way.
    """

    __slots__ = ("_last", "_learns", "_misses", "_shapes")

    def __init__(self, *, learns: bool = _IS_COMPILED) -> None:
        self._learns = learns
        self._shapes: list[SendShape] = []
        self._last: SendShape | None = None
        self._misses = 0

    def decode(self, data: bytes, start: int, body_start: int, end: int) -> RemotingCommand:
        """The command whose JSON header stands in `data` from `start` to `body_start`, and its body up to `end`.

        PROTOCOL_VIOLATION where it cannot be read.
        """
        last = self._last
        if last is not None:
            command = last.read(data, start, body_start, end)
            if command is not None:
                self._misses = 0
                return command
        return self._decode_other(data, start, body_start, end)

    def _decode_other(self, data: bytes, start: int, body_start: int, end: int) -> RemotingCommand:
        for shape in self._shapes:
            if shape is not self._last:
                read = shape.read(data, start, body_start, end)
                if read is not None:
                    self._last, self._misses = shape, 0
                    return read
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
                self._last = learned
