"""Splits a byte stream into syslog messages, by octet counts or line feeds. Pure.

Source: RFC 6587, sections 3.4.1 and 3.4.2 (facts only). Which of the two it is, is seen of each message by itself:
a count is digits, a blank and the < of a priority.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_FRAME_BYTES", "FrameCutter", "SyslogFrame"]

DEFAULT_FRAME_BYTES: Final = 64 * 1024
"""Bytes of a message beyond which it is cut; RFC 5425 asks for 8,192 at least."""

_COUNT: Final = re.compile(rb"([1-9][0-9]{0,9}) <")
_PART_OF_COUNT: Final = re.compile(rb"[1-9][0-9]{0,9} ?")
_BETWEEN: Final = b"\r\n\0"
"""Bytes that some senders put behind a message, whatever its framing."""


@dataclass(slots=True)
class SyslogFrame:
    """One message, which nobody changes (a frozen one takes three times as long to make).

    `whole_bytes` is its length where it was cut.
    """

    body: bytes
    whole_bytes: int | None = None


class FrameCutter:
    """Takes the pieces of one connection in turn; holds at most `max_bytes` and one piece."""

    def __init__(self, max_bytes: int = DEFAULT_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        self._passing_over = 0
        """Bytes of a counted message, behind its first ones, that are still to come."""
        self._long: bytes | None = None
        """The beginning of a line that is too long and has no end yet."""
        self._long_bytes = 0

    @property
    def is_between(self) -> bool:
        """Whether no message is open."""
        return not self._rest and not self._passing_over and self._long is None

    def feed(self, data: bytes) -> list[SyslogFrame]:
        """The messages that end in `data`."""
        data = self._rest + data if self._rest else data
        frames: list[SyslogFrame] = []
        place = 0
        while place < len(data):
            following = self._next(data, place, frames)
            if following is None:
                break
            place = following
        self._rest = data[place:]
        return frames

    def end(self) -> SyslogFrame | None:
        """What came of the message that the end of the connection cut off."""
        if self._long is not None:
            frame = SyslogFrame(self._long, self._long_bytes)
        else:
            found = _COUNT.match(self._rest)
            body = self._rest[found.end() - 1 :] if found is not None else self._rest.rstrip(_BETWEEN)
            frame = SyslogFrame(body[: self._max_bytes], len(body) if len(body) > self._max_bytes else None)
        self._rest, self._passing_over, self._long, self._long_bytes = b"", 0, None, 0
        return frame if frame.body else None

    def _next(self, data: bytes, place: int, frames: list[SyslogFrame]) -> int | None:
        """Take one step; where the next one begins, None where more bytes are needed."""
        if self._passing_over:
            step = min(self._passing_over, len(data) - place)
            self._passing_over -= step
            return place + step
        if self._long is not None:
            return self._end_long(data, place, frames)
        if data[place] in _BETWEEN:
            return place + 1
        if data[place] in b"123456789":
            found = _COUNT.match(data, place)
            if found is not None:
                return self._cut_counted(data, found.end() - 1, int(found[1]), frames)
            part = _PART_OF_COUNT.match(data, place)
            if part is not None and part.end() == len(data):
                return None
        return self._line(data, place, frames)

    def _cut_counted(self, data: bytes, begin: int, count: int, frames: list[SyslogFrame]) -> int | None:
        kept = min(count, self._max_bytes)
        if len(data) - begin < kept:
            return None
        body = data[begin : begin + kept]
        self._passing_over = count - kept
        frames.append(SyslogFrame(body.rstrip(_BETWEEN)) if count == kept else SyslogFrame(body, count))
        return begin + kept

    def _line(self, data: bytes, place: int, frames: list[SyslogFrame]) -> int | None:
        end = data.find(b"\n", place)
        if end < 0:
            if len(data) - place <= self._max_bytes:
                return None
            self._long, self._long_bytes = data[place : place + self._max_bytes], len(data) - place
            return len(data)
        body = data[place:end].rstrip(_BETWEEN)
        is_long = len(body) > self._max_bytes
        frames.append(SyslogFrame(body[: self._max_bytes], len(body) if is_long else None))
        return end + 1

    def _end_long(self, data: bytes, place: int, frames: list[SyslogFrame]) -> int:
        assert self._long is not None
        end = data.find(b"\n", place)
        if end < 0:
            self._long_bytes += len(data) - place
            return len(data)
        frames.append(SyslogFrame(self._long, self._long_bytes + end - place))
        self._long = None
        return end + 1
