"""Reads queues by offset, without consumer group state."""

from __future__ import annotations

from collections.abc import AsyncIterator

from millstream.client import requests
from millstream.client.client import Client
from millstream.client.replica_reads import ReadFrom
from millstream.client.values import PullBatch, QueueAddress, range_is_gone
from millstream.model.filter import ALL, MessageFilter
from millstream.model.operations import PullStatus

__all__ = ["Puller"]


class Puller:
    """Pulls batches of records from queues of one client's cluster; from replicas first with `read_from` REPLICA."""

    def __init__(self, client: Client, *, read_from: ReadFrom = ReadFrom.MASTER) -> None:
        self._client = client
        self._read_from = read_from

    async def pull(
        self,
        queue: QueueAddress,
        offset: int,
        *,
        max_messages: int = requests.DEFAULT_PULL_MESSAGES,
        max_bytes: int = requests.DEFAULT_PULL_BYTES,
        wait_ms: int = 0,
        filter: MessageFilter = ALL,
    ) -> PullBatch:
        """One batch from `offset` on; after `wait_ms` with nothing new, a batch without records.

        A single record is given whatever its size. OFFSET_ILLEGAL is a status here, not an error.
        """
        conversation = self._client.conversations.pull(
            queue,
            offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            filter=filter,
            read_from=self._read_from,
        )
        return await self._client.run(conversation)

    async def read(
        self, queue: QueueAddress, begin: int, end: int, *, max_bytes: int = requests.DEFAULT_PULL_BYTES
    ) -> AsyncIterator[PullBatch]:
        """All records with `begin <= offset < end`, batch by batch; ILLEGAL_OFFSET where some are not there."""
        offset = begin
        while offset < end:
            limit = min(end - offset, requests.DEFAULT_PULL_MESSAGES)
            batch = await self.pull(queue, offset, max_messages=limit, max_bytes=max_bytes)
            if batch.status is PullStatus.FOUND:
                yield batch
            elif batch.status is not PullStatus.ALL_FILTERED or batch.next_offset <= offset:
                raise range_is_gone(queue, offset, end, batch)
            offset = batch.next_offset
