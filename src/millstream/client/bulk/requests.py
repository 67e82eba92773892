"""Requests of the bulk lane, and the meaning of their responses.

BULK_PUT stores one Arrow batch (`protocol.arrow`) as one record. Its fields: topic, queueId, rows, bornTimestamp (ms)
and crc32, the CRC-32 of the body in decimal. The answer: queueId, queueOffset of the first row, rows, storeTimestamp.

BULK_FETCH answers as a pull does, with whole records of either kind laid end to end. The server does not verify them;
the reader does. The first record may begin before the offset that was asked for.
"""

from __future__ import annotations

import time
from typing import Final

from millstream.client.bulk.encoding import EncodedBatch
from millstream.client.bulk.values import BulkReceipt
from millstream.client.requests import PULL_STATUSES, answered_integer, pull_batch_of
from millstream.client.values import QueueAddress
from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.pulls import FetchCall, encode_fetch
from millstream.protocol.remoting.refusals import error_of

__all__ = [
    "DEFAULT_FETCH_BYTES",
    "MAX_FETCH_BYTES",
    "PULL_STATUSES",
    "bulk_fetch",
    "bulk_put",
    "bulk_receipt_of",
    "pull_batch_of",
]

DEFAULT_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of records that one fetch asks for."""

MAX_FETCH_BYTES: Final = 15 * 1024 * 1024
"""Bytes of records that one answer has at most, unless a single record is larger: a frame holds 16 MiB."""


def bulk_put(queue: QueueAddress, batch: EncodedBatch) -> RemotingCommand:
    """The request that stores one batch."""
    fields = {
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "rows": str(batch.rows),
        "bornTimestamp": str(time.time_ns() // 1_000_000),
        "crc32": str(batch.crc32),
    }
    return RemotingCommand(RequestCode.BULK_PUT, fields, batch.stream)


def bulk_receipt_of(answer: RemotingCommand, queue: QueueAddress, rows: int) -> BulkReceipt:
    """The receipt of a put; the error of the answer otherwise."""
    address = queue.broker_address
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(answer, address)
    stored = answered_integer(answer, "rows", address)
    if stored != rows:
        raise ConnectionFailed("PROTOCOL_VIOLATION", f"{address} stored {stored} rows of a batch of {rows}.")
    number = answered_integer(answer, "queueId", address)
    place = QueueAddress(queue.topic, queue.broker_name, number, address)
    offset, stored_ms = (
        answered_integer(answer, "queueOffset", address),
        answered_integer(answer, "storeTimestamp", address),
    )
    return BulkReceipt(place, offset, rows, stored_ms)


def bulk_fetch(queue: QueueAddress, offset: int, *, group: str, max_bytes: int, wait_ms: int) -> RemotingCommand:
    """The request that reads records from `offset` on; `wait_ms` 0 answers at once."""
    call = FetchCall(group, queue.topic, queue.queue_id, offset, min(max_bytes, MAX_FETCH_BYTES), wait_ms)
    return RemotingCommand(RequestCode.BULK_FETCH, encode_fetch(call))
