"""A client's side of the AMQP core in tests: what it writes, and what it reads."""

from __future__ import annotations

from millstream.protocol.amqp.basic_methods import BasicPublish
from millstream.protocol.amqp.connection import AmqpCore, AmqpEvent, AmqpLimits, HostRequest, LoginRequest
from millstream.protocol.amqp.content import NO_PROPERTIES
from millstream.protocol.amqp.frames import FRAME_HEADER, METHOD, PROTOCOL_HEADER, content_frames, method_frame
from millstream.protocol.amqp.method_codec import AmqpMethod, decode_method, encode_method
from millstream.protocol.amqp.session_methods import (
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)

CLIENT = {"capabilities": {"authentication_failure_close": True, "connection.blocked": True}}


def new_core(limits: AmqpLimits | None = None) -> AmqpCore:
    """A core at the time 0."""
    return AmqpCore(limits or AmqpLimits(), product="Millstream", version="0", now_s=0.0)


def read_frames(data: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, channel and payload of each frame."""
    found, at = [], 0
    while at < len(data):
        kind, channel, size = FRAME_HEADER.unpack_from(data, at)
        start = at + FRAME_HEADER.size
        assert data[start + size] == 0xCE
        found.append((kind, channel, data[start : start + size]))
        at = start + size + 1
    return found


def read_methods(core: AmqpCore) -> list[AmqpMethod]:
    """The methods that the core has to say."""
    return [decode_method(payload) for kind, _, payload in read_frames(core.take_outgoing(0.0)) if kind == METHOD]


def answer(core: AmqpCore, events: list[AmqpEvent]) -> None:
    """Let everybody in."""
    for event in events:
        if isinstance(event, LoginRequest):
            core.accept_login()
        elif isinstance(event, HostRequest):
            core.accept_host()


HELLO = (
    PROTOCOL_HEADER,
    method_frame(0, ConnectionStartOk(client_properties=CLIENT, response=b"\0guest\0guest")),
    method_frame(0, ConnectionTuneOk(0, 0, 60)),
    method_frame(0, ConnectionOpen("/")),
)


def open_core(*channels: int, limits: AmqpLimits | None = None, heartbeat_s: int = 60) -> AmqpCore:
    """A core whose peer has opened the connection and the channels; what it said to that is taken."""
    core = new_core(limits)
    hello = (*HELLO[:2], method_frame(0, ConnectionTuneOk(0, 0, heartbeat_s)), HELLO[3])
    for data in hello:
        answer(core, core.receive(data, 0.0))
    for channel in channels:
        core.receive(method_frame(channel, ChannelOpen()), 0.0)
    core.take_outgoing(0.0)
    return core


def publication(channel: int, body: bytes, *, exchange: str = "e", key: str = "k", frame_bytes: int = 131_072) -> bytes:
    """The frames of a message."""
    method = encode_method(BasicPublish(exchange=exchange, routing_key=key))
    return content_frames(channel, method, NO_PROPERTIES, body, frame_bytes)
