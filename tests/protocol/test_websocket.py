"""Frames and messages of WebSockets, as RFC 6455 has them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.websocket import (
    CloseCode,
    FrameRefused,
    Opcode,
    TextMessages,
    WebSocketFrames,
    accept_fields,
    check_handshake,
    encode_close,
    encode_frame,
)
from websocket_peer import client_frame

FIELDS = {
    "upgrade": "WebSocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def refused(data: bytes, limit: int = 1000) -> CloseCode:
    with pytest.raises(FrameRefused) as told:
        TextMessages(limit).feed(data)
    assert told.value.label == "MS-5107"
    return told.value.code


def test_the_handshake_of_the_specification_is_accepted() -> None:
    assert check_handshake(FIELDS) is None
    assert ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") in accept_fields(FIELDS)


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("upgrade", "h2c", 426),
        ("connection", "keep-alive", 426),
        ("sec-websocket-version", "8", 426),
        ("sec-websocket-key", "short", 400),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZSE=", 400),
    ],
)
def test_another_handshake_is_refused_with_the_status_of_http(name: str, value: str, status: int) -> None:
    refusal = check_handshake({**FIELDS, name: value})
    assert refusal is not None
    assert refusal.status == status


@given(
    st.lists(st.lists(st.text(max_size=200), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 3000), max_size=8),
)
def test_messages_are_whole_however_they_and_their_frames_are_cut(messages: list[list[str]], cuts: list[int]) -> None:
    data = b""
    for parts in messages:
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            data += client_frame(part.encode(), 0 if number else 1, final=is_last) + client_frame(b"?", 9)
    reader, found = TextMessages(10_000), []
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        found += reader.feed(data[start:end])
    assert found == ["".join(parts) for parts in messages]
    assert reader.held_bytes == 0
    assert reader.frames.answers == b"\x8a\x01?" * sum(len(parts) for parts in messages)


def test_a_character_may_be_cut_by_the_end_of_a_frame() -> None:
    word = "ä".encode()
    assert TextMessages(10).feed(client_frame(word[:1], final=False) + client_frame(word[1:], 0)) == ["ä"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x01a",
        b"\xc1\x81\0\0\0\0a",
        b"\x83\x81\0\0\0\0a",
        b"\x8b\x80\0\0\0\0",
        client_frame(b"a", 0),
        client_frame(b"a", final=False) + client_frame(b"b"),
        client_frame(b"", 9, final=False),
        client_frame(b"x" * 126, 9),
        b"\x81\xfe\0\x05\0\0\0\0aaaaa",
        b"\x81\xff\0\0\0\0\0\0\0\x05\0\0\0\0aaaaa",
        b"\x81\xff\x80\0\0\0\0\0\0\x05\0\0\0\0aaaaa",
        client_frame(b"\x03", 8),
        client_frame((1005).to_bytes(2, "big"), 8),
        client_frame((999).to_bytes(2, "big"), 8),
        client_frame((2999).to_bytes(2, "big"), 8),
        client_frame((5000).to_bytes(2, "big"), 8),
    ],
)
def test_frames_that_may_not_be_close_with_1002(data: bytes) -> None:
    assert refused(data) is CloseCode.PROTOCOL_ERROR


def test_what_is_no_text_is_refused_with_the_code_for_it() -> None:
    assert refused(client_frame(b"a", 2)) is CloseCode.UNSUPPORTED_DATA
    assert refused(client_frame(b"\xff")) is CloseCode.INVALID_DATA
    assert refused(client_frame(b"\x03\xe8\xff", 8)) is CloseCode.INVALID_DATA


def test_a_message_over_the_limit_is_refused_by_the_head_of_the_frame_that_goes_over_it() -> None:
    assert TextMessages(10).feed(client_frame(b"x" * 10)) == ["x" * 10]
    assert refused(client_frame(b"x" * 11)[:6], 10) is CloseCode.MESSAGE_TOO_BIG
    parts = client_frame(b"x" * 6, final=False) + client_frame(b"x" * 5, 0, final=False)
    assert refused(parts[:-4], 10) is CloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("control", [b"", b"\x03\xe8bye", (3000).to_bytes(2, "big"), (4999).to_bytes(2, "big")])
def test_a_close_is_answered_with_its_code_and_ends_all(control: bytes) -> None:
    reader = TextMessages(10)
    assert reader.feed(client_frame(b"a") + client_frame(control, 8) + client_frame(b"b")) == ["a"]
    assert reader.frames.is_closed
    assert reader.frames.answers == encode_frame(Opcode.CLOSE, control[:2])


def test_what_is_there_and_what_is_missing_of_a_message_is_told() -> None:
    reader = TextMessages(1000)
    reader.feed(client_frame(b"x" * 100)[:46])
    assert (reader.held_bytes, reader.frames.missing_bytes) == (40, 60)


def test_a_large_message_is_whole_and_counted_however_many_pieces_it_comes_in() -> None:
    text = "".join([f"{number} " for number in range(4_000)])
    data = text.encode()
    reader, held_bytes = TextMessages(100_000), []
    for place in range(0, len(data), 1_500):
        piece = data[place : place + 1_500]
        assert not reader.feed(client_frame(piece, 0 if place else 1, final=False))
        held_bytes.append(reader.held_bytes)
    assert held_bytes == [*range(1_500, len(data), 1_500), len(data)]
    assert reader.feed(client_frame(b"", 0) + client_frame(b"next")) == [text, "next"]
    assert reader.held_bytes == 0


def test_frames_are_handed_out_before_their_end_where_they_are_one_stream() -> None:
    frames = WebSocketFrames()
    [part] = frames.feed(client_frame(b"abcdef", 2)[:-2])
    assert (part.opcode, part.data, part.ends_message) == (Opcode.BINARY, b"abcd", False)


@pytest.mark.parametrize(("size", "head"), [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)])
def test_frames_of_the_server_have_the_length_in_its_shortest_form(size: int, head: int) -> None:
    data = encode_frame(Opcode.TEXT, b"x" * size)
    assert (len(data), data[0]) == (size + head, 0x81)


def test_the_words_of_a_close_are_cut_to_whole_characters() -> None:
    data = encode_close(CloseCode.POLICY_VIOLATION, "aa" + "ä" * 100)
    assert data == b"\x88\x7c\x03\xf0aa" + "ä".encode() * 60
