"""Data types of MQTT (MQTT 5.0, section 1.5): integers, strings and binary data, big-endian."""

from __future__ import annotations

from typing import Final

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["MAX_REMAINING_LENGTH", "FieldReader", "encode_binary", "encode_text", "encode_variable"]

MAX_REMAINING_LENGTH: Final = 268_435_455
"""The largest number of four bytes of seven bits each (section 1.5.5)."""

_MAX_TEXT_BYTES: Final = 0xFFFF
_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(128))


def encode_variable(number: int) -> bytes:
    """A variable byte integer, 0 to `MAX_REMAINING_LENGTH`."""
    if number < 128:
        return _ONE_BYTE[number]
    if number < 16_384:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 2_097_152:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21))


def encode_text(text: str) -> bytes:
    """A text behind its length in bytes; MALFORMED_PACKET where it has more than 65,535."""
    return encode_binary(text.encode())


def encode_binary(data: bytes) -> bytes:
    """Binary data behind its length; MALFORMED_PACKET where it has more than 65,535 bytes."""
    if len(data) > _MAX_TEXT_BYTES:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"A field of {len(data)} bytes is over 65,535.")
    return len(data).to_bytes(2, "big") + data


class FieldReader:
    """Reads the fields of one packet in order. Every method raises MALFORMED_PACKET where the bytes end too early."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self._end = len(data) if end is None else end
        self.position = position

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return self._end - self.position

    def byte(self) -> int:
        """One byte."""
        return self.raw(1)[0]

    def short(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self.raw(2), "big")

    def long(self) -> int:
        """A number of four bytes."""
        return int.from_bytes(self.raw(4), "big")

    def variable(self) -> int:
        """A variable byte integer in its shortest form [MQTT-1.5.5-1]."""
        number = 0
        for shift in (0, 7, 14, 21):
            found = self.byte()
            number |= (found & 0x7F) << shift
            if found < 128:
                if shift and not found:
                    raise PacketRefused(ReasonCode.MALFORMED_PACKET, "A number takes more bytes than it needs.")
                return number
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "A variable byte integer has more than four bytes.")

    def text(self) -> str:
        """A text of UTF-8 without U+0000 [MQTT-1.5.4-1] [MQTT-1.5.4-2]."""
        data = self.binary()
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"A text is not UTF-8: {error.reason}.") from None
        if "\0" in text:
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, "A text has the character U+0000.")
        return text

    def binary(self) -> bytes:
        """Binary data behind its length."""
        return self.raw(self.short())

    def raw(self, size_bytes: int) -> bytes:
        """So many bytes."""
        end = self.position + size_bytes
        if end > self._end:
            words = f"The packet ends {end - self._end} bytes before the end of a field."
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, words)
        data = self._data[self.position : end]
        self.position = end
        return data

    def rest(self) -> bytes:
        """All that was not read."""
        return self.raw(self.left)

    def part(self, size_bytes: int) -> FieldReader:
        """A reader of the next so many bytes, which are then read here."""
        end = self.position + size_bytes
        if end > self._end:
            words = f"The packet has {self.left} bytes where {size_bytes} are announced."
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, words)
        part = FieldReader(self._data, self.position, end)
        self.position = end
        return part

    def expect_end(self, packet: str) -> None:
        """Raise MALFORMED_PACKET where something is left."""
        if self.left:
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"{packet} has {self.left} bytes too many.")
