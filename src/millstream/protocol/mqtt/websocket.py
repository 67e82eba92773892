"""The server side of a WebSocket that carries MQTT (MQTT 5.0, chapter 6), sans-io.

What the frames carry is one stream, however it is cut into frames [MQTT-6.0.0-2]; so nothing waits here for the end of
a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.problem import PROBLEM_TYPE, encode_problem
from millstream.protocol.websocket import (
    CloseCode,
    FrameRefused,
    Opcode,
    WebSocketFrames,
    accept_fields,
    check_handshake,
    encode_close,
    encode_frame,
)

__all__ = ["MAX_HANDSHAKE_BYTES", "WEBSOCKET_PATH", "WebSocketStream", "begins_websocket"]

MAX_HANDSHAKE_BYTES: Final = 8192
"""Bytes of the HTTP request that begins a WebSocket at most."""

WEBSOCKET_PATH: Final = "/mqtt"
"""Where the WebSocket is."""

_END: Final = b"\r\n\r\n"
_PROTOCOLS: Final = ("mqtt", "mqttv3.1")
_TAKEN: Final = frozenset((Opcode.BINARY,))


def begins_websocket(first: int) -> bool:
    """Whether the first byte of a connection is that of an HTTP request: no packet that may come first has it."""
    return first == ord("G")


class WebSocketStream:
    """One connection. What `feed` gives back are the bytes of MQTT; what is to be answered is in `answers`.

    `refuse_page` is asked, with the header fields of the handshake, why the page of a browser may not come in.
    """

    def __init__(self, refuse_page: Callable[[Mapping[str, str]], MillstreamError | None] = lambda _: None) -> None:
        self.answers = b""
        """Bytes for the client; whoever sends them clears them."""
        self.is_closed = False
        """Whether the client has closed the WebSocket, or never opened it: after the answers the connection ends."""
        self._frames: WebSocketFrames | None = None
        """There once the handshake is."""
        self._held = b""
        self._close_code = CloseCode.NORMAL
        self._refuse_page = refuse_page

    def feed(self, data: bytes) -> bytes:
        """What the client says. PROTOCOL_ERROR for frames that may not be."""
        if self._frames is None:
            data = self._held + data
            self._held = b""
            end = data.find(_END)
            if end < 0 and len(data) <= MAX_HANDSHAKE_BYTES:
                self._held = data
                return b""
            if end < 0:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return b""
            self._open(data[:end])
            data = data[end + len(_END) :]
        if self._frames is None:
            return b""
        try:
            parts = self._frames.feed(data)
        except FrameRefused as error:
            self._close_code = error.code
            raise PacketRefused(ReasonCode.PROTOCOL_ERROR, error.message) from None
        self.answers += self._frames.answers
        self._frames.answers = b""
        self.is_closed = self._frames.is_closed
        return parts[0].data if len(parts) == 1 else b"".join([part.data for part in parts])

    @staticmethod
    def encode(data: bytes) -> bytes:
        """A frame with bytes of MQTT."""
        return encode_frame(Opcode.BINARY, data)

    def close(self) -> bytes:
        """The frame that ends the WebSocket, in good order or for a bad frame; nothing where there is none."""
        return encode_close(self._close_code) if self._frames is not None and not self.is_closed else b""

    def _open(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path, _, version = rest.rpartition(" ")
        fields: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = f"{fields[name]},{value.strip()}" if name in fields else value.strip()
        offered = [one.strip() for one in fields.get("sec-websocket-protocol", "").split(",")]
        chosen = next((one for one in offered if one in _PROTOCOLS), None)
        if method != "GET" or version != "HTTP/1.1":
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif error := self._refuse_page(fields):
            problem = encode_problem(HTTPStatus.FORBIDDEN, error)
            self._refuse(HTTPStatus.FORBIDDEN, (("Content-Type", PROBLEM_TYPE),), problem)
        elif path.partition("?")[0] != WEBSOCKET_PATH:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif refusal := check_handshake(fields):
            self._refuse(HTTPStatus(refusal.status), refusal.fields)
        elif chosen is None:
            self._refuse(HTTPStatus.BAD_REQUEST)
        else:
            self._frames = WebSocketFrames(_TAKEN)
            accepted = (*accept_fields(fields), ("Sec-WebSocket-Protocol", chosen))
            self.answers += _head(HTTPStatus.SWITCHING_PROTOCOLS, accepted)

    def _refuse(self, status: HTTPStatus, fields: Iterable[tuple[str, str]] = (), body: bytes = b"") -> None:
        self.is_closed = True
        ending = (("Content-Length", str(len(body))), ("Connection", "close"))
        self.answers += _head(status, (*(one for one in fields if one[0] != "Connection"), *ending)) + body


def _head(status: HTTPStatus, fields: Iterable[tuple[str, str]]) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields])
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n".encode()
