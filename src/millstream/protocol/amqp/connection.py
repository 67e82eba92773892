"""The server side of one AMQP 0-9-1 connection, sans-io: bytes in, events and bytes out.

The core keeps what the protocol itself rules: the order of opening, the limits that are agreed, channels, the frames of
each, heartbeats and both ways to close. What methods mean is its owner's: it answers events with `send` and takes what
is to be written by `take_outgoing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import millstream.protocol.amqp.topology_methods  # noqa: F401 - `decode_method` knows the methods that are imported
from millstream.protocol.amqp.content_intake import ContentIntake, HeldContent, Publication
from millstream.protocol.amqp.field_table import FieldTable
from millstream.protocol.amqp.frames import (
    BODY,
    DEFAULT_FRAME_BYTES,
    FRAME_END,
    FRAME_HEADER,
    FRAME_OVERHEAD_BYTES,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    MIN_FRAME_BYTES,
    PROTOCOL_HEADER,
    content_frames,
    method_frame,
)
from millstream.protocol.amqp.method_codec import METHOD_ID, AmqpMethod, decode_method
from millstream.protocol.amqp.reply_codes import AmqpFailure, ChannelFailure, ConnectionFailure, ReplyCode
from millstream.protocol.amqp.session_methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)

__all__ = [
    "FIRST_FRAME_BYTES",
    "HANDSHAKE_LIMIT_S",
    "AmqpCore",
    "AmqpEvent",
    "AmqpLimits",
    "ChannelContent",
    "ChannelEnd",
    "ChannelMethod",
    "ConnectionEnd",
    "HostRequest",
    "LoginRequest",
    "SecretUpdate",
]

FIRST_FRAME_BYTES: Final = 8_192
"""Bytes of a whole frame at most before the limits are agreed; as RabbitMQ has it."""

HANDSHAKE_LIMIT_S: Final = 10.0
"""Seconds in which a connection must be open."""

_MECHANISMS: Final = b"PLAIN AMQPLAIN"


@dataclass(frozen=True, slots=True)
class AmqpLimits:
    """What a server offers its peers, and holds them to. A heartbeat of 0 asks for none."""

    max_channels: int = 2_047
    max_frame_bytes: int = DEFAULT_FRAME_BYTES
    heartbeat_s: int = 60
    max_body_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """Answer with `accept_login` or `refuse_login`."""

    mechanism: str
    response: bytes
    client_properties: FieldTable


@dataclass(frozen=True, slots=True)
class HostRequest:
    """Answer with `accept_host`, or `fail`."""

    virtual_host: str


@dataclass(frozen=True, slots=True)
class SecretUpdate:
    """Answer with `accept_secret`, or `fail`."""

    new_secret: bytes


@dataclass(slots=True)
class ChannelMethod:
    """A method of an open channel. ChannelClose is among them: answer it with `end_channel`."""

    channel: int
    method: AmqpMethod


@dataclass(slots=True)
class ChannelContent:
    """A message that was published on a channel."""

    channel: int
    publication: Publication


@dataclass(frozen=True, slots=True)
class ChannelEnd:
    """The core has ended the channel, because its peer broke a rule of it."""

    channel: int


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """The connection is over, by its peer's wish or because of a failure; write what is there and close."""


AmqpEvent: TypeAlias = (
    LoginRequest | HostRequest | SecretUpdate | ChannelMethod | ChannelContent | ChannelEnd | ConnectionEnd
)

# The states of a connection, in their order.
_AWAITS_HEADER, _AWAITS_LOGIN, _CHECKS_LOGIN, _AWAITS_TUNE, _AWAITS_HOST, _CHECKS_HOST, _OPEN, _CLOSING, _CLOSED = (
    range(9)
)


@dataclass(slots=True)
class _Channel:
    intake: ContentIntake
    is_closing: bool = False


@dataclass(slots=True)
class _Agreed:
    """What the two sides hold each other to."""

    max_channels: int
    max_frame_bytes: int = FIRST_FRAME_BYTES
    heartbeat_s: int = 0
    capabilities: FieldTable = field(default_factory=dict)


class AmqpCore:
    """One connection. `product` and `version` are told to the peer; times are of the monotonic clock, in seconds."""

    def __init__(self, limits: AmqpLimits, *, product: str, version: str, now_s: float) -> None:
        self._limits = limits
        self._product = product
        self._version = version
        self._state = _AWAITS_HEADER
        self._agreed = _Agreed(limits.max_channels)
        self._channels: dict[int, _Channel] = {}
        self._held = HeldContent()
        self._rest = b""
        self._outgoing: list[bytes] = []
        self._began_s = self._read_s = self._sent_s = now_s
        self._is_blocked = False
        self.failure: ConnectionFailure | None = None
        """Why this side ended the connection."""

    @property
    def is_open(self) -> bool:
        """Whether channels can be used."""
        return self._state == _OPEN

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come or go: what is outgoing is the last."""
        return self._state == _CLOSED

    @property
    def held_bytes(self) -> int:
        """Bytes of frames and messages that have not arrived whole."""
        return len(self._rest) + self._held.held_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes of bodies that have not arrived yet, of those messages whose size is known."""
        return self._held.missing_bytes

    @property
    def heartbeat_s(self) -> int:
        """The agreed interval of heartbeats; 0 for none."""
        return self._agreed.heartbeat_s

    @property
    def max_frame_bytes(self) -> int:
        """Bytes of a whole frame at most, as agreed."""
        return self._agreed.max_frame_bytes

    def can(self, capability: str) -> bool:
        """Whether the client has said that it knows an extension, as in `consumer_cancel_notify`."""
        return self._agreed.capabilities.get(capability) is True

    def forget(self) -> None:
        """The connection is gone: keep nothing of what came or was to go. Objects that point at each other may live on
        for long, and a message that was not whole is large."""
        self._rest = b""
        self._held = HeldContent()
        self._channels.clear()
        self._outgoing.clear()

    def take_outgoing(self, now_s: float) -> bytes:
        """What is to be written now."""
        if not self._outgoing:
            return b""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        self._sent_s = now_s
        return data

    # what arrives

    def receive(self, data: bytes, now_s: float) -> list[AmqpEvent]:
        """Take bytes of the peer; the events that they bring, in order. After the end nothing more is taken."""
        self._read_s = now_s
        if self._rest:
            data = self._rest + data
            self._rest = b""
        events: list[AmqpEvent] = []
        at = 0
        try:
            if self._state == _AWAITS_HEADER:
                at = self._take_protocol_header(data, events)
            at = self._take_frames(data, at, events)
        except ConnectionFailure as failure:
            self.fail(failure)
            events.append(ConnectionEnd())
            return events
        self._rest = data[at:] if self._state < _CLOSED and self.failure is None else b""
        return events

    def _take_protocol_header(self, data: bytes, events: list[AmqpEvent]) -> int:
        if not PROTOCOL_HEADER.startswith(data[:8]):
            # So a client of another version learns which one it is; it gets no frames.
            self._outgoing.append(PROTOCOL_HEADER)
            self._end(events)
            return len(data)
        if len(data) < len(PROTOCOL_HEADER):
            return 0
        self._state = _AWAITS_LOGIN
        self.send(0, ConnectionStart(server_properties=self._server_properties(), mechanisms=_MECHANISMS))
        return len(PROTOCOL_HEADER)

    def _take_frames(self, data: bytes, at: int, events: list[AmqpEvent]) -> int:
        """Handle the whole frames from a place on; where the first one begins that is not whole."""
        size, unpack, channels = len(data), FRAME_HEADER.unpack_from, self._channels
        while size - at >= FRAME_OVERHEAD_BYTES and _AWAITS_HEADER < self._state < _CLOSED:
            kind, number, length = unpack(data, at)
            if length > self._agreed.max_frame_bytes - FRAME_OVERHEAD_BYTES:
                words = f"A frame of {length} bytes is over the limit of {self._agreed.max_frame_bytes}."
                raise ConnectionFailure(ReplyCode.FRAME_ERROR, words)
            start = at + FRAME_HEADER.size
            end = start + length
            if end >= size:
                break
            if data[end] != FRAME_END:
                raise ConnectionFailure(ReplyCode.FRAME_ERROR, f"A frame ends in {data[end]:#04x}, not in 0xce.")
            at = end + 1
            payload = data[start:end]
            channel = channels.get(number)
            if channel is None or channel.is_closing or self._state == _CLOSING:
                self._take_outside(kind, number, payload, events)
                continue
            try:
                if kind == METHOD:
                    method = channel.intake.take_method(payload)
                    if method is not None:
                        self._take_channel_method(number, method, events)
                    continue
                if kind == HEADER:
                    publication = channel.intake.take_header(payload)
                elif kind == BODY:
                    publication = channel.intake.take_body(payload)
                else:
                    raise _unexpected_frame(kind, number)
                if publication is not None:
                    events.append(ChannelContent(number, publication))
            except ChannelFailure as failure:
                self.fail_channel(number, failure, (60, 40))
                events.append(ChannelEnd(number))
        return at

    def _take_channel_method(self, number: int, method: AmqpMethod, events: list[AmqpEvent]) -> None:
        if method.method_id[0] == 10:
            words = f"{type(method).__name__} came on channel {number}."
            raise ConnectionFailure(ReplyCode.COMMAND_INVALID, words)
        if isinstance(method, ChannelOpen):
            raise ConnectionFailure(ReplyCode.CHANNEL_ERROR, f"Channel {number} is open already.")
        events.append(ChannelMethod(number, method))

    def _take_outside(self, kind: int, number: int, payload: bytes, events: list[AmqpEvent]) -> None:
        """A frame that is of no open channel."""
        if number == 0:
            if kind == METHOD:
                self._take_session_method(decode_method(payload), events)
            elif kind != HEARTBEAT or payload:
                raise _unexpected_frame(kind, number)
            return
        if self._state == _CLOSING:
            return
        channel = self._channels.get(number)
        if channel is not None:
            self._take_of_closing(number, kind, payload)
            return
        if self._state != _OPEN:
            raise ConnectionFailure(
                ReplyCode.COMMAND_INVALID, f"Channel {number} is used before the connection is open."
            )
        method = decode_method(payload) if kind == METHOD else None
        if not isinstance(method, ChannelOpen):
            if isinstance(method, ChannelCloseOk):
                return
            raise ConnectionFailure(ReplyCode.CHANNEL_ERROR, f"Channel {number} is not open.")
        if number > self._agreed.max_channels:
            words = f"Channel {number} is over the agreed limit of {self._agreed.max_channels}."
            raise ConnectionFailure(ReplyCode.NOT_ALLOWED, words)
        self._channels[number] = _Channel(ContentIntake(self._limits.max_body_bytes, self._held))
        self.send(number, ChannelOpenOk())
        events.append(ChannelMethod(number, method))

    def _take_of_closing(self, number: int, kind: int, payload: bytes) -> None:
        """A channel that this side closes: what was on its way is passed over."""
        if kind != METHOD:
            return
        identity = payload[:4]
        if identity == METHOD_ID.pack(*ChannelCloseOk.method_id):
            del self._channels[number]
        elif identity == METHOD_ID.pack(*ChannelClose.method_id):
            self._outgoing.append(method_frame(number, ChannelCloseOk()))

    def _take_session_method(self, method: AmqpMethod, events: list[AmqpEvent]) -> None:
        if isinstance(method, ConnectionClose):
            if self._state < _AWAITS_TUNE:
                self._end(events)
                return
            self.send(0, ConnectionCloseOk())
            self._end(events)
        elif isinstance(method, ConnectionCloseOk) and self._state == _CLOSING:
            self._state = _CLOSED
            events.append(ConnectionEnd())
        elif self._state == _CLOSING:
            return
        elif isinstance(method, ConnectionStartOk) and self._state == _AWAITS_LOGIN:
            capabilities = method.client_properties.get("capabilities")
            self._agreed.capabilities = capabilities if isinstance(capabilities, dict) else {}
            self._state = _CHECKS_LOGIN
            events.append(LoginRequest(method.mechanism, method.response, method.client_properties))
        elif isinstance(method, ConnectionTuneOk) and self._state == _AWAITS_TUNE:
            self._agree(method)
        elif isinstance(method, ConnectionOpen) and self._state == _AWAITS_HOST:
            self._state = _CHECKS_HOST
            events.append(HostRequest(method.virtual_host))
        elif isinstance(method, ConnectionUpdateSecret) and self._state == _OPEN:
            events.append(SecretUpdate(method.new_secret))
        else:
            raise ConnectionFailure(ReplyCode.COMMAND_INVALID, f"{type(method).__name__} is not expected now.")

    def _agree(self, wish: ConnectionTuneOk) -> None:
        limits = self._limits
        frame_bytes = wish.frame_max or limits.max_frame_bytes
        channels = wish.channel_max or limits.max_channels
        if not MIN_FRAME_BYTES <= frame_bytes <= limits.max_frame_bytes:
            words = f"A frame limit of {frame_bytes} is outside of {MIN_FRAME_BYTES} to {limits.max_frame_bytes}."
            raise ConnectionFailure(ReplyCode.NOT_ALLOWED, words)
        if channels > limits.max_channels:
            words = f"A limit of {channels} channels is over the offered one of {limits.max_channels}."
            raise ConnectionFailure(ReplyCode.NOT_ALLOWED, words)
        self._agreed = _Agreed(channels, frame_bytes, wish.heartbeat, self._agreed.capabilities)
        self._state = _AWAITS_HOST

    # what the owner answers

    def send(self, channel: int, method: AmqpMethod) -> None:
        """A method for the peer; nothing where the channel, or the connection, is closing."""
        if channel == 0 or self._is_usable(channel):
            self._outgoing.append(method_frame(channel, method))

    def send_content(self, channel: int, method: bytes, properties: bytes, body: bytes) -> None:
        """A method's payload with content; nothing where the channel is closing."""
        if self._is_usable(channel):
            frames = content_frames(channel, method, properties, body, self._agreed.max_frame_bytes)
            self._outgoing.append(frames)

    def accept_login(self) -> None:
        """The client may go on."""
        limits = self._limits
        self._state = _AWAITS_TUNE
        self.send(0, ConnectionTune(limits.max_channels, limits.max_frame_bytes, limits.heartbeat_s))

    def refuse_login(self, words: str) -> None:
        """The client may not; it is told where it has said that it understands that."""
        self.failure = ConnectionFailure(ReplyCode.ACCESS_REFUSED, words)
        if self.can("authentication_failure_close"):
            self._say_close(self.failure, (10, 11))
        else:
            self._state = _CLOSED

    def accept_host(self) -> None:
        """The connection is open."""
        self._state = _OPEN
        self.send(0, ConnectionOpenOk())

    def accept_secret(self) -> None:
        """The new credentials hold."""
        self.send(0, ConnectionUpdateSecretOk())

    def end_channel(self, channel: int) -> None:
        """The peer wanted to close the channel, and its owner is ready."""
        self.send(channel, ChannelCloseOk())
        known = self._channels.pop(channel, None)
        if known is not None:
            known.intake.forget()

    def fail_channel(self, channel: int, failure: AmqpFailure, method_id: tuple[int, int] = (0, 0)) -> None:
        """Close a channel because of what a method asked; it takes nothing more. Once."""
        if self._is_usable(channel):
            self.send(channel, ChannelClose(failure.code, failure.text, *method_id))
            self._channels[channel].is_closing = True
            self._channels[channel].intake.forget()

    def fail(self, failure: ConnectionFailure, method_id: tuple[int, int] = (0, 0)) -> None:
        """Close the connection; what comes after is passed over until the peer has answered. Once."""
        if self._state >= _CLOSING:
            return
        self.failure = failure
        if self._state == _AWAITS_HEADER:
            self._state = _CLOSED
            return
        self._say_close(failure, method_id)

    def block(self, reason: str) -> None:
        """Tell a client that understands it that no messages are taken for now."""
        if self._state == _OPEN and not self._is_blocked and self.can("connection.blocked"):
            self._is_blocked = True
            self.send(0, ConnectionBlocked(reason))

    def unblock(self) -> None:
        """The opposite."""
        if self._is_blocked:
            self._is_blocked = False
            self.send(0, ConnectionUnblocked())

    def tick(self, now_s: float) -> bool:
        """Time has gone by: heartbeats are put among what is outgoing. False where the peer has been silent too long.

        A peer is given up after two intervals without a byte (RabbitMQ's rule), or where it does not come to open.
        """
        if self._state < _OPEN:
            return now_s - self._began_s < HANDSHAKE_LIMIT_S
        interval_s = self._agreed.heartbeat_s
        if not interval_s or self._state != _OPEN:
            return True
        if now_s - self._sent_s >= interval_s / 2:
            self._outgoing.append(HEARTBEAT_FRAME)
        return now_s - self._read_s < 2 * interval_s

    def _is_usable(self, channel: int) -> bool:
        known = self._channels.get(channel)
        return known is not None and not known.is_closing and self._state == _OPEN

    def _say_close(self, failure: ConnectionFailure, method_id: tuple[int, int]) -> None:
        self._outgoing.append(method_frame(0, ConnectionClose(failure.code, failure.text, *method_id)))
        self._state = _CLOSING

    def _end(self, events: list[AmqpEvent]) -> None:
        self._state = _CLOSED
        events.append(ConnectionEnd())

    def _server_properties(self) -> FieldTable:
        return {
            "product": self._product,
            "version": self._version,
            "platform": "Python",
            "capabilities": {
                "publisher_confirms": True,
                "exchange_exchange_bindings": True,
                "basic.nack": True,
                "consumer_cancel_notify": True,
                "connection.blocked": True,
                "consumer_priorities": True,
                "authentication_failure_close": True,
                "per_consumer_qos": True,
                "direct_reply_to": True,
            },
        }


def _unexpected_frame(kind: int, channel: int) -> ConnectionFailure:
    return ConnectionFailure(ReplyCode.UNEXPECTED_FRAME, f"A frame of the kind {kind} came on channel {channel}.")
