"""Messages of QoS 2 of shared subscriptions: each is its member's alone before it is sent, over all its connections.

Nobody else may get a message that was sent with QoS 2 [MQTT-4.8.2-4] [MQTT-4.8.2-5], also where its proxy is killed a
moment later. So it is noted in the member's session, by its place in the light queue of the subscription, and
acknowledged there before it is sent. A session that ends with its connection needs no note.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.operations import AckRequest, PullRequest
from millstream.protocol.mqtt.topics import parse_shared_filter
from millstream.protocol.record import decode_record
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.light_queue_reader import TakenMessage
from millstream.proxy.mqtt.light_routes import share_queue_name
from millstream.proxy.mqtt.packet_id_log import PacketIdLog
from millstream.proxy.mqtt.records import application_message_of
from millstream.proxy.mqtt.session_records import StoredDelivery
from millstream.proxy.stored_body import unpack

__all__ = ["SharedSender", "acknowledge_shared", "finish_shared"]

_log = logging.getLogger(__name__)


class _Sending(NamedTuple):
    delivery: StoredDelivery
    taken: TakenMessage
    send: Callable[[], None]


class SharedSender:
    """Of one session. `drop` is called with the packet identifier of a message that is not sent after all."""

    __slots__ = ("_drop", "_ids", "_sending", "_waiting")

    def __init__(self, ids: PacketIdLog | None, drop: Callable[[int], object]) -> None:
        self._ids = ids
        self._drop = drop
        self._waiting: list[_Sending] = []
        self._sending: asyncio.Task[None] | None = None

    def take(self, packet_id: int, topic_filter: str, taken: TakenMessage, send: Callable[[], None]) -> None:
        """Have `send` called when the message is the client's; those that come together share one note."""
        handle = taken.handle
        delivery = StoredDelivery(packet_id, topic_filter, handle.broker_name, handle.queue_offset, handle.encode())
        self._waiting.append(_Sending(delivery, taken, send))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name="mqtt-shared")

    async def settle(self) -> None:
        """Return when nothing is on its way to be noted."""
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting, []
                for one in await self._take_over(some):
                    one.send()
        finally:
            self._sending = None

    async def _take_over(self, some: Sequence[_Sending]) -> Sequence[_Sending]:
        """Those of them that are the client's alone now. The others stay out of sight for their time: whether they are
        noted, or acknowledged, is not known."""
        if self._ids is None:
            acknowledged = await asyncio.gather(*(self._acknowledge_first(one) for one in some))
            return [one for one, is_done in zip(some, acknowledged, strict=True) if is_done]
        try:
            is_held = await self._ids.hold([one.delivery for one in some])
        except MillstreamError as error:
            _log.info("messages of a shared subscription are left for later: %s", error)
            is_held = False
        if not is_held:
            for one in some:
                self._drop(one.delivery.packet_id)
            return ()
        for one in some:
            one.taken.acknowledge()
        return some

    async def _acknowledge_first(self, one: _Sending) -> bool:
        """Whether it is; one that is not keeps back no other."""
        try:
            await one.taken.reader.acknowledge_first(one.taken)
        except MillstreamError as error:
            _log.info("a message of a shared subscription is left for later: %s", error)
            self._drop(one.delivery.packet_id)
            return False
        return True


async def acknowledge_shared(backend: BrokerBackend, deliveries: Iterable[StoredDelivery]) -> None:
    """Let nobody else have what is noted as one member's: its proxy may have been killed before it said so."""
    for one in deliveries:
        place = _place(one)
        if place is not None and one.handle:
            # The broker may have forgotten the delivery, or the subscription.
            with suppress(MillstreamError):
                await backend.ack(AckRequest(*place, ReceiptHandle.decode(one.handle)))


async def finish_shared(
    backend: BrokerBackend,
    ids: PacketIdLog,
    left: Iterable[StoredDelivery],
    send: Callable[[ApplicationMessage | None, StoredDelivery], bool],
) -> None:
    """Send again what earlier connections left, None of what is not stored any more; what `send` refuses is no more
    under way."""
    for one in left:
        message = await _read(backend, one)
        if one.packet_id in ids.shared and not send(message, one):
            del ids.shared[one.packet_id]


async def _read(backend: BrokerBackend, delivery: StoredDelivery) -> ApplicationMessage | None:
    place = _place(delivery)
    if place is None:
        return None
    request = PullRequest(*place, LIGHT_QUEUE_NUMBER, delivery.queue_offset, max_messages=1)
    try:
        records = (await backend.pull(delivery.broker_name, request)).records
    except NameRefused:
        return None
    return application_message_of(await unpack(decode_record(records[0]))) if records else None


def _place(delivery: StoredDelivery) -> tuple[str, str] | None:
    """The group and the stored name of the light queue."""
    shared = parse_shared_filter(delivery.topic_filter)
    return None if shared is None else (shared.group, light_queue(share_queue_name(shared.group, shared.topic_filter)))
