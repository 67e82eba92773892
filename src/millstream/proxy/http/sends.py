"""Sending messages over HTTP, and recalling delayed ones."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from millstream.client.outgoing import MessageIds
from millstream.model import properties as names
from millstream.model.handles import RecallHandle
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.topic import MessageType
from millstream.proxy.http.answer import HttpAnswer, json_answer
from millstream.proxy.http.posts import PARTITION_KEY, PostOptions, messages_of_post
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.throttle import Caller
from millstream.security.policy import RequiredAccess
from millstream.transport.heavy_work import HEAVY_BYTES, HEAVY_WORK

__all__ = ["SendResource"]

_ORDERED = frozenset((MessageType.FIFO, MessageType.MIXED))


class SendResource:
    """Takes the requests below /v1/topics/TOPIC/messages."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._processor = service.processor
        self._gate = service.gate
        self._clock = service.clock
        self._traffic = service.traffic
        self._ids = MessageIds()

    async def send(self, request: HttpRequest, topic: str) -> HttpAnswer:
        """Store the messages of a post, all or none; where each of them lies."""
        topic = request.space.whole(topic)
        self._gate.allow(request, "send", (RequiredAccess.publish(topic),))
        now_ms = self._clock.now_ms()
        options = PostOptions.of(request.query, now_ms)
        body = await request.body(self._service)
        throttle = self._processor.throttle
        if throttle.has_rules:
            throttle.admit(Caller(request.client_id, user=request.user), len(body), self._clock.monotonic_s())

        def read() -> list[OutgoingMessage]:
            return messages_of_post(
                topic,
                request.headers,
                body,
                options,
                peer=request.peer,
                now_ms=now_ms,
                next_id=self._ids.next,
            )

        messages = read() if len(body) <= HEAVY_BYTES else await HEAVY_WORK.run(len(body), read)
        if any(PARTITION_KEY in message.properties for message in messages):
            await self._keep_order(topic, messages)
        receipts = await self._processor.send(messages)
        self._traffic.messages_in += len(receipts)
        return json_answer({"messages": [_receipt(topic, receipt) for receipt in receipts]})

    async def recall(self, request: HttpRequest, topic: str, handle: str) -> HttpAnswer:
        """Take a delayed message back by the handle that its send answered; its id."""
        topic = request.space.whole(topic)
        self._gate.allow(request, "recall", (RequiredAccess.publish(topic),))
        request.query.finish()
        return json_answer({"id": await self._processor.recall(topic, handle)})

    async def _keep_order(self, topic: str, messages: Sequence[OutgoingMessage]) -> None:
        """Keep events of one partitionkey in their order: by their message group where the topic knows such, else in
        one queue."""
        route = await self._processor.route(topic)
        for message in messages:
            key = message.properties.get(PARTITION_KEY)
            if key is None or names.MESSAGE_GROUP in message.properties or not key.strip():
                continue
            if route.message_type in _ORDERED:
                message.properties[names.MESSAGE_GROUP] = key
            elif len({queue.broker_name for queue in route.queues}) == 1:
                message.queue_id = zlib.crc32(key.encode()) % len(route.queues)


def _receipt(topic: str, receipt: SendReceipt) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": receipt.message_id,
        "queue": receipt.queue_id,
        "offset": receipt.queue_offset,
    }
    if receipt.due_ms is not None:
        handle = RecallHandle(topic, receipt.broker_name, receipt.due_ms, receipt.message_id)
        found["recallHandle"] = handle.encode()
    return found
