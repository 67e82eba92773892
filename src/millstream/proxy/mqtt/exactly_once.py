"""Stores QoS 2 messages of durable sessions exactly once, over any failure.

The identifier is stored first, with the time, and the message carries both. A client that sends the message again over
another connection makes the server look for it from that time on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.model.escaped_names import hash_name
from millstream.model.message import Address
from millstream.model.operations import PullRequest, PullStatus, QueuePoint
from millstream.protocol.batches import messages_of
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.packet_id_log import PacketIdLog
from millstream.proxy.mqtt.publisher import Stored
from millstream.proxy.mqtt.records import MARK
from millstream.proxy.mqtt.services import MqttServices

__all__ = ["READ_RECORDS", "ExactlyOnce"]

READ_RECORDS: Final = 256
"""Records of one read while a message is looked for."""

_GROUP: Final = "MILLSTREAM_PROXY"
_EARLIER_MS: Final = 5000
"""How much the broker's clock may be behind this one."""


class ExactlyOnce:
    """Of one port."""

    def __init__(self, services: MqttServices) -> None:
        self._services = services
        self._backend = services.backend
        self._under_way: set[tuple[str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def is_under_way(self, client_id: str, packet_id: int) -> bool:
        """Whether the client's message of the identifier is being stored: it is answered then."""
        return (client_id, packet_id) in self._under_way

    def publish(
        self, ids: PacketIdLog, packet_id: int, message: ApplicationMessage, peer: Address, stored: Stored
    ) -> None:
        """Store the identifier, then the message."""
        key = (message.publisher, packet_id)
        self._under_way.add(key)
        noted_ms = ids.received.get(packet_id) if packet_id in ids.left else None
        if noted_ms is not None:
            ids.forget_left(packet_id)
            task = asyncio.create_task(
                self._publish_again(key, noted_ms, message, peer, stored), name="mqtt-exactly-once"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        noted_ms = ids.received[packet_id] = self._services.clock.now_ms()
        message.mark = _mark(key, noted_ms)

        ids.note(partial(self._store_noted, key, message, peer, stored))

    async def close(self) -> None:
        """Return when nothing is looked for any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _store_noted(
        self,
        key: tuple[str, int],
        message: ApplicationMessage,
        peer: Address,
        stored: Stored,
        error: MillstreamError | None,
    ) -> None:
        if error is None:
            self._store(key, message, peer, stored)
        else:
            self._end(key, stored, error)

    def _store(self, key: tuple[str, int], message: ApplicationMessage, peer: Address, stored: Stored) -> None:
        try:
            self._services.publish(message, peer, partial(self._end, key, stored))
        except MillstreamError as error:
            self._end(key, stored, error)

    def _end(self, key: tuple[str, int], stored: Stored, error: MillstreamError | None) -> None:
        self._under_way.discard(key)
        stored(error)

    async def _publish_again(
        self, key: tuple[str, int], noted_ms: int, message: ApplicationMessage, peer: Address, stored: Stored
    ) -> None:
        """Store the message unless an earlier connection did."""
        message.mark = _mark(key, noted_ms)
        try:
            is_stored = await self._is_stored(self._services.rules.topic_of(message.topic), message.mark, noted_ms)
        except MillstreamError as error:
            self._end(key, stored, error)
            return
        if is_stored:
            self._end(key, stored, None)
        else:
            self._store(key, message, peer, stored)

    async def _is_stored(self, topic: str, mark: str, noted_ms: int) -> bool:
        route = await self._backend.route(topic)
        for queue in route.queues:
            broker, number = queue.broker_name, queue.queue_id
            offset = await self._backend.find_offset(broker, topic, number, QueuePoint.TIME, noted_ms - _EARLIER_MS)
            while True:
                request = PullRequest(_GROUP, topic, number, offset, READ_RECORDS)
                result = await self._backend.pull(broker, request)
                records = [one for record in result.records for one in messages_of(record, offset)]
                if any(one.properties.get(MARK) == mark for one in records):
                    return True
                if result.status is not PullStatus.FOUND or result.next_offset <= offset:
                    break
                offset = result.next_offset
        return False


def _mark(key: tuple[str, int], noted_ms: int) -> str:
    client_id, packet_id = key
    return f"{hash_name(client_id)}:{packet_id}:{noted_ms}"
