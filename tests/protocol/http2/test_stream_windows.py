from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http2_peer import RawPeer
from millstream.protocol.http2.connection import CONNECTION_WINDOW_BYTES, Http2Limits
from millstream.protocol.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    HEADERS,
    WINDOW_UPDATE,
    ErrorCode,
    SettingId,
)
from millstream.protocol.http2.sending import WAITING_STREAM_BYTES
from millstream.protocol.http2.stream import WRITABLE, Http2Stream

ANSWER = ((":status", "200"),)
OK = (("grpc-status", "0"),)
MIB = 1024 * 1024


@pytest.fixture
def peer() -> RawPeer:
    return RawPeer()


def answering(peer: RawPeer, *sizes: int) -> list[Http2Stream]:
    """Streams whose answers of these sizes are written."""
    streams = []
    for number, size in enumerate(sizes):
        stream = peer.open(ends=True)
        stream.news = 0
        peer.core.send_whole(stream, ANSWER, bytes((number % 256,)) * size, OK)
        streams.append(stream)
    return streams


def turns(peer: RawPeer) -> list[tuple[int, int]]:
    """Stream and size of each DATA frame that left since the last look."""
    return [(one.stream, len(one.content)) for one in peer.hear() if one.kind == DATA]


class TestSending:
    def test_an_answer_leaves_as_far_as_the_windows_let_it_and_the_rest_as_they_open(self, peer: RawPeer) -> None:
        [stream] = answering(peer, 100_000)
        assert sum(size for _, size in turns(peer)) == DEFAULT_WINDOW_BYTES
        peer.send(peer.window(1, 40_000))
        assert turns(peer) == []
        peer.send(peer.window(0, 10))
        assert turns(peer) == [(1, 10)]
        peer.send(peer.window(0, MIB))
        assert sum(size for _, size in turns(peer)) == 100_000 - DEFAULT_WINDOW_BYTES - 10
        assert peer.heard[-1].kind == HEADERS
        assert peer.heard[-1].ends
        assert (stream.is_open, peer.core.queued_bytes, peer.core.streams) == (False, 0, {})

    def test_no_frame_is_larger_than_the_peer_takes(self, peer: RawPeer) -> None:
        answering(peer, 60_000)
        assert max(size for _, size in turns(peer)) == DEFAULT_FRAME_BYTES
        peer.send(peer.settings((SettingId.MAX_FRAME_SIZE, 50_000)), peer.window(0, 60_000))
        answering(peer, 60_000)
        assert turns(peer) == [(3, 50_000), (3, 10_000)]

    def test_a_window_below_zero_lets_nothing_leave_until_it_is_above(self, peer: RawPeer) -> None:
        answering(peer, 100_000)
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 0)))
        peer.hear()
        peer.send(peer.window(0, MIB), peer.window(1, DEFAULT_WINDOW_BYTES))
        assert turns(peer) == []
        peer.send(peer.window(1, 7))
        assert turns(peer) == [(1, 7)]

    def test_headers_and_an_empty_end_need_no_window(self, peer: RawPeer) -> None:
        [stream, _] = answering(peer, 0, 100_000)
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 0)))
        [below] = answering(peer, 0)
        assert (stream.is_open, below.is_open) == (False, False)
        open_stream = peer.open(ends=True)
        peer.core.send_headers(open_stream, ANSWER)
        peer.send(
            peer.settings((SettingId.INITIAL_WINDOW_SIZE, 100)), peer.settings((SettingId.INITIAL_WINDOW_SIZE, 0))
        )
        peer.core.send_data(open_stream, b"", OK)
        assert not open_stream.is_open
        assert peer.hear()[-1].ends

    def test_a_larger_window_in_settings_lets_all_streams_go_on(self, peer: RawPeer) -> None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 10)))
        answering(peer, 15, 15, 15)
        assert turns(peer) == [(1, 10), (3, 10), (5, 10)]
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 20)))
        assert turns(peer) == [(1, 5), (3, 5), (5, 5)]
        assert peer.core.streams == {}

    def test_pieces_and_trailers_leave_in_the_order_in_which_they_were_written(self, peer: RawPeer) -> None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 4)))
        stream = peer.open(ends=True)
        peer.core.send_headers(stream, ANSWER)
        for piece in (b"abc", b"def", b"ghi"):
            peer.core.send_data(stream, piece)
        peer.core.send_data(stream, memoryview(b"jkl"), OK)
        for _ in range(8):
            peer.send(peer.window(1, 1))
        peer.hear()
        assert peer.sent_data(1) == b"abcdefghijkl"
        assert [one.ends for one in peer.heard if one.stream == 1] == [False] * 11 + [True]

    def test_the_owner_hears_once_that_all_has_left(self, peer: RawPeer) -> None:
        stream = peer.open(ends=True)
        stream.news = 0
        peer.core.send_headers(stream, ANSWER)
        peer.core.send_data(stream, bytes(100_000))
        assert peer.send(peer.window(0, 10)) == []
        assert peer.send(peer.window(0, MIB), peer.window(1, MIB)) == [stream]
        assert stream.news == WRITABLE
        assert stream.queued_bytes == 0


class TestTurns:
    def test_streams_that_wait_for_the_connection_get_a_frame_each_in_turn(self, peer: RawPeer) -> None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 10 * MIB)))
        answering(peer, DEFAULT_WINDOW_BYTES, MIB, 100, MIB)
        peer.hear()
        peer.send(peer.window(0, 4 * DEFAULT_FRAME_BYTES + 100))
        assert turns(peer) == [(3, 16_384), (5, 100), (7, 16_384), (3, 16_384), (7, 16_384)]

    def test_ten_thousand_waiting_streams_all_get_their_turn(self, peer: RawPeer) -> None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, MIB)))
        answering(peer, DEFAULT_WINDOW_BYTES, *[200] * 9_999)
        assert len(turns(peer)) == 4
        heard: list[int] = []
        while len(heard) < 9_999:
            peer.now_s += 0.01
            peer.send(peer.window(0, 2_000))
            found = turns(peer)
            assert found, "the window is open, and nothing leaves"
            heard += [number for number, _ in found]
        assert heard == sorted(set(heard))
        assert peer.core.streams == {}

    def test_streams_that_wait_for_their_own_windows_are_not_looked_at_for_others(self, peer: RawPeer) -> None:
        """A look at each of them with every answer would make the work grow by the square."""
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 1)))
        blocked = answering(peer, *[100] * 5_000)
        looks = 0

        class Window(int):
            def __le__(self, other: int) -> bool:
                nonlocal looks
                looks += 1
                return int(self) <= other

        for stream in blocked:
            stream.send_window_bytes = Window(stream.send_window_bytes)
        peer.send(peer.window(0, 100), peer.window(blocked[0].number, 5))
        answering(peer, 100, 100)
        assert looks <= 3

    def test_one_that_was_blocked_and_is_over_takes_no_turn(self, peer: RawPeer) -> None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, MIB)))
        answering(peer, DEFAULT_WINDOW_BYTES, 1000, 1000, 1000)
        peer.send(peer.reset(5))
        peer.hear()
        peer.send(peer.window(0, 10_000))
        assert turns(peer) == [(3, 1000), (7, 1000)]


class TestReceiving:
    def test_more_than_the_stream_lets_ends_the_stream(self) -> None:
        peer = RawPeer(Http2Limits(stream_window_bytes=100))
        stream = peer.open()
        peer.send(peer.data(1, bytes(60)), peer.padded_data(1, bytes(20), 19))
        assert stream.receive_window_bytes == 20
        peer.send(peer.data(1, bytes(21)))
        peer.hear()
        assert peer.resets() == [(1, ErrorCode.FLOW_CONTROL_ERROR)]
        assert peer.core.failure is None

    def test_a_grant_lets_as_much_come(self) -> None:
        peer = RawPeer(Http2Limits(stream_window_bytes=100))
        stream = peer.open()
        peer.send(peer.data(1, bytes(100)))
        peer.core.grant(stream, 50)
        assert [(one.kind, one.stream, one.word) for one in peer.hear()] == [(WINDOW_UPDATE, 1, 50)]
        peer.send(peer.data(1, bytes(50), ends=True))
        assert (stream.is_open, stream.received_bytes) == (True, 150)
        peer.core.grant(stream, 50)
        assert peer.hear() == []

    def test_more_than_the_connection_lets_ends_the_connection(self) -> None:
        peer = RawPeer(Http2Limits(stream_window_bytes=2 * CONNECTION_WINDOW_BYTES))
        stream = peer.open()
        granted = CONNECTION_WINDOW_BYTES
        sent = 0
        while sent < 4 * CONNECTION_WINDOW_BYTES:
            size = min(DEFAULT_FRAME_BYTES, granted - sent)
            peer.send(peer.data(1, bytes(size)))
            peer.core.grant(stream, len(stream.take_inbox()))
            sent += size
            granted += sum(one.word for one in peer.hear() if one.kind == WINDOW_UPDATE and one.stream == 0)
            assert peer.core.failure is None
        # What was granted is what is taken, to the byte.
        assert granted - sent <= CONNECTION_WINDOW_BYTES
        peer.core._receive_window_bytes = 10
        peer.send(peer.data(1, bytes(11)))
        assert peer.core.failure is not None
        assert peer.core.failure.code is ErrorCode.FLOW_CONTROL_ERROR


class TestMemory:
    """What lies here is about what is counted, however it is cut."""

    def test_a_request_of_tiny_frames_takes_about_its_size(self) -> None:
        peer = RawPeer(Http2Limits(stream_window_bytes=MIB))
        stream = peer.open()
        chunk = peer.data(1, b"ab") * 1024
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(MIB // 2 // 1024):
                peer.send(chunk)
                peer.core.take_outgoing()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert stream.inbox_bytes == MIB
        assert held < 2 * MIB
        assert stream.take_inbox() == b"ab" * (MIB // 2)

    def test_an_answer_of_which_a_byte_is_unread_takes_about_a_byte(self, peer: RawPeer) -> None:
        peer.send(peer.window(0, 64 * MIB))
        stream = peer.open(ends=True)
        peer.core.send_headers(stream, ANSWER)
        gc.collect()
        tracemalloc.start()
        try:
            peer.core.send_data(stream, bytes(16 * MIB), OK)
            peer.core.take_outgoing()
            peer.send(peer.window(1, 16 * MIB - DEFAULT_WINDOW_BYTES - 1))
            peer.core.take_outgoing()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert stream.queued_bytes == 1
        assert held < MIB

    def test_many_small_pieces_that_wait_take_about_their_size(self, peer: RawPeer) -> None:
        peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, 0)))
        stream = peer.open(ends=True)
        peer.core.send_headers(stream, ANSWER)
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(MIB // 8):
                peer.core.send_data(stream, b"%08d" % number)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 2 * MIB
        peer.send(peer.window(0, 2 * MIB), peer.window(1, 2 * MIB))
        peer.hear()
        assert peer.sent_data(1) == b"".join(b"%08d" % number for number in range(MIB // 8))


@given(
    st.integers(0, 40_000),
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3), st.integers(0, 50_000)),
            st.tuples(st.just("window"), st.integers(0, 4), st.integers(1, 60_000)),
            st.tuples(st.just("first"), st.just(0), st.integers(0, 100_000)),
            st.tuples(st.just("frame"), st.just(0), st.integers(16_384, 70_000)),
        ),
        max_size=40,
    ),
)
def test_whatever_the_windows_do_nothing_leaves_beyond_them_and_all_leaves_in_the_end(
    first: int, steps: list[tuple[str, int, int]]
) -> None:
    peer = RawPeer()
    peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, first)))
    streams = [peer.open(ends=True) for _ in range(4)]
    for stream in streams:
        peer.core.send_headers(stream, ANSWER)
    written = {stream.number: bytearray() for stream in streams}
    windows = {0: DEFAULT_WINDOW_BYTES, **dict.fromkeys(written, first)}
    largest = DEFAULT_FRAME_BYTES

    def look() -> None:
        for number, size in turns(peer):
            windows[0] -= size
            windows[number] -= size
            assert size <= largest
            assert windows[0] >= 0
            assert windows[number] >= 0

    look()
    for what, place, amount in steps:
        if what == "write":
            piece = bytes((len(written[streams[place].number]) % 251,)) * amount
            written[streams[place].number] += piece
            peer.core.send_data(streams[place], piece)
        elif what == "window":
            number = 0 if place == 4 else streams[place].number
            windows[number] += amount
            peer.send(peer.window(number, amount))
        elif what == "first":
            for number in written:
                windows[number] += amount - first
            first = amount
            peer.send(peer.settings((SettingId.INITIAL_WINDOW_SIZE, amount)))
        else:
            largest = amount
            peer.send(peer.settings((SettingId.MAX_FRAME_SIZE, amount)))
        look()
        waiting = sum(stream.queued_bytes + WAITING_STREAM_BYTES for stream in streams if stream.queue is not None)
        assert peer.core.queued_bytes == waiting
        # What may leave has left.
        assert windows[0] == 0 or all(not stream.queued_bytes or windows[stream.number] <= 0 for stream in streams)
    for stream in streams:
        peer.core.send_data(stream, b"", OK)
    peer.send(*(peer.window(number, 2**24) for number in windows))
    peer.hear()
    assert {number: peer.sent_data(number) for number in written} == written
    assert peer.core.streams == {}
