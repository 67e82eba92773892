"""A session of an MQTT client at this proxy: its subscriptions and the messages on their way to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.windows import OutgoingWindow
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.statistics import MqttStatistics
from millstream.proxy.mqtt.subscriptions import SessionSubscription

if TYPE_CHECKING:
    from millstream.proxy.mqtt.connection import MqttConnection

__all__ = ["MAX_INFLIGHT", "MAX_PENDING", "MAX_PENDING_BYTES", "MAX_SESSION_SUBSCRIPTIONS", "Session"]

MAX_INFLIGHT: Final = 100
"""Messages of QoS 1 and 2 that one client gets before it acknowledges some, at most."""

MAX_PENDING: Final = 1000
"""Messages of QoS 1 and 2 that wait for a client whose session ends with its connection, at most: one more, and the
connection is closed, which the client sees, while a message left out it would not."""

MAX_PENDING_BYTES: Final = 4 * 1024 * 1024
"""The same for the bytes of their payloads."""

MAX_SESSION_SUBSCRIPTIONS: Final = 1200
"""Subscriptions of one session at most."""


class _Pending(NamedTuple):
    message: ApplicationMessage
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]


class Session:
    """One for each client id; `connection` is None while the client is away."""

    __slots__ = (
        "_pending",
        "_pending_bytes",
        "_statistics",
        "client_id",
        "connection",
        "expiry_s",
        "subscriptions",
        "user",
        "window",
    )

    def __init__(self, client_id: str, user: str, statistics: MqttStatistics) -> None:
        self.client_id = client_id
        self.user = user
        self.expiry_s = 0
        """Seconds that it lives on without a connection."""
        self.connection: MqttConnection | None = None
        self.subscriptions: dict[str, SessionSubscription] = {}
        self.window: OutgoingWindow[ApplicationMessage] = OutgoingWindow(MAX_INFLIGHT)
        self._statistics = statistics
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0

    def offer(self, message: ApplicationMessage, subscriptions: Sequence[SessionSubscription]) -> None:
        """Take a message that these subscriptions of the session match: it comes once, with their highest QoS."""
        qos, retain = -1, False
        numbers: tuple[int, ...] = ()
        for one in subscriptions:
            if one.no_local and message.publisher == self.client_id:
                continue
            qos = max(qos, one.qos)
            retain = retain or (one.retain_as_published and message.retain)
            if one.subscription_id:
                numbers = (*numbers, one.subscription_id)
        if qos >= 0:
            self.deliver(message, min(qos, message.qos), retain=retain, subscription_ids=numbers)

    def deliver(
        self, message: ApplicationMessage, qos: int, *, retain: bool, subscription_ids: tuple[int, ...] = ()
    ) -> None:
        """Send a message, or keep it until the client has acknowledged others."""
        connection = self.connection
        if connection is None:
            return
        if not qos:
            if connection.is_stuffed:
                self._statistics.dropped += 1
            else:
                connection.send_message(message, 0, 0, retain=retain, subscription_ids=subscription_ids)
            return
        if self.window.room > 0 and not self._pending:
            packet_id = self.window.add(message, qos)
            connection.send_message(message, qos, packet_id, retain=retain, subscription_ids=subscription_ids)
            return
        self._pending.append(_Pending(message, qos, retain, subscription_ids))
        self._pending_bytes += len(message.payload)
        if len(self._pending) > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES:
            self._drop_pending()
            connection.refuse(ReasonCode.QUOTA_EXCEEDED, f"{MAX_PENDING} messages wait for an acknowledgement.")

    def resume(self) -> None:
        """The client is here: send what it has to get again, and then the rest."""
        self.go_on()

    def go_on(self) -> None:
        """Send what waits, as far as there is room."""
        connection = self.connection
        while self._pending and self.window.room > 0 and connection is not None:
            one = self._pending.popleft()
            self._pending_bytes -= len(one.message.payload)
            packet_id = self.window.add(one.message, one.qos)
            connection.send_message(
                one.message, one.qos, packet_id, retain=one.retain, subscription_ids=one.subscription_ids
            )

    def _drop_pending(self) -> None:
        self._statistics.dropped += len(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
