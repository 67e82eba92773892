"""The server side of a WebSocket that carries MQTT (RFC 6455; MQTT 5.0, chapter 6), sans-io.

What the frames carry is one stream, however it is cut into frames [MQTT-6.0.0-2]; so nothing waits here for the end of
a frame.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha1
from typing import Final

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["MAX_HANDSHAKE_BYTES", "WEBSOCKET_PATH", "WebSocketStream", "begins_websocket"]

MAX_HANDSHAKE_BYTES: Final = 8192
"""Bytes of the HTTP request that begins a WebSocket at most."""

WEBSOCKET_PATH: Final = "/mqtt"
"""Where the WebSocket is."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_END: Final = b"\r\n\r\n"
_PROTOCOLS: Final = ("mqtt", "mqttv3.1")
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
_MAX_CONTROL_BYTES: Final = 125
_KEY_BYTES: Final = 16


def begins_websocket(first: int) -> bool:
    """Whether the first byte of a connection is that of an HTTP request: no packet that may come first has it."""
    return first == ord("G")


class WebSocketStream:
    """One connection. What `feed` gives back are the bytes of MQTT; what is to be answered is in `answers`."""

    def __init__(self) -> None:
        self.answers = b""
        """Bytes for the client; whoever sends them clears them."""
        self.is_closed = False
        """Whether the client has closed the WebSocket, or never opened it: after the answers the connection ends."""
        self._is_open = False
        self._held = b""
        self._missing_bytes = 0
        self._mask = b""
        self._opcode = _BINARY
        self._control = b""

    def feed(self, data: bytes) -> bytes:
        """What the client says. PROTOCOL_ERROR for frames that may not be."""
        data = self._held + data
        self._held = b""
        if not self._is_open:
            end = data.find(_END)
            if end < 0 and len(data) <= MAX_HANDSHAKE_BYTES:
                self._held = data
                return b""
            if end < 0:
                self._refuse("431 Request Header Fields Too Large")
                return b""
            self._open(data[:end])
            data = data[end + len(_END) :]
        found: list[bytes] = []
        while data and not self.is_closed:
            if not self._missing_bytes:
                # What is left of a head that is not whole is held, so that nothing is left here.
                data = self._begin_frame(data)
                continue
            part, data = data[: self._missing_bytes], data[self._missing_bytes :]
            self._missing_bytes -= len(part)
            part = self._unmask(part)
            if self._opcode in (_CONTINUATION, _BINARY):
                found.append(part)
                continue
            self._control += part
            if not self._missing_bytes:
                self._end_control()
        return b"".join(found)

    @staticmethod
    def encode(data: bytes) -> bytes:
        """A frame with bytes of MQTT."""
        return _frame(_BINARY, data)

    def close(self) -> bytes:
        """The frame that ends the WebSocket in good order; nothing where there is none."""
        return _frame(_CLOSE, (1000).to_bytes(2, "big")) if self._is_open and not self.is_closed else b""

    # The handshake

    def _open(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path, _, version = rest.rpartition(" ")
        fields: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = f"{fields[name]},{value.strip()}" if name in fields else value.strip()
        key = fields.get("sec-websocket-key", "")
        offered = [one.strip() for one in fields.get("sec-websocket-protocol", "").split(",")]
        chosen = next((one for one in offered if one in _PROTOCOLS), None)
        if method != "GET" or version != "HTTP/1.1":
            self._refuse("400 Bad Request")
        elif path.partition("?")[0] != WEBSOCKET_PATH:
            self._refuse("404 Not Found")
        elif fields.get("upgrade", "").lower() != "websocket" or "upgrade" not in fields.get("connection", "").lower():
            self._refuse("426 Upgrade Required", "Upgrade: websocket\r\nConnection: Upgrade\r\n")
        elif fields.get("sec-websocket-version") != "13":
            self._refuse("426 Upgrade Required", "Sec-WebSocket-Version: 13\r\n")
        elif not _is_key(key) or chosen is None:
            self._refuse("400 Bad Request")
        else:
            self._is_open = True
            accept = b64encode(sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()
            self.answers += (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n"
            ).encode()

    def _refuse(self, status: str, fields: str = "") -> None:
        self.is_closed = True
        self.answers += f"HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()

    # Frames

    def _begin_frame(self, data: bytes) -> bytes:
        """Read a frame's head; what is behind it. A head that is not whole is held."""
        size = 2
        if len(data) >= 2:
            length = data[1] & 0x7F
            size += {126: 2, 127: 8}.get(length, 0) + 4
        if len(data) < size:
            self._held = data
            return b""
        opcode, length = data[0] & 0x0F, data[1] & 0x7F
        if data[0] & 0x70 or opcode not in (_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG) or not data[1] & 0x80:
            words = f"A WebSocket frame begins with {data[:2].hex()}: binary and masked ones are expected."
            raise PacketRefused(ReasonCode.PROTOCOL_ERROR, words)
        if opcode >= _CLOSE and (length > _MAX_CONTROL_BYTES or not data[0] & 0x80):
            raise PacketRefused(ReasonCode.PROTOCOL_ERROR, "A control frame of the WebSocket is too long, or cut.")
        if length > _MAX_CONTROL_BYTES:
            length = int.from_bytes(data[2 : size - 4], "big")
        self._opcode, self._mask, self._missing_bytes, self._control = opcode, data[size - 4 : size], length, b""
        if not length and opcode >= _CLOSE:
            self._end_control()
        return data[size:]

    def _unmask(self, part: bytes) -> bytes:
        size = len(part)
        # One mask more than the part needs: the part may end within a mask, and the rest of the frame begins there.
        mask = self._mask * (size // 4 + 2)
        self._mask = mask[size % 4 : size % 4 + 4]
        return (int.from_bytes(part, "big") ^ int.from_bytes(mask[:size], "big")).to_bytes(size, "big")

    def _end_control(self) -> None:
        if self._opcode == _PING:
            self.answers += _frame(_PONG, self._control)
        elif self._opcode == _CLOSE:
            self.answers += _frame(_CLOSE, self._control[:2])
            self.is_closed = True


def _is_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == _KEY_BYTES
    except ValueError:
        return False


def _frame(opcode: int, data: bytes) -> bytes:
    size = len(data)
    if size <= _MAX_CONTROL_BYTES:
        head = bytes((0x80 | opcode, size))
    elif size <= 0xFFFF:
        head = bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")
    return head + data
