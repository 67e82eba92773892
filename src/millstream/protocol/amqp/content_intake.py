"""Assembles methods and message content of one channel from frames. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from struct import error as struct_error
from typing import Final

from millstream.protocol.amqp.basic_methods import BasicAck, BasicPublish
from millstream.protocol.amqp.frames import CONTENT_HEADER
from millstream.protocol.amqp.method_codec import AmqpMethod, decode_method, decode_short_text
from millstream.protocol.amqp.reply_codes import ChannelFailure, ConnectionFailure, ReplyCode

__all__ = ["MAX_PROPERTY_BYTES", "ContentIntake", "HeldContent", "Publication"]

MAX_PROPERTY_BYTES: Final = 16 * 1024 + 2 * 1024
"""Bytes of a message's properties at most: a header table of 16 KiB, and the short strings beside it."""

_BASIC: Final = 60
_PUBLISH_ID: Final = b"\x00\x3c\x00\x28"
_ACK_ID: Final = b"\x00\x3c\x00\x50"
_ACK_BYTES: Final = 13


@dataclass(slots=True)
class Publication:
    """A message that came whole. `properties` are the flags and values of its header, as they came."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    properties: bytes
    body: bytes


class HeldContent:
    """What the channels of a connection hold of messages that are not whole, kept up with every frame: many channels
    and many parts cost no more than one."""

    __slots__ = ("held_bytes", "missing_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.missing_bytes = 0
        """Bytes that bodies still miss."""


class ContentIntake:
    """One channel's frames. Each `take_` gives what is whole by then, or None."""

    __slots__ = ("_all", "_held_bytes", "_max_body_bytes", "_missing_bytes", "_parts", "_publication", "_wants_header")

    def __init__(self, max_body_bytes: int, all_held: HeldContent) -> None:
        self._max_body_bytes = max_body_bytes
        self._all = all_held
        self._held_bytes = 0
        self._publication: Publication | None = None
        self._wants_header = False
        self._missing_bytes = 0
        self._parts: list[bytes] = []

    def forget(self) -> None:
        """The channel takes nothing more; a message that is not whole is let go."""
        self._note(-self._held_bytes, -self._missing_bytes)
        self._publication = None
        self._parts = []

    def _note(self, held_bytes: int, missing_bytes: int) -> None:
        """So many bytes more are held, and missing."""
        self._held_bytes += held_bytes
        self._missing_bytes += missing_bytes
        self._all.held_bytes += held_bytes
        self._all.missing_bytes += missing_bytes

    def take_method(self, payload: bytes) -> AmqpMethod | None:
        """A method that stands alone; None for a publication, whose content follows. Raises AmqpFailure."""
        if self._publication is not None:
            raise ConnectionFailure(ReplyCode.UNEXPECTED_FRAME, "A method came where a message's content is missing.")
        number = payload[:4]
        # By hand, because they are most of what comes.
        if number == _PUBLISH_ID:
            exchange, at = decode_short_text(payload, 6)
            key, at = decode_short_text(payload, at)
            if at >= len(payload):
                raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, "The method BasicPublish is cut off.")
            bits = payload[at]
            self._publication = Publication(exchange, key, bool(bits & 1), bool(bits & 2), b"", b"")
            self._wants_header = True
            return None
        if number == _ACK_ID and len(payload) == _ACK_BYTES:
            return BasicAck(int.from_bytes(payload[4:12]), bool(payload[12] & 1))
        method = decode_method(payload)
        if method.has_content or isinstance(method, BasicPublish):
            words = f"A client sends no {type(method).__name__}."
            raise ConnectionFailure(ReplyCode.COMMAND_INVALID, words)
        return method

    def take_header(self, payload: bytes) -> Publication | None:
        """The content's header; a message without a body is whole with it. Raises AmqpFailure."""
        publication = self._publication
        if publication is None or not self._wants_header:
            raise ConnectionFailure(ReplyCode.UNEXPECTED_FRAME, "A content header came without its method.")
        try:
            class_id, _, size = CONTENT_HEADER.unpack_from(payload)
        except struct_error:
            raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, "A content header is cut off.") from None
        if class_id != _BASIC:
            words = f"A content header of the class {class_id} follows basic.publish."
            raise ConnectionFailure(ReplyCode.UNEXPECTED_FRAME, words)
        properties = payload[CONTENT_HEADER.size :]
        if size > self._max_body_bytes or len(properties) > MAX_PROPERTY_BYTES:
            self._publication = None
            raise self._too_large(size, len(properties))
        self._wants_header = False
        publication.properties = properties
        if size:
            self._note(0, size)
            return None
        self._publication = None
        return publication

    def take_body(self, payload: bytes) -> Publication | None:
        """A part of the body. Raises AmqpFailure."""
        publication = self._publication
        if publication is None or self._wants_header:
            raise ConnectionFailure(ReplyCode.UNEXPECTED_FRAME, "A body came without its content header.")
        missing = self._missing_bytes - len(payload)
        if missing < 0:
            raise ConnectionFailure(ReplyCode.UNEXPECTED_FRAME, f"A body is {-missing} bytes longer than announced.")
        if missing:
            self._note(len(payload), -len(payload))
            self._parts.append(payload)
            return None
        if self._parts:
            self._parts.append(payload)
            payload = b"".join(self._parts)
            self._parts = []
        self._note(-self._held_bytes, -self._missing_bytes)
        publication.body = payload
        self._publication = None
        return publication

    def _too_large(self, body_bytes: int, property_bytes: int) -> ChannelFailure:
        return ChannelFailure(
            ReplyCode.CONTENT_TOO_LARGE,
            f"a message of {body_bytes} bytes with {property_bytes} bytes of properties is over the limits of "
            f"{self._max_body_bytes} and {MAX_PROPERTY_BYTES}",
        )
