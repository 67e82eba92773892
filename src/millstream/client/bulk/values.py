"""Result values of the bulk lane."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.values import QueueAddress

__all__ = ["BulkReceipt", "MessageReceipt", "receipt_of_row"]


@dataclass(frozen=True, slots=True)
class BulkReceipt:
    """Where `rows` neighbouring rows were stored: at `queue_offset` and the offsets that follow.

    `store_timestamp_ms` is None where the rows went as ordinary messages, whose answer does not tell it.
    """

    queue: QueueAddress
    queue_offset: int
    rows: int
    store_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class MessageReceipt:
    """Where one message was stored."""

    queue: QueueAddress
    queue_offset: int
    store_timestamp_ms: int | None


def receipt_of_row(receipts: list[BulkReceipt], row: int) -> MessageReceipt:
    """The receipt of one row of the rows that `receipts` tell of, in order."""
    for receipt in receipts:
        if row < receipt.rows:
            return MessageReceipt(receipt.queue, receipt.queue_offset + row, receipt.store_timestamp_ms)
        row -= receipt.rows
    raise IndexError("a row beyond those that were stored")
