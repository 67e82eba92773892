"""Sends messages, one at a time or many per batch request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from millstream.client import requests
from millstream.client.client import Client
from millstream.client.operations import SEND_RETRIES
from millstream.client.outgoing import OutgoingBatch, QueueSelector, outgoing_properties
from millstream.client.values import SendResult
from millstream.model.message import Message
from millstream.model.topic import Permission

__all__ = ["MAX_BATCHES_IN_FLIGHT", "Producer"]

MAX_BATCHES_IN_FLIGHT: Final = 8
"""Batch requests that one `send_many` has under way at most; each queue has one at a time, which keeps its order."""


class Producer:
    """Sends to the topics of one client's cluster. Use one producer for an application: it takes queues in turn.

    A send is repeated up to `retries` times where the broker cannot be reached or is busy.
    """

    def __init__(self, client: Client, *, retries: int = SEND_RETRIES) -> None:
        self._client = client
        self._retries = retries
        self._placement = QueueSelector()

    async def send(self, message: Message) -> SendResult:
        """Store one message. Many may be under way at once; those of one message group are best sent in turn."""
        conversations = self._client.conversations
        queues = await self._client.run(conversations.queues(message.topic, Permission.WRITE))
        queue = self._placement.queue(message, queues)
        message_id = self._placement.next_id()
        properties = outgoing_properties(message, message_id)
        request = requests.send_one(queue, message.body, properties, group=self._client.group)
        may_move = message.message_group is None
        sending = conversations.send(queue, request, [message_id], retries=self._retries, may_move=may_move)
        [receipt] = await self._client.run(sending)
        return receipt

    async def send_many(self, messages: Sequence[Message], *, ordered: bool = False) -> list[SendResult]:
        """Store many messages; the receipts stand in the order of the messages.

        Each queue gets its messages in their order. With `ordered`, one request follows the other, so that the store
        times of all queues together follow the order of the messages. The first failure is raised once the requests
        under way have ended; what was stored before stays.
        """
        queues = {
            topic: await self._client.queues(topic, Permission.WRITE)
            for topic in dict.fromkeys(message.topic for message in messages)
        }
        receipts: list[SendResult | None] = [None] * len(messages)
        if ordered:
            for batch in self._placement.ordered_batches(messages, queues.__getitem__):
                await self._send_batch(batch, receipts)
        else:
            lists = self._placement.batches(messages, queues.__getitem__)
            free = asyncio.Semaphore(MAX_BATCHES_IN_FLIGHT)
            sending = [self._send_in_turn(batches, receipts, free) for batches in lists]
            for failure in await asyncio.gather(*sending, return_exceptions=True):
                if failure is not None:
                    raise failure
        return [receipt for receipt in receipts if receipt is not None]

    async def _send_in_turn(
        self, batches: Sequence[OutgoingBatch], receipts: list[SendResult | None], free: asyncio.Semaphore
    ) -> None:
        for batch in batches:
            async with free:
                await self._send_batch(batch, receipts)

    async def _send_batch(self, batch: OutgoingBatch, receipts: list[SendResult | None]) -> None:
        request = batch.request(self._client.group)
        sent = await self._client.run(
            self._client.conversations.send(
                batch.queue, request, batch.message_ids, retries=self._retries, may_move=batch.may_move
            )
        )
        for position, receipt in zip(batch.positions, sent, strict=True):
            receipts[position] = receipt
