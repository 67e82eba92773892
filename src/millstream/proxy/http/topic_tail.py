"""The newest messages of each topic that is streamed: taken from the feed once, read by all streams at their own pace.

A stream that reads too slowly falls out of the window. It reads the log itself then, up to where the feed has come, and
goes on in the window: nothing is kept for it, and it loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from millstream.model.message import StoredMessage
from millstream.protocol.cloud_events import encode_event, event_attributes
from millstream.proxy.feed import FeedPlace, Following, QueueKey, TopicFeed
from millstream.proxy.stored_body import body_of

__all__ = [
    "MAX_TAILS_BYTES",
    "MAX_TAIL_BYTES",
    "TailEntry",
    "TailQueue",
    "TailReader",
    "TopicTail",
    "TopicTails",
    "encode_data",
]

MAX_TAIL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one topic's newest messages that are kept for its streams at most; the newest one is kept in any case."""

MAX_TAILS_BYTES: Final = 64 * 1024 * 1024
"""The same for all topics of a port, which share it evenly where they are many."""

_ENTRY_BYTES: Final = 1024
"""What an entry takes beside the body, roughly."""


def _reads_body(_topic: str, _message: StoredMessage) -> bool:
    return True


class TailQueue:
    """One queue of a topic as it was made: one that is made anew is another. `begin` is the first offset that counts
    for streams which did not know it, `end` the one to which the feed has come."""

    __slots__ = ("begin", "end", "key")

    def __init__(self, key: QueueKey, begin: int) -> None:
        self.key = key
        self.begin = begin
        self.end = begin


class TailEntry:
    """A message in the window."""

    __slots__ = ("_data", "message", "queue")

    def __init__(self, queue: TailQueue, message: StoredMessage) -> None:
        self.queue = queue
        self.message = message
        self._data = b""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return _ENTRY_BYTES + len(self.message.body) + len(self._data)

    def encode(self, tail: TopicTail) -> bytes:
        """The lines of the event that hold its data; made for the first stream that wants it."""
        if not self._data:
            self._data = encode_data(self.message)
            tail.size_bytes += len(self._data)
        return self._data


def encode_data(message: StoredMessage) -> bytes:
    """A message as the data of a server-sent event."""
    # The JSON of an event has no line break of its own, and data that is JSON may have some.
    event = encode_event(event_attributes(message), body_of(message)).replace(b"\r", b" ").replace(b"\n", b" ")
    return b"data: " + event + b"\n\n"


class TopicTail:
    """The window of one topic, a listener of the feed."""

    def __init__(self, tails: TopicTails) -> None:
        self.size_bytes = 0
        """What the window takes."""
        self.queues: dict[QueueKey, TailQueue] = {}
        self.readers: set[TailReader] = set()
        self.opening = asyncio.Lock()
        self.following: Following | None = None
        self.first = 0
        """The number of the oldest entry that is kept; numbers count on for as long as there is a reader."""
        self.next = 0
        """The number that the next entry gets."""
        self._tails = tails
        self._entries: dict[int, TailEntry] = {}
        self._waiting: set[TailReader] = set()

    def begin(self, following: Following) -> None:
        """The feed brings what is stored from now on."""
        self.following = following
        self.queues = {key: TailQueue(key, start) for key, start in following.starts.items()}

    def entry(self, number: int) -> TailEntry:
        """The entry of that number, which is in the window."""
        return self._entries[number]

    def deliver(self, topic: str, messages: Sequence[StoredMessage], place: FeedPlace) -> None:
        """See `FeedListener`."""
        first = messages[0].queue_offset
        queue = self.queues.get(place.key)
        if queue is None or first < queue.end:
            # New, made anew, or without the end that it had.
            queue = self.queues[place.key] = TailQueue(place.key, first)
        for message in messages:
            entry = self._entries[self.next] = TailEntry(queue, message)
            self.size_bytes += entry.size_bytes
            self.next += 1
        queue.end = place.next_offset
        self.cut()
        self._wake()

    def note_gap(self, topic: str, lost: int, place: FeedPlace) -> None:
        """See `FeedListener`. What the feed passes over the streams read from the log, as far as it is there."""
        queue = self.queues.get(place.key)
        if queue is None or place.next_offset <= queue.end:
            return
        queue.end = place.next_offset
        self._forget_before(self.next)
        self.first = self.next = self.next + 1
        self._wake()

    def cut(self) -> None:
        """Forget the oldest entries over the limit."""
        limit_bytes = self._tails.limit_bytes
        last = self.next - 1
        while self.size_bytes > limit_bytes and self.first < last:
            self._forget_before(self.first + 1)

    def note_waiting(self, reader: TailReader) -> None:
        """The reader has read all there is; once all have, nothing needs to be kept."""
        self._waiting.add(reader)
        if len(self._waiting) == len(self.readers):
            self._forget_before(self.next)

    def remove(self, reader: TailReader) -> None:
        """The reader has gone."""
        self.readers.discard(reader)
        self._waiting.discard(reader)
        if len(self._waiting) == len(self.readers):
            self._forget_before(self.next)

    def _forget_before(self, number: int) -> None:
        for gone in range(self.first, number):
            self.size_bytes -= self._entries.pop(gone).size_bytes
        self.first = number

    def _wake(self) -> None:
        self._waiting.clear()
        for reader in self.readers:
            reader.arrived.set()


class TailReader:
    """One stream's place in the window."""

    def __init__(self, tail: TopicTail) -> None:
        self.arrived = asyncio.Event()
        self._tail = tail
        self._at = 0

    @property
    def is_behind(self) -> bool:
        """Whether entries are gone that it has not read; `restart` goes on then."""
        return self._at < self._tail.first

    @property
    def has_next(self) -> bool:
        """Whether there is an entry that it has not read."""
        return self._at < self._tail.next

    def restart(self) -> Mapping[QueueKey, tuple[TailQueue, int]]:
        """Go on with what arrives from now on; the queues, and up to where each has come already."""
        self._at = self._tail.next
        return {key: (queue, queue.end) for key, queue in self._tail.queues.items()}

    def next(self) -> TailEntry | None:
        """The next entry, where there is one."""
        if self._at == self._tail.next:
            return None
        self._at += 1
        return self._tail.entry(self._at - 1)

    def encode(self, entry: TailEntry) -> bytes:
        """See `TailEntry`."""
        data = entry.encode(self._tail)
        self._tail.cut()
        return data

    async def wait(self, timeout_s: float) -> bool:
        """Return when there is something to read, or the time is over: False."""
        if self._at != self._tail.next:
            return True
        self.arrived.clear()
        self._tail.note_waiting(self)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.arrived.wait()
                return True
        return False

    def leave(self) -> None:
        """The stream has ended."""
        self._tail.remove(self)


class TopicTails:
    """The windows of all topics that are streamed by one port."""

    def __init__(self, feed: TopicFeed) -> None:
        self._feed = feed
        self._tails: dict[str, TopicTail] = {}

    @property
    def limit_bytes(self) -> int:
        """What one window may take now."""
        return min(MAX_TAIL_BYTES, MAX_TAILS_BYTES // max(len(self._tails), 1))

    @property
    def size_bytes(self) -> int:
        """What all of them take."""
        return sum(tail.size_bytes for tail in self._tails.values())

    async def join(self, topic: str) -> TailReader:
        """A reader, to be given to `leave`; it begins with `restart`. Raises as `TopicFeed.follow`."""
        tail = self._tails.get(topic)
        if tail is None:
            tail = self._tails[topic] = TopicTail(self)
            # What each may take has become less, and nothing may come to the others for long.
            for other in self._tails.values():
                other.cut()
        reader = TailReader(tail)
        tail.readers.add(reader)
        try:
            async with tail.opening:
                if tail.following is None:
                    tail.begin(await self._feed.follow(topic, tail, _reads_body))
        except BaseException:
            self.leave(topic, reader)
            raise
        return reader

    def leave(self, topic: str, reader: TailReader) -> None:
        """The reader's stream has ended; without one a topic is not followed."""
        reader.leave()
        tail = self._tails[topic]
        if not tail.readers:
            del self._tails[topic]
            if tail.following is not None:
                tail.following.end()
