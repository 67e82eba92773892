"""Handles SUBSCRIBE and UNSUBSCRIBE: one reason code per filter, and retained messages for new ones."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.packets import Suback, Subscribe, TopicSubscription, Unsuback, Unsubscribe
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topics import check_topic_filter, parse_shared_filter
from millstream.proxy.mqtt.connection import MqttConnection
from millstream.proxy.mqtt.refusal_reasons import reason_of
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session import MAX_SESSION_SUBSCRIPTIONS, MqttSession
from millstream.proxy.mqtt.sessions import SessionTable
from millstream.proxy.mqtt.shares import ShareTable
from millstream.proxy.mqtt.subscriptions import SessionSubscription
from millstream.proxy.mqtt.system_topics import SystemTopics

__all__ = ["SubscribeHandler"]

_GRANTED: Final = (ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)
_SEND_IF_NEW: Final = 1
_NEVER: Final = 2


class SubscribeHandler:
    """The two packets of one port."""

    def __init__(
        self, services: MqttServices, sessions: SessionTable, shares: ShareTable, system_topics: SystemTopics
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._shares = shares
        self._system_topics = system_topics

    async def subscribe(self, connection: MqttConnection, packet: Subscribe) -> None:
        """Answer a SUBSCRIBE, then send what is retained."""
        session = connection.session
        assert session is not None
        # What the client published before is no news to it, whether it is retained or not.
        await connection.settle()
        number = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
        reasons: list[ReasonCode] = []
        wanted: list[SessionSubscription] = []
        for wish in packet.subscriptions:
            if wish.no_local and wish.topic_filter.startswith("$share/"):
                raise PacketRefused(ReasonCode.PROTOCOL_ERROR, "A shared subscription may not have No Local.")
            is_new = wish.topic_filter not in session.subscriptions
            try:
                made = await self._subscribe(connection, session, wish, number)
            except MillstreamError as error:
                self._services.traffic.refused += 1
                reasons.append(reason_of(error))
                continue
            reasons.append(_GRANTED[wish.qos])
            # Nothing that is retained comes to a shared subscription.
            handling = _NEVER if made.share is not None else wish.retain_handling
            if handling == 0 or (handling == _SEND_IF_NEW and is_new):
                wanted.append(made)
        await self._sessions.save(session)
        connection.send(Suback(packet.packet_id, reasons))
        if wanted:
            connection.run(self._send_retained(connection, session, wanted))

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
            self._services.subscriptions.remove(held)
            if held.share is not None:
                await self._shares.leave(held)
            elif session.queue is not None and held.qos:
                await self._sessions.unbind(session, held.topic_filter)
            reasons.append(ReasonCode.SUCCESS)
        await self._sessions.save(session)
        connection.send(Unsuback(packet.packet_id, reasons))

    async def _subscribe(
        self, connection: MqttConnection, session: MqttSession, wish: TopicSubscription, number: int
    ) -> SessionSubscription:
        services = self._services
        shared = parse_shared_filter(wish.topic_filter)
        topic_filter = wish.topic_filter if shared is None else shared.topic_filter
        check_topic_filter(topic_filter)
        services.access.check_subscribe(
            session.client, topic_filter, connection.peer, None if shared is None else shared.group
        )
        held = session.subscriptions.get(wish.topic_filter)
        if held is None and len(session.subscriptions) >= MAX_SESSION_SUBSCRIPTIONS:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS", f"{MAX_SESSION_SUBSCRIPTIONS} subscriptions are the limit of a session."
            )
        made = SessionSubscription(session, topic_filter, wish.qos, wish.no_local, wish.retain_as_published, number)
        if shared is not None:
            if held is not None:
                await self._shares.leave(held)
            await self._shares.join(session, made, shared.group)
        if held is None:
            try:
                await services.subscriptions.add(made)
            except BaseException:
                if shared is not None:
                    await self._shares.leave(made)
                raise
        else:
            services.subscriptions.replace(held, made)
        session.subscriptions[wish.topic_filter] = made
        if shared is not None:
            session.go_on()
        elif session.is_lasting:
            if wish.qos:
                await self._sessions.bind(session, topic_filter)
            elif held is not None and held.qos:
                await self._sessions.unbind(session, topic_filter)
        return made

    async def _send_retained(
        self, connection: MqttConnection, session: MqttSession, subscriptions: list[SessionSubscription]
    ) -> None:
        """Send what is retained, as fast as the client takes it [MQTT-3.3.1-9]."""
        retained = self._services.retained
        for subscription in subscriptions:
            for own in self._system_topics.matching(subscription.topic_filter):
                session.send_retained(own, subscription)
            for offset in await retained.find(subscription.topic_filter):
                while not session.is_caught_up:
                    await connection.wait_for_room()
                if not connection.is_open:
                    return
                message = await retained.read(offset)
                if message is None or (subscription.no_local and message.publisher == session.client_id):
                    continue
                session.send_retained(message, subscription)
