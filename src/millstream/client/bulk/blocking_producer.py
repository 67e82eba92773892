"""Sending through the bulk lane from threads, on plain sockets."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_lane import BlockingLane
from millstream.client.bulk.encoding import BulkEncoder, EncodedBatch
from millstream.client.bulk.gathering import GatheredRows, GatherLimits, checked_text, row_bytes
from millstream.client.bulk.values import BulkReceipt, MessageReceipt, receipt_of_row
from millstream.client.conversations import SEND_RETRIES
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.topic import Permission

__all__ = ["BlockingBulkProducer", "PendingMessage"]

_DEFAULT_LIMITS: Final = GatherLimits()


@dataclass(slots=True)
class PendingMessage:
    """A message on its way."""

    _receipts: Future[list[BulkReceipt]]
    _row: int

    def result(self, timeout_s: float | None = None) -> MessageReceipt:
        """The receipt, or the error that its batch met; TimeoutError where neither is there in time."""
        return receipt_of_row(self._receipts.result(timeout_s), self._row)


@dataclass(slots=True)
class _OpenRows:
    rows: GatheredRows
    due_s: float
    receipts: Future[list[BulkReceipt]] = field(default_factory=Future)


class BlockingBulkProducer:
    """As `BulkProducer`, over a `BlockingClient` that nobody else uses meanwhile; a context manager, for any threads.

    `send` starts one thread, which sends what was gathered; `send_batch` works in the caller's. After a fork the
    child makes a producer of its own.
    """

    def __init__(
        self,
        client: BlockingClient,
        *,
        encoder: BulkEncoder | None = None,
        limits: GatherLimits = _DEFAULT_LIMITS,
        retries: int = SEND_RETRIES,
        fallback: bool = False,
    ) -> None:
        self._client = client
        self._lane = BlockingLane(client, fallback=fallback)
        self._encoder = encoder or BulkEncoder()
        self._limits = limits
        self._retries = retries
        self._turn = 0
        self._using_client = threading.Lock()
        self._changed = threading.Condition()
        self._open: dict[str, _OpenRows] = {}
        self._closed: deque[_OpenRows] = deque()
        self._current: tuple[_OpenRows, ...] = ()
        self._waiting_bytes = 0
        self._failure: MillstreamError | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that are gathered or sent and not yet acknowledged."""
        return self._waiting_bytes

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> PendingMessage:
        """Take one message, to be sent with its neighbours; blocks only while too many bytes wait.

        ILLEGAL_PROPERTY at once for what cannot be stored; ValueError after `close`.
        """
        text = checked_text(key, tag, properties) if key or tag or properties else None
        size = row_bytes(body, key, tag, text)
        with self._changed:
            while self._waiting_bytes and self._waiting_bytes + size > self._limits.waiting_bytes:
                # What is gathered may itself be what fills the room.
                self._close_all()
                self._changed.wait()
            if self._ended:
                raise ValueError("the producer is closed")
            self._waiting_bytes += size
            gathered = self._open.get(topic)
            if gathered is None:
                gathered = self._begin(topic)
            row = gathered.rows.add(body, key, tag, text, size)
            if gathered.rows.is_full(self._limits):
                self._closed.append(self._open.pop(topic))
                self._changed.notify_all()
        return PendingMessage(gathered.receipts, row)

    def send_batch(
        self, topic: str, rows: pa.RecordBatch | pa.Table | EncodedBatch, *, queue: QueueAddress | None = None
    ) -> list[BulkReceipt]:
        """Store rows that are Arrow already, in `queue` or the next one; returns when all are acknowledged.

        Neither waits for messages that are still gathered nor is counted among the waiting bytes.
        """
        receipts: list[BulkReceipt] = []
        for batch in [rows] if isinstance(rows, EncodedBatch) else self._encoder.encode(rows):
            with self._using_client:
                queue = queue or self._next_queue(topic)
                receipts += self._lane.put(queue, batch, retries=self._retries)
        return receipts

    def flush(self) -> None:
        """Send what is gathered and wait until all of it is answered; raises the first failure since the last flush."""
        with self._changed:
            self._close_all()
            under_way = [gathered.receipts for gathered in (*self._closed, *self._current)]
        wait(under_way)
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush and end the thread; the client stays open."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._ended = True
                # What other threads have sent since the flush goes as well.
                self._close_all()
            if self._thread is not None:
                self._thread.join()

    # inside

    def _begin(self, topic: str) -> _OpenRows:
        gathered = _OpenRows(GatheredRows(topic), time.monotonic() + self._limits.hold_s)
        self._open[topic] = gathered
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver_all, name="bulk-producer", daemon=True)
            self._thread.start()
        # The thread may sleep without an end; it has to learn of the new deadline.
        self._changed.notify_all()
        return gathered

    def _deliver_all(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._ended:
                    self._close_due()
                    if not self._closed:
                        self._changed.wait(self._until_due_s())
                if not self._closed:
                    return
                gathered = self._closed.popleft()
                self._current = (gathered,)
            try:
                self._deliver(gathered)
            finally:
                gathered.receipts.cancel()
                with self._changed:
                    self._current = ()
                    self._waiting_bytes -= gathered.rows.size_bytes
                    self._changed.notify_all()

    def _deliver(self, gathered: _OpenRows) -> None:
        try:
            gathered.receipts.set_result(self.send_batch(gathered.rows.topic, gathered.rows.record_batch()))
        except MillstreamError as error:
            with self._changed:
                self._failure = self._failure or error
            gathered.receipts.set_exception(error)

    def _close_all(self) -> None:
        self._closed.extend(self._open.values())
        self._open.clear()
        self._changed.notify_all()

    def _close_due(self) -> None:
        now_s = time.monotonic()
        for topic in [topic for topic, gathered in self._open.items() if gathered.due_s <= now_s]:
            self._closed.append(self._open.pop(topic))

    def _until_due_s(self) -> float | None:
        if not self._open:
            return None
        return max(0.0, min(gathered.due_s for gathered in self._open.values()) - time.monotonic())

    def _next_queue(self, topic: str) -> QueueAddress:
        queues = self._client.queues(topic, Permission.WRITE)
        if not queues:
            raise NameRefused("FORBIDDEN", f"The topic {topic} has no queue that can be written.")
        self._turn += 1
        return queues[self._turn % len(queues)]
