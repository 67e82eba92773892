"""SUBSCRIBE and UNSUBSCRIBE: one answer for each filter, and what is retained for the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topics import check_topic_filter, parse_shared_filter
from millstream.proxy.mqtt.connection import MqttConnection
from millstream.proxy.mqtt.handlers import reason_of
from millstream.proxy.mqtt.session import MAX_SESSION_SUBSCRIPTIONS, Session
from millstream.proxy.mqtt.subscriptions import SessionSubscription

if TYPE_CHECKING:
    from millstream.proxy.mqtt.server import MqttServer

__all__ = ["SubscribeHandler"]

_GRANTED: Final = (ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)
_SEND_IF_NEW: Final = 1


class SubscribeHandler:
    """The two packets of one port."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server

    async def subscribe(self, connection: MqttConnection, packet: Subscribe) -> None:
        """Answer a SUBSCRIBE, then send what is retained."""
        session = connection.session
        assert session is not None
        number = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
        reasons: list[ReasonCode] = []
        wanted: list[SessionSubscription] = []
        for wish in packet.subscriptions:
            if wish.no_local and parse_share(wish) and connection.version is ProtocolVersion.V5:
                raise PacketRefused(ReasonCode.PROTOCOL_ERROR, "A shared subscription may not have No Local.")
            is_new = wish.topic_filter not in session.subscriptions
            try:
                made = await self._subscribe(connection, session, wish, number)
            except MillstreamError as error:
                self._server.statistics.refused += 1
                reasons.append(reason_of(error))
                continue
            reasons.append(_GRANTED[wish.qos])
            if wish.retain_handling == 0 or (wish.retain_handling == _SEND_IF_NEW and is_new):
                wanted.append(made)
        connection.send(Suback(packet.packet_id, reasons))

    async def unsubscribe(self, connection: MqttConnection, packet: Unsubscribe) -> None:
        """Answer an UNSUBSCRIBE."""
        session = connection.session
        assert session is not None
        reasons: list[ReasonCode] = []
        for topic_filter in packet.topic_filters:
            held = session.subscriptions.pop(topic_filter, None)
            if held is None:
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
                continue
            self._server.subscriptions.remove(held)
            reasons.append(ReasonCode.SUCCESS)
        connection.send(Unsuback(packet.packet_id, reasons))

    async def _subscribe(
        self, connection: MqttConnection, session: Session, wish: Subscription, number: int
    ) -> SessionSubscription:
        server = self._server
        shared = parse_shared_filter(wish.topic_filter)
        topic_filter = wish.topic_filter if shared is None else shared.topic_filter
        check_topic_filter(topic_filter)
        server.access.check_subscribe(session, topic_filter, connection.peer)
        held = session.subscriptions.get(wish.topic_filter)
        if held is None and len(session.subscriptions) >= MAX_SESSION_SUBSCRIPTIONS:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS", f"{MAX_SESSION_SUBSCRIPTIONS} subscriptions are the limit of a session."
            )
        made = SessionSubscription(session, topic_filter, wish.qos, wish.no_local, wish.retain_as_published, number)
        if held is None:
            await server.subscriptions.add(made)
        else:
            server.subscriptions.replace(held, made)
        session.subscriptions[wish.topic_filter] = made
        return made


def parse_share(wish: Subscription) -> bool:
    """Whether the filter is that of a shared subscription."""
    return wish.topic_filter.startswith("$share/")
