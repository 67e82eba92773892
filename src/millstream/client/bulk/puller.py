"""Reads queues through the bulk lane: one request returns many batches as Arrow tables."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.fetched import FetchedBatch, decode_fetch
from millstream.client.bulk.operations import BlockingLane, BulkOperations
from millstream.client.bulk.requests import DEFAULT_FETCH_BYTES
from millstream.client.client import Client
from millstream.client.replica_reads import ReadFrom
from millstream.client.values import PullBatch, QueueAddress, range_is_gone
from millstream.model.operations import PullStatus

__all__ = ["ANSWERS_AHEAD", "BlockingBulkPuller", "BulkPuller"]

ANSWERS_AHEAD: Final = 3
"""Answers that `BulkPuller.read` asks for and unpacks ahead of its reader at most; two threads unpack while one more
is on its way."""

_GOES_ON: Final = (PullStatus.FOUND, PullStatus.ALL_FILTERED)
"""Answers after which reading goes on; the second one has no records, because none of them is kept any more."""


class BulkPuller:
    """Fetches from queues of one client's cluster. `damaged_records` counts those that failed their checksums.

    With `read_from` REPLICA replicas are asked first.
    """

    def __init__(self, client: Client, *, read_from: ReadFrom = ReadFrom.MASTER) -> None:
        self._read_from = read_from
        self._client = client
        self._conversations = BulkOperations(client.conversations, group=client.group)
        self.damaged_records = 0

    async def fetch(
        self, queue: QueueAddress, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, wait_ms: int = 0
    ) -> FetchedBatch:
        """The messages from `offset` on, about `max_bytes` as they are stored; after `wait_ms` without any, none.

        A single record is given whatever its size. OFFSET_ILLEGAL is a status here, not an error.
        """
        conversation = self._conversations.fetch(
            queue, offset, max_bytes=max_bytes, wait_ms=wait_ms, read_from=self._read_from
        )
        batch = decode_fetch(await self._client.run(conversation), queue, offset)
        self.damaged_records += len(batch.damaged)
        return batch

    async def read(
        self, queue: QueueAddress, begin: int, end: int, *, max_bytes: int = DEFAULT_FETCH_BYTES
    ) -> AsyncIterator[FetchedBatch]:
        """All messages with `begin <= offset < end`, batch by batch; the last one may hold some beyond.

        Up to `ANSWERS_AHEAD` answers are on their way or unpacked by threads meanwhile, and held as tables. Each is
        asked for when the one before has arrived. ILLEGAL_OFFSET where some messages are not there.
        """
        offset, place = begin, _complete_future(begin)
        steps: deque[asyncio.Task[_Step | None]] = deque()
        try:
            while offset < end:
                while len(steps) < ANSWERS_AHEAD:
                    step, place = self._begin(queue, place, end, max_bytes)
                    steps.append(step)
                done = await steps.popleft()
                assert done is not None, "only steps behind the end give nothing"
                answer, batch = done.answer, done.batch
                if answer.status not in _GOES_ON or answer.next_offset <= offset:
                    raise range_is_gone(queue, offset, end, answer)
                self.damaged_records += len(batch.damaged)
                offset = batch.next_offset
                if offset != answer.next_offset:
                    # The table was full before the answer was; what was asked for comes too early.
                    _cancel(steps)
                    place = _complete_future(offset)
                yield batch
        finally:
            _cancel(steps)

    def _begin(
        self, queue: QueueAddress, place: asyncio.Future[int], end: int, max_bytes: int
    ) -> tuple[asyncio.Task[_Step | None], asyncio.Future[int]]:
        """The fetch from `place` on, as soon as that is known, and where the next one will be."""
        following = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._step(queue, place, following, end, max_bytes))
        # Whoever stops reading never asks how it went.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task, following

    async def _step(
        self, queue: QueueAddress, place: asyncio.Future[int], following: asyncio.Future[int], end: int, max_bytes: int
    ) -> _Step | None:
        offset = await place
        if offset >= end:
            following.set_result(offset)
            return None
        conversation = self._conversations.fetch(
            queue, offset, max_bytes=max_bytes, wait_ms=0, read_from=self._read_from
        )
        answer = await self._client.run(conversation)
        following.set_result(answer.next_offset)
        return _Step(answer, await asyncio.to_thread(decode_fetch, answer, queue, offset))


@dataclass(frozen=True, slots=True)
class _Step:
    answer: PullBatch
    batch: FetchedBatch


def _complete_future(offset: int) -> asyncio.Future[int]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(offset)
    return future


def _cancel(steps: deque[asyncio.Task[_Step | None]]) -> None:
    for step in steps:
        step.cancel()
    steps.clear()


class BlockingBulkPuller:
    """The same over a `BlockingClient`, for its thread."""

    def __init__(self, client: BlockingClient, *, read_from: ReadFrom = ReadFrom.MASTER) -> None:
        self._lane = BlockingLane(client, read_from=read_from)
        self.damaged_records = 0

    def fetch(
        self, queue: QueueAddress, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, wait_ms: int = 0
    ) -> FetchedBatch:
        """The messages from `offset` on, about `max_bytes` as they are stored; after `wait_ms` without any, none."""
        answer = self._lane.fetch(queue, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        batch = decode_fetch(answer, queue, offset)
        self.damaged_records += len(batch.damaged)
        return batch
