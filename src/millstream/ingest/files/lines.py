"""Splits bytes of a file into lines, and joins lines to events, wherever reads begin and end. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "DEFAULT_LINE_BYTES",
    "ENCODINGS_WITH_MARK",
    "Events",
    "LineCutter",
    "Lines",
    "MultilineJoiner",
    "MultilineRule",
    "TextForm",
]


DEFAULT_LINE_BYTES: Final = 1024 * 1024
"""Bytes of a line beyond which it is cut, unless another limit is set."""

ENCODINGS_WITH_MARK: Final = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}
"""Encodings whose byte order stands in the first bytes of a file; without a mark the first of the two is meant."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """How text is written in a file: `encoding` in Python's name, `width` bytes of a line feed, and its bytes."""

    encoding: str
    width: int
    line_feed: bytes
    mark: bytes
    """What may stand before the first line and is no part of it."""

    @classmethod
    def of(cls, encoding: str, beginning: bytes) -> TextForm:
        """The form of a file with that beginning (4 bytes are enough). LookupError for an unknown encoding."""
        name = codecs.lookup(encoding).name
        choices = ENCODINGS_WITH_MARK.get(name)
        if choices is not None:
            name = next((one for mark, one in choices if beginning.startswith(mark)), choices[0][1])
        line_feed = "\n".encode(name)
        mark = "\ufeff".encode(name, "ignore") if name.startswith("utf") else b""
        return cls(name, len(line_feed), line_feed, mark)

    @property
    def is_bytes(self) -> bool:
        """Whether lines are passed on as they are."""
        return self.encoding in ("utf-8", "ascii")

    def find(self, data: bytes, begin: int = 0) -> int:
        """Where the first line feed from `begin` on begins; -1 without one."""
        place = data.find(self.line_feed, begin)
        while place > 0 and place % self.width:
            place = data.find(self.line_feed, place + 1)
        return place

    def find_last(self, data: bytes) -> int:
        """Where the last line feed begins; -1 without one."""
        place = data.rfind(self.line_feed)
        while place > 0 and place % self.width:
            place = data.rfind(self.line_feed, 0, place + self.width - 1)
        return place

    def split(self, data: bytes) -> list[bytes]:
        """The lines of data that ends with a line feed, without their ends."""
        if self.width == 1:
            lines = data.split(b"\n")
            lines.pop()
            return lines
        lines, begin = [], 0
        while (end := self.find(data, begin)) >= 0:
            lines.append(data[begin:end])
            begin = end + self.width
        return lines

    def plain(self, line: bytes) -> bytes:
        """The line in UTF-8; what cannot be read becomes U+FFFD."""
        return line if self.is_bytes else line.decode(self.encoding, "replace").encode("utf-8", "replace")


@dataclass(slots=True)
class Lines:
    """Lines in UTF-8 without their ends. `sizes` are their bytes in the file, `whole` the lengths of those cut."""

    texts: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    whole: dict[int, int] = field(default_factory=dict)

    def add(self, text: bytes, size: int, whole: int | None = None) -> None:
        """Append one line."""
        if whole is not None:
            self.whole[len(self.texts)] = whole
        self.texts.append(text)
        self.sizes.append(size)

    def extend(self, texts: Sequence[bytes], sizes: Sequence[int]) -> None:
        """Append lines that are not cut."""
        self.texts += texts
        self.sizes += sizes


class LineCutter:
    """Takes pieces of a file in turn; of a line over `max_bytes` the first bytes are kept and the rest is counted."""

    def __init__(self, form: TextForm, *, max_bytes: int = DEFAULT_LINE_BYTES, at_start: bool = True) -> None:
        self._form = form
        self._max_bytes = max_bytes // form.width * form.width
        self._rest = b""
        self._long_bytes = 0
        """Bytes of the line that is too long so far; its beginning is the rest."""
        self._odd = b""
        """Of such a line the bytes of a character that is not whole yet."""
        self._at_start = at_start

    @property
    def open_bytes(self) -> int:
        """Bytes of the line that has no end yet."""
        return self._long_bytes + len(self._odd) if self._long_bytes else len(self._rest)

    def feed(self, data: bytes) -> Lines:
        """The lines that end in `data`."""
        found = Lines()
        if self._long_bytes:
            data, self._odd = self._odd + data, b""
            place = self._form.find(data)
            if place < 0:
                self._grow(data)
                return found
            self._end_long(found, place)
            data = data[place + self._form.width :]
        if self._rest:
            data = self._rest + data
            self._rest = b""
        end = self._form.find_last(data) + self._form.width if data else 0
        if end >= self._form.width:
            self._cut(found, data[:end] if end < len(data) else data)
            data = data[end:]
        self._rest = data
        if len(data) > self._max_bytes:
            self._rest = data[: self._max_bytes]
            self._grow(data)
        return found

    def end(self) -> Lines:
        """The line that has no end, where the file has one."""
        found = Lines()
        if self._long_bytes:
            self._end_long(found, len(self._odd))
            found.sizes[-1] -= self._form.width
        elif self._rest:
            rest, self._rest = self._rest, b""
            found.add(self._text(self._without_mark(rest)), len(rest))
        return found

    def _grow(self, data: bytes) -> None:
        whole = len(data) // self._form.width * self._form.width
        self._long_bytes += whole
        self._odd = data[whole:]

    def _end_long(self, found: Lines, more_bytes: int) -> None:
        whole = self._long_bytes + more_bytes
        found.add(self._text(self._without_mark(self._rest)), whole + self._form.width, whole)
        self._rest, self._odd, self._long_bytes = b"", b"", 0

    def _cut(self, found: Lines, data: bytes) -> None:
        lines = self._form.split(data)
        width = self._form.width
        sizes = [len(line) + width for line in lines]
        lines[0] = self._without_mark(lines[0])
        if max(sizes) - width <= self._max_bytes:
            found.extend(self._texts(lines, data), sizes)
            return
        for line, size in zip(lines, sizes, strict=True):
            is_long = len(line) > self._max_bytes
            found.add(self._text(line[: self._max_bytes]), size, len(line) if is_long else None)

    def _texts(self, lines: list[bytes], data: bytes) -> list[bytes]:
        if self._form.is_bytes:
            return [line.removesuffix(b"\r") for line in lines] if b"\r\n" in data else lines
        return [self._text(line) for line in lines]

    def _text(self, line: bytes) -> bytes:
        return self._form.plain(line).removesuffix(b"\r")

    def _without_mark(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            return line.removeprefix(self._form.mark) if self._form.mark else line
        return line


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
