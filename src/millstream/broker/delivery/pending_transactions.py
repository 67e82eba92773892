"""Open transactions: when to check each with its producer, and how the list is saved.

The state is pure: time is passed in by the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from millstream.broker.state.document import Document, SavedDocument
from millstream.model.errors import StoreError
from millstream.store.snapshot import Snapshot

__all__ = ["PendingTransactions", "SavedTransaction", "SavedTransactions", "TransactionDocument"]


_SPARE_ENTRIES = 1024
"""Entries of ended transactions that stay in the heap before it is rebuilt, beside one for each pending one."""


class SavedTransaction(NamedTuple):
    """One pending transaction as it is saved. Times are milliseconds since 1970."""

    queue_offset: int
    message_id: str
    next_check_ms: int
    checks: int


@dataclass(slots=True)
class _Pending:
    message_id: str
    next_check_ms: int
    checks: int = 0


class PendingTransactions:
    """The transactions whose half message lies below `next_queue_offset` and that have not ended."""

    def __init__(self, next_queue_offset: int = 0, saved: Iterable[SavedTransaction] = ()) -> None:
        self.next_queue_offset = next_queue_offset
        self._pending: dict[int, _Pending] = {}
        self._by_id: dict[str, list[int]] = {}
        self._heap: list[tuple[int, int]] = []
        for queue_offset, message_id, next_check_ms, checks in saved:
            self._add(queue_offset, _Pending(message_id, next_check_ms, checks))

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, queue_offset: int, message_id: str, next_check_ms: int) -> bool:
        """Add a transaction; False if it is known already. Call it in the order of the half messages."""
        if queue_offset < self.next_queue_offset:
            return False
        self.next_queue_offset = queue_offset + 1
        self._add(queue_offset, _Pending(message_id, next_check_ms))
        return True

    def note_passed(self, queue_offset: int) -> None:
        """The record there is no half message that anybody can end."""
        self.next_queue_offset = max(self.next_queue_offset, queue_offset + 1)

    def _add(self, queue_offset: int, pending: _Pending) -> None:
        self._pending[queue_offset] = pending
        self._by_id.setdefault(pending.message_id, []).append(queue_offset)
        heappush(self._heap, (pending.next_check_ms, queue_offset))

    def find(self, message_id: str) -> list[int]:
        """The pending transactions with the message id, oldest first."""
        return list(self._by_id.get(message_id, ()))

    def due(self, now_ms: int, max_count: int) -> list[int]:
        """At most `max_count` transactions whose producers are to be asked now, the most overdue first.

        They are handed out again until they are asked about, put off or ended.
        """
        found: dict[int, int] = {}
        while self._heap and self._heap[0][0] <= now_ms and len(found) < max_count:
            next_check_ms, queue_offset = heappop(self._heap)
            if self._is_current(next_check_ms, queue_offset):
                found[queue_offset] = next_check_ms
        for queue_offset, next_check_ms in found.items():
            heappush(self._heap, (next_check_ms, queue_offset))
        return list(found)

    def _is_current(self, next_check_ms: int, queue_offset: int) -> bool:
        pending = self._pending.get(queue_offset)
        return pending is not None and pending.next_check_ms == next_check_ms

    def note_check(self, queue_offset: int, next_check_ms: int) -> None:
        """A producer was asked, and is asked again at that time."""
        self._pending[queue_offset].checks += 1
        self.put_off(queue_offset, next_check_ms)

    def put_off(self, queue_offset: int, next_check_ms: int) -> None:
        """Nobody could be asked; try again at that time."""
        self._pending[queue_offset].next_check_ms = next_check_ms
        heappush(self._heap, (next_check_ms, queue_offset))
        self._tidy()

    def shift(self, step_ms: int) -> None:
        """The wall clock was put forward by so much, or back: all are asked about as far from now as before."""
        for pending in self._pending.values():
            pending.next_check_ms += step_ms
        self._rebuild()

    def limit_checks(self, latest_ms: int) -> None:
        """Ask about none later than that: the clock may have been ahead when it was planned."""
        for pending in self._pending.values():
            pending.next_check_ms = min(pending.next_check_ms, latest_ms)
        self._rebuild()

    def checks(self, queue_offset: int) -> int:
        """How often a producer was asked about it."""
        return self._pending[queue_offset].checks

    def remove(self, queue_offset: int) -> bool:
        """Take a transaction out for good; False if it is not pending."""
        pending = self._pending.pop(queue_offset, None)
        if pending is None:
            return False
        offsets = self._by_id[pending.message_id]
        offsets.remove(queue_offset)
        if not offsets:
            del self._by_id[pending.message_id]
        self._tidy()
        return True

    def _tidy(self) -> None:
        # Most transactions end long before they are asked about: their entries must not pile up.
        if len(self._heap) > 2 * len(self._pending) + _SPARE_ENTRIES:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(pending.next_check_ms, offset) for offset, pending in self._pending.items()]
        heapify(self._heap)

    def oldest(self) -> int | None:
        """The smallest queue offset that is pending, or None."""
        return next(iter(self._pending), None)

    def list_saved(self) -> Iterator[SavedTransaction]:
        """All of them, oldest first."""
        for queue_offset, pending in self._pending.items():
            yield SavedTransaction(queue_offset, pending.message_id, pending.next_check_ms, pending.checks)


_VERSION = 1

_log = logging.getLogger(__name__)


class TransactionDocument(Document):
    """What was pending when all half messages below `queue_offset` and all that lies below `log_offset` was known."""

    queue_offset: int = 0
    log_offset: int = 0
    pending: list[SavedTransaction] = msgspec.field(default_factory=list)


class SavedTransactions:
    """One document. Losing it costs a longer start, never a transaction: all it says stands in the log as well."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._saved = SavedDocument(snapshot, TransactionDocument, noun="transactions", version=_VERSION)

    def load(self, *, queue_end: int, log_end: int) -> TransactionDocument:
        """The document saved last, or an empty one if it cannot be used with a log and half topic that end there."""
        try:
            document = self._saved.load()
        except (StoreError, OSError) as error:
            _log.warning("All transactions will be looked for in the log: %s", error)
            document = None
        if document is not None and (document.queue_offset > queue_end or document.log_offset > log_end):
            _log.warning("All transactions will be looked for in the log, because it is shorter than what was saved.")
            document = None
        return document or TransactionDocument(version=_VERSION)

    @staticmethod
    def document(queue_offset: int, log_offset: int, pending: list[SavedTransaction]) -> TransactionDocument:
        """A document to save."""
        return TransactionDocument(version=_VERSION, queue_offset=queue_offset, log_offset=log_offset, pending=pending)

    def save(self, document: TransactionDocument) -> None:
        """Replace the document; it is on the disk when this returns. Raises STORE_FAILED, DISK_FULL."""
        self._saved.save(document)
