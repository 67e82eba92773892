"""Header compression (RFC 7541): a decoder and an encoder for one connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.protocol.http2 import huffman

__all__ = [
    "DEFAULT_TABLE_BYTES",
    "ENTRY_BYTES",
    "MAX_INDEXED_VALUE_BYTES",
    "MAX_LIST_BYTES",
    "STATIC_TABLE",
    "Header",
    "HeaderDecoder",
    "HeaderEncoder",
    "HeaderListTooLarge",
    "HpackError",
]

Header = tuple[str, str]
"""Name and value; a character stands for the byte that Latin-1 gives it."""

DEFAULT_TABLE_BYTES: Final = 4096
"""Bytes of a dynamic table until the peer's settings say otherwise, and of an encoder's table at most."""

ENTRY_BYTES: Final = 32
"""What a header counts beside the bytes of its name and value, in a table and in a list (RFC 7541, section 4.1)."""

MAX_LIST_BYTES: Final = 65536
"""Bytes that the headers of a block count at most, if a decoder is given no other limit."""

MAX_INDEXED_VALUE_BYTES: Final = 64
"""A longer value does not get into the table of an encoder: it seldom repeats, and drives out what does."""

_MAX_INTEGER: Final = 1 << 28
_MAX_CONTINUATION_BYTES: Final = 4
_MAX_SIZE_UPDATES: Final = 2
_MAX_KEPT_BLOCKS: Final = 64
_MAX_KEPT_BLOCK_BYTES: Final = 64  # A block of indexes; literals that stay out of the table seldom repeat.
_MAX_KEPT_STRINGS: Final = 512
_MAX_KEPT_STRING_BYTES: Final = 128

_INDEXED: Final = 0x80
_INSERTED: Final = 0x40
_SIZE_UPDATE: Final = 0x20
_NEVER_INDEXED: Final = 0x10
_NOT_INDEXED: Final = 0x00
_HUFFMAN: Final = 0x80

# RFC 7541, Appendix A.
_STATIC: Final = """\
:authority=
:method=GET
:method=POST
:path=/
:path=/index.html
:scheme=http
:scheme=https
:status=200
:status=204
:status=206
:status=304
:status=400
:status=404
:status=500
accept-charset=
accept-encoding=gzip, deflate
accept-language=
accept-ranges=
accept=
access-control-allow-origin=
age=
allow=
authorization=
cache-control=
content-disposition=
content-encoding=
content-language=
content-length=
content-location=
content-range=
content-type=
cookie=
date=
etag=
expect=
expires=
from=
host=
if-match=
if-modified-since=
if-none-match=
if-range=
if-unmodified-since=
last-modified=
link=
location=
max-forwards=
proxy-authenticate=
proxy-authorization=
range=
referer=
refresh=
retry-after=
server=
set-cookie=
strict-transport-security=
transfer-encoding=
user-agent=
vary=
via=
www-authenticate="""


STATIC_TABLE: Final[list[Header]] = [
    (name, value) for name, _, value in [line.partition("=") for line in _STATIC.split("\n")]
]
"""The headers with an index for good; the first has 1."""

_FIRST_DYNAMIC: Final = len(STATIC_TABLE) + 1


def _entry_bytes(header: Header) -> int:
    return len(header[0]) + len(header[1]) + ENTRY_BYTES


_STATIC_SIZES: Final = [_entry_bytes(header) for header in STATIC_TABLE]


class HpackError(ValueError):
    """A block breaks RFC 7541. Both sides' tables may differ from now on: the connection ends."""


class HeaderListTooLarge(Exception):
    """The headers of a block are over the limit. The table is up to date: the stream is refused, no more."""


_texts: Final[dict[bytes, str]] = {}
"""Names and values by their Huffman code, of all connections; at most `_MAX_KEPT_STRINGS`."""


def _decode_huffman(coded: bytes) -> str:
    try:
        return huffman.decode(coded).decode("latin-1")
    except ValueError as error:
        raise HpackError(f"a header's string is not in Huffman code: {error}") from None


def _read_huffman(coded: bytes) -> str:
    """The text of a string that may well come again."""
    text = _texts.get(coded)
    if text is None:
        text = _decode_huffman(coded)
        if len(coded) <= _MAX_KEPT_STRING_BYTES:
            if len(_texts) >= _MAX_KEPT_STRINGS:
                _texts.clear()
            _texts[coded] = text
    return text


def _read_integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """An integer whose prefix is full, and the place behind it; `at` is that of its first byte behind the prefix."""
    value = prefix
    for place in range(_MAX_CONTINUATION_BYTES):
        byte = block[at + place]
        value += (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >= _MAX_INTEGER:
                break
            return value, at + place + 1
    raise HpackError(f"an integer is not below {_MAX_INTEGER}")


class HeaderDecoder:
    """Reads the blocks of one connection, all of them and in order.

    `max_table_bytes` is our SETTINGS_HEADER_TABLE_SIZE, the limit of the peer's dynamic table. Less than 4096 is for a
    peer that knows of it from its first block on. `max_list_bytes` is our SETTINGS_MAX_HEADER_LIST_SIZE, which counts
    32 bytes for a header beside its name and value.
    """

    __slots__ = ("_blocks", "_capacity", "_max_list_bytes", "_max_table_bytes", "_sizes", "_table", "_used")

    def __init__(self, max_table_bytes: int = DEFAULT_TABLE_BYTES, max_list_bytes: int = MAX_LIST_BYTES) -> None:
        self._max_table_bytes = max_table_bytes
        self._max_list_bytes = max_list_bytes
        self._capacity = min(max_table_bytes, DEFAULT_TABLE_BYTES)
        self._used = 0
        # Both tables in one list, by index, and what each entry counts. No header has index 0: its entry is never used.
        self._table: list[Header] = [("", ""), *STATIC_TABLE]
        self._sizes: list[int] = [0, *_STATIC_SIZES]
        self._blocks: dict[bytes, list[Header]] = {}

    @property
    def table_bytes(self) -> int:
        """What the entries of the dynamic table count together."""
        return self._used

    def decode(self, block: bytes | memoryview) -> list[Header]:
        """The headers of a block. Equal blocks may answer with one list, so callers do not change it.

        HpackError for a block that breaks the format, after which this decoder is of no more use; HeaderListTooLarge
        for more headers than the limit. It holds no more of them than the limit at any time.
        """
        data = bytes(block)
        if len(data) <= _MAX_KEPT_BLOCK_BYTES:
            known = self._blocks.get(data)
            if known is not None:
                return known
        headers: list[Header] = []
        try:
            at = self._read_size_updates(data) if data and _SIZE_UPDATE <= data[0] < _INSERTED else 0
            left = self._read_headers(data, at, headers)
        except IndexError:
            # Each byte is read through the bounds check of `data`, and each index through that of the table.
            raise HpackError("a block ends within a header, or has an index that no header has") from None
        if left < 0:
            raise HeaderListTooLarge(f"a header list is over {self._max_list_bytes} bytes")
        return headers

    def _read_headers(self, data: bytes, at: int, headers: list[Header]) -> int:
        """Read the block from `at` to its end; the bytes that the limit of the list leaves over, negative if none."""
        table, sizes = self._table, self._sizes
        left, end = self._max_list_bytes, len(data)
        # A slice of a string costs less than one of bytes that is decoded.
        text = data.decode("latin-1")
        inserts = at > 0
        while at < end:
            byte = data[at]
            at += 1
            if byte > _INDEXED:
                index = byte & 0x7F
                if index == 0x7F:
                    index, at = _read_integer(data, at, 0x7F)
                left -= sizes[index]
                if left >= 0:
                    headers.append(table[index])
                continue
            if byte & 0x3F == 0 or byte == _NEVER_INDEXED:
                if byte == _INDEXED:
                    raise HpackError("no header has the index 0")
                size = data[at]
                at += 1
                if size < 0x7F:
                    name = text[at : at + size]
                    at += size
                else:
                    name, at = _read_string(data, text, at, True)
            else:
                name, at = self._read_indexed_name(data, byte, at)
            size = data[at]
            at += 1
            if size < 0x7F:
                value = text[at : at + size]
                at += size
            else:
                value, at = _read_string(data, text, at, byte < _NEVER_INDEXED)
            if at > end:
                raise HpackError("a string is longer than its block")
            header = (name, value)
            size = len(name) + len(value) + ENTRY_BYTES
            left -= size
            if left >= 0:
                headers.append(header)
            if byte & _INSERTED:
                inserts = True
                self._insert(header, size)
        self._remember(data, headers, left, inserts)
        return left

    def _read_indexed_name(self, data: bytes, byte: int, at: int) -> tuple[str, int]:
        if byte & _INSERTED:
            index, full = byte & 0x3F, 0x3F
        elif byte & _SIZE_UPDATE:
            raise HpackError("the size of the table changes behind the start of a block")
        else:
            index, full = byte & 0x0F, 0x0F
        if index == full:
            index, at = _read_integer(data, at, full)
        return self._table[index][0], at

    def _read_size_updates(self, data: bytes) -> int:
        at = 0
        for _ in range(_MAX_SIZE_UPDATES):
            if at == len(data) or not _SIZE_UPDATE <= data[at] < _INSERTED:
                break
            capacity = data[at] & 0x1F
            at += 1
            if capacity == 0x1F:
                capacity, at = _read_integer(data, at, 0x1F)
            if capacity > self._max_table_bytes:
                raise HpackError(f"a table of {capacity} bytes is over the limit of {self._max_table_bytes}")
            self._capacity = capacity
            self._evict(0)
        return at

    def _insert(self, header: Header, size: int) -> None:
        self._evict(size)
        if size <= self._capacity:
            self._table.insert(_FIRST_DYNAMIC, header)
            self._sizes.insert(_FIRST_DYNAMIC, size)
            self._used += size

    def _evict(self, size: int) -> None:
        """Make room for an entry of a size; one that is larger than the table empties it."""
        table, sizes, used = self._table, self._sizes, self._used
        room = self._capacity - size
        while used > room and len(table) > _FIRST_DYNAMIC:
            table.pop()
            used -= sizes.pop()
        self._used = used

    def _remember(self, data: bytes, headers: list[Header], left: int, inserts: bool) -> None:
        blocks = self._blocks
        if inserts:
            # Every index may mean something else now.
            if blocks:
                blocks.clear()
        elif left >= 0 and len(data) <= _MAX_KEPT_BLOCK_BYTES:
            if len(blocks) >= _MAX_KEPT_BLOCKS:
                blocks.clear()
            blocks[data] = headers


def _read_string(data: bytes, text: str, at: int, repeats: bool) -> tuple[str, int]:
    """A string in Huffman code or of many bytes, and the place behind it; `at` is the place behind its first byte."""
    byte = data[at - 1]
    size = byte & 0x7F
    if size == 0x7F:
        size, at = _read_integer(data, at, 0x7F)
    # Behind the end of the block is seen by who reads on.
    end = at + size
    if byte < _HUFFMAN:
        return text[at:end], end
    return _read_huffman(data[at:end]) if repeats else _decode_huffman(data[at:end]), end


_UNIQUE: Final = frozenset(
    "age authorization content-length content-range etag grpc-message grpc-status-details-bin grpc-timeout "
    "proxy-authorization traceparent x-mq-date-time x-mq-request-id".split()
)
"""Names whose values differ from call to call."""

_SECRET: Final = frozenset(("authorization", "proxy-authorization"))


def _index_static_table() -> tuple[dict[Header, bytes], dict[str, int]]:
    headers, names = {}, {}
    for index in range(_FIRST_DYNAMIC - 1, 0, -1):
        header = STATIC_TABLE[index - 1]
        headers[header] = bytes((_INDEXED | index,))
        names[header[0]] = index
    return headers, names


_STATIC_INDEXED, _STATIC_NAMES = _index_static_table()


class HeaderEncoder:
    """Writes the blocks of one connection, all of them and in order.

    Headers get into the dynamic table, but for those whose values differ from call to call and values of more than 64
    bytes. These are not compressed: Huffman code would cost more time for each than its bytes are worth.
    """

    __slots__ = ("_capacity", "_indexed", "_smallest", "_table", "_told", "_used", "changes")

    def __init__(self) -> None:
        self.changes = 0
        """Grows when the table changes: blocks that were made before mean something else from then on."""
        self._capacity = DEFAULT_TABLE_BYTES
        # What the peer thinks is our capacity, and the smallest of those that it has not heard of.
        self._told = DEFAULT_TABLE_BYTES
        self._smallest = DEFAULT_TABLE_BYTES
        self._used = 0
        self._table: list[Header] = []
        # Headers of both tables with the index that they have at present, those of the dynamic once they were used.
        self._indexed: dict[Header, bytes] = dict(_STATIC_INDEXED)

    @property
    def table_bytes(self) -> int:
        """What the entries of the dynamic table count together."""
        return self._used

    def resize(self, max_table_bytes: int) -> None:
        """Follow the peer's SETTINGS_HEADER_TABLE_SIZE; the next block begins with the change."""
        self._capacity = capacity = min(max_table_bytes, DEFAULT_TABLE_BYTES)
        self._smallest = min(self._smallest, capacity)
        self._evict(0)

    def encode(self, headers: Iterable[Header]) -> bytes:
        """The block of headers. ValueError for a character that is not of Latin-1; the encoder stays usable."""
        block = bytearray()
        if self._smallest < self._told or self._capacity != self._told:
            self._write_size_updates(block)
        indexed = self._indexed
        try:
            for header in headers:
                known = indexed.get(header)
                if known is not None:
                    block += known
                else:
                    self._write_new(block, header)
        except UnicodeEncodeError:
            # The peer never sees what the block has put into the table: the next one empties it on both sides.
            self._forget()
            raise
        self._told = self._smallest = self._capacity
        return bytes(block)

    def _write_size_updates(self, block: bytearray) -> None:
        self.changes += 1
        if self._smallest < self._capacity:
            _write_integer(block, _SIZE_UPDATE, 0x1F, self._smallest)
        _write_integer(block, _SIZE_UPDATE, 0x1F, self._capacity)

    def _write_new(self, block: bytearray, header: Header) -> None:
        """Write a header that has no index yet, or whose index has changed."""
        table, (name, value) = self._table, header
        size = _entry_bytes(header)
        inserts = len(value) <= MAX_INDEXED_VALUE_BYTES and size <= self._capacity and name not in _UNIQUE
        if inserts and header in table:
            part = bytearray()
            _write_integer(part, _INDEXED, 0x7F, _FIRST_DYNAMIC + table.index(header))
            self._indexed[header] = known = bytes(part)
            block += known
            return
        index = self._find_name(name)
        if inserts:
            _write_integer(block, _INSERTED, 0x3F, index)
        else:
            _write_integer(block, _NEVER_INDEXED if name in _SECRET else _NOT_INDEXED, 0x0F, index)
        if not index:
            _write_string(block, name, inserts)
        _write_string(block, value, inserts)
        if inserts:
            self._evict(size)
            table.insert(0, header)
            self._used += size
            self._drop_indexes()

    def _find_name(self, name: str) -> int:
        """The least index of a header with the name, or 0."""
        index = _STATIC_NAMES.get(name)
        if index is not None:
            return index
        for place, header in enumerate(self._table):
            if header[0] == name:
                return _FIRST_DYNAMIC + place
        return 0

    def _evict(self, size: int) -> None:
        table, room = self._table, self._capacity - size
        if self._used > room:
            while self._used > room and table:
                self._used -= _entry_bytes(table.pop())
            self._drop_indexes()

    def _drop_indexes(self) -> None:
        self.changes += 1
        # In place: the loop of `encode` holds it.
        self._indexed.clear()
        self._indexed.update(_STATIC_INDEXED)

    def _forget(self) -> None:
        self._table.clear()
        self._used = self._smallest = 0
        self._drop_indexes()


def _write_integer(block: bytearray, pattern: int, full: int, value: int) -> None:
    """Add an integer whose prefix has the bits of `full` and stands behind the bits of `pattern`."""
    if value < full:
        block.append(pattern | value)
        return
    block.append(pattern | full)
    value -= full
    while value >= 0x80:
        block.append(value & 0x7F | 0x80)
        value >>= 7
    block.append(value)


def _write_string(block: bytearray, text: str, compresses: bool) -> None:
    raw = text.encode("latin-1")
    if compresses and raw:
        coded = huffman.encode(raw)
        # Of equal length is coded, too, as in the examples of RFC 7541.
        if len(coded) <= len(raw):
            _write_integer(block, _HUFFMAN, 0x7F, len(coded))
            block += coded
            return
    _write_integer(block, 0, 0x7F, len(raw))
    block += raw
