"""Batching of a bulk producer: which rows share a batch, when it is sent, and to which queue. Pure.

It does no I/O and keeps no lock; time is the clock's that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from millstream.client.bulk.encoding import GatheredRows, GatherLimits
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError, NameRefused

__all__ = ["OpenBatch", "OpenBatches"]

ReceiptsT = TypeVar("ReceiptsT")


@dataclass(slots=True)
class OpenBatch(Generic[ReceiptsT]):
    """Rows of one topic that go together."""

    rows: GatheredRows
    due_s: float
    """When they go, full or not."""
    receipts: ReceiptsT
    """The future of their receipts."""


class OpenBatches(Generic[ReceiptsT]):
    """The batches of one producer that still take rows, the bytes that wait, and the first failure.

    `make_receipts` gives each batch its future.
    """

    def __init__(
        self, limits: GatherLimits, make_receipts: Callable[[], ReceiptsT], clock: Callable[[], float]
    ) -> None:  # fmt: skip
        self.waiting_bytes = 0
        """Bytes of rows that are gathered or sent and not yet acknowledged."""
        self._limits = limits
        self._make_receipts = make_receipts
        self._clock = clock
        self._open: dict[str, OpenBatch[ReceiptsT]] = {}
        self._queue = 0
        self._failure: MillstreamError | None = None

    @property
    def topics(self) -> list[str]:
        """The topics with a batch that takes rows."""
        return list(self._open)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may wait. One row may go beyond the limit, where nothing else waits."""
        return not self.waiting_bytes or self.waiting_bytes + size <= self._limits.waiting_bytes

    def reserve(self, size: int) -> None:
        """So many bytes more wait."""
        self.waiting_bytes += size

    def release(self, size: int) -> None:
        """So many bytes are answered."""
        self.waiting_bytes -= size

    def add(
        self, topic: str, body: bytes, key: str | None, tag: str | None, text: str | None, size: int
    ) -> tuple[OpenBatch[ReceiptsT], int]:  # fmt: skip
        """Take a row, of which `row_bytes` says `size`: its batch and its place there, from 0."""
        self.waiting_bytes += size
        batch = self._open.get(topic)
        if batch is None:
            due_s = self._clock() + self._limits.hold_s
            batch = self._open[topic] = OpenBatch(GatheredRows(topic), due_s, self._make_receipts())
        return batch, batch.rows.add(body, key, tag, text, size)

    def take(self, topic: str) -> OpenBatch[ReceiptsT]:
        """The open batch of the topic, which takes no more rows."""
        return self._open.pop(topic)

    def take_all(self) -> list[OpenBatch[ReceiptsT]]:
        """All batches, oldest first; none takes more rows."""
        batches = list(self._open.values())
        self._open.clear()
        return batches

    def take_due(self) -> list[OpenBatch[ReceiptsT]]:
        """Those whose time has come."""
        now_s = self._clock()
        return [self.take(topic) for topic in self.topics if self._open[topic].due_s <= now_s]

    def until_due_s(self) -> float | None:
        """Seconds until the next one is due; None where none is open."""
        if not self._open:
            return None
        return max(0.0, min(batch.due_s for batch in self._open.values()) - self._clock())

    def fail(self, error: MillstreamError) -> None:
        """A batch failed."""
        self._failure = self._failure or error

    def raise_failure(self) -> None:
        """Raise the first failure since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def choose_queue(self, topic: str, queues: Sequence[QueueAddress]) -> QueueAddress:
        """The queue of the next batch, which are taken in turn. Raises FORBIDDEN where there is none."""
        if not queues:
            raise NameRefused("FORBIDDEN", f"The topic {topic} has no queue that can be written.")
        self._queue += 1
        return queues[self._queue % len(queues)]
