"""Server-sent events: new messages of a topic as they arrive, without a consumer group.

The id of each event is the place in all queues behind it, so that a browser that connects again with Last-Event-ID goes
on where it was. Source: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from millstream.model.errors import ConsumeRefused, MillstreamError, Refused
from millstream.model.expiry import is_expired
from millstream.model.filter import MessageFilter
from millstream.model.message import StoredMessage
from millstream.model.operations import QueuePoint
from millstream.proxy.backend import TopicRoute
from millstream.proxy.feed import QueueKey
from millstream.proxy.http.answer import Send
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.topic_tail import TailQueue, TailReader, TopicTails, encode_data
from millstream.proxy.pulls import ClientQueue, Pull
from millstream.proxy.stored_body import unpack
from millstream.security.policy import RequiredAccess

__all__ = ["CATCH_UP_BYTES", "KEEP_ALIVE_S", "MAX_STREAMS", "MAX_STREAM_QUEUES", "StreamResource"]

_log = logging.getLogger(__name__)

MAX_STREAMS: Final = 1_000
"""Streams of one port at the same time at most."""

MAX_STREAM_QUEUES: Final = 64
"""Queues of a topic that can be streamed at most: the id of each event names them all."""

KEEP_ALIVE_S: Final = 15.0
"""Seconds without an event after which a comment is sent, so that nobody on the way takes the stream for dead."""

CATCH_UP_BYTES: Final = 64 * 1024
"""Bytes that one read asks for at most, of a stream that is behind the others; the first message comes in any case."""

_GROUP: Final = "TOOLS_CONSUMER"
"""A tool's group, as which nobody consumes: such a pull leaves no offset."""

_CATCH_UP_MESSAGES: Final = 32
_EMPTY_READS: Final = 10
"""Reads that bring nothing after which what is missing counts as gone."""
_EMPTY_READ_WAIT_S: Final = 0.1

_CHUNK_BYTES: Final = 32 * 1024
"""Bytes of events over which no further one is put into the same write."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE: Final = b": still here\n\n"
_PLACE_MARK, _QUEUE_MARK = ",", "@"

_Ends = Mapping[QueueKey, tuple[TailQueue, int]]
"""The queues of a window, and up to where each has come."""


class StreamResource:
    """Takes the requests to /v1/topics/TOPIC/stream."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._processor = service.processor
        self._gate = service.gate
        self._traffic = service.traffic
        self._open: set[asyncio.Task[None]] = set()
        self.tails = TopicTails(service.processor.feed)
        """What is kept for the streams."""

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return len(self._open)

    def end_streams(self) -> None:
        """End all streams; their clients connect again elsewhere."""
        for task in self._open:
            task.cancel()

    async def stream(self, request: HttpRequest, topic: str) -> None:
        """Write events until the client goes or the server stops."""
        topic = request.space.whole(topic)
        self._gate.allow(request, "stream", (RequiredAccess.read(topic),))
        wanted = request.query.message_filter()
        last_id = request.headers.get("last-event-id") or request.query.text("from") or ""
        request.query.finish()
        if len(self._open) >= MAX_STREAMS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{MAX_STREAMS} streams are open, which is the limit.")
        route = await self._processor.route(topic)
        if len(route.queues) > MAX_STREAM_QUEUES:
            words = f"The topic {topic!r} has {len(route.queues)} queues; {MAX_STREAM_QUEUES} can be streamed."
            raise ConsumeRefused("TOO_MANY_REQUESTS", words)
        known = {} if last_id == "earliest" else _parse_places(last_id)
        reader = await self.tails.join(topic)
        try:
            ends = reader.restart()
            places = await self._places(route, ends, known, is_earliest=last_id == "earliest")
            stream = _Stream(self._service, request.send, topic, wanted, reader, places)
            await self._run(request, stream, ends)
        finally:
            self.tails.leave(topic, reader)

    async def _run(self, request: HttpRequest, stream: _Stream, ends: _Ends) -> None:
        await request.send({"type": "http.response.start", "status": int(HTTPStatus.OK), "headers": _HEADERS})
        writing = asyncio.create_task(stream.write(ends), name="http-stream")
        self._open.add(writing)
        self._traffic.sessions += 1
        gone = asyncio.ensure_future(_wait_for_end(request))
        try:
            await asyncio.wait((writing, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(writing)
            self._traffic.sessions -= 1
            for task in (writing, gone):
                task.cancel()
            await asyncio.gather(writing, gone, return_exceptions=True)
        _note_failure(writing, stream.topic)
        await request.send({"type": "http.response.body", "body": b""})

    async def _places(
        self, route: TopicRoute, ends: _Ends, known: Mapping[QueueKey, int], *, is_earliest: bool
    ) -> _Places:
        """Where each queue goes on: as the last event's id says, else at its end."""
        places = _Places()
        if route.is_static:
            # Where such a queue lay does not matter.
            known = {("", number): offset for (_, number), offset in known.items()}
        point = QueuePoint.FIRST if is_earliest else QueuePoint.LAST
        for key, (queue, _) in ends.items():
            place = await self._processor.pulls.query_offset(_client_queue(route, key), point)
            # An id may name what is no longer there, or never was.
            places.note(queue, min(known.get(key, place), place))
        return places


class _Places:
    """Where each queue of a stream goes on, and the text of it."""

    def __init__(self) -> None:
        self._places: dict[QueueKey, tuple[TailQueue, int]] = {}
        self._texts: dict[QueueKey, str] = {}

    def of(self, queue: TailQueue) -> int:
        """The offset that is next. Of a queue that was not known, or was made anew since, it is the first that counts.
        TOO_MANY_REQUESTS where they have become too many."""
        known = self._places.get(queue.key)
        if known is not None and known[0] is queue:
            return known[1]
        if known is None and len(self._places) >= MAX_STREAM_QUEUES:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"The topic has more than {MAX_STREAM_QUEUES} queues now.")
        self.note(queue, queue.begin)
        return queue.begin

    def note(self, queue: TailQueue, offset: int) -> None:
        """All before the offset was given."""
        self._places[queue.key] = (queue, offset)
        broker, number = queue.key
        self._texts[queue.key] = f"{offset}{_QUEUE_MARK}{number}{_QUEUE_MARK}{broker}"

    def text(self) -> str:
        """As `17@0@broker-a,3@1@broker-a`: offset, queue and broker of each queue."""
        return _PLACE_MARK.join(self._texts.values())


class _Stream:
    """Writes the events of one client. One who does not read holds it back, and nothing is kept for it."""

    def __init__(
        self,
        service: HttpService,
        send: Send,
        topic: str,
        wanted: MessageFilter,
        reader: TailReader,
        places: _Places,
    ) -> None:
        self.topic = topic
        self._processor = service.processor
        self._clock = service.clock
        self._traffic = service.traffic
        self._pacing = service.memory.late_answers
        self._send = send
        self._wanted = wanted
        self._reader = reader
        self._places = places

    async def write(self, ends: _Ends) -> None:
        """Write what comes for ever; first what is missing up to `ends`."""
        await self._send_part(_KEEP_ALIVE)
        await self._catch_up(ends)
        while True:
            # Returns once the buffer has room: an event that waits for it would be a copy for each slow client.
            await self._send_part(b"")
            if self._reader.is_behind:
                await self._catch_up(self._reader.restart())
            elif self._reader.has_next:
                await self._write_events()
            elif not await self._reader.wait(KEEP_ALIVE_S):
                await self._send_part(_KEEP_ALIVE)

    async def _write_events(self) -> None:
        """Write some events of the window. Many streams have their turns between, and what those before were given is
        known: a thousand copies of one large event would else be there before anybody sees that they are not read."""
        await self._pacing.turn()
        events = self._next_events()
        self._pacing.note_size(len(events))
        if events:
            await self._send_part(events)
        await asyncio.sleep(0)

    def _next_events(self) -> bytes:
        """Some events of the window; none where all were written."""
        parts: list[bytes] = []
        size_bytes = 0
        while size_bytes < _CHUNK_BYTES and not self._reader.is_behind:
            entry = self._reader.next()
            if entry is None:
                break
            offset = entry.message.queue_offset
            if offset < self._places.of(entry.queue):
                continue
            self._places.note(entry.queue, offset + 1)
            if self._wanted.takes_all or self._wanted.matches(entry.message.properties):
                parts += (self._id_line(), self._reader.encode(entry))
                size_bytes += len(parts[-1])
        self._traffic.messages_out += len(parts) // 2
        return b"".join(parts)

    async def _catch_up(self, ends: _Ends) -> None:
        """Write from the log what comes before the window."""
        route: TopicRoute | None = None
        for key, (queue, end) in ends.items():
            empty = 0
            while (place := self._places.of(queue)) < end and empty < _EMPTY_READS:
                route = route or await self._processor.route(self.topic)
                next_offset = await self._write_from_log(queue, _client_queue(route, key), place)
                empty = 0 if next_offset > place else empty + 1
                if empty:
                    await asyncio.sleep(_EMPTY_READ_WAIT_S)
            self._places.note(queue, max(place, end))

    async def _write_from_log(self, queue: TailQueue, place: ClientQueue, offset: int) -> int:
        """Write messages from the offset on; where it goes on."""
        # A full buffer is waited for without a message.
        await self._send_part(b"")
        await self._pacing.turn()
        wish = Pull(_GROUP, place, offset, _CATCH_UP_MESSAGES, self._wanted, 0, CATCH_UP_BYTES)
        pulled = await self._processor.pulls.pull(wish)
        next_offset, messages = pulled.next_offset, deque(pulled.messages)
        del pulled
        while messages:
            await self._write_message(queue, messages.popleft())
        if next_offset > offset:
            self._places.note(queue, next_offset)
        await asyncio.sleep(0)
        return next_offset

    async def _write_message(self, queue: TailQueue, message: StoredMessage) -> None:
        self._places.note(queue, message.queue_offset + 1)
        if is_expired(message.properties, self._clock.now_ms()):
            return
        event = self._id_line() + encode_data(await unpack(message))
        del message
        self._traffic.messages_out += 1
        self._pacing.note_size(len(event))
        await self._send_part(event)
        # What is written is the connection's: one copy is enough while the client does not read.
        del event
        await self._send_part(b"")

    def _id_line(self) -> bytes:
        return b"id: " + self._places.text().encode() + b"\n"

    async def _send_part(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


def _client_queue(route: TopicRoute, key: QueueKey) -> ClientQueue:
    """A queue as pulls name it: one that may move lies where the route says."""
    broker, number = key
    if not broker:
        broker = next((queue.broker_name for queue in route.queues if queue.queue_id == number), "")
    return ClientQueue(broker, route.topic, number)


def _note_failure(writing: asyncio.Task[None], topic: str) -> None:
    """Say in the log why a stream has ended by itself."""
    error = None if writing.cancelled() else writing.exception()
    if isinstance(error, MillstreamError):
        _log.info("a stream of %s ends: %s", topic, error)
    elif error is not None:
        _log.error("a stream of %s failed in an unforeseen way", topic, exc_info=error)


def _parse_places(text: str) -> dict[tuple[str, int], int]:
    found = {}
    for part in text.split(_PLACE_MARK) if text else ():
        offset, _, rest = part.partition(_QUEUE_MARK)
        queue, _, broker = rest.partition(_QUEUE_MARK)
        if not (offset.isdecimal() and queue.isdecimal() and offset.isascii() and queue.isascii()) or len(offset) > 18:
            raise Refused("HTTP_REQUEST", f"Last-Event-ID is {text[:80]!r}; send the id of an event of this stream.")
        found[broker, int(queue)] = int(offset)
    return found


async def _wait_for_end(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
