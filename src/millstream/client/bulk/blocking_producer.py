"""A blocking producer for the bulk lane, on plain sockets."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.encoding import BulkEncoder, EncodedBatch, GatherLimits, encode_user_properties, row_bytes
from millstream.client.bulk.open_batches import OpenBatch, OpenBatches
from millstream.client.bulk.operations import BlockingLane
from millstream.client.bulk.values import BulkReceipt, MessageReceipt, receipt_of_row
from millstream.client.operations import SEND_RETRIES
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError
from millstream.model.topic import Permission

__all__ = ["BlockingBulkProducer", "PendingSend"]

_DEFAULT_LIMITS: Final = GatherLimits()
_Receipts = Future[list[BulkReceipt]]
_Batch = OpenBatch[_Receipts]


@dataclass(slots=True)
class PendingSend:
    """A message on its way."""

    _receipts: _Receipts
    _row: int

    def result(self, timeout_s: float | None = None) -> MessageReceipt:
        """The receipt, or the error that its batch met; TimeoutError where neither is there in time."""
        return receipt_of_row(self._receipts.result(timeout_s), self._row)


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
        self._using_client = threading.Lock()
        self._changed = threading.Condition()
        self._batches: OpenBatches[_Receipts] = OpenBatches(limits, Future, time.monotonic)
        self._closed: deque[_Batch] = deque()
        self._current: tuple[_Batch, ...] = ()
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
        return self._batches.waiting_bytes

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> PendingSend:
        """Take one message, to be sent with its neighbours; blocks only while too many bytes wait.

        ILLEGAL_PROPERTY at once for what cannot be stored; ValueError after `close`.
        """
        text = encode_user_properties(key, tag, properties) if key or tag or properties else None
        size = row_bytes(body, key, tag, text)
        with self._changed:
            while not self._batches.has_room(size):
                # What is gathered may itself be what fills the room.
                self._close_all()
                self._changed.wait()
            if self._ended:
                raise ValueError("the producer is closed")
            batch, row = self._batches.add(topic, body, key, tag, text, size)
            is_full = batch.rows.is_full(self._limits)
            if is_full:
                self._closed.append(self._batches.take(topic))
            if is_full or not row:
                self._wake_thread()
        return PendingSend(batch.receipts, row)

    def send_batch(
        self, topic: str, rows: pa.RecordBatch | pa.Table | EncodedBatch, *, queue: QueueAddress | None = None
    ) -> list[BulkReceipt]:
        """Store rows that are Arrow already, in `queue` or the next one; returns when all are acknowledged.

        Neither waits for messages that are still gathered nor is counted among the waiting bytes.
        """
        receipts: list[BulkReceipt] = []
        for batch in [rows] if isinstance(rows, EncodedBatch) else self._encoder.encode(rows):
            with self._using_client:
                queue = queue or self._batches.choose_queue(topic, self._client.queues(topic, Permission.WRITE))
                receipts += self._lane.put(queue, batch, retries=self._retries)
        return receipts

    def flush(self) -> None:
        """Send what is gathered and wait until all of it is answered; raises the first failure since the last flush."""
        with self._changed:
            self._close_all()
            under_way = [batch.receipts for batch in (*self._closed, *self._current)]
        wait(under_way)
        with self._changed:
            self._batches.raise_failure()

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

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver_all, name="bulk-producer", daemon=True)
            self._thread.start()
        # The thread may sleep without an end; it has to learn of the new deadline.
        self._changed.notify_all()

    def _deliver_all(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._ended:
                    self._closed.extend(self._batches.take_due())
                    if not self._closed:
                        self._changed.wait(self._batches.until_due_s())
                if not self._closed:
                    return
                batch = self._closed.popleft()
                self._current = (batch,)
            try:
                self._deliver(batch)
            finally:
                batch.receipts.cancel()
                with self._changed:
                    self._current = ()
                    self._batches.release(batch.rows.size_bytes)
                    self._changed.notify_all()

    def _deliver(self, batch: _Batch) -> None:
        try:
            batch.receipts.set_result(self.send_batch(batch.rows.topic, batch.rows.record_batch()))
        except MillstreamError as error:
            with self._changed:
                self._batches.fail(error)
            batch.receipts.set_exception(error)

    def _close_all(self) -> None:
        self._closed.extend(self._batches.take_all())
        self._changed.notify_all()
