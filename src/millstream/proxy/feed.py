"""One reader per queue shared by all followers of a topic at a proxy: records are fetched and decoded once.

A listener is called in the turn in which records were read and keeps nothing here. So a slow one holds nobody's memory:
it drops what it cannot pass on. A reader that is too far behind its queue passes over what it cannot catch up with, and
says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConnectionFailed, ConsumeRefused, MillstreamError, NameRefused, StoreError
from millstream.model.expiry import is_expired
from millstream.model.message import StoredMessage
from millstream.model.operations import PullRequest, PullResult, PullStatus, QueuePoint
from millstream.model.properties import EXPIRES_MS
from millstream.model.topic import Permission
from millstream.protocol.batches import messages_of, messages_of_run
from millstream.proxy.backend import BrokerBackend, RouteQueue, TopicRoute
from millstream.proxy.stored_body import is_packed, unpack

__all__ = [
    "MAX_BEHIND_RECORDS",
    "MAX_READERS",
    "READ_BYTES",
    "READ_RECORDS",
    "ROUTE_INTERVAL_S",
    "TAIL_WAIT_MS",
    "BodyWish",
    "FeedListener",
    "FeedPlace",
    "Following",
    "QueueKey",
    "TopicFeed",
]

_log = logging.getLogger(__name__)

MAX_READERS: Final = 20_000
"""Queues that one proxy follows at most: each has a read that waits."""

MAX_BEHIND_RECORDS: Final = 200_000
"""Records by which a reader may be behind the end of its queue; it passes over all of them when there are more."""

READ_RECORDS: Final = 1024
READ_BYTES: Final = 1024 * 1024
"""Records and bytes that one read of a queue asks for at most."""

TAIL_WAIT_MS: Final = 15_000
"""Milliseconds that a read at the end of a queue waits for the next record."""

ROUTE_INTERVAL_S: Final = 2.0
"""Seconds between two looks at the route of each followed topic, by which new queues are found."""

_RETRY: Final = Backoff(0.1, 5.0)
"""Between two attempts to read a queue whose broker is away."""

_GROUP: Final = "MILLSTREAM_PROXY"

QueueKey = tuple[str, int]
"""A broker's name and the number of a queue; the name is blank where the queue may move between brokers."""


BodyWish = Callable[[str, StoredMessage], bool]
"""Whether a listener reads the body of a message of a topic."""


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """A queue, and the offset up to which the feed has come in it."""

    key: QueueKey
    next_offset: int


class FeedListener(Protocol):
    """Who follows topics. Both methods return at once and raise nothing."""

    def deliver(self, topic: str, messages: Sequence[StoredMessage], place: FeedPlace) -> None:
        """Take records of one queue, in their order. Where their offsets are below those of former ones, the queue was
        made anew or has lost its end."""
        ...

    def note_gap(self, topic: str, lost: int, place: FeedPlace) -> None:
        """So many records of one queue will not come: they are gone, or the reader was too far behind."""
        ...


@dataclass(frozen=True, slots=True)
class Following:
    """What a listener follows: the offset from which on it gets the records of each queue that was there when it came.
    `end` ends it."""

    starts: Mapping[QueueKey, int]
    end: Callable[[], None]


@dataclass(eq=False, slots=True)
class _Follower:
    """A listener, and from where on it wants the queues that were there when it came; `began_ms` for all others."""

    listener: FeedListener
    began_ms: int
    starts: dict[QueueKey, int]
    wants_body: BodyWish | None


@dataclass(eq=False, slots=True)
class _Reader:
    broker_name: str
    next_offset: int
    task: asyncio.Task[None] | None = None
    failure: str = ""


@dataclass(eq=False, slots=True)
class _Topic:
    name: str
    began_ms: int
    followers: list[_Follower] = field(default_factory=list)
    readers: dict[QueueKey, _Reader] = field(default_factory=dict)
    """Of queues that left the route as well, so that they go on where they were when they come back."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    coming: int = 0
    """Calls of `follow` that are under way."""
    watching: asyncio.Task[None] | None = None


class TopicFeed:
    """Follows topics over one backend until `close`; all calls from one event loop."""

    def __init__(self, backend: BrokerBackend, *, clock: Clock | None = None) -> None:
        self._backend = backend
        self._clock = clock or SystemClock()
        self._topics: dict[str, _Topic] = {}
        self.skipped = 0
        """Records that were passed over so far because they were gone or a reader was too far behind."""
        self.expired = 0
        """Messages that were passed over so far because their time was over when they were read."""

    @property
    def readers(self) -> int:
        """Queues that are followed now."""
        return sum(len(topic.readers) for topic in self._topics.values())

    async def follow(self, topic: str, listener: FeedListener, wants_body: BodyWish | None = None) -> Following:
        """Have the listener called for all records that are stored from now on.

        Records that were stored before the call do not come, all that are stored after it returned do, as long as they
        are there to be read and have not expired. Packed bodies of which `wants_body` says so are unpacked, by a thread
        where that takes long. Raises TOPIC_NOT_FOUND, TOO_MANY_REQUESTS, and what keeps its
        brokers from answering.
        """
        held = self._topics.get(topic)
        if held is None:
            held = self._topics[topic] = _Topic(topic, self._clock.now_ms())
        follower = _Follower(listener, self._clock.now_ms(), {}, wants_body)
        held.coming += 1
        try:
            async with held.opening:
                route = await self._backend.route(topic)
                queues = _readable(route)
                room = MAX_READERS - self.readers
                if len(queues.keys() - held.readers.keys()) > room:
                    raise ConsumeRefused("TOO_MANY_REQUESTS", f"{MAX_READERS} queues are followed, which is the limit.")
                points = (self._find(topic, queue, QueuePoint.LAST) for queue in queues.values())
                follower.starts = dict(zip(queues, await asyncio.gather(*points), strict=True))
                if self._topics.get(topic) is not held:
                    raise ConnectionFailed("UNREACHABLE", f"The proxy closes; {topic} is not followed.")
                held.followers.append(follower)
                for key, queue in queues.items():
                    self._read_queue(held, key, queue, follower.starts[key])
        finally:
            held.coming -= 1
            self._drop_unused(held)
        if held.watching is None:
            held.watching = asyncio.create_task(self._watch_route(held), name=f"feed-route-{topic}")

        def end() -> None:
            if follower in held.followers:
                held.followers.remove(follower)
            self._drop_unused(held)

        return Following(dict(follower.starts), end)

    async def close(self) -> None:
        """Follow nothing any more."""
        tasks = [task for topic in self._topics.values() for task in _tasks(topic)]
        self._topics.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop_unused(self, topic: _Topic) -> None:
        if topic.followers or topic.coming or self._topics.get(topic.name) is not topic:
            return
        del self._topics[topic.name]
        for task in _tasks(topic):
            task.cancel()

    async def _find(self, topic: str, queue: RouteQueue, point: QueuePoint, value: int = 0) -> int:
        return await self._backend.find_offset(queue.broker_name, topic, queue.queue_id, point, value)

    def _read_queue(self, topic: _Topic, key: QueueKey, queue: RouteQueue, offset: int) -> None:
        """Read the queue from the offset on, or from where its reader is."""
        reader = topic.readers.get(key)
        if reader is None:
            reader = topic.readers[key] = _Reader(queue.broker_name, offset)
        reader.broker_name = queue.broker_name
        if reader.task is None or reader.task.done():
            reader.task = asyncio.create_task(self._read_forever(topic, key, reader), name=f"feed-{topic.name}")

    # What keeps a topic's readers those of its queues

    async def _watch_route(self, topic: _Topic) -> None:
        while True:
            await asyncio.sleep(ROUTE_INTERVAL_S)
            try:
                async with topic.opening:
                    await self._follow_route(topic)
            except MillstreamError as error:
                _log.info("the queues of %s stay as they are: %s", topic.name, error)
            except Exception:  # noqa: BLE001 - a task of the topic's whole life must outlive one bad turn
                _log.exception("the route of %s could not be followed; the next turn follows", topic.name)

    async def _follow_route(self, topic: _Topic) -> None:
        try:
            queues = _readable(await self._backend.route(topic.name))
        except NameRefused:
            # Deleted: a topic of that name that comes later is another one.
            for reader in topic.readers.values():
                _cancel(reader.task)
            topic.readers.clear()
            topic.began_ms = self._clock.now_ms()
            for follower in topic.followers:
                follower.starts.clear()
            return
        for key, reader in topic.readers.items():
            if key not in queues:
                _cancel(reader.task)
                reader.task = None
        for key, queue in queues.items():
            known = topic.readers.get(key)
            if known is None:
                if self.readers >= MAX_READERS:
                    _log.warning("Queue %d of %s is not followed: %d are.", queue.queue_id, topic.name, MAX_READERS)
                    continue
                # Of a queue that was added all is new; of a broker that comes back what it holds from before is not.
                offset = await self._find(topic.name, queue, QueuePoint.TIME, topic.began_ms)
                self._read_queue(topic, key, queue, offset)
            else:
                self._read_queue(topic, key, queue, known.next_offset)

    # Reading

    async def _read_forever(self, topic: _Topic, key: QueueKey, reader: _Reader) -> None:
        attempt = 0
        while True:
            try:
                await self._read_next(topic, key, reader)
            except MillstreamError as error:
                # Whether the queue moved or is gone the next look at the route says.
                self._note_failure(topic, key, reader, error)
            except Exception:  # noqa: BLE001 - one record or listener must not end the feed of all others
                _log.exception("records of %s could not be passed on; the next ones follow", topic.name)
            else:
                attempt, reader.failure = 0, ""
                continue
            await asyncio.sleep(_RETRY.wait_s(attempt))
            attempt += 1

    async def _read_next(self, topic: _Topic, key: QueueKey, reader: _Reader) -> None:
        offset = reader.next_offset
        request = PullRequest(_GROUP, topic.name, key[1], offset, READ_RECORDS, READ_BYTES, wait_ms=TAIL_WAIT_MS)
        result = await self._backend.pull(reader.broker_name, request)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            # Behind the end only records that came already can be lost: those that replicas did not have.
            self._pass_over(topic, key, reader, result.next_offset, max(0, result.next_offset - offset))
        elif result.max_offset - offset > MAX_BEHIND_RECORDS:
            self._pass_over(topic, key, reader, result.max_offset, result.max_offset - offset)
        else:
            messages, damaged = self._messages_of(result, offset)
            for number, message in enumerate(messages):
                if is_packed(message) and self._is_body_wanted(topic, message):
                    messages[number] = await unpack(message)
            # Before the listeners: what one of them cannot take does not come again.
            reader.next_offset = max(offset, result.next_offset)
            if messages:
                self._deliver(topic, key, reader, messages)
            if damaged:
                self._pass_over(topic, key, reader, reader.next_offset, damaged)
        # A read of a long queue is answered without a wait, and others want their turn.
        await asyncio.sleep(0)

    def _messages_of(self, result: PullResult, offset: int) -> tuple[list[StoredMessage], int]:
        """The messages of the records that have not expired, and how many records cannot be read."""
        now_ms = self._clock.now_ms()
        run = messages_of_run(result.records) if result.records else []
        if run is not None:
            current = [one for one in run if EXPIRES_MS not in one.properties or not is_expired(one.properties, now_ms)]
            self.expired += len(run) - len(current)
            return current, 0
        found: list[StoredMessage] = []
        damaged = 0
        for record in result.records:
            try:
                messages = messages_of(record, offset)
            except StoreError as error:
                damaged += 1
                _log.error("%s", error)
                continue
            current = [message for message in messages if not is_expired(message.properties, now_ms)]
            self.expired += len(messages) - len(current)
            found += current
        return found, damaged

    def _is_body_wanted(self, topic: _Topic, message: StoredMessage) -> bool:
        wishes = (follower.wants_body for follower in topic.followers)
        return any(wants(topic.name, message) for wants in wishes if wants is not None)

    def _deliver(self, topic: _Topic, key: QueueKey, reader: _Reader, messages: list[StoredMessage]) -> None:
        first = messages[0].queue_offset
        place = FeedPlace(key, reader.next_offset)
        for follower in tuple(topic.followers):
            start = follower.starts.get(key)
            wanted: Sequence[StoredMessage] = messages
            if start is None:
                wanted = [one for one in messages if one.store_timestamp_ms >= follower.began_ms]
            elif first < start:
                wanted = [one for one in messages if one.queue_offset >= start]
            if wanted:
                follower.listener.deliver(topic.name, wanted, place)

    def _pass_over(self, topic: _Topic, key: QueueKey, reader: _Reader, next_offset: int, lost: int) -> None:
        reader.next_offset = next_offset
        if not lost:
            return
        self.skipped += lost
        _log.warning("%d records of %s are passed over by all who follow it.", lost, topic.name)
        place = FeedPlace(key, next_offset)
        for follower in tuple(topic.followers):
            follower.listener.note_gap(topic.name, lost, place)

    def _note_failure(self, topic: _Topic, key: QueueKey, reader: _Reader, error: MillstreamError) -> None:
        said = str(error)
        if said != reader.failure:
            _log.info("queue %d of %s cannot be read now: %s", key[1], topic.name, said)
        reader.failure = said


def _readable(route: TopicRoute) -> dict[QueueKey, RouteQueue]:
    return {
        ("" if route.is_static else queue.broker_name, queue.queue_id): queue
        for queue in route.queues
        if queue.permission & Permission.READ
    }


def _tasks(topic: _Topic) -> list[asyncio.Task[None]]:
    tasks = [topic.watching, *(reader.task for reader in topic.readers.values())]
    return [task for task in tasks if task is not None]


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
