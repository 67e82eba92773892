"""What a client of MQTT 3.1.1 sends, and the sockets that it sends it over; for load generators."""

from __future__ import annotations

import socket
from typing import Final

__all__ = ["connect_from", "connect_packet", "publish_packet", "receive", "source_of", "subscribe_packet"]

_PAYLOAD: Final = b"x" * 100
_PORTS_AN_ADDRESS: Final = 20_000
_BIND_ADDRESS_NO_PORT: Final = 24
"""IP_BIND_ADDRESS_NO_PORT of Linux, which Python 3.11 does not name."""


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def _packet(first: int, body: bytes) -> bytes:
    assert len(body) < 16_384
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    return bytes((first,)) + length + body


def connect_packet(name: str, *, clean: bool = True) -> bytes:
    """CONNECT."""
    return _packet(0x10, _text(b"MQTT") + bytes((4, 2 if clean else 0, 0, 0)) + _text(name.encode()))


def subscribe_packet(topic: str, qos: int) -> bytes:
    """SUBSCRIBE with one filter."""
    return _packet(0x82, b"\0\1" + _text(topic.encode()) + bytes((qos,)))


def publish_packet(topic: str, qos: int, number: int = 0, *, retain: bool = False, payload: bytes = _PAYLOAD) -> bytes:
    """PUBLISH, of 100 bytes if nothing else is said."""
    head = _text(topic.encode()) + (number.to_bytes(2, "big") if qos else b"")
    return _packet(0x30 | qos << 1 | retain, head + payload)


def source_of(number: int) -> str:
    """A local address for the client of that number: the ports of one do not suffice for many clients."""
    return f"127.0.0.{2 + number // _PORTS_AN_ADDRESS % 200}"


def connect_from(source: str, address: tuple[str, int], *, blocks: bool = True) -> socket.socket:
    """A connection from that local address, a blank one stands for any; one that does not block is under way."""
    one = socket.socket()
    one.setblocking(blocks)
    if source:
        # The port is chosen at the connect, when it is known to whom: else those of closed connections are in the way.
        one.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        one.bind((source, 0))
    if blocks:
        one.connect(address)
    else:
        one.connect_ex(address)
    return one


def receive(client: socket.socket, size_bytes: int) -> bytes:
    """So many bytes."""
    found = b""
    while len(found) < size_bytes:
        more = client.recv(size_bytes - len(found))
        if not more:
            raise SystemExit("the server closed a connection")
        found += more
    return found
