"""MQTT in the frames of a WebSocket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MillstreamError, Refused
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.websocket import MAX_HANDSHAKE_BYTES, WebSocketStream
from websocket_peer import client_frame

# The example of RFC 6455, section 1.3.
HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: other, mqtt\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)


def frame(data: bytes, opcode: int = 2, *, final: bool = True) -> bytes:
    """A frame of a client."""
    return client_frame(data, opcode, final=final)


def opened() -> WebSocketStream:
    stream = WebSocketStream()
    assert stream.feed(HANDSHAKE) == b""
    assert stream.answers.startswith(b"HTTP/1.1 101 ")
    stream.answers = b""
    return stream


def test_the_handshake_of_the_specification_is_answered_with_the_subprotocol() -> None:
    stream = WebSocketStream()
    for number in range(len(HANDSHAKE)):
        assert not stream.answers
        stream.feed(HANDSHAKE[number : number + 1])
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in stream.answers
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in stream.answers
    assert not stream.is_closed


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"/mqtt", b"/other", b"404"),
        (b"GET ", b"PUT ", b"400"),
        (b"websocket\r\n", b"h2c\r\n", b"426"),
        (b"Version: 13", b"Version: 8", b"426"),
        (b"other, mqtt", b"other", b"400"),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", b"400"),
        (b"Host: h", b"Host: " + b"h" * MAX_HANDSHAKE_BYTES, b"101"),
    ],
)
def test_another_request_is_refused_as_http_does(old: bytes, new: bytes, status: bytes) -> None:
    stream = WebSocketStream()
    stream.feed(HANDSHAKE.replace(old, new))
    assert stream.answers.split(b" ")[1] == status
    assert stream.is_closed is (status != b"101")


def test_a_page_that_may_not_come_in_is_told_why_and_gets_no_websocket() -> None:
    asked: list[str | None] = []

    def refuse_page(fields: Mapping[str, str]) -> MillstreamError | None:
        asked.append(fields.get("origin"))
        return Refused("HTTP_ORIGIN", "No.") if "origin" in fields else None

    stream = WebSocketStream(refuse_page)
    stream.feed(HANDSHAKE.replace(b"Host: h", b"Host: h\r\nOrigin: http://elsewhere") + frame(b"x"))
    head, _, body = stream.answers.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["code"] == "MS-5106"
    assert stream.is_closed
    stream = WebSocketStream(refuse_page)
    stream.feed(HANDSHAKE)
    assert stream.answers.startswith(b"HTTP/1.1 101 ")
    assert asked == ["http://elsewhere", None]


def test_a_request_without_end_is_refused() -> None:
    stream = WebSocketStream()
    stream.feed(b"GET /mqtt HTTP/1.1\r\nA: " + b"a" * MAX_HANDSHAKE_BYTES)
    assert stream.answers.startswith(b"HTTP/1.1 431 ")
    assert stream.is_closed


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.lists(st.integers(0, 2000), max_size=6))
def test_what_frames_carry_is_one_stream_however_it_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frame(part) for part in parts)
    stream, found = opened(), b""
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        found += stream.feed(data[start:end])
    assert found == b"".join(parts)


@pytest.mark.parametrize("cut", range(6, 27))
def test_a_frame_is_read_whole_wherever_it_is_cut(cut: int) -> None:
    data = frame(b"\0" * 20)
    stream = opened()
    assert stream.feed(data[:cut]) + stream.feed(data[cut : cut + 1]) + stream.feed(data[cut + 1 :]) == b"\0" * 20


def test_a_message_may_come_in_several_frames_with_a_ping_between_them() -> None:
    stream = opened()
    data = frame(b"ab", final=False) + frame(b"?", 9) + frame(b"cd", 0) + frame(b"x" * 70_000)
    assert stream.feed(data) == b"abcd" + b"x" * 70_000
    assert stream.answers == b"\x8a\x01?"


def test_a_close_is_answered_and_ends_the_stream() -> None:
    stream = opened()
    assert stream.feed(frame(b"a") + frame(b"\x03\xe8bye", 8) + frame(b"b")) == b"a"
    assert stream.answers == b"\x88\x02\x03\xe8"
    assert stream.is_closed
    assert stream.close() == b""


@pytest.mark.parametrize(
    "data", [b"\x81\x81\0\0\0\0a", b"\x82\x01a\0\0\0\0", b"\xc2\x81\0\0\0\0a", b"\x09\x80\0\0\0\0"]
)
def test_text_and_frames_without_a_mask_are_refused(data: bytes) -> None:
    stream = opened()
    with pytest.raises(PacketRefused):
        stream.feed(data)
    assert stream.close() in (b"\x88\x02\x03\xea", b"\x88\x02\x03\xeb")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_of_the_server_have_the_length_in_its_shortest_form(size: int) -> None:
    data = WebSocketStream.encode(b"x" * size)
    head = {0: 2, 1: 2, 125: 2, 126: 4, 65_535: 4, 65_536: 10}[size]
    assert (len(data), data[0]) == (size + head, 0x82)
