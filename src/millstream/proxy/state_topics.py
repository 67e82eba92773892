"""Protocol state of proxies, kept in compacted topics of the brokers and followed by all proxies.

A record is the new value of a key, an empty one says that the key is gone. All proxies read the same queue in the same
order, so of two proxies that claim one key at a time both see which record came later: that one holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeVar

from millstream.model import properties
from millstream.model.backoff import Backoff
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConnectionFailed, MessageRefused, MillstreamError, NameRefused
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullResult, PullStatus, SendReceipt
from millstream.protocol.changelog import Change, ChangelogDecoder
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.state_writes import StateWrites
from millstream.store.compaction.compaction import DEFAULT_RETENTION_MS

__all__ = [
    "ABSENT_INTERVAL_S",
    "MAX_AWAY_S",
    "READ_BYTES",
    "READ_RECORDS",
    "TAIL_WAIT_MS",
    "StateChanged",
    "StateTopic",
]

_log = logging.getLogger(__name__)

READ_RECORDS: Final = 1024
READ_BYTES: Final = 1024 * 1024
"""Records and bytes that one read of a state topic asks for at most."""

TAIL_WAIT_MS: Final = 15_000
"""Milliseconds that a read at the end of a state topic waits for the next record."""

ABSENT_INTERVAL_S: Final = 1.0
"""Seconds between two looks for a state topic that nobody has made yet."""

MAX_AWAY_S: Final = DEFAULT_RETENTION_MS / 1000 * 0.9
"""Seconds without an answer after which all of a state topic is read again: deletions are kept for 24 hours."""

_RETRY: Final = Backoff(0.1, 5.0)
"""Between two attempts to read while the broker is away."""

_T = TypeVar("_T")

_GROUP: Final = "MILLSTREAM_PROXY"
_QUEUE: Final = 0

StateChanged = Callable[[str, bytes | None, int], None]
"""Called with a key, its new value (None: it is gone) and the offset of the record."""


class StateTopic:
    """One state topic (`model.state_topics`), from `start` to `close`; all from one event loop.

    It keeps no values: listeners do. `broker_name` is where it lies; blank for a topic that is at one broker, which is
    the one that its route names, and the first of the brokers for a topic that is not there yet.
    """

    def __init__(
        self, backend: BrokerBackend, topic: str, *, broker_name: str = "", clock: Clock | None = None
    ) -> None:
        self.topic = topic
        self._backend = backend
        self._broker_name = broker_name
        self._clock = clock or SystemClock()
        self._last_place = ""
        self._applying: list[StateChanged] = []
        self._forgetting: list[Callable[[], None]] = []
        self._changelog = ChangelogDecoder()
        self._end: int | None = None
        self._snapshot = asyncio.Event()
        self._made = asyncio.Event()
        self._writes = StateWrites(topic, self._store_all)
        self._reading: asyncio.Task[None] | None = None
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._answered_s = 0.0
        self._failure = ""
        self._is_closed = False

    def listen(self, apply: StateChanged, forget: Callable[[], None] | None = None) -> None:
        """Have `apply` called for each record, in their order; before `start`, so that none is missed.

        `forget` is called where all of it comes again from the beginning: after the topic was rebuilt, its broker
        lost records, or none was heard of for so long that a deletion may have been missed.
        """
        self._applying.append(apply)
        if forget is not None:
            self._forgetting.append(forget)

    @property
    def next_offset(self) -> int:
        """The offset up to which, without it, the listeners have seen all records."""
        return self._changelog.next_offset

    async def start(self) -> None:
        """Begin to read. Does not wait for brokers to be there; see `ready`."""
        self._answered_s = self._clock.monotonic_s()
        self._reading = asyncio.create_task(self._read_forever(), name=f"state-{self.topic}")

    async def close(self) -> None:
        """Read no more; what waits to be stored or seen fails as Unreachable."""
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._writes.close()
        error = self._closed_error()
        for _, _, seen in self._awaited:
            _fail(seen, error)
        self._awaited.clear()

    async def ready(self) -> None:
        """Return once the listeners have seen all records that were there when the reading began."""
        await self._snapshot.wait()

    async def put(self, key: str, value: bytes) -> int:
        """Give the key a value; its offset, once it is stored at the broker's ack level.

        The listeners here see it by the tail, as all others do; `reach` waits for that. Raises ILLEGAL_KEY for a key
        with a blank or control character, BODY_EMPTY, BODY_TOO_LARGE, TOO_MANY_REQUESTS, and what storing raises. After
        Unreachable or TimedOut it may be stored or not.
        """
        if not value:
            raise MessageRefused("BODY_EMPTY", f"The value of {key[:200]!r} in {self.topic} is empty.")
        return await self._store(key, value)

    async def delete(self, key: str) -> int:
        """Have the key no more; the offset of the record that says so. Raises as `put`."""
        return await self._store(key, b"")

    async def reach(self, offset: int) -> None:
        """Return once the listeners here have seen the record of that offset, or where all starts over."""
        if offset < self.next_offset:
            return
        if self._is_closed:
            raise self._closed_error()
        seen = asyncio.get_running_loop().create_future()
        heappush(self._awaited, (offset, next(self._numbers), seen))
        await seen

    async def read(self, offset: int) -> bytes | None:
        """The value that the record of that offset gave its key; None where a later one took its place."""
        request = PullRequest(_GROUP, self.topic, _QUEUE, offset, max_messages=1, max_bytes=1)
        try:
            result = await self._backend.pull(await self._place(), request)
        except NameRefused:
            return None
        for change in _changes(ChangelogDecoder(offset), result):
            if change.queue_offset == offset:
                return None if change.value is None else bytes(change.value)
        return None

    # Writing

    async def _store(self, key: str, value: bytes) -> int:
        if not key or " " in key or not key.isprintable():
            raise MessageRefused("ILLEGAL_KEY", f"{key[:200]!r} is no key of {self.topic}.")
        message = OutgoingMessage(
            self.topic, value, {properties.KEYS: key}, queue_id=_QUEUE, born_timestamp_ms=self._clock.now_ms()
        )
        (receipt,) = await self._writes.put([message])
        return receipt.queue_offset

    async def _store_all(self, messages: Sequence[OutgoingMessage]) -> Sequence[SendReceipt]:
        receipts = await self._backend.store_state(await self._place(), messages)
        self._made.set()
        return receipts

    def _closed_error(self) -> ConnectionFailed:
        return ConnectionFailed("UNREACHABLE", f"The proxy closes; {self.topic} is no longer followed.")

    async def _place(self) -> str:
        """The broker of the topic; the first one where it is not there yet, so that all proxies choose the same.

        Where the nameservers forgot a broker that had it, it is still that one: another would begin with nothing.
        """
        if self._broker_name:
            return self._broker_name
        try:
            self._last_place = (await self._backend.route(self.topic)).queues[0].broker_name
        except NameRefused:
            if not self._last_place:
                return (await self._backend.brokers())[0]
        return self._last_place

    # Reading

    async def _read_forever(self) -> None:
        attempt = 0
        while True:
            try:
                await self._read_next()
            except MillstreamError as error:
                self._note_failure(error)
            except Exception:  # noqa: BLE001 - a task of the proxy's whole life must outlive one bad record
                _log.exception("a record of %s could not be taken; the next one follows", self.topic)
            else:
                attempt, self._failure = 0, ""
                continue
            await asyncio.sleep(_RETRY.wait_s(attempt))
            attempt += 1

    async def _read_next(self) -> None:
        """One read; where the topic is not there, a wait for it."""
        now_s = self._clock.monotonic_s()
        if now_s - self._answered_s > MAX_AWAY_S and self.next_offset:
            self._begin_anew("nothing was heard of it for too long")
        self._made.clear()
        offset = self.next_offset
        request = PullRequest(_GROUP, self.topic, _QUEUE, offset, READ_RECORDS, READ_BYTES)
        request.wait_ms = TAIL_WAIT_MS if self._snapshot.is_set() else 0
        try:
            result = await self._backend.pull(await self._place(), request)
        except NameRefused:
            await self._wait_until_made()
            return
        self._answered_s = self._clock.monotonic_s()
        if result.status is PullStatus.OFFSET_ILLEGAL:
            if offset:
                self._begin_anew(f"its offsets are {result.min_offset} to {result.max_offset} now, not {offset}")
            else:
                self._changelog.pass_to(result.min_offset)
            return
        if self._end is None:
            self._end = result.max_offset
        applying = self._applying
        for key_bytes, value_view, offset in _changes(self._changelog, result):
            value = None if value_view is None else bytes(value_view)
            key = key_bytes.decode()
            for apply in applying:
                apply(key, value, offset)
        self._changelog.pass_to(result.next_offset)
        self._note_seen()
        # The next read of a long queue may be answered without a wait, and others want their turn.
        await asyncio.sleep(0)

    async def _wait_until_made(self) -> None:
        if not self.next_offset:
            # Nobody has kept anything yet.
            self._snapshot.set()
        try:
            async with asyncio.timeout(ABSENT_INTERVAL_S):
                await self._made.wait()
        except TimeoutError:
            return

    def _note_seen(self) -> None:
        if self._end is not None and self.next_offset >= self._end:
            self._snapshot.set()
        while self._awaited and self._awaited[0][0] < self.next_offset:
            _succeed(heappop(self._awaited)[2], None)

    def _begin_anew(self, why: str) -> None:
        _log.warning("All of %s is read again: %s.", self.topic, why)
        self._changelog = ChangelogDecoder()
        self._end = None
        for forget in self._forgetting:
            forget()
        while self._awaited:
            _succeed(heappop(self._awaited)[2], None)

    def _note_failure(self, error: MillstreamError) -> None:
        said = str(error)
        if said != self._failure:
            _log.warning("%s cannot be read now; the next attempt follows: %s", self.topic, said)
        self._failure = said


def _changes(changelog: ChangelogDecoder, result: PullResult) -> Iterator[Change]:
    return changelog.changes(map(memoryview, result.records))


def _succeed(future: asyncio.Future[_T], value: _T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[_T], error: MillstreamError) -> None:
    if not future.done():
        future.set_exception(error)
