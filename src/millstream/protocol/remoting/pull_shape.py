"""Pulls that are like an earlier one of their connection; see `request_shape.py`.

A consumer's pulls differ in their number, queue, offset and the offset that they commit.
"""

from __future__ import annotations

import re
from typing import Any, Final

from millstream.protocol.remoting.command import RemotingCommand, decode_json
from millstream.protocol.remoting.request_shape import (
    OPAQUE_DIGITS,
    RequestShape,
    digits_end,
    find_holes,
    number_of,
    split,
)

__all__ = ["PullShape", "ShapedPull", "learn_pull"]

_QUEUE_DIGITS: Final = 9
_OFFSET_DIGITS: Final = 18
_IS_OPAQUE: Final = 0
_IS_QUEUE: Final = 1
_IS_OFFSET: Final = 2
_IS_COMMITTED: Final = 3
_OPAQUE_DIGITS: Final = OPAQUE_DIGITS

_PLACES: Final = (
    (re.compile(rb'"opaque":(\d+)'), _IS_OPAQUE),
    (re.compile(rb'"queueId":"((?:[^"\\]|\\.)*)"'), _IS_QUEUE),
    (re.compile(rb'"queueOffset":"((?:[^"\\]|\\.)*)"'), _IS_OFFSET),
    (re.compile(rb'"commitOffset":"((?:[^"\\]|\\.)*)"'), _IS_COMMITTED),
)
_PROBES: Final = {
    _IS_OPAQUE: (b"4711", b"815"),
    _IS_QUEUE: (b"7", b"8"),
    _IS_OFFSET: (b"170000000000000001", b"170000000000000002"),
    _IS_COMMITTED: (b"9000000000", b"9000000001"),
}
"""Two values of each, of which one is not that of the header from which a shape is learned."""


class ShapedPull:
    """What a pull of a shape says of itself alone."""

    __slots__ = ("commit_offset", "opaque", "queue_id", "queue_offset")

    def __init__(self, opaque: int, queue_id: int, queue_offset: int, commit_offset: int) -> None:
        self.opaque = opaque
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.commit_offset = commit_offset


class PullShape(RequestShape):
    """The bytes that pulls have in common. Its `pieces` stand around the holes, whose `kinds` say what they hold."""

    __slots__ = ()

    def read(self, data: bytes, start: int, body_start: int, end: int) -> ShapedPull | None:
        """As `RequestShape.read`."""
        if body_start != end:
            return None
        pieces, kinds = self._pieces, self._kinds
        opaque = queue_id = queue_offset = commit_offset = 0
        at = start
        for number in range(len(kinds)):
            piece, kind = pieces[number], kinds[number]
            if not data.startswith(piece, at, body_start):
                return None
            begin = at + len(piece)
            most = _OPAQUE_DIGITS if kind == _IS_OPAQUE else _QUEUE_DIGITS if kind == _IS_QUEUE else _OFFSET_DIGITS
            at = digits_end(data, begin, body_start, most)
            if at < 0:
                return None
            value = number_of(data, begin, at)
            if kind == _IS_OPAQUE:
                opaque = value
            elif kind == _IS_QUEUE:
                queue_id = value
            elif kind == _IS_OFFSET:
                queue_offset = value
            else:
                commit_offset = value
        last = pieces[len(kinds)]
        if at + len(last) != body_start or not data.startswith(last, at, body_start):
            return None
        return ShapedPull(opaque, queue_id, queue_offset, commit_offset)

    def command(self, request: Any) -> RemotingCommand:
        """As `RequestShape.command`."""
        ext = self.fields.copy()
        ext["queueId"], ext["queueOffset"] = str(request.queue_id), str(request.queue_offset)
        ext["commitOffset"] = str(request.commit_offset)
        return self.make_command(ext, b"", request.opaque)


def learn_pull(header: bytes, command: RemotingCommand) -> PullShape | None:
    """The shape of the header that was read as `command`; None where it has none that is certain."""
    holes = find_holes(header, _PLACES) if command.remark is None and not command.body else None
    if holes is None or any(name not in command.ext for name in ("queueId", "queueOffset", "commitOffset")):
        return None
    holes.sort()
    pieces, tried = split(header, holes, _PROBES)
    shape = PullShape(pieces, [kind for _, _, kind in holes], command)
    pull = shape.read(tried, 0, len(tried), len(tried))
    return shape if pull is not None and shape.command(pull) == decode_json(tried) else None
