from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http2_peer import REQUEST, RawPeer, frame, read_frames
from millstream.protocol.http2.allowance import BURST, PER_SECOND, RAPID_S, RESET_COST
from millstream.protocol.http2.connection import (
    CONNECTION_WINDOW_BYTES,
    MAX_CONTINUATIONS,
    MAX_HEADER_BLOCK_BYTES,
    MAX_UNSENT_REPLIES_BYTES,
    Http2Core,
    Http2Limits,
)
from millstream.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW_BYTES,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_FLAG,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    SettingId,
)
from millstream.protocol.http2.sending import MAX_ENDED_EARLY, WAITING_STREAM_BYTES
from millstream.protocol.http2.stream import ARRIVED, ENDED, OPENED, RESET, Http2Stream

ANSWER = ((":status", "200"), ("content-type", "application/grpc"))
OK = (("grpc-status", "0"),)
MIB = 1024 * 1024


@pytest.fixture
def peer() -> RawPeer:
    return RawPeer()


def take_news(streams: list[Http2Stream]) -> list[tuple[int, int]]:
    """The numbers of streams with their news, which are cleared as their owner does."""
    found = []
    for stream in streams:
        found.append((stream.number, stream.news))
        stream.news = 0
    return found


class TestBeginning:
    def test_the_core_says_its_settings_at_once_and_acknowledges_those_of_the_peer(self) -> None:
        peer = RawPeer(Http2Limits(max_streams=7, stream_window_bytes=1000, max_header_list_bytes=500), begins=False)
        settings, window = peer.hear()
        assert dict(struct.iter_unpack("!HI", settings.content)) == {
            SettingId.MAX_CONCURRENT_STREAMS: 7,
            SettingId.INITIAL_WINDOW_SIZE: 1000,
            SettingId.MAX_FRAME_SIZE: DEFAULT_FRAME_BYTES,
            SettingId.MAX_HEADER_LIST_SIZE: 500,
        }
        assert (window.kind, window.stream, window.word) == (WINDOW_UPDATE, 0, CONNECTION_WINDOW_BYTES - 65_535)
        assert not peer.core.has_begun
        peer.send(PREFACE + frame(SETTINGS, 0, 0))
        assert peer.core.has_begun
        assert [(one.kind, one.flags) for one in peer.hear()] == [(SETTINGS, ACK)]

    @pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", b"\x00", b"PRI * HTTP/1"])
    def test_what_begins_otherwise_is_refused_as_soon_as_that_is_clear(self, words: bytes) -> None:
        peer = RawPeer(begins=False)
        peer.send(words)
        assert peer.core.failure is not None
        peer.hear()
        assert peer.goaways() == [(0, ErrorCode.PROTOCOL_ERROR)]

    @pytest.mark.parametrize(
        "first", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, ACK, 0), frame(HEADERS, END_HEADERS, 1, b"\x82")]
    )
    def test_a_first_frame_that_is_no_settings_ends_the_connection(self, first: bytes) -> None:
        peer = RawPeer(begins=False)
        peer.send(PREFACE + first)
        peer.hear()
        assert peer.goaways() == [(0, ErrorCode.PROTOCOL_ERROR)]

    def test_half_a_preface_is_waited_for(self) -> None:
        peer = RawPeer(begins=False)
        for place in range(len(PREFACE)):
            peer.send(PREFACE[place : place + 1])
            assert peer.core.failure is None
        assert peer.core.held_bytes <= len(PREFACE)
        peer.send(frame(SETTINGS, 0, 0))
        assert peer.core.has_begun


class TestRequests:
    def test_a_request_of_one_chunk_is_opened_arrived_and_ended_at_once(self, peer: RawPeer) -> None:
        [stream] = peer.send(peer.headers(1) + peer.data(1, b"hello", ends=True))
        assert stream.news == OPENED | ARRIVED | ENDED
        assert (stream.head.path, stream.take_inbox(), stream.is_ended) == ("/a.Service/Call", b"hello", True)
        assert stream.inbox_bytes == 0

    def test_streams_have_news_in_the_order_in_which_they_got_them(self, peer: RawPeer) -> None:
        peer.send(peer.headers(1), peer.headers(3), peer.headers(5))
        for stream in peer.core.streams.values():
            stream.news = 0
        told = peer.send(peer.data(5, b"a"), peer.data(1, b"b"), peer.data(5, b"c"))
        assert take_news(told) == [(5, ARRIVED), (1, ARRIVED)]

    def test_trailers_end_a_request(self, peer: RawPeer) -> None:
        stream = peer.open()
        stream.news = 0
        peer.send(peer.data(1, b"hello"), peer.headers(1, (("x-checksum", "7"),), ends=True))
        assert stream.news == ARRIVED | ENDED

    def test_padding_is_no_data_and_counts_against_the_windows(self, peer: RawPeer) -> None:
        stream = peer.open()
        before = stream.receive_window_bytes
        peer.send(peer.padded_data(1, b"hello", 200))
        assert stream.take_inbox() == b"hello"
        # The padding and its length byte are granted again at once: nobody takes them out.
        assert stream.receive_window_bytes == before - 5
        assert [(one.kind, one.stream, one.word) for one in peer.hear()] == [(WINDOW_UPDATE, 1, 201)]

    def test_headers_may_be_padded_and_have_a_priority(self, peer: RawPeer) -> None:
        block = peer.block()
        content = b"\x03" + struct.pack("!IB", 0x80000000 | 5, 10) + block + bytes(3)
        [stream] = peer.send(frame(HEADERS, END_HEADERS | END_STREAM | PADDED | PRIORITY_FLAG, 1, content))
        assert stream.head.path == "/a.Service/Call"

    def test_a_content_length_that_is_kept_is_fine(self, peer: RawPeer) -> None:
        headers = (*REQUEST, ("content-length", "5"))
        [stream] = peer.send(peer.headers(1, headers), peer.data(1, b"he"), peer.data(1, b"llo", ends=True))
        assert stream.news == OPENED | ARRIVED | ENDED

    @pytest.mark.parametrize("length", ["4", "6", "0"])
    def test_a_content_length_that_is_not_kept_ends_the_stream(self, peer: RawPeer, length: str) -> None:
        [stream] = peer.send(peer.headers(1, (*REQUEST, ("content-length", length))), peer.data(1, b"hello", ends=True))
        assert stream.news & RESET
        peer.hear()
        assert peer.resets() == [(1, ErrorCode.PROTOCOL_ERROR)]
        assert peer.core.failure is None

    def test_headers_come_in_many_continuations(self, peer: RawPeer) -> None:
        block = peer.block()
        pieces = [block[place : place + 4] for place in range(0, len(block), 4)]
        sent = [frame(HEADERS, END_STREAM, 1, pieces[0])]
        sent += [peer.continuation(1, piece, ends=piece is pieces[-1]) for piece in pieces[1:]]
        [stream] = peer.send(*sent)
        assert stream.news == OPENED | ENDED
        assert peer.core.held_bytes == 0

    def test_unknown_kinds_flags_and_settings_mean_nothing(self, peer: RawPeer) -> None:
        peer.send(frame(0xBE, 0xFF, 3, b"?"), peer.settings((0xBEEF, 7)))
        [stream] = peer.send(frame(HEADERS, END_HEADERS | END_STREAM | 0xC0, 1, peer.block()))
        assert stream.head.method == "POST"
        assert peer.core.failure is None

    def test_the_upper_bit_of_a_stream_means_nothing(self, peer: RawPeer) -> None:
        [stream] = peer.send(frame(HEADERS, END_HEADERS, 0x80000001, peer.block()))
        assert stream.number == 1


def _cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(raw) + 1) for place in places}), len(raw)]
    return [raw[start:end] for start, end in itertools.pairwise(edges)]


def _traffic(seed: int) -> bytes:
    """What a client may send, faults included."""
    rng, peer = random.Random(seed), RawPeer()
    sent = [PREFACE, peer.settings((SettingId.INITIAL_WINDOW_SIZE, rng.choice([0, 10, 70_000])))]
    for number in range(1, 2 * rng.randrange(1, 8), 2):
        block = peer.block()
        cut = rng.randrange(len(block))
        sent += [frame(HEADERS, 0, number, block[:cut]), peer.continuation(number, block[cut:], ends=True)]
        sent.append(peer.padded_data(number, rng.randbytes(rng.randrange(40)), rng.randrange(20)))
        sent.append(peer.data(number, rng.randbytes(rng.randrange(300)), ends=rng.random() < 0.7))
        sent += rng.sample(
            [
                peer.ping(rng.randbytes(8)),
                peer.window(0, 100),
                peer.window(number, 100),
                peer.settings((SettingId.INITIAL_WINDOW_SIZE, rng.randrange(1000))),
                peer.settings((SettingId.HEADER_TABLE_SIZE, rng.randrange(5000))),
                peer.data(number, b"late"),
                peer.reset(number),
                peer.headers(number, (("x", "trailer"),), ends=True),
                frame(PRIORITY, 0, number, bytes(5)),
                frame(PRIORITY, 0, number, bytes(4)),
                frame(GOAWAY, 0, 0, bytes(8)),
                peer.window(number, 0),
                frame(PUSH_PROMISE, 0, number, bytes(8)),
            ],
            rng.randrange(6),
        )
    return b"".join(sent)


def _play(chunks: list[bytes]) -> tuple[dict[int, tuple[int, bytes]], list[bytes], object]:
    """What is told of each stream and what is sent, where each whole request is answered with its own bytes."""
    core, told, sent = Http2Core(), {}, []
    for chunk in chunks:
        for stream in core.receive(chunk, 0.0):
            news, data = told.get(stream.number, (0, b""))
            told[stream.number] = (news | stream.news, data + stream.take_inbox())
            stream.news = 0
        sent += core.take_outgoing()
    return told, [bytes(one) for one in sent], core.failure


@given(st.integers(0, 2**32), st.lists(st.integers(0, 10_000), max_size=60))
def test_chunks_cut_anywhere_bring_the_same_news_and_the_same_bytes(seed: int, places: list[int]) -> None:
    raw = _traffic(seed)
    assert _play(_cut(raw, places)) == _play([raw])


@pytest.mark.parametrize("seed", range(5))
def test_chunks_of_one_byte_bring_the_same_news_and_the_same_bytes(seed: int) -> None:
    raw = _traffic(seed)
    assert _play([raw[place : place + 1] for place in range(len(raw))]) == _play([raw])


def _opened(peer: RawPeer) -> None:
    peer.open()


def _half_closed(peer: RawPeer) -> None:
    peer.open(ends=True)


def _answered(peer: RawPeer) -> None:
    peer.core.send_headers(peer.open(ends=True), ANSWER, ends=True)


def _reset_by_peer(peer: RawPeer) -> None:
    peer.open()
    peer.send(peer.reset(1))


Make = Callable[[RawPeer], bytes]

CONNECTION_FAULTS: list[tuple[str, Make, ErrorCode]] = [
    ("a frame over the limit", lambda p: p.data(1, bytes(16_385)), ErrorCode.FRAME_SIZE_ERROR),
    ("DATA on stream 0", lambda p: p.data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
    ("DATA on an idle stream", lambda p: p.data(9, b"x"), ErrorCode.PROTOCOL_ERROR),
    ("DATA on an even stream", lambda p: p.data(2, b"x"), ErrorCode.PROTOCOL_ERROR),
    ("DATA with too much padding", lambda p: frame(DATA, PADDED, 1, b"\x05abc"), ErrorCode.PROTOCOL_ERROR),
    ("DATA without its padding length", lambda p: frame(DATA, PADDED, 1), ErrorCode.FRAME_SIZE_ERROR),
    ("HEADERS on stream 0", lambda p: p.headers(0), ErrorCode.PROTOCOL_ERROR),
    ("HEADERS on an even stream", lambda p: p.headers(2), ErrorCode.PROTOCOL_ERROR),
    ("HEADERS on a lower stream", lambda p: p.headers(7) + p.headers(5), ErrorCode.STREAM_CLOSED),
    ("HEADERS with too much padding", lambda p: frame(HEADERS, PADDED | 4, 3, b"\xffa"), ErrorCode.PROTOCOL_ERROR),
    ("HEADERS too short for a priority", lambda p: frame(HEADERS, PRIORITY_FLAG | 4, 3, b"abcd"),
     ErrorCode.FRAME_SIZE_ERROR),
    ("HEADERS that depend on themselves", lambda p: frame(HEADERS, PRIORITY_FLAG | 4, 3, b"\0\0\0\3\0" + p.block()),
     ErrorCode.PROTOCOL_ERROR),
    ("an index that is not there", lambda p: frame(HEADERS, END_HEADERS, 3, b"\xff\x80\x01"),
     ErrorCode.COMPRESSION_ERROR),
    ("a block that is cut off", lambda p: frame(HEADERS, END_HEADERS, 3, p.block()[:-1]), ErrorCode.COMPRESSION_ERROR),
    ("a block within another", lambda p: frame(HEADERS, 0, 3, b"") + p.headers(5), ErrorCode.PROTOCOL_ERROR),
    ("a PING within a block", lambda p: frame(HEADERS, 0, 3, b"") + p.ping(), ErrorCode.PROTOCOL_ERROR),
    ("an unknown frame within a block", lambda p: frame(HEADERS, 0, 3) + frame(99, 0, 3), ErrorCode.PROTOCOL_ERROR),
    ("CONTINUATION of another stream", lambda p: frame(HEADERS, 0, 3) + p.continuation(5, b""),
     ErrorCode.PROTOCOL_ERROR),
    ("CONTINUATION without a block", lambda p: p.continuation(1, b"", ends=True), ErrorCode.PROTOCOL_ERROR),
    ("PRIORITY on stream 0", lambda p: frame(PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    ("PRIORITY of a stream on itself", lambda p: frame(PRIORITY, 0, 3, b"\0\0\0\3\0"), ErrorCode.PROTOCOL_ERROR),
    ("RST_STREAM on stream 0", lambda p: p.reset(0), ErrorCode.PROTOCOL_ERROR),
    ("RST_STREAM on an idle stream", lambda p: p.reset(9), ErrorCode.PROTOCOL_ERROR),
    ("RST_STREAM of another size", lambda p: frame(RST_STREAM, 0, 1, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    ("SETTINGS on a stream", lambda p: frame(SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    ("SETTINGS of another size", lambda p: frame(SETTINGS, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    ("an acknowledgement with settings", lambda p: frame(SETTINGS, ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
    ("ENABLE_PUSH of 2", lambda p: p.settings((SettingId.ENABLE_PUSH, 2)), ErrorCode.PROTOCOL_ERROR),
    ("a window over 2^31 - 1 in settings", lambda p: p.settings((SettingId.INITIAL_WINDOW_SIZE, 2**31)),
     ErrorCode.FLOW_CONTROL_ERROR),
    ("frames that are too small", lambda p: p.settings((SettingId.MAX_FRAME_SIZE, 16_383)), ErrorCode.PROTOCOL_ERROR),
    ("frames that are too large", lambda p: p.settings((SettingId.MAX_FRAME_SIZE, 2**24)), ErrorCode.PROTOCOL_ERROR),
    ("PUSH_PROMISE", lambda p: frame(PUSH_PROMISE, END_HEADERS, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    ("PING on a stream", lambda p: frame(PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    ("PING of another size", lambda p: frame(PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    ("GOAWAY on a stream", lambda p: frame(GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    ("GOAWAY that is too short", lambda p: frame(GOAWAY, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    ("WINDOW_UPDATE of another size", lambda p: frame(WINDOW_UPDATE, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    ("WINDOW_UPDATE of nothing", lambda p: p.window(0, 0), ErrorCode.PROTOCOL_ERROR),
    ("WINDOW_UPDATE on an idle stream", lambda p: p.window(9, 1), ErrorCode.PROTOCOL_ERROR),
    ("a connection window over 2^31 - 1", lambda p: p.window(0, MAX_WINDOW_BYTES), ErrorCode.FLOW_CONTROL_ERROR),
    ("a stream's window over 2^31 - 1 by settings",
     lambda p: p.window(1, MAX_WINDOW_BYTES - 65_535) + p.settings((SettingId.INITIAL_WINDOW_SIZE, 65_536)),
     ErrorCode.FLOW_CONTROL_ERROR),
]  # fmt: skip


@pytest.mark.parametrize(("make", "code"), [pytest.param(*row[1:], id=row[0]) for row in CONNECTION_FAULTS])
def test_a_fault_of_the_connection_is_answered_with_goaway_once(peer: RawPeer, make: Make, code: ErrorCode) -> None:
    peer.open()
    peer.send(make(peer))
    assert peer.core.failure is not None
    assert peer.core.failure.code is code
    assert peer.core.failure.words.endswith(".")
    peer.hear()
    assert [found for _, found in peer.goaways()] == [code]
    assert peer.core.held_bytes == 0
    assert peer.send(peer.headers(99), make(peer)) == []
    assert peer.hear() == []


STREAM_FAULTS: list[tuple[str, Callable[[RawPeer], None], Make, ErrorCode]] = [
    ("DATA behind the end", _half_closed, lambda p: p.data(1, b"x"), ErrorCode.STREAM_CLOSED),
    ("HEADERS behind the end", _half_closed, lambda p: p.headers(1, ends=True), ErrorCode.STREAM_CLOSED),
    ("DATA on an answered stream", _answered, lambda p: p.data(1, b"x"), ErrorCode.STREAM_CLOSED),
    ("DATA behind a reset", _reset_by_peer, lambda p: p.data(1, b"x"), ErrorCode.STREAM_CLOSED),
    ("a second block that does not end", _opened, lambda p: p.headers(1, (("x", "y"),)), ErrorCode.PROTOCOL_ERROR),
    ("a pseudo-header in trailers", _opened, lambda p: p.headers(1, ends=True), ErrorCode.PROTOCOL_ERROR),
    ("trailers that are not short", _opened, lambda p: p.headers(1, (("y" * 99, "z" * 99),) * 400, ends=True),
     ErrorCode.ENHANCE_YOUR_CALM),
    ("WINDOW_UPDATE of nothing", _opened, lambda p: p.window(1, 0), ErrorCode.PROTOCOL_ERROR),
    ("a window over 2^31 - 1", _opened, lambda p: p.window(1, MAX_WINDOW_BYTES), ErrorCode.FLOW_CONTROL_ERROR),
    ("PRIORITY of another size", _opened, lambda p: frame(PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
]  # fmt: skip


def _split(raw: bytes) -> bytes:
    """Header blocks over the size of a frame in continuations."""
    if len(raw) <= DEFAULT_FRAME_BYTES or raw[3] != HEADERS:
        return raw
    stream, content = int.from_bytes(raw[5:9], "big"), raw[9:]
    pieces = [content[at : at + DEFAULT_FRAME_BYTES] for at in range(0, len(content), DEFAULT_FRAME_BYTES)]
    rest = [frame(CONTINUATION, END_HEADERS if one is pieces[-1] else 0, stream, one) for one in pieces[1:]]
    return frame(HEADERS, raw[4] & END_STREAM, stream, pieces[0]) + b"".join(rest)


@pytest.mark.parametrize(
    ("before", "make", "code"), [pytest.param(*row[1:], id=row[0]) for row in STREAM_FAULTS]
)  # fmt: skip
def test_a_fault_of_a_stream_ends_the_stream_alone_and_once(
    peer: RawPeer, before: Callable[[RawPeer], None], make: Make, code: ErrorCode
) -> None:
    before(peer)
    peer.hear()
    peer.heard.clear()
    peer.send(_split(make(peer)))
    peer.hear()
    assert peer.resets() == [(1, code)]
    assert peer.core.failure is None
    assert 1 not in peer.core.streams
    # What was on its way behind it is dropped in silence, and others go on.
    peer.send(peer.data(1, b"more"), peer.data(1, b"more"), peer.window(1, 7), peer.data(1, b"", ends=True))
    [other] = peer.send(peer.headers(3, ends=True))
    assert other.news == OPENED | ENDED
    peer.hear()
    assert peer.resets() == [(1, code)]


def test_a_fault_tells_the_owner_of_the_stream(peer: RawPeer) -> None:
    stream = peer.open()
    stream.news = 0
    assert take_news(peer.send(peer.window(1, 0))) == [(1, RESET)]
    assert not stream.is_open


class TestMalformedHeads:
    @pytest.mark.parametrize(
        "headers",
        [
            REQUEST[1:],
            (*REQUEST, (":path", "/twice")),
            (*REQUEST, ("Upper", "x")),
            (*REQUEST, ("connection", "close")),
            (*REQUEST, ("te", "gzip")),
            (*REQUEST, ("x", "a\rb")),
        ],
    )
    def test_a_malformed_head_ends_its_stream_and_opens_nothing(
        self, peer: RawPeer, headers: tuple[tuple[str, str], ...]
    ) -> None:
        assert peer.send(peer.headers(1, headers)) == []
        peer.hear()
        assert peer.resets() == [(1, ErrorCode.PROTOCOL_ERROR)]
        peer.send(peer.data(1, b"late", ends=True))
        assert peer.hear() == []

    def test_headers_over_the_limit_end_their_stream_and_leave_the_table_in_order(self) -> None:
        peer = RawPeer(Http2Limits(max_header_list_bytes=1000))
        # With an insert into the table, which a later block names.
        inserted = b"\x40\x01x\x01y"
        much = tuple((f"n{number}", "v" * 50) for number in range(20))
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, inserted + peer.block((*REQUEST, *much))))
        peer.hear()
        assert peer.resets() == [(1, ErrorCode.ENHANCE_YOUR_CALM)]
        [stream] = peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, peer.block() + b"\xbe"))
        assert stream.head.metadata["x"] == "y"


class TestHeaderBlocks:
    def test_a_block_that_does_not_end_ends_the_connection_by_its_frames(self, peer: RawPeer) -> None:
        peer.send(frame(HEADERS, 0, 1, b""), *[peer.continuation(1, b"")] * MAX_CONTINUATIONS)
        assert peer.core.failure is None
        peer.send(peer.continuation(1, b""))
        assert peer.core.failure is not None
        assert peer.core.failure.code is ErrorCode.ENHANCE_YOUR_CALM

    def test_a_block_that_does_not_end_ends_the_connection_by_its_bytes(self, peer: RawPeer) -> None:
        peer.send(frame(HEADERS, 0, 1, bytes(DEFAULT_FRAME_BYTES)))
        most = 0
        while peer.core.failure is None:
            most = max(most, peer.core.held_bytes)
            peer.send(peer.continuation(1, bytes(DEFAULT_FRAME_BYTES)))
        assert peer.core.failure.code is ErrorCode.ENHANCE_YOUR_CALM
        assert MAX_HEADER_BLOCK_BYTES - DEFAULT_FRAME_BYTES <= most <= MAX_HEADER_BLOCK_BYTES


class TestEndedEarly:
    def test_an_answer_before_the_end_of_its_request_says_that_the_rest_is_not_wanted(self, peer: RawPeer) -> None:
        peer.core.send_whole(peer.open(), ANSWER, b"hello", OK)
        headers, data, trailers, reset = peer.hear()
        assert (headers.kind, data.kind, trailers.kind, trailers.ends) == (HEADERS, DATA, HEADERS, True)
        assert (reset.kind, reset.word) == (RST_STREAM, ErrorCode.NO_ERROR)

    @pytest.mark.parametrize(
        "late",
        [
            lambda p: p.data(1, b"late") + p.data(1, b"", ends=True),
            lambda p: p.headers(1, (("x", "y"),), ends=True),
            lambda p: p.window(1, 5) + p.reset(1),
            lambda p: p.window(1, 0),
            lambda p: frame(PRIORITY, 0, 1, bytes(5)),
        ],
        ids=["DATA", "trailers", "RST_STREAM", "WINDOW_UPDATE of nothing", "PRIORITY"],
    )
    def test_late_frames_of_an_ended_stream_are_dropped_in_silence(self, peer: RawPeer, late: Make) -> None:
        peer.core.reset(peer.open(), ErrorCode.CANCEL)
        peer.hear()
        assert peer.send(late(peer)) == []
        assert peer.hear() == []
        assert peer.core.failure is None

    def test_late_data_gives_the_connection_its_window_back(self, peer: RawPeer) -> None:
        peer.core.reset(peer.open(), ErrorCode.CANCEL)
        peer.hear()
        for _ in range(3 * CONNECTION_WINDOW_BYTES // DEFAULT_FRAME_BYTES):
            peer.send(peer.data(1, bytes(DEFAULT_FRAME_BYTES)))
        assert peer.core.failure is None
        assert sum(one.word for one in peer.hear() if one.kind == WINDOW_UPDATE and one.stream == 0) >= (
            2 * CONNECTION_WINDOW_BYTES
        )

    def test_of_more_ended_streams_than_are_remembered_the_oldest_is_forgotten(self, peer: RawPeer) -> None:
        streams = [peer.open() for _ in range(MAX_ENDED_EARLY + 1)]
        for stream in streams:
            peer.core.reset(stream, ErrorCode.CANCEL)
        peer.hear()
        peer.heard.clear()
        peer.send(peer.data(streams[1].number, b"late"))
        assert peer.hear() == []
        peer.send(peer.data(streams[0].number, b"late"))
        peer.hear()
        assert peer.resets() == [(1, ErrorCode.STREAM_CLOSED)]

    def test_a_reset_drops_what_waits(self, peer: RawPeer) -> None:
        stream = peer.open(ends=True)
        peer.core.send_headers(stream, ANSWER)
        peer.core.send_data(stream, bytes(MIB))
        assert peer.core.queued_bytes == MIB - 65_535 + WAITING_STREAM_BYTES
        peer.send(peer.reset(1))
        assert (stream.news & RESET, peer.core.queued_bytes, stream.queued_bytes) == (RESET, 0, 0)
        peer.core.send_data(stream, b"more", OK)
        peer.core.send_headers(stream, ANSWER)
        peer.core.grant(stream, 5)
        peer.core.reset(stream, ErrorCode.CANCEL)
        peer.hear()
        assert peer.resets() == []


class TestNews:
    """A stream is told of once for each time that its owner has looked."""

    def test_news_behind_an_answer_larger_than_a_frame_are_told(self, peer: RawPeer) -> None:
        stream = peer.open()
        stream.news = 0
        peer.core.send_headers(stream, ANSWER)
        peer.core.send_data(stream, bytes(2 * DEFAULT_FRAME_BYTES))
        assert stream.queued_bytes == 0
        assert (1, ARRIVED) in [(number, news & ARRIVED) for number, news in take_news(peer.send(peer.data(1, b"x")))]
        assert (1, RESET) in [(number, news & RESET) for number, news in take_news(peer.send(peer.reset(1)))]

    def test_an_answer_that_is_whole_is_no_news(self, peer: RawPeer) -> None:
        stream = peer.open(ends=True)
        stream.news = 0
        peer.core.send_headers(stream, ANSWER)
        peer.core.send_data(stream, bytes(MIB), OK)
        assert take_news(peer.send(peer.window(0, MIB), peer.window(1, MIB))) == []
        assert not stream.is_open


class TestGoodbye:
    def test_after_the_first_word_requests_are_still_taken_and_after_the_second_refused(self, peer: RawPeer) -> None:
        peer.open()
        peer.core.say_goodbye()
        peer.hear()
        assert peer.goaways() == [(2**31 - 1, ErrorCode.NO_ERROR)]
        under_way = peer.open(ends=True)
        peer.core.refuse_new()
        peer.core.refuse_new()
        assert peer.send(peer.headers(5)) == []
        peer.hear()
        assert peer.goaways()[1:] == [(3, ErrorCode.NO_ERROR)]
        assert peer.resets() == [(5, ErrorCode.REFUSED_STREAM)]
        peer.core.send_whole(under_way, ANSWER, b"hello", OK)
        peer.hear()
        assert peer.sent_data(3) == b"hello"

    def test_no_later_goaway_names_a_higher_stream(self, peer: RawPeer) -> None:
        """RFC 9113, 6.8: endpoints must not increase the value; clients may have sent those streams elsewhere."""
        peer.open()
        peer.core.refuse_new()
        peer.send(peer.headers(3))
        peer.core.say_goodbye()
        peer.send(peer.window(0, 0))
        peer.hear()
        assert [last for last, _ in peer.goaways()] == [1] * len(peer.goaways())
        assert peer.goaways()[-1] == (1, ErrorCode.PROTOCOL_ERROR)

    def test_nothing_follows_a_failure(self, peer: RawPeer) -> None:
        peer.core.fail(ErrorCode.INTERNAL_ERROR, "It is over.")
        peer.core.fail(ErrorCode.INTERNAL_ERROR, "It is over.")
        peer.core.refuse_new()
        peer.core.say_goodbye()
        peer.hear()
        assert peer.goaways() == [(0, ErrorCode.INTERNAL_ERROR)]

    def test_a_peer_that_leaves_is_noted_and_answered_on(self, peer: RawPeer) -> None:
        stream = peer.open(ends=True)
        peer.send(frame(GOAWAY, 0, 0, struct.pack("!II", 0, 0) + b"bye"))
        assert peer.core.is_leaving
        peer.core.send_whole(stream, ANSWER, b"hello", OK)
        peer.hear()
        assert peer.sent_data(1) == b"hello"


class TestTooManyStreams:
    def test_one_more_stream_is_refused_until_another_is_over(self) -> None:
        peer = RawPeer(Http2Limits(max_streams=3))
        streams = [peer.open() for _ in range(3)]
        assert peer.send(peer.headers(7)) == []
        peer.hear()
        assert peer.resets() == [(7, ErrorCode.REFUSED_STREAM)]
        peer.send(peer.data(7, b"late", ends=True), peer.reset(streams[0].number))
        peer.next_stream = 9
        assert peer.open().is_open


FLOODS: list[tuple[str, Callable[[RawPeer, int], bytes], int]] = [
    ("empty DATA", lambda p, _: p.data(1), 1),
    ("DATA of padding alone", lambda p, _: p.padded_data(1, b"", 0), 1),
    ("empty SETTINGS", lambda p, _: p.settings(), 1),
    ("many settings", lambda p, _: p.settings(*[(9, 9)] * 100), 101),
    ("acknowledgements", lambda p, _: frame(SETTINGS, ACK, 0), 1),
    ("PING", lambda p, _: p.ping(), 1),
    ("answers to no PING", lambda p, _: p.ping(flags=ACK), 1),
    ("WINDOW_UPDATE of the connection", lambda p, _: p.window(0, 1), 1),
    ("WINDOW_UPDATE of a stream", lambda p, _: p.window(1, 1), 1),
    ("PRIORITY", lambda p, _: frame(PRIORITY, 0, 1, bytes(5)), 1),
    ("PRIORITY of idle streams", lambda p, n: frame(PRIORITY, 0, 2 * n + 1001, bytes(5)), 1),
    ("unknown frames", lambda p, _: frame(99, 0, 1, b"?"), 1),
    ("GOAWAY", lambda p, _: frame(GOAWAY, 0, 0, bytes(8)), 1),
    ("rapid reset", lambda p, n: p.headers(2 * n + 3, ends=True) + p.reset(2 * n + 3), RESET_COST + 1),
    ("resets of ended streams", lambda p, _: p.reset(1), 1),
    ("malformed heads", lambda p, n: p.headers(2 * n + 3, REQUEST[1:], ends=True), RESET_COST),
    ("streams that break by a window", lambda p, n: p.headers(2 * n + 3, ends=True) + p.window(2 * n + 3, 0),
     RESET_COST + 1),
    ("DATA of a closed stream", lambda p, n: p.headers(2 * n + 3, REQUEST[1:], ends=True) + p.data(2 * n + 3, b"x"),
     RESET_COST + 1),
    ("empty DATA of an ended stream", lambda p, n: (p.headers(3, REQUEST[1:]) if n == 0 else b"") + p.data(3), 1),
]  # fmt: skip


@pytest.mark.parametrize(("make", "cost"), [pytest.param(*row[1:], id=row[0]) for row in FLOODS])
def test_a_flood_ends_the_connection_within_its_limit(
    peer: RawPeer, make: Callable[[RawPeer, int], bytes], cost: int
) -> None:
    peer.open()
    limit = BURST // cost
    sent = 0
    while peer.core.failure is None and sent <= limit + 2:
        for stream in peer.send(make(peer, sent)):
            stream.news = 0
        # The replies are read, so that the limit of unread ones is not what is seen.
        peer.core.take_outgoing()
        sent += 1
    assert peer.core.failure is not None, "the flood goes on"
    assert peer.core.failure.code is ErrorCode.ENHANCE_YOUR_CALM
    # What a flood has to begin with may cost more than what it goes on with.
    assert sent >= limit - RESET_COST - 2


def test_a_flood_slow_enough_goes_on_for_ever(peer: RawPeer) -> None:
    for _ in range(40):
        peer.now_s += 0.5
        peer.send(peer.ping() * (PER_SECOND // 2))
        assert len(peer.hear()) == PER_SECOND // 2
    assert peer.core.failure is None


def test_a_thousand_calls_that_are_given_up_at_their_deadline_end_no_connection(peer: RawPeer) -> None:
    count = 2 * BURST // RESET_COST
    for number in range(count):
        peer.send(peer.headers(2 * number + 1, ends=True))
    peer.now_s += RAPID_S
    for number in range(count):
        peer.send(peer.reset(2 * number + 1))
    assert peer.core.failure is None
    assert not peer.core.streams


def test_a_quiet_time_entitles_to_no_more_than_one_burst(peer: RawPeer) -> None:
    peer.send(peer.ping())
    peer.now_s += 3600
    for _ in range(BURST):
        peer.send(peer.ping())
        peer.core.take_outgoing()
    assert peer.core.failure is None
    peer.send(peer.ping() * 2)
    assert peer.core.failure is not None


def test_replies_that_are_not_read_end_the_connection_within_their_limit(peer: RawPeer) -> None:
    before = peer.core.outgoing_bytes
    for _ in range(MAX_UNSENT_REPLIES_BYTES // 17 + 1):
        assert peer.core.failure is None
        peer.now_s += 0.01
        peer.send(peer.ping())
    assert peer.core.failure is not None
    assert peer.core.failure.code is ErrorCode.ENHANCE_YOUR_CALM
    assert peer.core.outgoing_bytes - before <= MAX_UNSENT_REPLIES_BYTES + 200


def test_grants_of_padding_that_are_not_read_end_the_connection_within_the_same_limit(peer: RawPeer) -> None:
    peer.open()
    for _ in range(MAX_UNSENT_REPLIES_BYTES // 13 + 1):
        assert peer.core.failure is None
        peer.send(peer.padded_data(1, b"x", 1))
    assert peer.core.failure is not None
    assert peer.core.failure.code is ErrorCode.ENHANCE_YOUR_CALM
    assert peer.core.outgoing_bytes <= MAX_UNSENT_REPLIES_BYTES + 200


def test_a_change_of_windows_costs_as_much_as_the_streams_that_it_touches(peer: RawPeer) -> None:
    """One frame of settings can name the window 2,730 times; 10,000 streams are open at most."""
    for _ in range(5000):
        peer.open(ends=True)
    touched = 0
    while peer.core.failure is None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 100 + touched % 2)))
        peer.core.take_outgoing()
        touched += 1
        assert touched < 1000
    assert peer.core.failure.code is ErrorCode.ENHANCE_YOUR_CALM
    # Changes that a client makes as it learns of the line's bandwidth are far fewer.
    assert touched > 50


class TestHonestTraffic:
    def test_a_client_that_reads_a_gigabyte_by_small_windows_goes_on(self) -> None:
        peer = RawPeer()
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 16_384)))
        peer.hear()
        stream = peer.open(ends=True)
        peer.core.send_headers(stream, ANSWER)
        piece, left, read = bytes(4 * MIB), 256, 0
        while left or stream.queued_bytes:
            if not stream.queued_bytes:
                peer.core.send_data(stream, piece)
                left -= 1
            peer.core.take_outgoing()
            read += 8192
            peer.send(peer.window(0, 8192), peer.window(1, 8192))
            assert peer.core.failure is None, f"after {read} bytes"

    def test_a_client_that_gives_a_long_poll_up_ten_times_a_second_goes_on(self, peer: RawPeer) -> None:
        for _ in range(20_000):
            number = peer.open(ends=True).number
            peer.now_s += 0.1
            peer.send(peer.reset(number))
        assert peer.core.failure is None

    def test_a_client_that_measures_the_line_with_each_answer_goes_on(self, peer: RawPeer) -> None:
        """As gRPC's clients do: a ping and two window updates for each chunk of answers."""
        for _ in range(30_000):
            stream = peer.open(ends=True)
            peer.core.send_whole(stream, ANSWER, b"hello", OK)
            peer.core.take_outgoing()
            peer.send(peer.ping(), peer.window(0, 5), peer.settings((SettingId.INITIAL_WINDOW_SIZE, 65_535)))
        assert peer.core.failure is None

    def test_a_client_that_uploads_much_goes_on(self, peer: RawPeer) -> None:
        stream = peer.open()
        for _ in range(4000):
            peer.send(peer.data(1, bytes(DEFAULT_FRAME_BYTES)))
            peer.core.grant(stream, len(stream.take_inbox()))
            peer.core.take_outgoing()
        assert (peer.core.failure, stream.received_bytes) == (None, 4000 * DEFAULT_FRAME_BYTES)


def test_settings_are_acknowledged_before_anything_is_sent_by_them(peer: RawPeer) -> None:
    """A peer may apply its settings only when they are acknowledged: data beyond the old window would be its fault."""
    peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 3)))
    stream = peer.open(ends=True)
    peer.core.send_whole(stream, ANSWER, b"hello world", OK)
    peer.hear()
    peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 100)))
    assert [one.kind for one in peer.hear()] == [SETTINGS, DATA, HEADERS]


def test_pings_of_the_core_are_counted_when_they_are_answered(peer: RawPeer) -> None:
    peer.core.ping()
    [ping] = peer.hear()
    peer.send(peer.ping(ping.content, ACK))
    assert peer.core.answered_pings == 1
    assert peer.hear() == []


def test_the_frames_that_leave_are_whole(peer: RawPeer) -> None:
    stream = peer.open(ends=True)
    peer.core.send_page(stream, ((":status", "405"),), b"no")
    sent = read_frames(b"".join(peer.core.take_outgoing()))
    assert [(one.kind, one.ends) for one in sent] == [(HEADERS, False), (DATA, False), (DATA, True)]
