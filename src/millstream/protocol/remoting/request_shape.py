"""Requests that are like an earlier one of their connection: read by comparing instead of parsing, many at a time.

Requests of one kind differ in few places; all other bytes of their JSON headers stay the same. A shape keeps those
bytes, and what they say. What fits it is read without a command between. What does not fit is read in the general way,
which a shape agrees with: it is used only after it has read a header with other values as that way reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from millstream.protocol.remoting.command import HeaderType, RemotingCommand

__all__ = [
    "OPAQUE_DIGITS",
    "RequestShape",
    "ShapedRun",
    "as_commands",
    "digits_end",
    "find_holes",
    "number_of",
    "split",
]

OPAQUE_DIGITS: Final = 10
"""Digits of a request's number at most."""

_ZERO: Final = 0x30
_NINE: Final = 0x39

Hole = tuple[int, int, int]
"""Where a changing value begins and ends in a header, and what kind it is of."""


class RequestShape:
    """The bytes that requests have in common, and what they say. `fields` are those of the one that it was learned
    from; those that change say nothing of another one."""

    __slots__ = ("_flag", "_kinds", "_language", "_pieces", "_version", "code", "fields")

    def __init__(self, pieces: list[bytes], kinds: list[int], command: RemotingCommand) -> None:
        self.fields = dict(command.ext)
        self.code = command.code
        self._pieces = pieces
        self._kinds = kinds
        self._flag = command.flag
        self._language = command.language
        self._version = command.version

    def read(self, data: bytes, start: int, body_start: int, end: int) -> Any:
        """What the request says whose header stands in `data` from `start` to `body_start`, and its body up to `end`;
        None where it does not fit the shape."""
        raise NotImplementedError

    def command(self, request: Any) -> RemotingCommand:
        """The request of this shape that `read` gave, as the general way reads it."""
        raise NotImplementedError

    def make_command(self, ext: dict[str, str], body: bytes, opaque: int) -> RemotingCommand:
        """A request with what all of the shape have in common beside its fields."""
        return RemotingCommand(
            self.code, ext, body, opaque, self._flag, None, self._language, self._version, HeaderType.JSON
        )


class ShapedRun:
    """Requests of one shape that followed one another on a connection."""

    __slots__ = ("requests", "shape")

    def __init__(self, shape: RequestShape) -> None:
        self.shape = shape
        self.requests: list[Any] = []

    def commands(self, start: int = 0, end: int | None = None) -> list[RemotingCommand]:
        """The same as commands, those from `start` up to but without `end`."""
        return [self.shape.command(request) for request in self.requests[start:end]]


def as_commands(requests: Iterable[RemotingCommand | ShapedRun]) -> Iterator[RemotingCommand]:
    """Each request, those of runs as well."""
    for one in requests:
        if isinstance(one, ShapedRun):
            yield from one.commands()
        else:
            yield one


def digits_end(data: bytes, begin: int, end: int, most: int) -> int:
    """Where the decimal number that begins there ends; -1 where there is none, it has more digits than `most`, or
    begins with a 0 that says nothing."""
    at = begin
    while at < end and _ZERO <= data[at] <= _NINE:
        if at - begin == most:
            return -1
        at += 1
    if at == begin or (at - begin > 1 and data[begin] == _ZERO):
        return -1
    return at


def number_of(data: bytes, begin: int, end: int) -> int:
    """The number whose digits, 18 at most, stand there."""
    value = 0
    for at in range(begin, end):
        value = value * 10 + data[at] - _ZERO
    return value


def find_holes(header: bytes, places: Iterable[tuple[re.Pattern[bytes], int]]) -> list[Hole] | None:
    """Where the first group of each pattern stands; None where one is not there exactly once."""
    holes = []
    for place, kind in places:
        found = [*place.finditer(header)]
        if len(found) != 1:
            return None
        holes.append((*found[0].span(1), kind))
    return holes


def split(header: bytes, holes: list[Hole], probes: dict[int, tuple[bytes, bytes]]) -> tuple[list[bytes], bytes]:
    """The pieces of the header around the holes, and the same header with other values in them: of each kind the first
    of its two probes that is not there already."""
    pieces, at = [], 0
    for begin, end, _ in holes:
        pieces.append(header[at:begin])
        at = end
    pieces.append(header[at:])
    probe = bytearray(pieces[0])
    for (begin, end, kind), piece in zip(holes, pieces[1:], strict=True):
        one, other = probes[kind]
        probe += (one if header[begin:end] != one else other) + piece
    return pieces, bytes(probe)
