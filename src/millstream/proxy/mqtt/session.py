"""The session of a connected MQTT client: its subscriptions and in-flight messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from millstream.model.operations import PoppedMessage
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import Acknowledgement, Connect, Will
from millstream.protocol.mqtt.properties import PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topics import filter_matches
from millstream.protocol.mqtt.windows import OutgoingWindow
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.client_link import ClientLink
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader, Taken, TakenMessage
from millstream.proxy.mqtt.packet_id_log import PacketIdLog
from millstream.proxy.mqtt.records import application_message_of
from millstream.proxy.mqtt.session_records import StoredDelivery
from millstream.proxy.mqtt.shared_deliveries import SharedSender
from millstream.proxy.mqtt.subscriptions import SessionSubscription
from millstream.security.mqtt_pattern import MqttClient
from millstream.telemetry.port_traffic import PortTraffic

__all__ = [
    "MAX_INFLIGHT",
    "MAX_PENDING",
    "MAX_PENDING_BYTES",
    "MAX_QUEUE_PACKET_ID",
    "MAX_SESSION_EXPIRY_S",
    "MAX_SESSION_SUBSCRIPTIONS",
    "MqttSession",
    "session_expiry_s",
]

MAX_INFLIGHT: Final = 100
"""Messages of QoS 1 and 2 that one client gets before it acknowledges some, at most."""

MAX_QUEUE_PACKET_ID: Final = 60_000
"""Packet identifiers up to this stand for messages of the light queue; the others are free for all else."""

MAX_PENDING: Final = 10_000
"""Messages of QoS 1 and 2 that wait for a client whose session ends with its connection, at most: one more, and the
connection is closed, which the client sees, while a message left out it would not. A feed hands over up to 1,024 in one
turn, so that a few thousand come at once to a client that acknowledges at its best."""

MAX_PENDING_BYTES: Final = 4 * 1024 * 1024
"""The same for the bytes of their payloads."""

MAX_SESSION_SUBSCRIPTIONS: Final = 1200
"""Subscriptions of one session at most."""

MAX_SESSION_EXPIRY_S: Final = 7 * 24 * 3600
"""Seconds that a session lives on without a connection at most; CONNACK says so."""


_NONE: Final[frozenset[int]] = frozenset()


class _Delivery(NamedTuple):
    """How a message goes to the client."""

    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]


class _Pending(NamedTuple):
    message: ApplicationMessage
    delivery: _Delivery


class MqttSession:
    """One for each client id, from its connection's CONNECT to its end.

    `claim` is that connection's in the store. `packet_ids` is None of a session that ends with its connection, and
    `queue` of one that has no light queue.
    """

    __slots__ = (
        "_left_released",
        "_pending",
        "_pending_bytes",
        "_traffic",
        "claim",
        "client_id",
        "connection",
        "expiry_s",
        "has_shares",
        "is_claimed",
        "is_new",
        "is_parked",
        "packet_ids",
        "queue",
        "shared_sender",
        "subscriptions",
        "user",
        "will",
        "window",
    )

    def __init__(
        self,
        client_id: str,
        user: str,
        claim: str,
        connection: ClientLink,
        traffic: PortTraffic,
        *,
        expiry_s: int = 0,
        will: Will | None = None,
        packet_ids: PacketIdLog | None = None,
    ) -> None:
        self.client_id = client_id
        self.user = user
        self.claim = claim
        self.connection: ClientLink | None = connection
        self.expiry_s = expiry_s
        """Seconds that it lives on without a connection."""
        self.will = will
        self.subscriptions: dict[str, SessionSubscription] = {}
        self.packet_ids = packet_ids
        self.queue: LightQueueReader | None = None
        self.is_claimed = False
        """Whether its record in the store names this connection."""
        self.is_new = False
        """Whether nothing of it was in the store before, so that its light queue begins empty."""
        self.is_parked = False
        """Whether it waits as it is for its client, whose connection was cut."""
        self.has_shares = False
        """Whether it has been a member of shared subscriptions."""
        self.shared_sender: SharedSender | None = None
        """What sends messages of QoS 2 of shared subscriptions; made with the first of them."""
        self.window: OutgoingWindow[TakenMessage | None] = OutgoingWindow(
            MAX_INFLIGHT, 1 if packet_ids is None else MAX_QUEUE_PACKET_ID + 1
        )
        self._left_released = frozenset(packet_ids.released) if packet_ids is not None else _NONE
        self._traffic = traffic
        # None as long as nothing waits, as with most: a deque alone takes 760 bytes.
        self._pending: deque[_Pending] | None = None
        self._pending_bytes = 0

    @property
    def client(self) -> MqttClient:
        """Who asks, for access control."""
        return MqttClient(self.user, self.client_id)

    @property
    def is_lasting(self) -> bool:
        """Whether it is kept in the store."""
        return self.packet_ids is not None

    @property
    def is_caught_up(self) -> bool:
        """Whether the client can get more messages now: none waits, and it reads."""
        return self.connection is None or not (self._pending or self.connection.is_stuffed)

    def offer(self, message: ApplicationMessage, subscriptions: Sequence[SessionSubscription]) -> None:
        """Take a message of a feed that these subscriptions of the session match: it comes once, with their highest
        QoS. What the light queue has is taken from there."""
        queue = self.queue
        own = [one for one in subscriptions if one.share is None]
        if len(own) < len(subscriptions):
            for one in subscriptions:
                if one.share is not None:
                    one.share.wake()
        if queue is not None and any(one.qos for one in own):
            queue.wake()
            return
        delivery = self._choose(message, own)
        if delivery is not None:
            self._deliver(message, delivery)

    def offer_own(self, message: ApplicationMessage, subscription: SessionSubscription) -> None:
        """Take a message of the server's own."""
        delivery = self._choose(message, [subscription])
        if delivery is not None:
            self._deliver(message, delivery)

    def send_retained(self, message: ApplicationMessage, subscription: SessionSubscription) -> None:
        """Take a message that was retained before the subscription."""
        number = subscription.subscription_id
        self._deliver(message, _Delivery(min(subscription.qos, message.qos), True, (number,) if number else ()))

    @property
    def room(self) -> int:
        """How many messages of its light queue the client may get now."""
        return self.window.room

    def take(self, popped: PoppedMessage, taken: TakenMessage, broker: int) -> Taken:
        """Take a message of the session's light queue.

        Its packet identifier comes from its offset there: a message that is sent again, by whichever proxy, has the one
        that it had [MQTT-4.4.0-1].
        """
        message = application_message_of(popped.message)
        if _is_too_late(popped, message):
            return Taken.DONE
        matching = [one for one in self.subscriptions.values() if filter_matches(one.topic_filter, message.topic)]
        delivery = self._choose(message, [one for one in matching if one.share is None])
        if delivery is None:
            return Taken.DONE
        brokers = 1 if self.queue is None else len(self.queue.brokers)
        packet_id = popped.handle.queue_offset % (MAX_QUEUE_PACKET_ID // brokers) * brokers + broker + 1
        if packet_id in self._left_released and popped.delivery_attempt > 1:
            # The client has it: an earlier connection stored that, and ended before it acknowledged the delivery.
            return Taken.DONE
        return self._take(popped, taken, message, delivery, packet_id)

    def note_drained(self) -> None:
        """Its light queue has nothing more: what an earlier connection left there is acknowledged."""
        ids, left = self.packet_ids, self._left_released
        if not left or ids is None:
            return
        self._left_released = _NONE
        completed = [packet_id for packet_id in left if self.window.is_free(packet_id)]
        for packet_id in completed:
            ids.released.pop(packet_id, None)
        if completed:
            ids.write()

    def forget_released(self, packet_id: int) -> None:
        """The client has said that it forgets a message of QoS 2 [MQTT-4.3.3-8]. It may have to be known for longer
        that it has it: while the delivery that an earlier connection did not acknowledge may come again."""
        ids = self.packet_ids
        is_left = self.queue is not None and packet_id in self._left_released
        if ids is not None and packet_id in ids.released and not is_left:
            ids.released.pop(packet_id, None)
            ids.write()

    def take_share(self, popped: PoppedMessage, taken: TakenMessage, subscription: SessionSubscription) -> Taken:
        """Take a message of a shared subscription."""
        message = application_message_of(popped.message)
        if _is_too_late(popped, message):
            return Taken.DONE
        delivery = self._choose(message, [subscription])
        if delivery is None:
            return Taken.DONE
        if delivery.qos < 2:
            return self._take(popped, taken, message, delivery, None)
        if self._open_connection is None or self.window.room <= 0:
            return Taken.REFUSED
        if self.shared_sender is None:
            self.shared_sender = SharedSender(self.packet_ids, self.window.abandon)
        packet_id = self.window.add(None, 2)
        send = partial(self._send_shared, packet_id, message, delivery)
        self.shared_sender.take(packet_id, f"$share/{taken.reader.group}/{subscription.topic_filter}", taken, send)
        return Taken.KEPT

    def _take(
        self,
        popped: PoppedMessage,
        taken: TakenMessage,
        message: ApplicationMessage,
        delivery: _Delivery,
        packet_id: int | None,
    ) -> Taken:
        connection = self._open_connection
        if connection is None or (packet_id is not None and not self.window.is_free(packet_id)):
            # The client is gone, or has not acknowledged one that lies `MAX_QUEUE_PACKET_ID` places before it.
            return Taken.REFUSED
        qos, retain, numbers = delivery
        if not qos:
            connection.send_message(message, 0, 0, retain=retain, subscription_ids=numbers)
            return Taken.DONE
        if self.window.room <= 0:
            return Taken.REFUSED
        packet_id = self.window.add(taken, qos, packet_id)
        dup = popped.delivery_attempt > 1 and self.queue is taken.reader
        if connection.send_message(message, qos, packet_id, retain=retain, dup=dup, subscription_ids=numbers):
            return Taken.WAITS
        self.window.abandon(packet_id)
        return Taken.DONE

    def _send_shared(self, packet_id: int, message: ApplicationMessage, delivery: _Delivery) -> None:
        """Send a message of QoS 2 of a shared subscription, which is this client's alone now."""
        connection = self._open_connection
        if connection is None:
            return
        _, retain, numbers = delivery
        if not connection.send_message(message, 2, packet_id, retain=retain, subscription_ids=numbers):
            self.window.abandon(packet_id)
            if self.packet_ids is not None:
                self.packet_ids.shared.pop(packet_id, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was sent to the client, or is to be, waits for it."""
        return not (self._pending or len(self.window))

    def park(self) -> None:
        """Wait as it is for the client, whose connection was cut."""
        self.connection, self.is_parked, self.is_claimed = None, True, False
        if self.queue is not None:
            self.queue.pause()

    def unpark(self, connection: ClientLink) -> None:
        """The client is back; `resume` sends what waits."""
        self.connection, self.is_claimed, self.is_new = connection, True, False

    def drop(self) -> None:
        """End a parked session that somebody else has now."""
        self.subscriptions = {}
        if self.queue is not None:
            self.queue.forget()

    def resume(self) -> None:
        """The client was let in: finish what an earlier connection left, then send what waits [MQTT-4.4.0-1]."""
        if self.is_parked:
            # The earlier connection left nothing.
            self.is_parked = False
            if self.queue is not None:
                self.queue.resume()
            return
        if self.packet_ids is not None and self.connection is not None:
            for packet_id in sorted(self.packet_ids.released):
                self.window.restore_released(packet_id)
                self.connection.send(Acknowledgement(PacketType.PUBREL, packet_id))
            for packet_id in self.packet_ids.shared:
                self.window.add(None, 2, packet_id)
        self.go_on()

    def send_left(self, message: ApplicationMessage | None, delivery: StoredDelivery) -> bool:
        """Send again what an earlier connection left of a shared subscription; False where there is nothing, or the
        client takes none of that size."""
        connection, subscription = self._open_connection, self.subscriptions.get(delivery.topic_filter)
        number = 0 if subscription is None else subscription.subscription_id
        if connection is None:
            return True
        if message is not None and connection.send_message(
            message, 2, delivery.packet_id, retain=False, dup=True, subscription_ids=(number,) if number else ()
        ):
            return True
        self.window.abandon(delivery.packet_id)
        return False

    def go_on(self) -> None:
        """Send what waits, as far as there is room."""
        pending = self._pending
        if pending is not None:
            while pending and self.window.room > 0:
                message, delivery = pending.popleft()
                self._pending_bytes -= len(message.payload)
                self._send(message, delivery)
            if not pending:
                self._pending = None
        if self.window.room > 0:
            self._wake_readers()
        if self.connection is not None:
            self.connection.wake()

    def readers(self) -> list[LightQueueReader]:
        """Those that read light queues for it."""
        shares = [one.share for one in self.subscriptions.values() if one.share is not None] if self.has_shares else []
        return shares if self.queue is None else [self.queue, *shares]

    async def close_readers(self) -> None:
        """Have them read no more: what they took is visible again, unless it goes on with this client alone."""
        for reader in self.readers():
            await reader.close()
        if self.shared_sender is not None:
            await self.shared_sender.settle()
            for reader in self.readers():
                await reader.settle()

    def _wake_readers(self) -> None:
        if self.queue is not None or self.has_shares:
            for reader in self.readers():
                reader.wake()

    def complete(self, packet_id: int, qos: int) -> None:
        """The client has acknowledged a message for good; `go_on` sends what has room by that."""
        sent = self.window.complete(packet_id, qos)
        if sent is not None and sent.item is not None:
            sent.item.acknowledge()

    def abandon(self, packet_id: int) -> None:
        """The client does not want a message; the same."""
        sent = self.window.abandon(packet_id)
        if sent is not None and sent.item is not None:
            sent.item.acknowledge()

    def _choose(self, message: ApplicationMessage, subscriptions: Sequence[SessionSubscription]) -> _Delivery | None:
        qos, retain = -1, False
        numbers: tuple[int, ...] = ()
        for one in subscriptions:
            if one.no_local and message.publisher == self.client_id:
                continue
            qos = max(qos, one.qos)
            retain = retain or (one.retain_as_published and message.retain)
            if one.subscription_id:
                numbers = (*numbers, one.subscription_id)
        return _Delivery(min(qos, message.qos), retain, numbers) if qos >= 0 else None

    @property
    def _open_connection(self) -> ClientLink | None:
        """The connection, once CONNACK was sent: nothing goes before that [MQTT-3.2.0-1]."""
        connection = self.connection
        return None if connection is None or not connection.is_let_in else connection

    def _deliver(self, message: ApplicationMessage, delivery: _Delivery) -> None:
        connection = self._open_connection
        if connection is None:
            return
        if not delivery.qos:
            if connection.is_stuffed:
                self._traffic.dropped += 1
            else:
                connection.send_message(
                    message, 0, 0, retain=delivery.retain, subscription_ids=delivery.subscription_ids
                )
            return
        if self.window.room > 0 and not self._pending:
            self._send(message, delivery)
            return
        if self._pending is None:
            self._pending = deque()
        self._pending.append(_Pending(message, delivery))
        self._pending_bytes += len(message.payload)
        if len(self._pending) > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES:
            count, size_bytes = len(self._pending), self._pending_bytes
            self._traffic.dropped += count
            self._pending = None
            self._pending_bytes = 0
            words = f"{count} messages of {size_bytes} bytes waited for acknowledgements of {self.client_id[:80]!r}."
            connection.refuse(ReasonCode.QUOTA_EXCEEDED, words, level=logging.WARNING)

    def _send(self, message: ApplicationMessage, delivery: _Delivery) -> None:
        connection = self.connection
        if connection is None:
            return
        packet_id = self.window.add(None, delivery.qos)
        sent = connection.send_message(
            message, delivery.qos, packet_id, retain=delivery.retain, subscription_ids=delivery.subscription_ids
        )
        if not sent:
            self.window.abandon(packet_id)


def session_expiry_s(connect: Connect) -> int:
    """How long the session lives on without a connection, as the client wants it and the server allows."""
    if connect.version is not ProtocolVersion.V5:
        return 0 if connect.clean_start else MAX_SESSION_EXPIRY_S
    return min(connect.properties.number(PropertyId.SESSION_EXPIRY_INTERVAL, 0), MAX_SESSION_EXPIRY_S)


def _is_too_late(popped: PoppedMessage, message: ApplicationMessage) -> bool:
    """Whether a message's time was over before it was sent for the first time [MQTT-3.3.2-5]."""
    return popped.delivery_attempt == 1 and message.is_expired(popped.handle.pop_time_ms)
