"""Lines joined to events, as a stack trace is one event of many lines. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from millstream.ingest.files.lines import Lines

__all__ = ["Events", "MultilineJoiner", "MultilineRule"]

_CUT_MARK: Final = b"\n"


@dataclass(frozen=True, slots=True)
class MultilineRule:
    """Which lines belong together: those that begin an event match `first`, or those that go on with it `more`."""

    first: re.Pattern[bytes] | None = None
    more: re.Pattern[bytes] | None = None

    def begins(self, line: bytes) -> bool:
        """Whether the line begins an event."""
        if self.first is not None:
            return self.first.search(line) is not None
        assert self.more is not None
        return self.more.search(line) is None


@dataclass(slots=True)
class Events:
    """Events that are whole. `size_bytes` are the file's bytes that are done with; `whole` the lengths of those cut."""

    bodies: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    whole: dict[int, int] = field(default_factory=dict)


class MultilineJoiner:
    """Makes events of lines; without a `joining` each line is one. Blank lines are none, within an event they stay.

    An event over `max_bytes` is cut. The last one is open until the next begins, or until `end`.
    """

    def __init__(self, joining: MultilineRule | None, *, max_bytes: int) -> None:
        self._joining = joining
        self._max_bytes = max_bytes
        self._open: list[bytes] = []
        self._kept_bytes = 0
        self._whole_bytes = 0
        self._size_bytes = 0

    @property
    def open_bytes(self) -> int:
        """The file's bytes that the open event holds."""
        return self._size_bytes

    def feed(self, lines: Lines) -> Events:
        """The events that are whole now."""
        if self._joining is not None:
            return self._join(lines, self._joining)
        texts = lines.texts
        if not lines.whole and b"" not in texts:
            return Events(texts, sum(lines.sizes))
        events = Events(size_bytes=sum(lines.sizes))
        for place, text in enumerate(texts):
            if text:
                if place in lines.whole:
                    events.whole[len(events.bodies)] = lines.whole[place]
                events.bodies.append(text)
        return events

    def end(self) -> Events:
        """The open event, if there is one."""
        events = Events()
        self._close(events)
        return events

    def _join(self, lines: Lines, joining: MultilineRule) -> Events:
        events = Events()
        for place, (text, size) in enumerate(zip(lines.texts, lines.sizes, strict=True)):
            if self._open and joining.begins(text):
                self._close(events)
            self._take(text, size, lines.whole.get(place, len(text)))
        return events

    def _take(self, text: bytes, size: int, whole: int) -> None:
        self._size_bytes += size
        self._whole_bytes += whole + bool(self._open)
        room = self._max_bytes - self._kept_bytes
        if room > 0 or not self._open:
            self._open.append(text[:room])
            self._kept_bytes += len(self._open[-1]) + 1

    def _close(self, events: Events) -> None:
        body = _CUT_MARK.join(self._open)
        is_cut = len(body) < self._whole_bytes
        events.size_bytes += self._size_bytes
        if body.strip():
            if is_cut:
                events.whole[len(events.bodies)] = self._whole_bytes
            events.bodies.append(body if is_cut else body.rstrip(_CUT_MARK))
        self._open = []
        self._kept_bytes = self._whole_bytes = self._size_bytes = 0
