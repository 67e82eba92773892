from __future__ import annotations

import random
import struct

import pytest
from command_strategies import commands
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.frame import (
    MAX_FRAME_BYTES,
    MAX_JOINED_BYTES,
    FrameDecoder,
    encode_frame,
    written_parts,
)

# SEND_MESSAGE_V2, written by hand from the protocol's description: group g, topic t, queue 2, property TAGS=x, body hi.
JSON_HEADER = (
    b'{"code":310,"language":"JAVA","version":401,"opaque":5,"flag":0,"extFields":{"a":"g","b":"t","c":"TBW102",'
    b'"d":"4","e":"2","f":"0","g":"1700000000000","h":"0","i":"TAGS\\u0001x\\u0002","j":"0","k":"false","m":"false"},'
    b'"serializeTypeCurrentRPC":"JSON"}'
)
JSON_FRAME = bytes.fromhex("000000fe000000f8") + JSON_HEADER + b"hi"
BINARY_FRAME = (
    bytes.fromhex("0000009a" "01000094")  # total 154; type 1, header of 148 bytes
    + bytes.fromhex("0136" "00" "0191" "00000005" "00000000" "00000000")  # code 310, JAVA, version 401, opaque 5
    + bytes.fromhex("0000007f")  # 127 bytes of ext
    + b"\0\1a\0\0\0\1g" b"\0\1b\0\0\0\1t" b"\0\1c\0\0\0\6TBW102" b"\0\1d\0\0\0\0014" b"\0\1e\0\0\0\0012"
    + b"\0\1f\0\0\0\0010" b"\0\1g\0\0\0\r1700000000000" b"\0\1h\0\0\0\0010" b"\0\1i\0\0\0\7TAGS\1x\2"
    + b"\0\1j\0\0\0\0010" b"\0\1k\0\0\0\5false" b"\0\1m\0\0\0\5false"
    + b"hi"
)  # fmt: skip
SEND = RemotingCommand(
    RequestCode.SEND_MESSAGE_V2,
    {
        "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000", "h": "0",
        "i": "TAGS\x01x\x02", "j": "0", "k": "false", "m": "false",
    },
    b"hi",
    opaque=5,
    language="JAVA",
    version=401,
)  # fmt: skip


def decode(data: bytes) -> list[RemotingCommand]:
    return list(FrameDecoder().feed(data))


def test_a_send_whose_header_has_numbers_and_booleans_keeps_its_body_however_it_is_cut() -> None:
    """As ali-ons writes them."""
    header = JSON_HEADER
    for field in (b'"4"', b'"2"', b'"0"', b'"1700000000000"', b'"false"'):
        header = header.replace(b":" + field, b":" + field.strip(b'"'))
    assert len(header) < len(JSON_HEADER)
    frame = struct.pack(">ii", 4 + len(header) + 2, len(header)) + header + b"hi"
    SEND.header_type = HeaderType.JSON
    assert decode(frame + frame) == [SEND, SEND]
    for place in range(1, len(frame)):
        decoder = FrameDecoder()
        assert [*decoder.feed(frame[:place]), *decoder.feed(frame[place:])] == [SEND]


@pytest.mark.parametrize(("frame", "kind"), [(JSON_FRAME, HeaderType.JSON), (BINARY_FRAME, HeaderType.BINARY)])
def test_a_send_written_by_hand_is_read_and_written_byte_for_byte(frame: bytes, kind: HeaderType) -> None:
    SEND.header_type = kind
    assert decode(frame) == [SEND]
    assert b"".join(encode_frame(SEND)) == frame


@given(st.lists(st.tuples(commands, st.binary(max_size=200)), max_size=5), st.data())
def test_any_split_of_the_stream_gives_the_same_commands(
    pairs: list[tuple[RemotingCommand, bytes]], data: st.DataObject
) -> None:
    for command, body in pairs:
        command.body = body
    stream = b"".join(b"".join(encode_frame(command)) for command, _ in pairs)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    decoder = FrameDecoder()
    assert [command for piece in pieces for command in decoder.feed(piece)] == [command for command, _ in pairs]


def test_a_stream_of_single_bytes_is_read() -> None:
    decoder = FrameDecoder()
    read = [command for byte in JSON_FRAME + BINARY_FRAME for command in decoder.feed(bytes([byte]))]
    assert [command.body for command in read] == [b"hi", b"hi"]


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">ii", -1, 0),
        struct.pack(">ii", 0, 0),
        struct.pack(">ii", 3, 0),
        struct.pack(">ii", MAX_FRAME_BYTES + 1, 10),
        struct.pack(">ii", 2**31 - 1, 10),
        struct.pack(">ii", 20, 17),
        struct.pack(">ii", 20, 0xFFFFFF),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes.fromhex("16030100a5010000a10303"),
    ],
)
def test_hostile_lengths_are_refused_by_the_first_eight_bytes(head: bytes) -> None:
    with pytest.raises(ConnectionFailed) as refused:
        decode(head)
    assert refused.value.name == "PROTOCOL_VIOLATION"


@pytest.mark.parametrize("kind", [2, 5, 255])
def test_an_unknown_header_type_is_refused(kind: int) -> None:
    with pytest.raises(ConnectionFailed):
        decode(struct.pack(">iBBH", 6, kind, 0, 2) + b"{}")


def test_good_frames_before_a_bad_one_are_given_first() -> None:
    commands_of_stream = FrameDecoder().feed(JSON_FRAME + b"\xff" * 20)
    assert next(commands_of_stream).opaque == 5
    with pytest.raises(ConnectionFailed):
        next(commands_of_stream)


def test_body_parts_follow_the_body_and_count_in_the_length() -> None:
    answer = RemotingCommand(0, body=b"a", body_parts=(b"bc", memoryview(b"def")))
    [read] = decode(b"".join(encode_frame(answer)))
    assert read.body == b"abcdef"


def test_a_frame_over_the_limit_is_not_written() -> None:
    with pytest.raises(ValueError, match="limit"):
        encode_frame(RemotingCommand(0, body=bytes(MAX_FRAME_BYTES)))


def test_a_frame_of_the_largest_size_arrives_in_chunks() -> None:
    overhead = sum(map(len, encode_frame(RemotingCommand(0)))) - 4
    frame = b"".join(encode_frame(RemotingCommand(0, body=bytes(MAX_FRAME_BYTES - overhead))))
    assert len(frame) == MAX_FRAME_BYTES + 4
    decoder = FrameDecoder()
    read = [command for start in range(0, len(frame), 65536) for command in decoder.feed(frame[start : start + 65536])]
    assert [len(command.body) for command in read] == [MAX_FRAME_BYTES - overhead]


def receive(decoder: FrameDecoder, stream: bytes, sizes: list[int]) -> list[RemotingCommand]:
    """Read as a transport does, at most as many bytes at a time as `sizes` says in turn."""
    scratch = memoryview(bytearray(256 * 1024))
    commands: list[RemotingCommand] = []
    position = turn = 0
    while position < len(stream):
        room = decoder.room()
        target = scratch if room is None else room
        assert target
        size = min(sizes[turn % len(sizes)], len(target), len(stream) - position)
        target[:size] = stream[position : position + size]
        position, turn = position + size, turn + 1
        if room is None:
            commands += decoder.feed(scratch[:size])
            scratch[:size] = bytes(size)
        else:
            decoder.note_filled(size)
    return commands


def _gets_on(sizes: list[int]) -> bool:
    return sum(sizes) >= 700 * len(sizes)


LARGE_SIZES = st.one_of(st.integers(0, 300), st.integers(63 * 1024, 70 * 1024), st.integers(200_000, 300_000))


@settings(deadline=None)
@given(
    st.lists(LARGE_SIZES, min_size=1, max_size=3),
    st.lists(st.one_of(st.integers(700, 2000), st.integers(1, 300_000)), min_size=1, max_size=6).filter(_gets_on),
)
def test_large_bodies_arrive_the_same_by_feeding_and_by_filling_however_the_stream_is_split(
    bodies: list[int], sizes: list[int]
) -> None:
    sent = [random.Random(number).randbytes(size) for number, size in enumerate(bodies)]
    stream = b"".join(b"".join(encode_frame(RemotingCommand(7, {"a": "b"}, body))) for body in sent)
    decoder, fed, position, turn = FrameDecoder(), [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        fed += decoder.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    for read in (receive(FrameDecoder(), stream, sizes), fed):
        assert [command.body for command in read] == sent
        assert {type(command.body) for command in read} == {bytes}


def test_a_length_alone_reserves_no_room() -> None:
    decoder = FrameDecoder()
    head = struct.pack(">iBBH", MAX_FRAME_BYTES, 0, 0, 10) + b'{"code":7}'
    assert list(decoder.feed(head + bytes(MAX_FRAME_BYTES // 8 - len(head) - 1))) == []
    assert decoder.room() is None
    assert list(decoder.feed(b"x")) == []
    assert decoder.room() is not None


def test_a_bad_header_of_a_large_frame_is_refused_before_its_body_is_there() -> None:
    with pytest.raises(ConnectionFailed):
        list(FrameDecoder().feed(struct.pack(">iBBH", 1 << 20, 0, 0, 10) + b"x" * (1 << 18)))


def test_a_bad_frame_behind_a_large_one_is_refused_after_it() -> None:
    stream = b"".join(encode_frame(RemotingCommand(7, body=bytes(200_000)))) + b"\xff" * 20
    decoder = FrameDecoder()
    assert list(decoder.feed(stream[:150_000])) == []
    commands_of_stream = decoder.feed(stream[150_000:])
    assert len(next(commands_of_stream).body) == 200_000
    with pytest.raises(ConnectionFailed):
        next(commands_of_stream)


@given(st.lists(st.sampled_from([0, 1, 100, MAX_JOINED_BYTES, MAX_JOINED_BYTES + 1]), max_size=8))
def test_written_parts_are_the_same_bytes_and_large_ones_are_not_copied(sizes: list[int]) -> None:
    buffers = [bytes([number]) * size for number, size in enumerate(sizes)]
    parts = written_parts(buffers)
    assert b"".join(parts) == b"".join(buffers)
    kept = [part.obj for part in parts if isinstance(part, memoryview)]
    large = [buffer for buffer in buffers if len(buffer) > MAX_JOINED_BYTES]
    assert all(one is other for one, other in zip(kept, large, strict=True))
    assert len(parts) <= 2 * len(large) + 1
