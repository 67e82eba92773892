"""The server side of a WebSocket (RFC 6455), sans-io: the handshake, frames, and messages of text.

`WebSocketFrames` hands out what frames carry as it comes, for protocols that take it as one stream. `TextMessages`
joins the frames of each message.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha1
from typing import Final

from millstream.model.errors import ConnectionFailed

__all__ = [
    "MAX_CLOSE_REASON_BYTES",
    "MAX_CONTROL_BYTES",
    "CloseCode",
    "FramePart",
    "FrameRefused",
    "HandshakeRefusal",
    "Opcode",
    "TextMessages",
    "WebSocketFrames",
    "accept_fields",
    "check_handshake",
    "encode_close",
    "encode_frame",
    "encode_head",
]

MAX_CONTROL_BYTES: Final = 125
"""Bytes that a ping, a pong or a close carries at most."""

MAX_CLOSE_REASON_BYTES: Final = MAX_CONTROL_BYTES - 2
"""Bytes of the words in a close at most; longer ones are cut."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION: Final = "13"
_KEY_BYTES: Final = 16

_BLOCK_BYTES: Final = 4 * 1024
"""Bytes of a message that are kept as one piece: thousands of messages that grow as a whole, each in turn, leave as
much memory between them as they take."""
_TWO_BYTES, _EIGHT_BYTES = 126, 127


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why a WebSocket is closed, as far as this side says so (RFC 6455, 7.4.1, and its registry)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    TRY_AGAIN_LATER = 1013


_OPCODES: Final = frozenset(int(one) for one in Opcode)
_DATA: Final = frozenset((Opcode.TEXT, Opcode.BINARY))
_KNOWN_CLOSE_CODES: Final = frozenset((*range(1000, 1004), *range(1007, 1015)))
_OWN_CLOSE_CODES: Final = range(3000, 5000)
"""Codes that libraries and applications give their own meaning."""


class FrameRefused(ConnectionFailed):
    """The client broke the protocol, or went beyond a limit: the WebSocket is closed with `code`."""

    def __init__(self, code: CloseCode, message: str) -> None:
        super().__init__("WEBSOCKET_FRAME", message)
        self.code = code


# The handshake


@dataclass(frozen=True, slots=True)
class HandshakeRefusal:
    """An HTTP status, the header fields that belong to it, and why."""

    status: int
    fields: tuple[tuple[str, str], ...]
    words: str


def check_handshake(fields: Mapping[str, str]) -> HandshakeRefusal | None:
    """Why a GET with these header fields, their names in lower case, begins no WebSocket; None where it does."""
    connection = [one.strip().lower() for one in fields.get("connection", "").split(",")]
    if fields.get("upgrade", "").strip().lower() != "websocket" or "upgrade" not in connection:
        upgrade = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
        return HandshakeRefusal(426, upgrade, "A WebSocket is opened here: the request has to ask for the upgrade.")
    version = fields.get("sec-websocket-version", "")
    if version != _VERSION:
        words = f"The version of the WebSocket is {version[:20]!r}; {_VERSION} is taken."
        return HandshakeRefusal(426, (("Sec-WebSocket-Version", _VERSION),), words)
    if not _is_key(fields.get("sec-websocket-key", "")):
        return HandshakeRefusal(400, (), f"Sec-WebSocket-Key is not the Base64 of {_KEY_BYTES} bytes.")
    return None


def accept_fields(fields: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The header fields of the answer 101 to a handshake that was checked."""
    digest = sha1(fields["sec-websocket-key"].encode() + _GUID, usedforsecurity=False).digest()
    return (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", b64encode(digest).decode()))


def _is_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == _KEY_BYTES
    except ValueError:
        return False


# Frames


@dataclass(frozen=True, slots=True)
class FramePart:
    """Bytes of a message, and whether they are its last ones."""

    opcode: Opcode
    data: bytes
    ends_message: bool


class WebSocketFrames:
    """What a client says behind the handshake. What is to be answered is in `answers`.

    `taken` are the kinds of messages that are expected; a message of more than `max_message_bytes` is refused by the
    heads of its frames, before it is there.
    """

    def __init__(self, taken: frozenset[Opcode] = _DATA, max_message_bytes: int | None = None) -> None:
        self.answers = b""
        """Bytes for the client; whoever sends them clears them."""
        self.is_closed = False
        """Whether the client has closed the WebSocket: after the answers the connection ends."""
        self.missing_bytes = 0
        """Bytes of the present frame that are still to come."""
        self._taken = taken
        self._max_message_bytes = max_message_bytes
        self._held = b""
        self._mask = b""
        self._opcode = Opcode.CONTINUATION
        self._is_final = True
        self._control = b""
        self._message: Opcode | None = None
        """Of what kind the message is whose end has not come."""
        self._message_bytes = 0

    def feed(self, data: bytes) -> list[FramePart]:
        """The parts of messages that these bytes hold. FrameRefused for frames that may not be."""
        if self._held:
            data, self._held = self._held + data, b""
        found: list[FramePart] = []
        place, end = 0, len(data)
        while place < end and not self.is_closed:
            if not self.missing_bytes:
                size, length = self._begin_frame(data, place)
                if not size:
                    # What is left of a head that is not whole.
                    self._held = data[place:]
                    break
                place += size
                self.missing_bytes = length
                if length:
                    continue
                part = b""
            else:
                part = self._unmask(data[place : place + self.missing_bytes])
                place += len(part)
                self.missing_bytes -= len(part)
            self._take(part, found)
        return found

    def _take(self, part: bytes, found: list[FramePart]) -> None:
        is_whole = not self.missing_bytes
        if self._opcode >= Opcode.CLOSE:
            self._control += part
            if is_whole:
                self._end_control()
            return
        assert self._message is not None
        ends_message = is_whole and self._is_final
        if part or ends_message:
            found.append(FramePart(self._message, part, ends_message))
        if ends_message:
            self._message = None

    def _begin_frame(self, data: bytes, place: int) -> tuple[int, int]:
        """Read a frame's head: how many bytes it has, none where it is not whole, and how many follow it."""
        if len(data) - place < 2:
            return 0, 0
        first, second = data[place], data[place + 1]
        length = second & 0x7F
        more = 2 if length == _TWO_BYTES else 8 if length == _EIGHT_BYTES else 0
        size = 2 + more + 4
        number, is_final = first & 0x0F, bool(first & 0x80)
        if first & 0x70 or number not in _OPCODES or not second & 0x80:
            words = f"A WebSocket frame begins with {data[place : place + 2].hex()}: what is sent has to be masked."
            raise FrameRefused(CloseCode.PROTOCOL_ERROR, words)
        if number >= Opcode.CLOSE and (more or not is_final):
            raise FrameRefused(CloseCode.PROTOCOL_ERROR, "A control frame of the WebSocket is too long, or cut.")
        if len(data) - place < size:
            return 0, 0
        if more:
            length = int.from_bytes(data[place + 2 : place + 2 + more], "big")
            if length <= (MAX_CONTROL_BYTES if more == 2 else 0xFFFF) or length >> 63:
                raise FrameRefused(CloseCode.PROTOCOL_ERROR, "The length of a WebSocket frame is in a wrong form.")
        self._opcode, self._is_final = Opcode(number), is_final
        self._mask, self._control = data[place + size - 4 : place + size], b""
        if number < Opcode.CLOSE:
            self._begin_part(self._opcode, length)
        return size, length

    def _begin_part(self, opcode: Opcode, length: int) -> None:
        if (opcode is Opcode.CONTINUATION) is (self._message is None):
            words = "A WebSocket frame goes on with no message, or begins one within another."
            raise FrameRefused(CloseCode.PROTOCOL_ERROR, words)
        if opcode is not Opcode.CONTINUATION:
            if opcode not in self._taken:
                words = f"A WebSocket message of the kind {opcode.name.lower()} is not taken."
                raise FrameRefused(CloseCode.UNSUPPORTED_DATA, words)
            self._message, self._message_bytes = opcode, 0
        self._message_bytes += length
        if self._max_message_bytes is not None and self._message_bytes > self._max_message_bytes:
            words = f"A WebSocket message has {self._message_bytes} bytes; the limit is {self._max_message_bytes}."
            raise FrameRefused(CloseCode.MESSAGE_TOO_BIG, words)

    def _unmask(self, part: bytes) -> bytes:
        size = len(part)
        # One mask more than the part needs: the part may end within a mask, and the rest of the frame begins there.
        mask = self._mask * (size // 4 + 2)
        self._mask = mask[size % 4 : size % 4 + 4]
        return (int.from_bytes(part, "big") ^ int.from_bytes(mask[:size], "big")).to_bytes(size, "big")

    def _end_control(self) -> None:
        if self._opcode is Opcode.PING:
            self.answers += encode_frame(Opcode.PONG, self._control)
        elif self._opcode is Opcode.CLOSE:
            _check_close(self._control)
            self.answers += encode_frame(Opcode.CLOSE, self._control[:2])
            self.is_closed = True


class TextMessages:
    """Whole messages of text, each of at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.frames = WebSocketFrames(frozenset((Opcode.TEXT,)), max_bytes)
        self._blocks: list[bytes] = []
        self._parts = bytearray()
        """What is there behind the blocks."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are there of a message whose end has not come."""
        return len(self._blocks) * _BLOCK_BYTES + len(self._parts)

    def feed(self, data: bytes) -> list[str]:
        """The messages whose end these bytes hold. FrameRefused for what may not be."""
        found: list[str] = []
        for part in self.frames.feed(data):
            self._parts += part.data
            if part.ends_message:
                message = b"".join((*self._blocks, self._parts))
                self._blocks, self._parts = [], bytearray()
                try:
                    found.append(message.decode())
                except UnicodeDecodeError:
                    words = "A WebSocket message of text is not UTF-8."
                    raise FrameRefused(CloseCode.INVALID_DATA, words) from None
            while len(self._parts) >= _BLOCK_BYTES:
                self._blocks.append(bytes(self._parts[:_BLOCK_BYTES]))
                del self._parts[:_BLOCK_BYTES]
        return found


def encode_frame(opcode: Opcode, data: bytes) -> bytes:
    """A frame that is a whole message."""
    return encode_head(opcode, len(data)) + data


def encode_head(opcode: Opcode, size: int) -> bytes:
    """What goes before so many bytes that are a whole message."""
    if size <= MAX_CONTROL_BYTES:
        return bytes((0x80 | opcode, size))
    if size <= 0xFFFF:
        return bytes((0x80 | opcode, _TWO_BYTES)) + size.to_bytes(2, "big")
    return bytes((0x80 | opcode, _EIGHT_BYTES)) + size.to_bytes(8, "big")


def encode_close(code: CloseCode, words: str = "") -> bytes:
    """The frame that ends a WebSocket, and says why."""
    reason = words.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore").encode()
    return encode_frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason)


def _check_close(control: bytes) -> None:
    if not control:
        return
    code = int.from_bytes(control[:2], "big")
    if len(control) == 1 or not (code in _KNOWN_CLOSE_CODES or code in _OWN_CLOSE_CODES):
        raise FrameRefused(
            CloseCode.PROTOCOL_ERROR, f"A WebSocket is closed with {control[:2].hex()}, which is no code."
        )
    try:
        control[2:].decode()
    except UnicodeDecodeError:
        raise FrameRefused(CloseCode.INVALID_DATA, "The words in the close of a WebSocket are not UTF-8.") from None
