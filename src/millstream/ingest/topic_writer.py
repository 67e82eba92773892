"""Writes an input's events to a topic: batches them, bounds the backlog, and retries until the broker has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.ingest.event_batch import EventBatch, Labels
from millstream.model.backoff import Backoff
from millstream.model.errors import MessageRefused, MillstreamError
from millstream.model.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DEFAULT_WAITING_BYTES",
    "HOLD_S",
    "MAX_PAUSE_S",
    "BulkLane",
    "InputStatistics",
    "Lane",
    "RecordLane",
    "Target",
    "TopicWriter",
]


@dataclass(slots=True)
class InputStatistics:
    """Plain counts of one input; `peers` and `unread_bytes` are as of now, the others only grow."""

    taken: int = 0
    """Events that were taken in."""
    taken_bytes: int = 0
    stored: int = 0
    """Events that the broker acknowledged."""
    refused: int = 0
    """Events that the broker took as no message, such as one that is too large with its properties."""
    cut: int = 0
    """Events that were over the limit and were cut to it."""
    dead: int = 0
    """Events that went to the dead-letter topic."""
    malformed: int = 0
    """Events that are not of the form that was expected; they are sent as they came, or refused by HTTP."""
    dropped: int = 0
    """Events that were given up, because too many bytes waited or the input was told to."""
    kernel_drops: int = 0
    """Datagrams that the kernel threw away before they were read."""
    turned_away: int = 0
    """Posts that were answered 401, 413 or 429."""
    broken: int = 0
    """Connections that ended in the middle of something."""
    unreadable: int = 0
    """Files that could not be read, or not to their end."""
    retries: int = 0
    """Batches that were sent again."""
    peers: int = 0
    unread_bytes: int = 0

    @property
    def has_losses(self) -> bool:
        """Whether there was something that did not come to the topic and will not."""
        return bool(self.refused or self.dropped or self.kernel_drops or self.unreadable)

    def sentence(self) -> str:
        """The counts that are not zero, in words."""
        words = {
            "refused": "refused",
            "cut": "cut",
            "dead": "to the dead letters",
            "malformed": "malformed",
            "dropped": "dropped",
            "kernel_drops": "dropped by the kernel",
            "turned_away": "posts turned away",
            "broken": "connections broken off",
            "unreadable": "files not read to their end",
            "retries": "batches sent again",
        }
        counts = [f"{getattr(self, name):,} {word}" for name, word in words.items() if getattr(self, name)]
        return ", ".join([f"{self.taken:,} events taken", f"{self.stored:,} stored", *counts])


class Lane(Protocol):
    """Stores batches in a topic; returns when all are acknowledged, raises MillstreamError otherwise."""

    max_rows: int
    """Events of one call at most."""

    async def send(self, topic: str, event_batches: Sequence[EventBatch]) -> None: ...


class RecordLane:
    """Each event is a message of its own; any topic of type normal takes them."""

    max_rows: int = 2000

    def __init__(self, client: Client) -> None:
        self._producer = Producer(client)

    async def send(self, topic: str, event_batches: Sequence[EventBatch]) -> None:
        """Store the events; a batch that fails in part is told as failed, and what was stored stays."""
        await self._producer.send_many(
            [message for event_batch in event_batches for message in _messages(topic, event_batch)]
        )


def _messages(topic: str, event_batch: EventBatch) -> list[Message]:
    keys: Sequence[str | None] = event_batch.keys or [None] * len(event_batch.bodies)
    tags: Sequence[str | None] = event_batch.tags or [None] * len(event_batch.bodies)
    return [
        Message(topic, body, tag, (key,) if key else (), None, event_batch.properties(place))
        for place, (body, key, tag) in enumerate(zip(event_batch.bodies, keys, tags, strict=True))
    ]


class BulkLane:
    """Events become rows of Arrow batches; the topic has to take bulk messages. Needs `millstream[bulk]`."""

    max_rows: int = 10_000

    def __init__(self, client: Client) -> None:
        from millstream.client.bulk.producer import BulkProducer

        self._producer = BulkProducer(client)

    async def send(self, topic: str, event_batches: Sequence[EventBatch]) -> None:
        """Store the events; the rows of one bulk message are stored together or not at all."""
        await self._producer.send_batch(topic, _rows(event_batches))


_NAMES: Final = ("body", "key", "tag", "properties")


def _rows(event_batches: Sequence[EventBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    from millstream.client.bulk.encoding import COLUMNS, encode_user_properties

    columns: dict[str, list[bytes] | list[str | None]] = {}
    columns["body"] = [body for event_batch in event_batches for body in event_batch.bodies]
    if any(event_batch.keys for event_batch in event_batches):
        columns["key"] = [key for one in event_batches for key in one.keys or [None] * len(one.bodies)]
    if any(event_batch.tags for event_batch in event_batches):
        columns["tag"] = [tag for one in event_batches for tag in one.tags or [None] * len(one.bodies)]
    if any(event_batch.shared or event_batch.own for event_batch in event_batches):
        texts: list[str | None] = []
        for event_batch in event_batches:
            shared = encode_user_properties(None, None, event_batch.shared)
            rows = [shared] * len(event_batch.bodies)
            for place in event_batch.own:
                rows[place] = encode_user_properties(None, None, event_batch.properties(place))
            texts += rows
        columns["properties"] = texts
    return pa.record_batch({name: pa.array(columns[name], COLUMNS[name]) for name in _NAMES if name in columns})


DEFAULT_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of events that wait for their acknowledgement at most; one batch may go beyond."""

HOLD_S: Final = 0.01
"""Seconds that a first event waits for others, to share a batch."""

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of events that are sent together at most; one batch may go beyond."""

MIN_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
"""Seconds before a batch is sent again: the shortest pause, doubled each time up to the longest."""

_BACKOFF: Final = Backoff(MIN_PAUSE_S, MAX_PAUSE_S)

_OF_ONE_MESSAGE: Final = frozenset(
    "BODY_EMPTY BODY_TOO_LARGE PROPERTIES_TOO_LARGE ILLEGAL_TAG ILLEGAL_KEY ILLEGAL_PROPERTY".split()
)
"""Refusals for which another try cannot help; all others can be mended while the gateway waits."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where events go: the topic, the one for dead letters, and how they are labelled."""

    topic: str
    dead_letters: str | None = None
    labels: Labels = field(default_factory=Labels)
    waiting_bytes: int = DEFAULT_WAITING_BYTES


@dataclass(slots=True)
class _Waiting:
    event_batch: EventBatch
    stored: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class TopicWriter:
    """Sends batches to a topic in their order, some together; each is sent until the broker acknowledges it.

    `say` takes a line for people: that the broker is away, that it is back, that an event was refused. `pause` is
    what waits between two tries, as long as `backoff` says.
    """

    def __init__(
        self,
        lane: Lane,
        target: Target,
        tally: InputStatistics,
        say: Callable[[str], None],
        *,
        hold_s: float = HOLD_S,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._lane = lane
        self._target = target
        self._tally = tally
        self._say = say
        self._hold_s = hold_s
        self._pause = pause
        self._backoff = backoff
        self._line: deque[_Waiting] = deque()
        self._rows = 0
        self._line_rows = 0
        self._line_bytes = 0
        self._waiting_bytes = 0
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._outside = 0
        """Events of the calls that wait for room."""
        self._came = asyncio.Event()
        self._full = asyncio.Event()
        self._ending = False
        self._is_away = False
        self._refusal_told = False
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of events that are not acknowledged yet."""
        return self._waiting_bytes

    @property
    def waiting_events(self) -> int:
        """Events that wait for a batch or for the answer to theirs."""
        return self._rows + self._outside

    @property
    def is_away(self) -> bool:
        """Whether the last try found no broker that takes the events."""
        return self._is_away

    def has_room(self, size_bytes: int = 1) -> bool:
        """Whether that many bytes more may wait."""
        return not self._waiting_bytes or self._waiting_bytes + size_bytes <= self._target.waiting_bytes

    async def put(self, event_batch: EventBatch) -> asyncio.Future[None]:
        """Take a batch, as soon as there is room for it; the future is done when the broker has it.

        The future fails with the refusal where the broker took none of its events, and is cancelled by a stop.
        """
        self._outside += len(event_batch.bodies)
        try:
            while not self.has_room(event_batch.size_bytes):
                turn = asyncio.get_running_loop().create_future()
                self._for_room.append(turn)
                await turn
            return self._take(event_batch)
        finally:
            self._outside -= len(event_batch.bodies)
            self._came.set()

    def offer(self, event_batch: EventBatch) -> asyncio.Future[None] | None:
        """As `put`, at once; None where there is no room."""
        return self._take(event_batch) if self.has_room(event_batch.size_bytes) else None

    def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, patience_s: float) -> int:
        """Send what waits, for so many seconds at most; how many events were left unsent."""
        if self._task is None:
            return self._rows
        self._ending = True
        self._came.set()
        self._full.set()
        await asyncio.wait({self._task}, timeout=patience_s)
        left = self.waiting_events
        for turn in self._for_room:
            turn.cancel()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        for waiting in self._line:
            waiting.stored.cancel()
        if not self._task.cancelled():
            self._task.result()
        return left

    # inside

    def _take(self, event_batch: EventBatch) -> asyncio.Future[None]:
        waiting = _Waiting(event_batch)
        # Nobody has to look at it: HTTP does, the other inputs learn by the counts.
        waiting.stored.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._target.labels.label(event_batch)
        self._line.append(waiting)
        self._rows += len(event_batch.bodies)
        self._line_rows += len(event_batch.bodies)
        self._line_bytes += event_batch.size_bytes
        self._waiting_bytes += event_batch.size_bytes
        self._came.set()
        if self._line_rows >= self._lane.max_rows or self._line_bytes >= MAX_BATCH_BYTES:
            self._full.set()
        return waiting.stored

    async def _run(self) -> None:
        while True:
            await self._came.wait()
            if not self._line:
                if self._ending and not self._outside:
                    return
                self._came.clear()
                continue
            if not self._full.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._hold_s):
                        await self._full.wait()
            batch = self._batch()
            try:
                await self._deliver(batch)
            finally:
                self._let_go(batch)

    def _batch(self) -> list[_Waiting]:
        first = self._line.popleft()
        batch, rows, size = [first], len(first.event_batch.bodies), first.event_batch.size_bytes
        while self._line and self._line[0].event_batch.dead is first.event_batch.dead:
            event_batch = self._line[0].event_batch
            if rows + len(event_batch.bodies) > self._lane.max_rows or size + event_batch.size_bytes > MAX_BATCH_BYTES:
                break
            batch.append(self._line.popleft())
            rows += len(event_batch.bodies)
            size += event_batch.size_bytes
        self._line_rows -= rows
        self._line_bytes -= size
        is_full = self._line_bytes >= MAX_BATCH_BYTES or self._line_rows >= self._lane.max_rows
        if not is_full and not self._ending:
            self._full.clear()
        return batch

    def _let_go(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            self._rows -= len(waiting.event_batch.bodies)
            self._waiting_bytes -= waiting.event_batch.size_bytes
            if not waiting.stored.done():
                waiting.stored.cancel()
        turns, self._for_room = self._for_room, deque()
        for turn in turns:
            if not turn.done():
                turn.set_result(None)

    async def _deliver(self, batch: Sequence[_Waiting]) -> None:
        is_dead = batch[0].event_batch.dead
        topic = self._target.dead_letters if is_dead and self._target.dead_letters else self._target.topic
        refusal = await self._send(topic, [waiting.event_batch for waiting in batch])
        if refusal is None:
            for waiting in batch:
                self._count(waiting.event_batch)
                if not waiting.stored.done():
                    waiting.stored.set_result(None)
            return
        # Each batch by itself, so that a refusal reaches the one whose event it was.
        for waiting in batch:
            error = await self._deliver_apart(topic, waiting.event_batch)
            if waiting.stored.done():
                continue
            if error is None:
                waiting.stored.set_result(None)
            else:
                waiting.stored.set_exception(error)

    async def _deliver_apart(self, topic: str, event_batch: EventBatch) -> MessageRefused | None:
        """Send all events but those that the broker refuses, found by halving; the first refusal."""
        error = await self._send(topic, [event_batch])
        if error is None:
            self._count(event_batch)
            return None
        rows = len(event_batch.bodies)
        if rows == 1:
            self._tally.refused += 1
            if not self._refusal_told:
                self._refusal_told = True
                self._say(f"an event was refused and left out, as will be others: {error}")
            return error
        first = await self._deliver_apart(topic, event_batch.part(0, rows // 2))
        second = await self._deliver_apart(topic, event_batch.part(rows // 2, rows))
        return first or second

    async def _send(self, topic: str, event_batches: Sequence[EventBatch]) -> MessageRefused | None:
        """Send until it is acknowledged, or until it is known that one event never will be."""
        attempt = 0
        while True:
            try:
                await self._lane.send(topic, event_batches)
            except MillstreamError as error:
                if isinstance(error, MessageRefused) and error.name in _OF_ONE_MESSAGE:
                    return error
                if not self._is_away:
                    self._say(f"events wait, {topic} does not take them: {error}")
                self._is_away = True
            else:
                if self._is_away:
                    self._say(f"{topic} takes events again")
                self._is_away = False
                return None
            self._tally.retries += 1
            await self._pause(self._backoff.wait_s(attempt))
            attempt += 1

    def _count(self, event_batch: EventBatch) -> None:
        self._tally.stored += len(event_batch.bodies)
        if event_batch.dead:
            self._tally.dead += len(event_batch.bodies)
