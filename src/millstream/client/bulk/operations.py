"""Operations of the bulk lane, sans-io, and their blocking form over sockets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from millstream.client import requests as ordinary
from millstream.client.blocking import BlockingClient
from millstream.client.bulk import requests
from millstream.client.bulk.encoding import EncodedBatch
from millstream.client.bulk.values import BulkReceipt
from millstream.client.operations import SEND_RETRIES, ClientOperation, ClientOperations, RequestStep
from millstream.client.outgoing import MessageIds, outgoing_properties
from millstream.client.replica_reads import ReadFrom
from millstream.client.topic_operations import TopicOperations
from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.properties import decode_properties
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.protocol.remoting.refusals import error_of

__all__ = ["BlockingLane", "BulkOperations"]


_log = logging.getLogger(__name__)

_NO_LANE: Final = frozenset({"REQUEST_NOT_SUPPORTED", "UNSUPPORTED_FEATURE"})
"""Errors that say that the broker does not know bulk messages."""


class BulkOperations:
    """The operations, over the routes of `conversations`.

    With `fallback`, rows go as ordinary messages where broker or topic take no bulk messages; the log says so once.
    """

    def __init__(self, conversations: ClientOperations, *, group: str, fallback: bool = False) -> None:
        self._conversations = conversations
        self._group = group
        self._fallback = fallback
        self._without_lane: set[tuple[str, str]] = set()
        self._ids = MessageIds()

    def put(
        self, queue: QueueAddress, batch: EncodedBatch, *, retries: int = SEND_RETRIES
    ) -> ClientOperation[list[BulkReceipt]]:
        """Store a batch in that queue, all or nothing; one receipt, or several after a fallback.

        Sends again as an ordinary send does, so that a batch may be stored twice. After a fallback the rows before a
        failed request stay stored.
        """
        place = queue.topic, queue.broker_name
        if place not in self._without_lane:
            try:
                return [(yield from self._put(queue, batch, retries))]
            except MillstreamError as error:
                if not self._fallback or not (yield from self._has_no_lane(queue.topic, error)):
                    raise
                self._without_lane.add(place)
                _log.warning("Topic %s of %s is sent to as ordinary messages: %s", *place, error.message)
        return (yield from self._put_ordinary(queue, batch, retries))

    def fetch(
        self,
        queue: QueueAddress,
        offset: int,
        *,
        max_bytes: int,
        wait_ms: int,
        read_from: ReadFrom = ReadFrom.MASTER,
    ) -> ClientOperation[PullBatch]:
        """Records from `offset` on, not verified; after `wait_ms` without any, a batch without records."""

        def ask(wait_ms: int) -> RemotingCommand:
            return requests.bulk_fetch(queue, offset, group=self._group, max_bytes=max_bytes, wait_ms=wait_ms)

        answer = yield from self._conversations.readers.ask(queue, ask, wait_ms=wait_ms, read_from=read_from)
        if answer.code not in requests.PULL_STATUSES:
            self._conversations.note_failure(queue.topic, error_of(answer, queue.broker_address))
        return requests.pull_batch_of(answer, queue.broker_address)

    def _put(self, queue: QueueAddress, batch: EncodedBatch, retries: int) -> ClientOperation[BulkReceipt]:
        def store(place: QueueAddress, delay_s: float) -> ClientOperation[BulkReceipt]:
            command = requests.bulk_put(place, batch)
            answer = yield RequestStep(place.broker_address, command, delay_s=delay_s)
            return requests.bulk_receipt_of(answer, place, batch.rows)

        return (yield from self._conversations.repeat_send(queue, store, retries=retries))

    def _has_no_lane(self, topic: str, error: MillstreamError) -> ClientOperation[bool]:
        """Whether a put failed because the broker, or else the topic, takes no bulk messages at all."""
        if error.name in _NO_LANE:
            return True
        if error.name != "MESSAGE_MALFORMED":
            return False
        return not (yield from TopicOperations(self._conversations).describe(topic)).holds_batches

    def _put_ordinary(
        self, queue: QueueAddress, batch: EncodedBatch, retries: int
    ) -> ClientOperation[list[BulkReceipt]]:
        receipts = []
        for ids, items in self._requests(queue.topic, batch):
            command = ordinary.send_batch(queue, items, group=self._group)
            sent = yield from self._conversations.send(queue, command, ids, retries=retries)
            receipts.append(BulkReceipt(sent[0].queue, sent[0].queue_offset, len(ids), None))
        return receipts

    def _requests(self, topic: str, batch: EncodedBatch) -> Iterator[tuple[list[str], list[bytes]]]:
        ids: list[str] = []
        items: list[bytes] = []
        size_bytes = 0
        for row in batch.batch.to_pylist():
            message_id = self._ids.next()
            item = _ordinary_item(topic, row, message_id)
            if items and (
                len(items) == ordinary.MAX_BATCH_MESSAGES or size_bytes + len(item) > ordinary.MAX_BATCH_BYTES
            ):
                yield ids, items
                ids, items, size_bytes = [], [], 0
            ids.append(message_id)
            items.append(item)
            size_bytes += len(item)
        yield ids, items


def _ordinary_item(topic: str, row: dict[str, object], message_id: str) -> bytes:
    body, key, tag, text = row["body"], row.get("key"), row.get("tag"), row.get("properties")
    assert isinstance(body, bytes)
    held = outgoing_properties(
        Message(topic, body, None if tag is None else str(tag), () if key is None else (str(key),)), message_id
    )
    return encode_batch_item(body, {**decode_properties(str(text).encode()), **held} if text else held)


class BlockingLane:
    """Puts and fetches of one thread."""

    def __init__(
        self, client: BlockingClient, *, fallback: bool = False, read_from: ReadFrom = ReadFrom.MASTER
    ) -> None:
        self._client = client
        self._read_from = read_from
        self._conversations = BulkOperations(client.conversations, group=client.group, fallback=fallback)

    def put(self, queue: QueueAddress, batch: EncodedBatch, *, retries: int) -> list[BulkReceipt]:
        """Store a batch in that queue; see `BulkOperations.put`."""
        return self._client.run(self._conversations.put(queue, batch, retries=retries))

    def fetch(self, queue: QueueAddress, offset: int, *, max_bytes: int, wait_ms: int) -> PullBatch:
        """Records from `offset` on; see `BulkOperations.fetch`."""
        return self._client.run(
            self._conversations.fetch(queue, offset, max_bytes=max_bytes, wait_ms=wait_ms, read_from=self._read_from)
        )
