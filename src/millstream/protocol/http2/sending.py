"""The sending side of one HTTP/2 connection: responses within the peer's windows, and window updates."""

from __future__ import annotations

from collections import deque
from typing import Final, cast

from millstream.protocol.http2.allowance import EARNED_BY_REQUEST, Allowance
from millstream.protocol.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    HEADERS,
    ErrorCode,
    frame_header,
    reset_frame,
    window_frame,
)
from millstream.protocol.http2.hpack import Header, HeaderEncoder
from millstream.protocol.http2.stream import MANY_PIECES, SMALL_PIECE_BYTES, WRITABLE, Http2Stream

__all__ = ["MAX_ENDED_EARLY", "WAITING_STREAM_BYTES", "AnswerSender"]

MAX_ENDED_EARLY: Final = 1024
"""Streams that the server ended before their peer did and whose late frames are still dropped in silence; over it the
oldest is forgotten, and a late frame for it is answered with STREAM_CLOSED."""

WAITING_STREAM_BYTES: Final = 2048
"""What a stream takes itself while its answer waits for the peer's windows, about; it counts as much."""

_MAX_KEPT_BLOCKS: Final = 32


class AnswerSender:
    """The sending half of a connection; `Http2Core` is the whole. The user takes `outgoing`."""

    __slots__ = (
        "_allowance",
        "_blocks",
        "_encoder",
        "_ended_early",
        "_news",
        "_peer_frame_bytes",
        "_peer_window_bytes",
        "_send_window_bytes",
        "_sent_bytes",
        "_waiting",
        "outgoing",
        "outgoing_bytes",
        "queued_bytes",
        "replies_bytes",
        "streams",
    )

    def __init__(self) -> None:
        self.streams: dict[int, Http2Stream] = {}
        """Those that are open, by number."""
        self.outgoing: list[bytes | memoryview] = []
        self.outgoing_bytes = 0
        self.queued_bytes = 0
        """Data of all streams that waits for the peer's windows, with `WAITING_STREAM_BYTES` for each of them."""
        self.replies_bytes = 0
        """Of `outgoing`, what the peer's control frames caused."""
        self._encoder = HeaderEncoder()
        self._blocks: dict[tuple[Header, ...], bytes] = {}
        self._ended_early: dict[int, None] = {}
        self._send_window_bytes = DEFAULT_WINDOW_BYTES
        self._peer_window_bytes = DEFAULT_WINDOW_BYTES
        self._peer_frame_bytes = DEFAULT_FRAME_BYTES
        # Streams whose data waits, in the order of their turns.
        self._waiting: dict[Http2Stream, None] = {}
        self._allowance = Allowance()
        self._sent_bytes = 0
        """Of data, since the peer was last given an allowance for them."""
        self._news: list[Http2Stream] = []

    def send_headers(self, stream: Http2Stream, headers: tuple[Header, ...], *, ends: bool = False) -> None:
        """Begin the answer of a stream, or with `ends` make the headers all of it. Nothing where it is over."""
        if not stream.is_open:
            return
        block = self._encode(headers)
        flags = END_HEADERS | END_STREAM if ends else END_HEADERS
        self._put(frame_header(len(block), HEADERS, flags, stream.number) + block)
        if ends:
            self._end_answer(stream)

    def send_page(self, stream: Http2Stream, headers: tuple[Header, ...], body: bytes) -> None:
        """Answer what is no call: headers and a body without trailers."""
        self.send_headers(stream, headers)
        self.send_data(stream, body, ())

    def send_data(
        self, stream: Http2Stream, data: bytes | memoryview, trailers: tuple[Header, ...] | None = None
    ) -> None:
        """Send data as far as the peer's windows let it, the rest later, and behind all of it `trailers`, which end the
        answer. Nothing where the stream is over."""
        if not stream.is_open:
            return
        size = len(data)
        if (
            stream.queue is None
            and size <= self._peer_frame_bytes
            and size <= stream.send_window_bytes
            and size <= self._send_window_bytes
        ):
            if size:
                stream.send_window_bytes -= size
                self._send_window_bytes -= size
                self._sent_bytes += size
                out = self.outgoing
                out.append(FRAME_HEADER.pack(size >> 8, size & 0xFF, DATA, 0, stream.number))
                out.append(data)
                self.outgoing_bytes += size + FRAME_HEADER_BYTES
            if trailers is not None:
                self._send_trailers(stream, trailers)
            return
        if stream.queue is None:
            stream.queue = deque()
            self.queued_bytes += WAITING_STREAM_BYTES
        if size:
            queue = stream.queue
            queue.append(data)
            stream.queued_bytes += size
            self.queued_bytes += size
            if len(queue) > MANY_PIECES and stream.queued_bytes < len(queue) * SMALL_PIECE_BYTES:
                stream.queue = deque((b"".join(queue),))
        stream.trailers = trailers
        self._waiting[stream] = None
        self._send_waiting()

    def send_whole(
        self, stream: Http2Stream, headers: tuple[Header, ...], data: bytes, trailers: tuple[Header, ...]
    ) -> None:
        """Send a whole answer: what `send_headers` and `send_data` do, in one piece where nothing has to wait."""
        size = len(data)
        if (
            not stream.is_open
            or size > self._peer_frame_bytes
            or size > stream.send_window_bytes
            or size > self._send_window_bytes
        ):
            self.send_headers(stream, headers)
            self.send_data(stream, data, trailers)
            return
        self._send_window_bytes -= size
        number = stream.number
        pack = FRAME_HEADER.pack
        first, last = self._encode(headers), self._encode(trailers)
        answer = b"".join(
            (
                pack(0, len(first), HEADERS, END_HEADERS, number) if len(first) < 256
                else frame_header(len(first), HEADERS, END_HEADERS, number),
                first,
                pack(size >> 8, size & 0xFF, DATA, 0, number),
                data,
                pack(0, len(last), HEADERS, END_HEADERS | END_STREAM, number) if len(last) < 256
                else frame_header(len(last), HEADERS, END_HEADERS | END_STREAM, number),
                last,
            )
        )  # fmt: skip
        self.outgoing.append(answer)
        self.outgoing_bytes += len(answer)
        self._end_answer(stream)

    def grant(self, stream: Http2Stream, size_bytes: int) -> None:
        """Let the peer send so many bytes more on the stream."""
        if stream.is_open and not stream.is_ended and size_bytes > 0:
            stream.receive_window_bytes += size_bytes
            self._put(window_frame(stream.number, size_bytes))

    def reset(self, stream: Http2Stream, code: ErrorCode) -> None:
        """End a stream at once; what waits for it is dropped. Nothing where it is over."""
        if not stream.is_open:
            return
        self._forget(stream)
        if not stream.is_ended:
            self._note_ended_early(stream.number)
        self._put(reset_frame(stream.number, code))

    def take_outgoing(self) -> list[bytes | memoryview]:
        """What is to be written now, in this order."""
        out, self.outgoing = self.outgoing, []
        self.outgoing_bytes = self.replies_bytes = 0
        return out

    # inside

    def _encode(self, headers: tuple[Header, ...]) -> bytes:
        """The block of headers. Blocks that change nothing in the peer's table are kept."""
        block = self._blocks.get(headers)
        if block is None:
            before = self._encoder.changes
            block = self._encoder.encode(headers)
            if self._encoder.changes != before:
                self._blocks.clear()
            elif len(self._blocks) < _MAX_KEPT_BLOCKS:
                self._blocks[headers] = block
        return block

    def _send_trailers(self, stream: Http2Stream, trailers: tuple[Header, ...]) -> None:
        if not trailers:
            self._put(frame_header(0, DATA, END_STREAM, stream.number))
            self._end_answer(stream)
            return
        block = self._encode(trailers)
        self._put(frame_header(len(block), HEADERS, END_HEADERS | END_STREAM, stream.number) + block)
        self._end_answer(stream)

    def _end_answer(self, stream: Http2Stream) -> None:
        """END_STREAM was sent: where the request has not come to its end, the rest of it is not wanted."""
        stream.is_answered = True
        self._allowance.earn(EARNED_BY_REQUEST)
        self._forget(stream)
        if not stream.is_ended:
            self._note_ended_early(stream.number)
            self._put(reset_frame(stream.number, ErrorCode.NO_ERROR))

    def _send_waiting(self) -> None:
        """Give the streams that wait their turns, a frame each, as long as the connection's window is open."""
        waiting = self._waiting
        while waiting:
            stream = next(iter(waiting))
            queue = stream.queue
            if queue and self._send_window_bytes <= 0:
                return
            del waiting[stream]
            if queue is None:
                continue
            if queue:
                most = min(self._peer_frame_bytes, self._send_window_bytes, stream.send_window_bytes)
                if most <= 0:
                    continue
                self._send_piece(stream, queue, most)
            if queue:
                waiting[stream] = None
                continue
            stream.queue = None
            self.queued_bytes -= WAITING_STREAM_BYTES
            if stream.trailers is not None:
                self._send_trailers(stream, stream.trailers)
            else:
                self._note(stream, WRITABLE)

    def _send_piece(self, stream: Http2Stream, queue: deque[bytes | memoryview], most: int) -> None:
        data = queue[0]
        if len(data) <= most:
            queue.popleft()
        else:
            view = memoryview(data)
            data, queue[0] = view[:most], view[most:]
        size = len(data)
        stream.send_window_bytes -= size
        self._send_window_bytes -= size
        self._sent_bytes += size
        stream.queued_bytes -= size
        self.queued_bytes -= size
        self.outgoing.append(FRAME_HEADER.pack(size >> 8, size & 0xFF, DATA, 0, stream.number))
        self.outgoing.append(data)
        self.outgoing_bytes += size + FRAME_HEADER_BYTES
        if queue and (stream.send_window_bytes <= 0 or self._send_window_bytes <= 0):
            _let_go(queue)

    def _put(self, frame: bytes) -> None:
        self.outgoing.append(frame)
        self.outgoing_bytes += len(frame)

    def _note(self, stream: Http2Stream, what: int) -> None:
        if not stream.news:
            self._news.append(stream)
        stream.news |= what

    def _note_ended_early(self, number: int) -> None:
        if len(self._ended_early) >= MAX_ENDED_EARLY:
            del self._ended_early[next(iter(self._ended_early))]
        self._ended_early[number] = None

    def _forget(self, stream: Http2Stream) -> None:
        stream.is_open = False
        self.streams.pop(stream.number, None)
        if stream.queue is not None:
            self.queued_bytes -= stream.queued_bytes + WAITING_STREAM_BYTES
            stream.queued_bytes = 0
            stream.queue = None
            self._waiting.pop(stream, None)


def _let_go(queue: deque[bytes | memoryview]) -> None:
    """Copy the rest of a piece of which most has left: it would keep all of the piece for as long as it waits."""
    rest = queue[0]
    if isinstance(rest, memoryview) and 2 * len(rest) <= len(cast("bytes", rest.obj)):
        queue[0] = bytes(rest)
