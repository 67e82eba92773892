"""Server-sent events: new messages of a topic as they arrive, without a consumer group.

The id of each event is the place in all queues behind it, so that a browser that connects again with Last-Event-ID goes
on where it was. Source: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from millstream.model.errors import ConsumeRefused, Refused
from millstream.model.filter import MessageFilter
from millstream.model.message import StoredMessage
from millstream.model.operations import QueuePoint
from millstream.protocol.cloud_events import encode_event, event_attributes
from millstream.proxy.http.answer import Send
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.pulls import ClientQueue, Pull
from millstream.proxy.stored_body import body_of, unpack
from millstream.security.policy import RequiredAccess

__all__ = ["KEEP_ALIVE_S", "MAX_STREAMS", "MAX_STREAM_QUEUES", "StreamResource"]

MAX_STREAMS: Final = 1_000
"""Streams of one port at the same time at most."""

MAX_STREAM_QUEUES: Final = 64
"""Queues of a topic that can be streamed at most: each is read on its own."""

KEEP_ALIVE_S: Final = 15.0
"""Seconds without an event after which a comment is sent, so that nobody on the way takes the stream for dead."""

_GROUP: Final = "TOOLS_CONSUMER"
"""A tool's group, as which nobody consumes: such a pull leaves no offset."""

_PULL_MESSAGES: Final = 32
_PULL_WAIT_MS: Final = 15_000
_WAITING_PARTS: Final = 1
"""Pulls whose messages wait for the client; each queue waits with its next one."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE: Final = b": still here\n\n"
_PLACE_MARK, _QUEUE_MARK = ",", "@"


@dataclass(slots=True)
class _Part:
    """Messages of one queue, and where it goes on."""

    queue: int
    messages: Sequence[StoredMessage]
    next_offset: int


class StreamResource:
    """Takes the requests to /v1/topics/TOPIC/stream."""

    def __init__(self, service: HttpService) -> None:
        self._processor = service.processor
        self._gate = service.gate
        self._traffic = service.traffic
        self._open: set[asyncio.Task[None]] = set()

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
        queues = await self._queues(topic)
        places = await self._places(queues, last_id)
        await request.send({"type": "http.response.start", "status": int(HTTPStatus.OK), "headers": _HEADERS})
        writing = asyncio.create_task(self._write(request.send, queues, places, wanted), name="http-stream")
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
        await request.send({"type": "http.response.body", "body": b""})

    async def _queues(self, topic: str) -> list[ClientQueue]:
        route = await self._processor.route(topic)
        if len(route.queues) > MAX_STREAM_QUEUES:
            words = f"The topic {topic!r} has {len(route.queues)} queues; {MAX_STREAM_QUEUES} can be streamed."
            raise ConsumeRefused("TOO_MANY_REQUESTS", words)
        return [ClientQueue(queue.broker_name, topic, queue.queue_id) for queue in route.queues]

    async def _places(self, queues: Sequence[ClientQueue], last_id: str) -> list[int]:
        """Where each queue goes on: as the last event's id says, else at its end. `earliest` is the beginning."""
        if last_id == "earliest":
            return [await self._processor.pulls.query_offset(queue, QueuePoint.FIRST) for queue in queues]
        known = _parse_places(last_id)
        places = []
        for queue in queues:
            place = known.get((queue.broker_name, queue.queue_id))
            if place is None:
                place = await self._processor.pulls.query_offset(queue, QueuePoint.LAST)
            places.append(place)
        return places

    async def _write(self, send: Send, queues: Sequence[ClientQueue], places: list[int], wanted: MessageFilter) -> None:
        """Write what comes. A client that does not read holds back the pulls: nothing is kept for it beyond one of each
        queue."""
        parts: asyncio.Queue[_Part] = asyncio.Queue(_WAITING_PARTS)
        async with asyncio.TaskGroup() as readers:
            for number, queue in enumerate(queues):
                readers.create_task(self._read(number, queue, places[number], wanted, parts))
            await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        part = await parts.get()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})
                    continue
                self._traffic.messages_out += len(part.messages)
                for message in part.messages:
                    places[part.queue] = message.queue_offset + 1
                    event = _encode(await unpack(message), _write_places(queues, places))
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                places[part.queue] = part.next_offset

    async def _read(
        self, number: int, queue: ClientQueue, offset: int, wanted: MessageFilter, parts: asyncio.Queue[_Part]
    ) -> None:
        while True:
            wish = Pull(_GROUP, queue, offset, _PULL_MESSAGES, wanted, _PULL_WAIT_MS)
            pulled = await self._processor.pulls.pull(wish)
            offset = pulled.next_offset
            if pulled.messages:
                await parts.put(_Part(number, pulled.messages, offset))


def _encode(message: StoredMessage, place: str) -> bytes:
    # The JSON of an event has no line break of its own, and data that is JSON may have some.
    event = encode_event(event_attributes(message), body_of(message)).replace(b"\r", b" ").replace(b"\n", b" ")
    return b"id: " + place.encode() + b"\ndata: " + event + b"\n\n"


def _write_places(queues: Sequence[ClientQueue], places: Sequence[int]) -> str:
    """As `17@0@broker-a,3@1@broker-a`: offset, queue and broker of each queue."""
    return _PLACE_MARK.join(
        f"{place}{_QUEUE_MARK}{queue.queue_id}{_QUEUE_MARK}{queue.broker_name}"
        for queue, place in zip(queues, places, strict=True)
    )


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
