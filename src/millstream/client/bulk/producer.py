"""An asyncio producer for the bulk lane."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from millstream.client.bulk.encoding import (
    BulkEncoder,
    EncodedBatch,
    GatheredRows,
    GatherLimits,
    encode_user_properties,
    row_bytes,
)
from millstream.client.bulk.open_batches import OpenBatch, OpenBatches
from millstream.client.bulk.operations import BulkOperations
from millstream.client.bulk.values import BulkReceipt, MessageReceipt, receipt_of_row
from millstream.client.client import Client
from millstream.client.operations import SEND_RETRIES
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError
from millstream.model.topic import Permission

__all__ = ["BulkProducer", "PendingMessage"]

_DEFAULT_LIMITS: Final = GatherLimits()
_Receipts = asyncio.Future[list[BulkReceipt]]


@dataclass(slots=True)
class PendingMessage:
    """A message on its way. Await it for its receipt, or for the error that its batch met."""

    _receipts: _Receipts
    _row: int

    def __await__(self) -> Generator[Any, None, MessageReceipt]:
        receipts = yield from asyncio.shield(self._receipts).__await__()
        return receipt_of_row(receipts, self._row)


@dataclass(slots=True)
class _QueueLine:
    """One queue: one batch is made and one is sent at a time, first come, first served, which keeps the order."""

    encoding: asyncio.Lock = field(default_factory=asyncio.Lock)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


class BulkProducer:
    """Sends to topics whose queues take bulk messages, over one client; an async context manager.

    Batches of a topic take its queues in turn; in each queue messages keep the order of the calls. `encoder` sets codec
    and rows, `limits` how single messages are gathered. With `fallback`, rows go as ordinary messages where the broker
    or the topic takes no bulk messages. Bytes that wait are bounded by `limits.waiting_bytes`: the calls wait then.
    """

    def __init__(
        self,
        client: Client,
        *,
        encoder: BulkEncoder | None = None,
        limits: GatherLimits = _DEFAULT_LIMITS,
        retries: int = SEND_RETRIES,
        fallback: bool = False,
    ) -> None:
        self._client = client
        self._encoder = encoder or BulkEncoder()
        self._limits = limits
        self._retries = retries
        self._conversations = BulkOperations(client.conversations, group=client.group, fallback=fallback)
        self._batches: OpenBatches[_Receipts] = OpenBatches(limits, _make_receipts, time.monotonic)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._lines: dict[tuple[str, str, int], _QueueLine] = {}
        self._choosing: dict[str, asyncio.Lock] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._wait_for_room: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that are gathered or sent and not yet acknowledged."""
        return self._batches.waiting_bytes

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> PendingMessage:
        """Take one message, to be sent with its neighbours; waits only while too many bytes wait.

        The result is awaited for the receipt. ILLEGAL_PROPERTY at once for what cannot be stored.
        """
        text = encode_user_properties(key, tag, properties) if key or tag or properties else None
        size = row_bytes(body, key, tag, text)
        if not self._batches.has_room(size):
            await self._room(size)
        batch, row = self._batches.add(topic, body, key, tag, text, size)
        if not row:
            loop = asyncio.get_running_loop()
            self._timers[topic] = loop.call_later(self._limits.hold_s, self._send_open, topic)
        if batch.rows.is_full(self._limits):
            self._send_open(topic)
        return PendingMessage(batch.receipts, row)

    async def send_batch(
        self, topic: str, rows: pa.RecordBatch | pa.Table | EncodedBatch, *, queue: QueueAddress | None = None
    ) -> list[BulkReceipt]:
        """Store rows that are Arrow already, in `queue` or the next one; returns when all are acknowledged.

        More rows than a bulk message holds become several, of which some may be stored where another fails.
        """
        size = len(rows.stream) if isinstance(rows, EncodedBatch) else rows.nbytes
        if not self._batches.has_room(size):
            await self._room(size)
        self._batches.reserve(size)
        try:
            return await self._store(topic, rows, queue)
        finally:
            self._give_room(size)

    async def flush(self) -> None:
        """Send what is gathered and wait until all of it is answered; raises the first failure since the last flush."""
        self._send_all()
        if self._under_way:
            await asyncio.wait(set(self._under_way))
        self._batches.raise_failure()

    async def close(self) -> None:
        """Flush; the client stays open."""
        await self.flush()

    # inside

    def _send_open(self, topic: str) -> None:
        self._timers.pop(topic).cancel()
        task = asyncio.get_running_loop().create_task(self._deliver(self._batches.take(topic)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _send_all(self) -> None:
        for topic in self._batches.topics:
            self._send_open(topic)

    async def _deliver(self, batch: OpenBatch[_Receipts]) -> None:
        try:
            batch.receipts.set_result(await self._store(batch.rows.topic, batch.rows, None))
        except MillstreamError as error:
            self._batches.fail(error)
            batch.receipts.set_exception(error)
            # Whoever does not ask for the receipt learns of the failure from `flush`.
            batch.receipts.exception()
        finally:
            batch.receipts.cancel()
            self._give_room(batch.rows.size_bytes)

    async def _store(
        self, topic: str, rows: pa.RecordBatch | pa.Table | EncodedBatch | GatheredRows, queue: QueueAddress | None
    ) -> list[BulkReceipt]:
        # The locks are taken without a pause between them, so that nobody overtakes.
        async with self._choosing.setdefault(topic, asyncio.Lock()):
            place = queue or self._batches.choose_queue(topic, await self._client.queues(topic, Permission.WRITE))
            line = self._lines.setdefault((topic, place.broker_name, place.queue_id), _QueueLine())
        async with line.encoding:
            batches = [rows] if isinstance(rows, EncodedBatch) else await asyncio.to_thread(self._encode, rows)
        receipts: list[BulkReceipt] = []
        async with line.sending:
            for batch in batches:
                conversation = self._conversations.put(place, batch, retries=self._retries)
                receipts += await self._client.run(conversation)
        return receipts

    def _encode(self, rows: pa.RecordBatch | pa.Table | GatheredRows) -> list[EncodedBatch]:
        return list(self._encoder.encode(rows.record_batch() if isinstance(rows, GatheredRows) else rows))

    async def _room(self, size: int) -> None:
        while not self._batches.has_room(size):
            # What is gathered may itself be what fills the room.
            self._send_all()
            turn = asyncio.get_running_loop().create_future()
            self._wait_for_room.append(turn)
            await turn

    def _give_room(self, size: int) -> None:
        self._batches.release(size)
        waiting, self._wait_for_room = self._wait_for_room, deque()
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


def _make_receipts() -> _Receipts:
    return asyncio.get_running_loop().create_future()
