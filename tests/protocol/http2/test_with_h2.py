"""The core against the `h2` package as its client, which holds the core to RFC 9113: a frame that must not come raises
an error there."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.protocol.http2.connection import Http2Core, Http2Limits
from millstream.protocol.http2.frames import ErrorCode
from millstream.protocol.http2.stream import ENDED, RESET, Http2Stream

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.Service/Call"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("x-secret", "naïve"),
]
ANSWER = ((":status", "200"), ("content-type", "application/grpc"))


class Both(RuleBasedStateMachine):
    """A client of `h2`, a core, and bytes between them that arrive in pieces of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Http2Core(Http2Limits(max_streams=20, stream_window_bytes=5_000))
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.to_core = bytearray()
        self.to_client = bytearray()
        self.half_frame = bytearray()
        self.requests: dict[int, bytearray] = {}
        self.arrived: dict[int, bytearray] = {}
        self.answers: dict[int, bytearray] = {}
        self.came: dict[int, bytearray] = {}
        self.open_streams: dict[int, Http2Stream] = {}
        self.unsent: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.whole: set[int] = set()
        self.over: set[int] = set()
        """Streams that one side has reset."""
        self.now_s = 0.0

    @initialize(window=st.integers(0, 70_000), frame=st.integers(16_384, 40_000))
    def begin(self, window: int, frame: int) -> None:
        self.client.initiate_connection()
        self.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: frame})
        self.pass_all()

    # what the client does

    @rule(size=st.integers(0, 9_000), ends=st.booleans(), more=st.integers(0, 40))
    def request(self, size: int, ends: bool, more: int) -> None:
        if self.client.open_outbound_streams >= 20:
            return
        number = self.client.get_next_available_stream_id()
        headers = [*HEADERS, ("x-more", "m" * more), *[(f"x-{one}", str(more)) for one in range(more % 7)]]
        self.client.send_headers(number, headers, end_stream=ends and not size)
        self.requests[number], self.arrived[number] = bytearray(), bytearray()
        self.answers[number], self.came[number] = bytearray(), bytearray()
        if size or not ends:
            self.unsent[number] = bytes((number % 251,)) * size
            self.send_on(number)
        else:
            self.ended.add(number)

    def send_on(self, number: int) -> None:
        """Send what the windows let of a request; its end behind the last of it."""
        while number in self.unsent and number not in self.over:
            left = self.unsent[number]
            window = self.client.local_flow_control_window(number)
            room = min(window, self.client.max_outbound_frame_size - 10, len(left))
            if room <= 0 and left:
                return
            self.requests[number] += left[:room]
            self.unsent[number] = left[room:]
            is_last = not self.unsent[number]
            padding = room % 5 if room + 10 <= window else None
            self.client.send_data(number, left[:room], end_stream=is_last, pad_length=padding)
            if is_last:
                del self.unsent[number]
                self.ended.add(number)

    @rule(choice=st.integers(0, 30))
    def cancel(self, choice: int) -> None:
        alive = [number for number in self.requests if number not in self.over | self.whole]
        if alive:
            number = alive[choice % len(alive)]
            self.over.add(number)
            self.unsent.pop(number, None)
            self.client.reset_stream(number, ErrorCode.CANCEL)

    @rule(more=st.integers(1, 200_000), choice=st.integers(0, 30))
    def open_window(self, more: int, choice: int) -> None:
        alive = [None, *(number for number in self.requests if number not in self.over | self.whole)]
        number = alive[choice % len(alive)]
        self.client.increment_flow_control_window(more, number)

    @rule(window=st.integers(0, 70_000), frame=st.integers(16_384, 60_000), table=st.integers(0, 8_000))
    def change_settings(self, window: int, frame: int, table: int) -> None:
        self.client.update_settings(
            {
                SettingCodes.INITIAL_WINDOW_SIZE: window,
                SettingCodes.MAX_FRAME_SIZE: frame,
                SettingCodes.HEADER_TABLE_SIZE: table,
            }
        )

    @rule()
    def ping(self) -> None:
        self.client.ping(b"12345678")

    # what the server does

    @rule(choice=st.integers(0, 30), size=st.integers(0, 50_000), at_once=st.booleans(), unusual=st.integers(0, 50))
    def answer(self, choice: int, size: int, at_once: bool, unusual: int) -> None:
        waiting = [one for one in self.open_streams.values() if one.owner is None and one.is_open]
        if not waiting:
            return
        stream = waiting[choice % len(waiting)]
        stream.owner = self
        body = bytes((stream.number % 253,)) * size
        self.answers[stream.number] += body
        trailers = (("grpc-status", "0"), ("grpc-message", f"m{unusual}"), (f"x-{unusual % 9}", "seen"))
        if at_once:
            self.core.send_whole(stream, ANSWER, body, trailers)
            return
        self.core.send_headers(stream, ANSWER)
        for at in range(0, size, 7_000):
            self.core.send_data(stream, body[at : at + 7_000])
        self.core.send_data(stream, b"", trailers)

    @rule(choice=st.integers(0, 30))
    def give_up(self, choice: int) -> None:
        waiting = [one for one in self.open_streams.values() if one.is_open]
        if waiting:
            stream = waiting[choice % len(waiting)]
            self.core.reset(stream, ErrorCode.INTERNAL_ERROR)

    # what lies between

    @rule(size=st.integers(1, 3_000))
    def pass_some(self, size: int) -> None:
        self.to_core += self.client.data_to_send()
        self.to_client += b"".join(self.core.take_outgoing())
        up, down = bytes(self.to_core[:size]), bytes(self.to_client[:size])
        del self.to_core[:size], self.to_client[:size]
        self.core_takes(up)
        self.client_takes(down)

    @rule()
    def pass_all(self) -> None:
        for _ in range(1000):
            self.to_core += self.client.data_to_send()
            up, self.to_core = bytes(self.to_core), bytearray()
            self.core_takes(up)
            self.to_client += b"".join(self.core.take_outgoing())
            down, self.to_client = bytes(self.to_client), bytearray()
            self.client_takes(down)
            for number in list(self.unsent):
                self.send_on(number)
            if not (up or down):
                return
        pytest.fail("the two never come to rest")

    def core_takes(self, raw: bytes) -> None:
        self.now_s += 1.0
        for stream in self.core.receive(raw, self.now_s) if raw else ():
            news, stream.news = stream.news, 0
            self.open_streams[stream.number] = stream
            data = stream.take_inbox()
            self.arrived[stream.number] += data
            self.core.grant(stream, len(data))
            if news & ENDED and not news & RESET:
                assert stream.number in self.ended
                assert self.arrived[stream.number] == self.requests[stream.number]
            if news & RESET:
                assert stream.number in self.over, "the core has reset a stream of an honest client"
        assert self.core.failure is None, self.core.failure

    def client_takes(self, raw: bytes) -> None:
        self.half_frame += raw
        # Frame by frame: `h2` follows its own new MAX_FRAME_SIZE with the chunk behind the one that acknowledges it.
        while len(self.half_frame) >= 9:
            end = 9 + int.from_bytes(self.half_frame[:3], "big")
            if len(self.half_frame) < end:
                return
            frame = bytes(self.half_frame[:end])
            del self.half_frame[:end]
            for event in self.client.receive_data(frame):
                self.note(event)

    def note(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self.came[event.stream_id] += event.data
        elif isinstance(event, ResponseReceived):
            assert dict(event.headers)[":status"] == "200"
        elif isinstance(event, TrailersReceived):
            assert dict(event.headers)["grpc-status"] == "0"
        elif isinstance(event, StreamEnded):
            assert self.came[event.stream_id] == self.answers[event.stream_id]
            self.whole.add(event.stream_id)
            self.unsent.pop(event.stream_id, None)
        elif isinstance(event, StreamReset):
            self.over.add(event.stream_id)
            self.unsent.pop(event.stream_id, None)

    @invariant()
    def what_came_is_the_beginning_of_what_was_sent(self) -> None:
        for number, came in self.came.items():
            assert self.answers[number].startswith(came)
            assert self.requests[number].startswith(self.arrived[number])

    def teardown(self) -> None:
        """With open windows all that was begun comes to its end."""
        if self.client.state_machine.state.name == "IDLE":
            return
        self.pass_all()
        for stream in list(self.open_streams.values()):
            if stream.owner is None and stream.is_open:
                self.core.send_headers(stream, ANSWER)
                self.core.send_data(stream, b"", (("grpc-status", "0"),))
        self.client.increment_flow_control_window(2**24)
        self.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**24})
        self.pass_all()
        assert set(self.requests) == self.whole | self.over
        for number in self.whole - self.over:
            assert self.came[number] == self.answers[number]
        assert self.core.streams == {}
        assert self.core.queued_bytes == 0


TestBoth = Both.TestCase


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=6), st.integers(1_000, 20_000))
def test_answers_of_all_sizes_come_whole_to_a_client_that_reads_by_its_windows(sizes: list[int], read: int) -> None:
    both = Both()
    both.begin(read, 16_384)
    for _ in sizes:
        both.request(10, True, 3)
    both.pass_all()
    for place, size in enumerate(sizes):
        both.answer(0, size, place % 2 == 0, place)
    for _ in range(len(sizes) * 40_000 // read + 2):
        both.pass_all()
        if len(both.whole) == len(sizes):
            break
        both.client.increment_flow_control_window(read)
        for number in both.requests:
            if number not in both.whole:
                both.client.increment_flow_control_window(read, number)
    assert both.whole == set(both.requests)
