"""The server side of one HTTP/2 connection (RFC 9113), sans-io: bytes in, stream events and bytes out.

What one chunk of bytes brings is returned as the streams that have news, so that its user can handle all requests of a
chunk together. What is to be sent lies in `outgoing` until the user takes it.

A peer that breaks the rules of a stream gets RST_STREAM; one that breaks those of the connection gets GOAWAY, once, and
`failure` says why: the user writes what is there and closes.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from millstream.protocol.http2.allowance import RAPID_S, RESET_COST
from millstream.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER_BYTES,
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
    frame_header,
    goaway_frame,
    ping_frame,
    reset_frame,
    settings_frame,
    window_frame,
)
from millstream.protocol.http2.hpack import Header, HeaderDecoder, HeaderListTooLarge, HpackError
from millstream.protocol.http2.request_head import HeadMalformed, RequestHead, read_request_head, read_trailers
from millstream.protocol.http2.sending import AnswerSender
from millstream.protocol.http2.stream import ARRIVED, ENDED, MANY_PIECES, RESET, SMALL_PIECE_BYTES, Http2Stream

__all__ = [
    "CONNECTION_WINDOW_BYTES",
    "MAX_CONTINUATIONS",
    "MAX_HEADER_BLOCK_BYTES",
    "MAX_UNSENT_REPLIES_BYTES",
    "Http2Core",
    "Http2Failure",
    "Http2Limits",
]

CONNECTION_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a peer may send on all streams together before the server has read them. Streams have windows of their
own, which their owners grant."""

MAX_HEADER_BLOCK_BYTES: Final = 256 * 1024
"""Bytes of a compressed header block at most. One that has more headers than is allowed ends its stream alone."""

MAX_CONTINUATIONS: Final = 64
"""CONTINUATION frames of one header block at most (a flood of empty ones is a known attack, CVE-2024-27316)."""

MAX_UNSENT_REPLIES_BYTES: Final = 256 * 1024
"""Bytes of answers to pings, settings and broken streams that may wait for the peer to read; over it the connection
ends."""

_WORD: Final = Struct("!I")
_SETTING: Final = Struct("!HI")
_RESERVED: Final = 0x7FFFFFFF
_MAX_FRAME_SETTING: Final = 2**24 - 1
_PREFACE_BYTES: Final = len(PREFACE)
_BYTES_FOR_A_FRAME: Final = 2048
"""Sent data of so many bytes entitles the peer to one more frame that carries nothing, as a window update."""


_STREAMS_FOR_A_FRAME: Final = 64
"""A change of the windows of so many streams counts as one more frame that carries nothing."""


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """What a server says to its peers, and holds them to."""

    max_streams: int = 10_000
    """Streams of a connection that are open at the same time."""
    stream_window_bytes: int = DEFAULT_WINDOW_BYTES
    """Bytes of a request that may come before its owner grants more."""
    max_frame_bytes: int = DEFAULT_FRAME_BYTES
    max_header_list_bytes: int = 64 * 1024
    """Bytes of the headers of a request, each with 32 more, as RFC 9113 counts them."""


@dataclass(frozen=True, slots=True)
class Http2Failure:
    """Why a connection cannot go on."""

    code: ErrorCode
    words: str


class _ConnectionBroken(Exception):
    """The peer broke the rules of the connection."""

    def __init__(self, code: ErrorCode, words: str) -> None:
        super().__init__(words)
        self.failure = Http2Failure(code, words)


class Http2Core(AnswerSender):
    """One connection. The user calls `receive` with what arrived, sends with the other methods, and takes `outgoing`.

    `failure` is set once the connection cannot go on, `is_leaving` once the peer has said GOAWAY.
    """

    __slots__ = (
        "_block",
        "_block_continuations",
        "_block_flags",
        "_block_stream",
        "_decoder",
        "_has_preface",
        "_has_settings",
        "_last_stream",
        "_limits",
        "_now_s",
        "_receive_window_bytes",
        "_refuses_above",
        "_rest",
        "answered_pings",
        "failure",
        "is_leaving",
    )

    def __init__(self, limits: Http2Limits | None = None) -> None:
        super().__init__()
        self._limits = limits or Http2Limits()
        self.failure: Http2Failure | None = None
        self.is_leaving = False
        self.answered_pings = 0
        """Pings of this side that the peer has answered."""
        self._rest = bytearray()
        self._has_preface = False
        self._has_settings = False
        self._decoder = HeaderDecoder(max_list_bytes=self._limits.max_header_list_bytes)
        self._block = b""
        self._block_stream = 0
        self._block_flags = 0
        self._block_continuations = 0
        self._last_stream = 0
        self._refuses_above: int | None = None
        self._receive_window_bytes = CONNECTION_WINDOW_BYTES
        self._now_s = 0.0
        self._put(
            settings_frame(
                (
                    (SettingId.MAX_CONCURRENT_STREAMS, self._limits.max_streams),
                    (SettingId.INITIAL_WINDOW_SIZE, self._limits.stream_window_bytes),
                    (SettingId.MAX_FRAME_SIZE, self._limits.max_frame_bytes),
                    (SettingId.MAX_HEADER_LIST_SIZE, self._limits.max_header_list_bytes),
                )
            )
            + window_frame(0, CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES)
        )

    @property
    def has_begun(self) -> bool:
        """Whether the peer has shown that it speaks HTTP/2."""
        return self._has_settings

    @property
    def last_stream(self) -> int:
        """The highest stream that the peer has opened."""
        return self._last_stream

    @property
    def block_bytes(self) -> int:
        """Bytes of headers that have not arrived whole."""
        return len(self._block)

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that has not arrived whole, and of headers that have not."""
        return len(self._rest) + len(self._block)

    # what arrives

    def receive(self, data: bytes, now_s: float) -> list[Http2Stream]:
        """Take bytes of the peer; the streams that have news, in the order in which they got them.

        Their `news` stays set until their owner clears it. After a failure nothing more is taken.
        """
        if self.failure is not None:
            return []
        self._now_s = now_s
        rest = self._rest
        if rest:
            rest += data
            data = bytes(rest)
        try:
            taken = self._take_frames(data, 0 if self._has_settings else self._take_preface(data))
        except _ConnectionBroken as error:
            self._fail(error.failure)
            taken = len(data)
        if taken < len(data):
            if rest:
                del rest[:taken]
            else:
                rest += data[taken:]
        elif rest:
            rest.clear()
        # What was noted between two chunks, as an answer was written, is told with the later one.
        news, self._news = self._news, []
        return news

    def _take_preface(self, data: bytes) -> int:
        """Where the frames begin; beyond the data while what has to come before them is not there."""
        at = 0 if self._has_preface else _PREFACE_BYTES
        if not self._has_preface:
            if not PREFACE.startswith(data[:_PREFACE_BYTES]):
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "It does not begin as HTTP/2 does.")
            if len(data) < _PREFACE_BYTES:
                return 0
            self._has_preface = True
        if len(data) - at >= FRAME_HEADER_BYTES:
            if data[at + 3] != SETTINGS or data[at + 4] & ACK:
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "Its first frame is not SETTINGS.")
            self._has_settings = True
        return at

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle the whole frames from a place on; where the first one begins that is not whole."""
        size = len(data)
        if not self._has_settings:
            return at
        limit = self._limits.max_frame_bytes
        while size - at >= FRAME_HEADER_BYTES:
            length = (data[at] << 8 | data[at + 1]) << 8 | data[at + 2]
            kind, flags = data[at + 3], data[at + 4]
            number = ((data[at + 5] & 0x7F) << 8 | data[at + 6]) << 16 | data[at + 7] << 8 | data[at + 8]
            if length > limit:
                raise _ConnectionBroken(
                    ErrorCode.FRAME_SIZE_ERROR, f"A frame of {length} bytes is over the limit of {limit}."
                )
            start = at + FRAME_HEADER_BYTES
            end = start + length
            if end > size:
                break
            if self._block_stream and (kind != CONTINUATION or number != self._block_stream):
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "A header block is interrupted by another frame.")
            if kind == DATA:
                self._take_data(data, start, end, flags, number)
            elif kind == HEADERS:
                self._take_headers(data, start, end, flags, number)
            elif kind == WINDOW_UPDATE:
                self._take_window(data, start, length, number)
            else:
                self._take_other(kind, flags, number, data[start:end])
            at = end
        return at

    def _take_data(self, data: bytes, start: int, end: int, flags: int, number: int) -> None:
        length = end - start
        if flags & PADDED:
            start, end = _without_padding(data, start, end)
        # The whole frame counts, padding included (RFC 9113, 6.9.1).
        window = self._receive_window_bytes - length
        if window < 0:
            raise _ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "More data came than the connection's window lets.")
        if window < CONNECTION_WINDOW_BYTES // 2:
            self._put(window_frame(0, CONNECTION_WINDOW_BYTES - window))
            window = CONNECTION_WINDOW_BYTES
        self._receive_window_bytes = window
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number, "DATA")
            self._spend(1)
            if number not in self._ended_early:
                self._reset_unknown(number, ErrorCode.STREAM_CLOSED)
            elif flags & END_STREAM:
                del self._ended_early[number]
            return
        if stream.is_ended:
            self._break_stream(stream, ErrorCode.STREAM_CLOSED)
            return
        stream.receive_window_bytes -= length
        if stream.receive_window_bytes < 0:
            self._break_stream(stream, ErrorCode.FLOW_CONTROL_ERROR)
            return
        self._keep_data(stream, data, start, end, flags)
        if length > end - start:
            self._grant_padding(stream, length - (end - start))

    def _grant_padding(self, stream: Http2Stream, size_bytes: int) -> None:
        """Give the window back that padding took: nobody takes it out of the inbox."""
        if stream.is_open and not stream.is_ended:
            stream.receive_window_bytes += size_bytes
            self._reply(window_frame(stream.number, size_bytes))

    def _keep_data(self, stream: Http2Stream, data: bytes, start: int, end: int, flags: int) -> None:
        if end > start:
            inbox = stream.inbox
            inbox.append(data[start:end])
            stream.inbox_bytes += end - start
            if len(inbox) > MANY_PIECES and stream.inbox_bytes < len(inbox) * SMALL_PIECE_BYTES:
                inbox[:] = (b"".join(inbox),)
            stream.received_bytes += end - start
            if not stream.news:
                self._news.append(stream)
            stream.news |= ARRIVED
        elif not flags & END_STREAM:
            self._spend(1)
        if flags & END_STREAM:
            self._end_request(stream)

    def _end_request(self, stream: Http2Stream) -> None:
        if stream.content_length is not None and stream.content_length != stream.received_bytes:
            self._break_stream(stream, ErrorCode.PROTOCOL_ERROR)
            return
        stream.is_ended = True
        if not stream.news:
            self._news.append(stream)
        stream.news |= ENDED

    def _take_headers(self, data: bytes, start: int, end: int, flags: int, number: int) -> None:
        if not number & 1:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"HEADERS came on stream {number}.")
        if flags & PADDED:
            start, end = _without_padding(data, start, end)
        if flags & PRIORITY_FLAG:
            if end - start < 5:
                raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "HEADERS is too short for its priority.")
            depends_on = _WORD.unpack_from(data, start)[0] & _RESERVED
            if depends_on == number:
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"Stream {number} depends on itself.")
            start += 5
        if flags & END_HEADERS:
            self._take_block(data[start:end], flags, number)
            return
        self._block = data[start:end]
        self._block_stream, self._block_flags, self._block_continuations = number, flags, 0

    def _take_continuation(self, content: bytes, flags: int, number: int) -> None:
        if not self._block_stream:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "CONTINUATION came without a header block.")
        self._block_continuations += 1
        if (
            self._block_continuations > MAX_CONTINUATIONS
            or len(self._block) + len(content) > MAX_HEADER_BLOCK_BYTES
        ):  # fmt: skip
            raise _ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "A header block does not come to its end.")
        self._block += content
        if flags & END_HEADERS:
            block, self._block, self._block_stream = self._block, b"", 0
            self._take_block(block, self._block_flags, number)

    def _take_block(self, block: bytes, flags: int, number: int) -> None:
        stream = self.streams.get(number)
        if stream is None and number <= self._last_stream and number not in self._ended_early:
            raise _ConnectionBroken(ErrorCode.STREAM_CLOSED, f"HEADERS came on stream {number}, which is closed.")
        is_too_large = False
        headers: list[Header] = []
        try:
            headers = self._decoder.decode(block)
        except HpackError as error:
            raise _ConnectionBroken(ErrorCode.COMPRESSION_ERROR, f"Headers cannot be read: {error}.") from None
        except HeaderListTooLarge:
            is_too_large = True
        if stream is not None:
            if is_too_large:
                self._break_stream(stream, ErrorCode.ENHANCE_YOUR_CALM)
            else:
                self._take_trailers(stream, headers, flags)
            return
        if number <= self._last_stream:
            if flags & END_STREAM:
                self._ended_early.pop(number, None)
            else:
                # Malformed, whatever the state of the stream: only trailers can follow.
                self._reset_unknown(number, ErrorCode.PROTOCOL_ERROR)
            return
        self._last_stream = number
        if self._refuses_above is not None and number > self._refuses_above:
            self._reset_unknown(number, ErrorCode.REFUSED_STREAM)
            return
        if len(self.streams) >= self._limits.max_streams:
            self._reset_unknown(number, ErrorCode.REFUSED_STREAM)
            return
        if is_too_large:
            self._reset_unknown(number, ErrorCode.ENHANCE_YOUR_CALM)
            return
        try:
            head = read_request_head(headers)
        except HeadMalformed:
            self._reset_unknown(number, ErrorCode.PROTOCOL_ERROR)
            return
        self._open(number, head, flags)

    def _open(self, number: int, head: RequestHead, flags: int) -> None:
        stream = Http2Stream(number, head, self._limits.stream_window_bytes, self._peer_window_bytes, self._now_s)
        self.streams[number] = stream
        self._news.append(stream)
        if flags & END_STREAM:
            self._end_request(stream)

    def _take_trailers(self, stream: Http2Stream, headers: list[Header], flags: int) -> None:
        if stream.is_ended:
            self._break_stream(stream, ErrorCode.STREAM_CLOSED)
            return
        try:
            read_trailers(headers)
        except HeadMalformed:
            self._break_stream(stream, ErrorCode.PROTOCOL_ERROR)
            return
        if flags & END_STREAM:
            self._end_request(stream)
        else:
            self._break_stream(stream, ErrorCode.PROTOCOL_ERROR)

    def _take_window(self, data: bytes, start: int, length: int, number: int) -> None:
        if length != 4:
            raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"WINDOW_UPDATE has {length} bytes, not 4.")
        more = _WORD.unpack_from(data, start)[0] & _RESERVED
        self._spend(1)
        if number == 0:
            if not more:
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE adds nothing.")
            self._send_window_bytes += more
            if self._send_window_bytes > MAX_WINDOW_BYTES:
                raise _ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "The connection's window is over 2^31 - 1.")
            if self._waiting:
                self._send_waiting()
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number, "WINDOW_UPDATE")
            return
        if not more:
            self._break_stream(stream, ErrorCode.PROTOCOL_ERROR)
            return
        stream.send_window_bytes += more
        if stream.send_window_bytes > MAX_WINDOW_BYTES:
            self._break_stream(stream, ErrorCode.FLOW_CONTROL_ERROR)
            return
        if stream.queue:
            self._waiting[stream] = None
            self._send_waiting()

    def _take_other(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == CONTINUATION:
            self._take_continuation(content, flags, number)
            return
        self._spend(1)
        if kind == SETTINGS:
            self._take_settings(content, flags, number)
        elif kind == PING:
            self._take_ping(content, flags, number)
        elif kind == RST_STREAM:
            self._take_reset(content, number)
        elif kind == GOAWAY:
            if number:
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"GOAWAY came on stream {number}.")
            if len(content) < 8:
                raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is too short.")
            self.is_leaving = True
        elif kind == PRIORITY:
            self._take_priority(content, number)
        elif kind == PUSH_PROMISE:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "A client sent PUSH_PROMISE.")
        # Frames of unknown kinds mean nothing (RFC 9113, 4.1).

    def _take_settings(self, content: bytes, flags: int, number: int) -> None:
        if number:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"SETTINGS came on stream {number}.")
        if flags & ACK:
            if content:
                raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "An acknowledgement of settings has content.")
            return
        if len(content) % 6:
            raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS has {len(content)} bytes.")
        self._spend(len(content) // 6)
        for name, value in _SETTING.iter_unpack(content):
            self._apply_setting(name, value)
        # Before anything is sent by them: a peer may hold us to its old settings until then.
        self._reply(frame_header(0, SETTINGS, ACK, 0))
        if self._waiting:
            self._send_waiting()

    def _apply_setting(self, name: int, value: int) -> None:
        if name == SettingId.INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW_BYTES:
                raise _ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, f"A window of {value} bytes is too large.")
            # Each stream has to be looked at, and one frame can name the window thousands of times.
            self._spend(len(self.streams) // _STREAMS_FOR_A_FRAME)
            change = value - self._peer_window_bytes
            self._peer_window_bytes = value
            for stream in list(self.streams.values()):
                stream.send_window_bytes += change
                if stream.send_window_bytes > MAX_WINDOW_BYTES:
                    raise _ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "A stream's window is over 2^31 - 1.")
                if stream.queue and stream.send_window_bytes > 0:
                    self._waiting[stream] = None
        elif name == SettingId.MAX_FRAME_SIZE:
            if not DEFAULT_FRAME_BYTES <= value <= _MAX_FRAME_SETTING:
                raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"Frames of {value} bytes are not possible.")
            self._peer_frame_bytes = value
        elif name == SettingId.HEADER_TABLE_SIZE:
            self._encoder.resize(value)
            self._blocks.clear()
        elif name == SettingId.ENABLE_PUSH and value > 1:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}.")

    def _take_ping(self, content: bytes, flags: int, number: int) -> None:
        if number:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"PING came on stream {number}.")
        if len(content) != 8:
            raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"PING has {len(content)} bytes, not 8.")
        if flags & ACK:
            self.answered_pings += 1
        else:
            self._reply(ping_frame(content, ACK))

    def _take_reset(self, content: bytes, number: int) -> None:
        if len(content) != 4:
            raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"RST_STREAM has {len(content)} bytes, not 4.")
        if not number:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "RST_STREAM came on stream 0.")
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number, "RST_STREAM")
            self._ended_early.pop(number, None)
            return
        if not stream.is_answered:
            # Who waited for long gave up in good order, as clients do whose deadlines pass.
            self._spend(RESET_COST if self._now_s - stream.opened_s < RAPID_S else 1)
        self._forget(stream)
        self._note(stream, RESET)

    def _take_priority(self, content: bytes, number: int) -> None:
        if not number:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "PRIORITY came on stream 0.")
        if len(content) != 5:
            stream = self.streams.get(number)
            if stream is not None:
                self._break_stream(stream, ErrorCode.FRAME_SIZE_ERROR)
            else:
                self._reset_unknown(number, ErrorCode.FRAME_SIZE_ERROR)
            return
        if _WORD.unpack_from(content)[0] & _RESERVED == number:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"Stream {number} depends on itself.")

    # what the connection says

    def ping(self, content: bytes = b"millstrm") -> None:
        """Ask the peer for a sign of life; `answered_pings` counts its answers."""
        self._put(ping_frame(content))

    def say_goodbye(self) -> None:
        """Tell the peer to begin nothing new; what it has begun meanwhile is still taken."""
        if self._refuses_above is None and self.failure is None:
            self._put(goaway_frame(_RESERVED, ErrorCode.NO_ERROR))

    def refuse_new(self) -> None:
        """Take no further streams: those that still come were not looked at, and the peer may send them elsewhere."""
        if self._refuses_above is None and self.failure is None:
            self._refuses_above = self._last_stream
            self._put(goaway_frame(self._last_stream, ErrorCode.NO_ERROR))

    def fail(self, code: ErrorCode, words: str) -> None:
        """End the connection with GOAWAY."""
        if self.failure is None:
            self._fail(Http2Failure(code, words))

    # inside

    def _reply(self, frame: bytes) -> None:
        """Send what a control frame asks for: a peer that does not read cannot pile it up."""
        self.replies_bytes += len(frame)
        if self.replies_bytes > MAX_UNSENT_REPLIES_BYTES:
            raise _ConnectionBroken(
                ErrorCode.ENHANCE_YOUR_CALM, f"{self.replies_bytes} bytes of replies to control frames were not read."
            )
        self._put(frame)

    def _spend(self, count: int) -> None:
        if self._sent_bytes >= _BYTES_FOR_A_FRAME:
            self._allowance.earn(self._sent_bytes // _BYTES_FOR_A_FRAME)
            self._sent_bytes = 0
        if not self._allowance.spend(count, self._now_s):
            raise _ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "Too many frames came that carry nothing.")

    def _check_known(self, number: int, kind: str) -> None:
        """Stream 0, even numbers and such as were never opened are no streams of a client's frames."""
        if number == 0 or not number & 1 or number > self._last_stream:
            raise _ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"{kind} came on stream {number}, which is idle.")

    def _break_stream(self, stream: Http2Stream, code: ErrorCode) -> None:
        self._forget(stream)
        # Also where the peer had said that it was its end: it has not kept to that.
        self._note_ended_early(stream.number)
        self._spend(RESET_COST)
        self._reply(reset_frame(stream.number, code))
        self._note(stream, RESET)

    def _reset_unknown(self, number: int, code: ErrorCode) -> None:
        self._spend(RESET_COST)
        self._note_ended_early(number)
        self._reply(reset_frame(number, code))

    def _fail(self, failure: Http2Failure) -> None:
        self.failure = failure
        self._block = b""
        # Never a higher one than was said before: the peer may have sent those streams elsewhere.
        last = self._last_stream if self._refuses_above is None else self._refuses_above
        self._put(goaway_frame(last, failure.code, failure.words))


def _without_padding(data: bytes, start: int, end: int) -> tuple[int, int]:
    if start == end:
        raise _ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "A padded frame has no length of its padding.")
    padding = data[start]
    start += 1
    if padding > end - start:
        raise _ConnectionBroken(
            ErrorCode.PROTOCOL_ERROR, f"A frame has {padding} bytes of padding, more than it is long."
        )
    return start, end - padding
