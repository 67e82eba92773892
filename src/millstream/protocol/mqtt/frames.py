"""Splits a byte stream into packets: many from one read, or one over many reads without repeated copies."""

from __future__ import annotations

from typing import Final

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["PacketFrames"]

_MAX_LENGTH_BYTES: Final = 4


class PacketFrames:
    """Gives the first byte of each packet and all behind its length.

    `max_bytes` bounds what is behind the length; a packet that announces more is refused before it is received.
    """

    __slots__ = ("_held", "_missing_bytes", "failure", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.failure: PacketRefused | None = None
        """Why no more packets come: MALFORMED_PACKET, PACKET_TOO_LARGE. Set behind the packets that came before."""
        self._held = bytearray()
        self._missing_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of a packet that is not whole."""
        return len(self._held)

    @property
    def missing_bytes(self) -> int:
        """Bytes of that packet that are to come, as far as is known."""
        return self._missing_bytes

    def forget(self) -> None:
        """The connection is gone: keep nothing of a packet that was not whole. Who had it may live on for long."""
        self._held = bytearray()
        self._missing_bytes = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """The packets that are whole now."""
        if self._held:
            self._held += chunk
            if len(chunk) < self._missing_bytes:
                self._missing_bytes -= len(chunk)
                return []
            chunk = bytes(self._held)
            self._held.clear()
        frames: list[tuple[int, bytes]] = []
        self._missing_bytes = 0
        if self.failure is not None:
            return frames
        position, end, limit = 0, len(chunk), self.max_bytes
        while position + 1 < end:
            length = chunk[position + 1]
            start = position + 2
            if length > 127:
                found = self._long_length(chunk, position + 1)
                if found is None:
                    break
                length, start = found
            if length > limit:
                words = f"A packet of {length} bytes is over the limit of {limit}."
                self.failure = PacketRefused(ReasonCode.PACKET_TOO_LARGE, words)
                return frames
            after = start + length
            if after > end:
                self._missing_bytes = after - end
                break
            frames.append((chunk[position], chunk[start:after]))
            position = after
        if position < end and self.failure is None:
            self._held += chunk[position:]
            self._missing_bytes = self._missing_bytes or 1
        return frames

    def _long_length(self, chunk: bytes, position: int) -> tuple[int, int] | None:
        """The length and where the packet goes on; None where the length is not whole, or too long."""
        length = 0
        for count in range(_MAX_LENGTH_BYTES):
            if position + count >= len(chunk):
                return None
            byte = chunk[position + count]
            length |= (byte & 0x7F) << (7 * count)
            if byte < 128:
                return length, position + count + 1
        self.failure = PacketRefused(ReasonCode.MALFORMED_PACKET, "The length of a packet has more than four bytes.")
        return None
