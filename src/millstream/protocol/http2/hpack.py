"""Compression of headers (RFC 7541), for both directions of a connection.

The memory of a decoder is bounded by its table and by the list that it may make; a block that makes more is still read
to its end, because the table has to follow the peer's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from millstream.protocol.http2.huffman import decode_huffman, encode_huffman

__all__ = [
    "ENTRY_BYTES",
    "MAX_ENCODER_TABLE_BYTES",
    "STATIC_TABLE",
    "Header",
    "HeaderDecoder",
    "HeaderEncoder",
    "HeaderListTooLarge",
    "HpackError",
]

Header = tuple[str, str]
"""Name and value; bytes beyond ASCII stand as the characters of Latin-1."""

ENTRY_BYTES: Final = 32
"""What an entry of a table, or of a list of headers, counts beside its name and value."""

MAX_ENCODER_TABLE_BYTES: Final = 4096
"""The table of an encoder at most, however large the peer would let it be."""

STATIC_TABLE: Final[tuple[Header, ...]] = (
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
)
"""Appendix A; the first has the number 1."""

_FIRST_DYNAMIC: Final = len(STATIC_TABLE) + 1
_MAX_INTEGER_BYTES: Final = 5
_MAX_KEPT_BLOCKS: Final = 64
_MAX_KEPT_BLOCK_BYTES: Final = 512
_MAX_KEPT_TEXTS: Final = 512
_MAX_KEPT_TEXT_BYTES: Final = 128


class HpackError(ValueError):
    """A block that is none: the tables of both sides differ from here on, so the connection has to end."""


class HeaderListTooLarge(Exception):
    """The headers of a block are more than the limit. The table is as the peer's, so the connection can go on."""


_decoded: dict[bytes, str] = {}
"""Texts that were decoded of late: names and values repeat."""


class HeaderDecoder:
    """Reads the blocks of one connection, in their order."""

    __slots__ = ("_blocks", "_max_list_bytes", "_max_table_bytes", "_setting_bytes", "_table", "_table_bytes")

    def __init__(self, max_table_bytes: int = 4096, max_list_bytes: int = 64 * 1024) -> None:
        self._setting_bytes = max_table_bytes
        self._max_table_bytes = max_table_bytes
        self._max_list_bytes = max_list_bytes
        # The latest entry is the first.
        self._table: deque[Header] = deque()
        self._table_bytes = 0
        self._blocks: dict[bytes, list[Header]] = {}

    @property
    def table_bytes(self) -> int:
        """What the table holds now, as RFC 7541 counts it."""
        return self._table_bytes

    def decode(self, block: bytes) -> list[Header]:
        """The headers of a block; callers do not change the list. HpackError, HeaderListTooLarge."""
        known = self._blocks.get(block)
        if known is not None:
            return known
        headers: list[Header] = []
        table = self._table
        changes = False
        left_bytes = self._max_list_bytes
        at, size = 0, len(block)
        while at < size:
            byte = block[at]
            if byte & 0x80:
                index = byte & 0x7F
                at += 1
                if index == 0x7F:
                    index, at = _integer(block, at, 0x7F)
                if 0 < index < _FIRST_DYNAMIC:
                    header = STATIC_TABLE[index - 1]
                else:
                    header = self._entry(index)
                left_bytes -= len(header[0]) + len(header[1]) + ENTRY_BYTES
            elif byte & 0xE0 == 0x20:
                if headers or left_bytes != self._max_list_bytes:
                    raise HpackError("the table changes its size within a block")
                most, at = _prefixed(block, at, 0x1F)
                self._resize(most)
                changes = True
                continue
            else:
                adds = byte & 0x40
                index, at = _prefixed(block, at, 0x3F if adds else 0x0F)
                if index:
                    name = STATIC_TABLE[index - 1][0] if index < _FIRST_DYNAMIC else self._entry(index)[0]
                else:
                    name, at = _text(block, at, self._max_list_bytes)
                value, at = _text(block, at, self._max_list_bytes)
                header = (name, value)
                entry_bytes = len(name) + len(value) + ENTRY_BYTES
                left_bytes -= entry_bytes
                if adds:
                    changes = True
                    self._make_room(entry_bytes)
                    if entry_bytes <= self._max_table_bytes:
                        table.appendleft(header)
                        self._table_bytes += entry_bytes
            if left_bytes >= 0:
                headers.append(header)
        if left_bytes < 0:
            if changes:
                self._blocks.clear()
            raise HeaderListTooLarge
        if changes:
            self._blocks.clear()
        elif size <= _MAX_KEPT_BLOCK_BYTES and len(self._blocks) < _MAX_KEPT_BLOCKS:
            self._blocks[block] = headers
        return headers

    def _entry(self, index: int) -> Header:
        place = index - _FIRST_DYNAMIC
        if not 0 <= place < len(self._table):
            raise HpackError(f"the table has no entry {index}")
        return self._table[place]

    def _resize(self, most_bytes: int) -> None:
        if most_bytes > self._setting_bytes:
            raise HpackError(f"a table of {most_bytes} bytes is over the limit of {self._setting_bytes}")
        self._max_table_bytes = most_bytes
        self._make_room(0)

    def _make_room(self, size_bytes: int) -> None:
        table = self._table
        while table and self._table_bytes + size_bytes > self._max_table_bytes:
            name, value = table.pop()
            self._table_bytes -= len(name) + len(value) + ENTRY_BYTES


def _prefixed(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """The integer at a place, whose first bits stand under the mask, and what follows it."""
    value = block[at] & mask
    return (value, at + 1) if value < mask else _integer(block, at + 1, mask)


def _integer(block: bytes, at: int, value: int) -> tuple[int, int]:
    shift = 0
    for place in range(at, min(at + _MAX_INTEGER_BYTES, len(block))):
        byte = block[place]
        value += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place + 1
    raise HpackError("an integer does not come to its end")


def _text(block: bytes, at: int, limit_bytes: int) -> tuple[str, int]:
    """The text at a place, and what follows it. Of a text that is too long for any list only a part is made."""
    if at >= len(block):
        raise HpackError("a text is missing")
    is_huffman = block[at] & 0x80
    length, at = _prefixed(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HpackError("a text is longer than its block")
    raw = block[at:end]
    if not is_huffman:
        return raw.decode("latin-1"), end
    known = _decoded.get(raw)
    if known is not None:
        return known, end
    try:
        text = decode_huffman(raw).decode("latin-1")
    except ValueError as error:
        raise HpackError(str(error)) from None
    if length <= _MAX_KEPT_TEXT_BYTES:
        if len(_decoded) >= _MAX_KEPT_TEXTS:
            _decoded.clear()
        _decoded[raw] = text
    return text, end


_STATIC_PLACES: Final = {header: number for number, header in reversed([*enumerate(STATIC_TABLE, 1)])}
_STATIC_NAMES: Final = {header[0]: number for number, header in reversed([*enumerate(STATIC_TABLE, 1)])}

_MAX_INDEXED_VALUE_CHARACTERS: Final = 64
_NEVER_INDEXED: Final = frozenset(("grpc-message", "grpc-status-details-bin", "date", "content-length"))
"""Headers whose values differ from call to call."""


class HeaderEncoder:
    """Writes the blocks of one connection, in the order in which they are sent. What repeats is put into the table."""

    __slots__ = ("_max_table_bytes", "_sizes", "_table", "_table_bytes", "changes")

    def __init__(self) -> None:
        self.changes = 0
        """Grows with each change of the table: a block that was made before may mean something else now."""
        self._max_table_bytes = MAX_ENCODER_TABLE_BYTES
        self._table: list[Header] = []
        self._table_bytes = 0
        # Sizes of the table that the next block has to begin with.
        self._sizes: list[int] = []

    def resize(self, max_table_bytes: int) -> None:
        """The peer lets the table have so many bytes from now on."""
        most = min(max_table_bytes, MAX_ENCODER_TABLE_BYTES)
        if most == self._max_table_bytes and not self._sizes:
            return
        self.changes += 1
        # The smallest of all since the last block is said, too: entries that it drove out are gone.
        lowest = min([most, *self._sizes])
        self._sizes = [lowest] if lowest == most else [lowest, most]
        self._max_table_bytes = most
        self._make_room(0, lowest)

    def encode(self, headers: Iterable[Header]) -> bytes:
        """The block of headers."""
        block = bytearray()
        if self._sizes:
            for size in self._sizes:
                block += _encode_integer(size, 0x1F, 0x20)
            self._sizes.clear()
            self.changes += 1
        for header in headers:
            self._add(block, header)
        return bytes(block)

    def _add(self, block: bytearray, header: Header) -> None:
        name, value = header
        place = _STATIC_PLACES.get(header)
        if place is None and header in self._table:
            place = _FIRST_DYNAMIC + self._table.index(header)
        if place is not None:
            block += _encode_integer(place, 0x7F, 0x80)
            return
        entry_bytes = len(name) + len(value) + ENTRY_BYTES
        adds = (
            name not in _NEVER_INDEXED
            and len(value) <= _MAX_INDEXED_VALUE_CHARACTERS
            and entry_bytes <= self._max_table_bytes
        )
        number = self._name_place(name)
        if adds:
            block += _encode_integer(number, 0x3F, 0x40)
        else:
            block += _encode_integer(number, 0x0F, 0x00)
        if not number:
            block += _encode_text(name)
        block += _encode_text(value)
        if adds:
            self.changes += 1
            self._make_room(entry_bytes, self._max_table_bytes)
            self._table.insert(0, header)
            self._table_bytes += entry_bytes

    def _name_place(self, name: str) -> int:
        number = _STATIC_NAMES.get(name, 0)
        if number:
            return number
        for place, (known, _) in enumerate(self._table):
            if known == name:
                return _FIRST_DYNAMIC + place
        return 0

    def _make_room(self, size_bytes: int, limit_bytes: int) -> None:
        while self._table and self._table_bytes + size_bytes > limit_bytes:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + ENTRY_BYTES


def _encode_integer(value: int, mask: int, pattern: int) -> bytes:
    if value < mask:
        return bytes((pattern | value,))
    encoded = bytearray((pattern | mask,))
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _encode_text(text: str) -> bytes:
    raw = text.encode("latin-1")
    packed = encode_huffman(raw)
    if len(packed) < len(raw):
        return _encode_integer(len(packed), 0x7F, 0x80) + packed
    return _encode_integer(len(raw), 0x7F, 0x00) + raw
