"""One stream of a connection: an incoming request and its outgoing response."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from millstream.protocol.http2.hpack import Header
from millstream.protocol.http2.request_head import RequestHead

__all__ = [
    "ARRIVED",
    "ENDED",
    "MANY_PIECES",
    "OPENED",
    "RESET",
    "SMALL_PIECE_BYTES",
    "WRITABLE",
    "Http2Stream",
]

OPENED: Final = 1
"""News of a stream: its headers are there."""

ARRIVED: Final = 2
"""More of its data is there."""

ENDED: Final = 4
"""The peer sends no more."""

RESET: Final = 8
"""It is over before its answer was whole: the peer gave it up, or broke the rules."""

WRITABLE: Final = 16
"""All that was written has left, after some of it had to wait for the peer's window."""

MANY_PIECES: Final = 64
SMALL_PIECE_BYTES: Final = 1024
"""More pieces of data than `MANY_PIECES` that are smaller than this on average are joined: each takes memory of its
own."""


class Http2Stream:
    """State of one stream; `Http2Core` alone changes it, but for `news`, `owner` and what is taken from `inbox`."""

    __slots__ = (
        "content_length",
        "head",
        "inbox",
        "inbox_bytes",
        "is_answered",
        "is_ended",
        "is_open",
        "news",
        "number",
        "opened_s",
        "owner",
        "queue",
        "queued_bytes",
        "receive_window_bytes",
        "received_bytes",
        "send_window_bytes",
        "trailers",
    )

    def __init__(
        self, number: int, head: RequestHead, receive_window_bytes: int, send_window_bytes: int, opened_s: float
    ) -> None:
        self.number = number
        self.head = head
        self.opened_s = opened_s
        """When it began, by the clock of `Http2Core.receive`."""
        self.news = OPENED
        """What happened since the owner looked: a sum of the constants above."""
        self.owner: Any = None
        """Whatever the user of the core keeps for the stream."""
        self.inbox: list[bytes] = []
        self.inbox_bytes = 0
        self.received_bytes = 0
        self.content_length = head.content_length
        self.is_ended = False
        """The peer has sent all."""
        self.is_answered = False
        """END_STREAM is sent."""
        self.is_open = True
        """Something may still be sent on it."""
        self.queue: deque[bytes | memoryview] | None = None
        self.queued_bytes = 0
        """Data that waits for the peer's window."""
        self.trailers: tuple[Header, ...] | None = None
        """Headers that leave behind the queue and end the answer; without any, an empty frame does."""
        self.receive_window_bytes = receive_window_bytes
        self.send_window_bytes = send_window_bytes

    def take_inbox(self) -> bytes:
        """The data that has arrived and was not taken yet."""
        inbox = self.inbox
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        self.inbox_bytes = 0
        return data
