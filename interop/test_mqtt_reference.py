"""The same packets to mosquitto and to ours, where mosquitto is installed: the answers are the same, or the difference
has its reason here."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from millstream.protocol.mqtt.decoding import decode_packet
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.server.child import ServerProcess

V4, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
_PATIENCE_S: Final = 20.0
_START_S: Final = 2.0
_QUIET_S: Final = 0.3
_PING = Ping(PacketType.PINGREQ)
_HOUR = Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 3600})

Step = tuple[str, Packet | bytes | None]
"""A client's name and what it sends; None ends its connection without a word."""


def _subscribe(topic_filter: str, qos: int = 0, **options: int) -> Subscribe:
    number = options.pop("number", 0)
    held = Properties(subscription_ids=[number]) if number else Properties()
    return Subscribe(1, [TopicSubscription(topic_filter, qos, **options)], held)  # type: ignore[arg-type]


_REL = Acknowledgement(PacketType.PUBREL, 7)
_SCRIPTS: Final[dict[str, tuple[ProtocolVersion, Sequence[Step]]]] = {
    "all levels of QoS": (
        V5,
        [
            ("a", _subscribe("d1/#", 2)),
            ("b", Publish("d1/x", b"0")),
            ("b", Publish("d1/x", b"1", 1, packet_id=7)),
            ("b", Publish("d1/x", b"2", 2, packet_id=7)),
            ("b", _REL),
        ],
    ),
    "all levels of QoS, 3.1.1": (
        V4,
        [
            ("a", _subscribe("d2/#", 2)),
            ("b", Publish("d2/x", b"0")),
            ("b", Publish("d2/x", b"1", 1, packet_id=7)),
            ("b", Publish("d2/x", b"2", 2, packet_id=7)),
            ("b", _REL),
        ],
    ),
    "QoS 2 sent twice": (
        V5,
        [
            ("a", _subscribe("d3/#", 0)),
            ("b", Publish("d3/x", b"1", 2, packet_id=7)),
            ("b", Publish("d3/x", b"1", 2, dup=True, packet_id=7)),
            ("b", _REL),
            ("b", _REL),
        ],
    ),
    "retained": (
        V5,
        [
            ("b", Publish("d4/x", b"kept", 1, True, packet_id=7)),
            ("a", _subscribe("d4/+", 1)),
            ("a", _subscribe("d4/+", 1, retain_handling=1)),
            ("a", _subscribe("d4/+", 1, retain_handling=2)),
            ("b", Publish("d4/x", b"", 1, True, packet_id=7)),
            ("c", _subscribe("d4/#")),
        ],
    ),
    "retain as published": (
        V5,
        [("a", _subscribe("d5/#", 0, retain_as_published=True)), ("b", Publish("d5/x", b"k", 0, True))],
    ),
    "no local": (
        V5,
        [("a", _subscribe("d6/#", 0, no_local=True)), ("a", Publish("d6/x", b"own")), ("b", Publish("d6/x", b"other"))],
    ),
    "subscription identifiers": (V5, [("a", _subscribe("d7/#", 0, number=9)), ("b", Publish("d7/x", b"k"))]),
    "illegal filters": (
        V5,
        [
            ("a", Subscribe(1, [TopicSubscription("good", 1)])),
            ("a", _subscribe("a#")),
            ("a", _subscribe("#/a")),
            ("a", _PING),
        ],
    ),
    "unsubscribe": (
        V5,
        [("a", _subscribe("d8/#")), ("a", Unsubscribe(2, ["d8/#", "none"])), ("b", Publish("d8/x", b"k"))],
    ),
    "will": (V5, [("a", _subscribe("wills/#")), ("w", None)]),
    "second CONNECT": (V5, [("a", Connect("again", V5))]),
    "wildcard in a topic": (V5, [("a", b"\x30\x05\x00\x01+\x00x")]),
    "QoS 3": (V5, [("a", b"\x36\x07\x00\x01a\x00\x01\x00x")]),
    "topic alias 0": (V5, [("a", b"\x30\x08\x00\x01a\x03\x23\x00\x00x")]),
    "unknown PUBREL": (V5, [("a", Acknowledgement(PacketType.PUBREL, 77))]),
    "empty SUBSCRIBE": (V5, [("a", b"\x82\x03\x00\x01\x00")]),
    "user properties": (
        V5,
        [
            ("a", _subscribe("d9/#")),
            (
                "b",
                Publish(
                    "d9/x",
                    b"k",
                    properties=Properties(
                        {PropertyId.CONTENT_TYPE: "t", PropertyId.CORRELATION_DATA: b"\0"}, [("a", "1"), ("a", "2")]
                    ),
                ),
            ),
        ],
    ),
}

_DIFFERENCES: Final = {
    "illegal filters": "mosquitto ends the connection for an illegal filter; here SUBACK says 0x8F and the others hold",
    "unknown PUBREL": "mosquitto answers PUBCOMP without a reason; here it has 0x92, as the specification allows",
    "QoS 2 sent twice": "the same: the second PUBREL is of an identifier that is free",
    "second CONNECT": "mosquitto closes without a word; here DISCONNECT says why",
}


class _Client:
    def __init__(self, address: tuple[str, int], connect: Connect) -> None:
        self.version = connect.version
        self._socket = socket.create_connection(address, timeout=_PATIENCE_S)
        self._frames = PacketFrames(1 << 20)
        self.found: list[tuple[object, ...]] = []
        self.is_closed = False
        self.send(connect)

    def send(self, packet: Packet | bytes) -> None:
        """Send it, and take what comes up to a short quiet."""
        if self.is_closed:
            return
        self._socket.sendall(packet if isinstance(packet, bytes) else encode_packet(packet, self.version))
        self.take()

    def take(self) -> None:
        """Take what comes, and answer messages."""
        self._socket.settimeout(_QUIET_S)
        while not self.is_closed:
            try:
                chunk = self._socket.recv(1 << 16)
            except TimeoutError:
                return
            except ConnectionError:
                chunk = b""
            if not chunk:
                self.is_closed = True
                self.found.append(("closed",))
            for first, body in self._frames.feed(chunk):
                packet = decode_packet(first, body, self.version)
                self.found.append(_essence(packet))
                answer = _answer(packet)
                if answer is not None:
                    self._socket.sendall(encode_packet(answer, self.version))

    def cut(self) -> None:
        """End the connection."""
        self.is_closed = True
        self._socket.close()


def _answer(packet: Packet) -> Packet | None:
    match packet:
        case Publish(qos=1):
            return Acknowledgement(PacketType.PUBACK, packet.packet_id)
        case Publish(qos=2):
            return Acknowledgement(PacketType.PUBREC, packet.packet_id)
        case Acknowledgement(packet_type=PacketType.PUBREL):
            return Acknowledgement(PacketType.PUBCOMP, packet.packet_id)
    return None


def _essence(packet: Packet) -> tuple[object, ...]:
    """What has to be the same: no identifiers that the server chooses, and no reason of an end."""
    match packet:
        case Connack():
            return ("CONNACK", packet.session_present, packet.reason, packet.return_code)
        case Publish():
            held = packet.properties
            return ("PUBLISH", packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, held)
        case Acknowledgement():
            # Whether somebody has subscribed is a difference that is known.
            failed = packet.reason if packet.reason >= 0x80 else 0
            own = packet.packet_type in (PacketType.PUBREL,)
            return (packet.packet_type, 0 if own else packet.packet_id, failed)
        case Suback() | Unsuback():
            return (type(packet).__name__, packet.packet_id, packet.reasons)
        case Disconnect():
            return ("DISCONNECT",)
    return (packet,)


def _play(address: tuple[str, int], version: ProtocolVersion, steps: Sequence[Step]) -> dict[str, list[object]]:
    clients: dict[str, _Client] = {}
    for name, packet in steps:
        if name not in clients:
            will = Will("wills/w", b"gone", 1) if name == "w" else None
            clients[name] = _Client(address, Connect(f"client-{name}", version, will=will))
        if packet is None:
            clients[name].cut()
        else:
            clients[name].send(packet)
        for other in clients.values():
            if not other.is_closed:
                other.take()
    found = {name: list(one.found) for name, one in clients.items()}
    for one in clients.values():
        one.cut()
    return found  # type: ignore[return-value]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Theirs and ours."""
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed (Debian: mosquitto)")
    folder: Path = tmp_path_factory.mktemp("mqtt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = folder / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n")
    reference = subprocess.Popen(["mosquitto", "-c", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        time.sleep(_START_S)
        options = ("--mqtt-port", "0", "--amqp-port", "off", "--http-port", "off")
        with ServerProcess(folder / "data", options=options) as process:
            host, _, own = process.addresses.protocols["mqtt"].rpartition(":")
            yield ("127.0.0.1", port), (host, int(own))
    finally:
        reference.terminate()
        reference.wait()


@pytest.mark.parametrize("name", _SCRIPTS)
def test_a_script_has_the_same_answers(servers: tuple[tuple[str, int], tuple[str, int]], name: str) -> None:
    version, steps = _SCRIPTS[name]
    theirs, ours = (_play(address, version, steps) for address in servers)
    if name in _DIFFERENCES:
        assert theirs != ours, "the difference is gone: take its row away"
    else:
        assert ours == theirs
