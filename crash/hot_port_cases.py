"""Inputs for the compiled codecs of MQTT and AMQP, and for the deadlines of calls, by chance, and what comes of them;
see `hot_cases`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from millstream.protocol.amqp.basic_methods import BasicAck, BasicPublish
from millstream.protocol.amqp.connection import AmqpCore, AmqpLimits, ChannelContent, HostRequest, LoginRequest
from millstream.protocol.amqp.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, content_frames, method_frame
from millstream.protocol.amqp.method_codec import encode_method
from millstream.protocol.amqp.session_methods import (
    ChannelClose,
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)
from millstream.protocol.grpc.framing import parse_timeout_s
from millstream.protocol.mqtt.decoding import decode_packet
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Connect,
    Disconnect,
    Ping,
    Publish,
    Subscribe,
    TopicSubscription,
)
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.transport.grpc.deadlines import DeadlineTable

__all__ = ["amqp_frames", "mqtt_packets", "run_amqp", "run_mqtt", "run_timeouts", "timeouts"]


def mqtt_packets(chance: random.Random) -> list[bytes]:
    """What clients of MQTT send: messages with and without properties, acknowledgements, and the rest now and then."""
    made = []
    for _ in range(24):
        version = chance.choice((ProtocolVersion.V3_1_1, ProtocolVersion.V5))
        stream = b""
        for _ in range(chance.randrange(1, 5)):
            held = NO_PROPERTIES
            if version is ProtocolVersion.V5 and chance.random() < 0.4:
                held = Properties({PropertyId.TOPIC_ALIAS: 5, PropertyId.CONTENT_TYPE: "a"}, [("k", "v")])
            packet = chance.choice(
                (
                    Publish("a/b", chance.randbytes(chance.randrange(200)), 1, packet_id=7, properties=held),
                    Publish("a/b", b"x", properties=held),
                    Acknowledgement(PacketType.PUBACK, chance.randrange(1, 1 << 16)),
                    Acknowledgement(PacketType.PUBREC, 9, ReasonCode.QUOTA_EXCEEDED),
                    Subscribe(1, [TopicSubscription("a/#", 1)]),
                    Ping(PacketType.PINGREQ),
                    Disconnect(),
                    Connect("c", version, True, 60),
                )
            )
            stream += encode_packet(packet, version)
        made.append(bytes((version,)) + stream)
    return made


def run_mqtt(data: bytes) -> object:
    """The first byte says the version; the rest comes in three chunks."""
    version = ProtocolVersion.V5 if data[:1] == b"\x05" else ProtocolVersion.V3_1_1
    frames, found = PacketFrames(150), list[object]()
    cuts = (1, len(data) // 3, len(data) // 2, len(data))
    for chunk in (data[one:other] for one, other in pairwise(cuts)):
        for first, body in frames.feed(chunk):
            try:
                found.append(decode_packet(first, body, version))
            except PacketRefused as refusal:
                found.append(str(refusal))
        found += [frames.held_bytes, frames.missing_bytes, str(frames.failure)]
    return found


_AMQP_OPENING: Final = b"".join(
    (
        PROTOCOL_HEADER,
        method_frame(0, ConnectionStartOk(response=b"\0guest\0guest")),
        method_frame(0, ConnectionTuneOk(9, 4096, 0)),
        method_frame(0, ConnectionOpen("/")),
        method_frame(1, ChannelOpen()),
    )
)


def amqp_frames(chance: random.Random) -> list[bytes]:
    """What clients of AMQP send on an open channel: messages of one frame and of several, acknowledgements, a close."""
    made = []
    for _ in range(24):
        stream = b""
        for _ in range(chance.randrange(1, 5)):
            publish = encode_method(BasicPublish(exchange="e", routing_key="k", mandatory=chance.random() < 0.3))
            body = chance.randbytes(chance.randrange(9000) if chance.random() < 0.1 else chance.randrange(80))
            stream += chance.choice(
                (
                    content_frames(1, publish, b"\x80\x00\x01a", body, frame_max_bytes=4096),
                    content_frames(1, publish, b"\x00\x00", body, frame_max_bytes=4096),
                    method_frame(1, BasicAck(chance.randrange(1 << 40), True)),
                    method_frame(1, ChannelClose(200, "bye", 0, 0)),
                    HEARTBEAT_FRAME,
                )
            )
        made.append(stream)
    return made


def run_amqp(data: bytes) -> object:
    core = AmqpCore(AmqpLimits(max_body_bytes=6000), product="p", version="1", now_s=0.0)
    found: list[object] = []
    cuts = (0, len(data) // 3, len(data) // 2, len(data))
    for chunk in (_AMQP_OPENING, *(data[one:other] for one, other in pairwise(cuts))):
        waiting = core.receive(chunk, 1.0)
        found += waiting
        if any(isinstance(event, LoginRequest) for event in waiting):
            core.accept_login()
        if any(isinstance(event, HostRequest) for event in waiting):
            core.accept_host()
        for event in waiting:
            if isinstance(event, ChannelContent):
                publication = event.publication
                core.send_content(event.channel, b"\0\x3c\0\x32", publication.properties, publication.body)
        found += [core.take_outgoing(2.0), core.held_bytes, core.is_open, core.is_over, str(core.failure)]
    return found


def timeouts(chance: random.Random) -> list[bytes]:
    """The timeouts of calls that come one after the other."""
    made = []
    for _ in range(24):
        words = [f"{chance.randrange(1 << chance.randrange(1, 30))}{chance.choice('HMSmunx')}" for _ in range(12)]
        made.append(" ".join(words).encode())
    return made


@dataclass(eq=False)
class _Call:
    """What a table of deadlines keeps."""

    number: int
    bucket: int = 0


def run_timeouts(data: bytes) -> object:
    table, now_s, calls, found = DeadlineTable(), 5.0, [], []
    for number, word in enumerate(data.decode("latin-1").split(" ")):
        calls.append(_Call(number))
        timeout_s = parse_timeout_s(word)
        if timeout_s is not None:
            table.add(calls[-1], now_s + timeout_s, now_s)
        if number % 3 == 2:
            table.remove(calls[number // 2])
        now_s += 0.07 * number
        due = [call.number for call in table.take_due(now_s) if isinstance(call, _Call)]
        found.append((timeout_s, due, len(table), [call.bucket for call in calls]))
    return found
