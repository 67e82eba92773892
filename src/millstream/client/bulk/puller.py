"""Reading queues through the bulk lane: one request answers many batches, which arrive as Arrow tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_lane import BlockingLane
from millstream.client.bulk.conversations import BulkConversations
from millstream.client.bulk.fetched import FetchedBatch, fetched_batch
from millstream.client.bulk.requests import DEFAULT_FETCH_BYTES
from millstream.client.client import Client
from millstream.client.values import PullBatch, QueueAddress, range_is_gone
from millstream.model.operations import PullStatus

__all__ = ["BlockingBulkPuller", "BulkPuller"]


_GOES_ON: Final = (PullStatus.FOUND, PullStatus.ALL_FILTERED)
"""Answers after which reading goes on; the second one has no records, because none of them is kept any more."""


class BulkPuller:
    """Fetches from queues of one client's cluster. `damaged_records` counts those that failed their checksums."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._conversations = BulkConversations(client.conversations, group=client.group)
        self.damaged_records = 0

    async def fetch(
        self, queue: QueueAddress, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, wait_ms: int = 0
    ) -> FetchedBatch:
        """The messages from `offset` on, about `max_bytes` as they are stored; after `wait_ms` without any, none.

        A single record is given whatever its size. OFFSET_ILLEGAL is a status here, not an error.
        """
        conversation = self._conversations.fetch(queue, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        batch = fetched_batch(await self._client.run(conversation), queue, offset)
        self.damaged_records += len(batch.damaged)
        return batch

    async def read(
        self, queue: QueueAddress, begin: int, end: int, *, max_bytes: int = DEFAULT_FETCH_BYTES
    ) -> AsyncIterator[FetchedBatch]:
        """All messages with `begin <= offset < end`, batch by batch; the last one may hold some beyond.

        One answer is on its way while the one before is unpacked in a thread. ILLEGAL_OFFSET where some are not there.
        """
        offset, ahead = begin, self._ask(queue, begin, max_bytes)
        try:
            while offset < end:
                answer = await ahead
                if answer.status not in _GOES_ON or answer.next_offset <= offset:
                    raise range_is_gone(queue, offset, end, answer)
                ahead = self._ask(queue, answer.next_offset, max_bytes)
                batch = await asyncio.to_thread(fetched_batch, answer, queue, offset)
                self.damaged_records += len(batch.damaged)
                offset = batch.next_offset
                if offset != answer.next_offset:
                    # The table was full before the answer was; what was asked for comes too early.
                    ahead.cancel()
                    ahead = self._ask(queue, offset, max_bytes)
                yield batch
        finally:
            ahead.cancel()

    def _ask(self, queue: QueueAddress, offset: int, max_bytes: int) -> asyncio.Task[PullBatch]:
        conversation = self._conversations.fetch(queue, offset, max_bytes=max_bytes, wait_ms=0)
        return asyncio.ensure_future(self._client.run(conversation))


class BlockingBulkPuller:
    """The same over a `BlockingClient`, for its thread."""

    def __init__(self, client: BlockingClient) -> None:
        self._lane = BlockingLane(client)
        self.damaged_records = 0

    def fetch(
        self, queue: QueueAddress, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, wait_ms: int = 0
    ) -> FetchedBatch:
        """The messages from `offset` on, about `max_bytes` as they are stored; after `wait_ms` without any, none."""
        answer = self._lane.fetch(queue, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        batch = fetched_batch(answer, queue, offset)
        self.damaged_records += len(batch.damaged)
        return batch
