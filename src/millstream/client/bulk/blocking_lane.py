"""The bulk lane's operations over a blocking client's sockets."""

from __future__ import annotations

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.encoding import EncodedBatch
from millstream.client.bulk.operations import BulkOperations
from millstream.client.bulk.values import BulkReceipt
from millstream.client.values import PullBatch, QueueAddress

__all__ = ["BlockingLane"]


class BlockingLane:
    """Puts and fetches of one thread."""

    def __init__(self, client: BlockingClient, *, fallback: bool = False) -> None:
        self._client = client
        self._conversations = BulkOperations(client.conversations, group=client.group, fallback=fallback)

    def put(self, queue: QueueAddress, batch: EncodedBatch, *, retries: int) -> list[BulkReceipt]:
        """Store a batch in that queue; see `BulkOperations.put`."""
        return self._client.run(self._conversations.put(queue, batch, retries=retries))

    def fetch(self, queue: QueueAddress, offset: int, *, max_bytes: int, wait_ms: int) -> PullBatch:
        """Records from `offset` on; see `BulkOperations.fetch`."""
        return self._client.run(self._conversations.fetch(queue, offset, max_bytes=max_bytes, wait_ms=wait_ms))
