"""The saved form of pending transactions, so that a start reads what has happened since, not all of the log."""

from __future__ import annotations

import logging

import msgspec

from millstream.broker.delivery.pending_transactions import SavedTransaction
from millstream.broker.state.document import Document, SavedDocument
from millstream.model.errors import StoreError
from millstream.store.snapshot import Snapshot

__all__ = ["SavedTransactions", "TransactionDocument"]

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
