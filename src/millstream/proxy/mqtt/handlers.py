"""Handlers for the client's packets. Those that need no broker run at once; the others are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Final

from millstream.model.errors import AccessRefused, MillstreamError
from millstream.protocol.mqtt.encoding import PINGRESP, encode_acknowledgement, encode_success
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    Subscribe,
    Unsubscribe,
)
from millstream.protocol.mqtt.properties import NO_PROPERTIES, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode, connect_return_code
from millstream.protocol.mqtt.windows import SentMessage
from millstream.proxy.mqtt.connection import AnswerPlace, MqttConnection
from millstream.proxy.mqtt.exactly_once import ExactlyOnce
from millstream.proxy.mqtt.light_queue_reader import TakenMessage
from millstream.proxy.mqtt.opening import ConnectHandler
from millstream.proxy.mqtt.refusal_reasons import reason_of
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session import MqttSession
from millstream.proxy.mqtt.subscribing import SubscribeHandler
from millstream.proxy.mqtt.system_topics import is_system_topic
from millstream.proxy.throttle import Caller

__all__ = ["REFUSAL_DELAY_S", "PacketHandlers"]

REFUSAL_DELAY_S: Final = 10.0
"""Seconds after which a connection of MQTT 3.1.1 is closed whose message was refused."""

_V5: Final = ProtocolVersion.V5
_ACCEPTED: Final = {1: PacketType.PUBACK, 2: PacketType.PUBREC}


class PacketHandlers:
    """The handlers of one port."""

    def __init__(
        self,
        services: MqttServices,
        opening: ConnectHandler,
        subscribing: SubscribeHandler,
        exactly_once: ExactlyOnce,
    ) -> None:
        self._services = services
        self._opening = opening
        self._subscribing = subscribing
        self._exactly_once = exactly_once

    def take(self, connection: MqttConnection, packet: Packet) -> Awaitable[None] | None:
        """Do what the packet says; what has to wait is given back to be awaited. Raises PacketRefused."""
        if connection.session is None:
            return self._first(connection, packet)
        match packet:
            case Publish():
                self._publish(connection, packet)
            case Acknowledgement():
                self._acknowledge(connection, packet)
            case Ping(packet_type=PacketType.PINGREQ):
                connection.send_bytes(PINGRESP)
            case Subscribe():
                return self._subscribing.subscribe(connection, packet)
            case Unsubscribe():
                return self._subscribing.unsubscribe(connection, packet)
            case Disconnect():
                self._disconnect(connection, packet)
            case _:
                name = type(packet).__name__.upper()
                raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"A client that was let in may not send {name}.")
        return None

    def refuse_packet(self, connection: MqttConnection, error: PacketRefused) -> None:
        """End a connection for what came over it. A CONNECT of an unknown version, or with a client id or will that may
        not be, is answered [MQTT-3.1.4-2]."""
        self._services.traffic.refused += 1
        if connection.session is None and error.reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
            # Whoever speaks another version may still know this form, which all have in common.
            connection.version = ProtocolVersion.V3_1_1
            connection.send(Connack(return_code=connect_return_code(error.reason)))
        connection.refuse(error.reason, error.message)

    def _first(self, connection: MqttConnection, packet: Packet) -> Awaitable[None]:
        if connection.authentication is not None:
            if not isinstance(packet, Auth):
                name = type(packet).__name__.upper()
                raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"AUTH has to come next, not {name}.")
            return self._opening.go_on(connection, packet)
        if not isinstance(packet, Connect):
            name = type(packet).__name__.upper()
            raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"The first packet is {name}, not CONNECT.")
        connection.version = packet.version
        return self._opening.open(connection, packet)

    # Publishing

    def _publish(self, connection: MqttConnection, packet: Publish) -> None:
        services, session = self._services, connection.session
        assert session is not None
        services.traffic.messages_in += 1
        topic = self._topic_of(connection, packet)
        qos = packet.qos
        if qos and not self._is_new(connection, session, packet):
            return
        message = services.message_of(packet, topic, session.client_id)

        answer = connection.expect_answer() if qos == 1 else None
        connection.note_publish()
        end = partial(self._end_publish, connection, qos, packet.packet_id, answer)
        try:
            if topic.startswith("$") and is_system_topic(topic):
                raise AccessRefused("ACCESS_DENIED", f"{topic[:80]!r} is one of the server's own topics.", remedy="")
            if services.throttle.has_rules:
                caller = Caller(session.client_id, user=session.user)
                services.throttle.admit(caller, len(packet.payload), services.clock.monotonic_s())
            if services.access.is_on:
                services.access.check_publish(session.client, topic, connection.peer)
            if packet.retain:
                services.retained.check(message)
            if qos == 2 and session.packet_ids is not None:
                self._exactly_once.publish(session.packet_ids, packet.packet_id, message, connection.peer, end)
            else:
                services.publish(message, connection.peer, end)
        except MillstreamError as error:
            end(error)

    def _end_publish(
        self,
        connection: MqttConnection,
        qos: int,
        packet_id: int,
        answer: AnswerPlace | None,
        error: MillstreamError | None,
    ) -> None:
        """A message is stored, or was refused."""
        connection.note_stored()
        if not qos or not connection.is_open:
            return
        if error is None:
            # Most messages.
            if answer is None:
                connection.send_bytes(encode_success(PacketType.PUBREC, packet_id))
            else:
                connection.incoming.acknowledge()
                connection.fill(answer, encode_success(PacketType.PUBACK, packet_id))
            return
        self._answer_refused(connection, qos, packet_id, answer, error)

    @staticmethod
    def _topic_of(connection: MqttConnection, packet: Publish) -> str:
        """The topic of a PUBLISH, by its alias where it has none itself."""
        properties = packet.properties
        if properties is NO_PROPERTIES and packet.topic:
            return packet.topic
        if properties.subscription_ids:
            raise PacketRefused(ReasonCode.PROTOCOL_ERROR, "PUBLISH of a client has a subscription identifier.")
        alias = properties.values.get(PropertyId.TOPIC_ALIAS)
        return connection.incoming_aliases.resolve(packet.topic, alias if isinstance(alias, int) else None)

    def _is_new(self, connection: MqttConnection, session: MqttSession, packet: Publish) -> bool:
        """Whether the message did not come before; one of QoS 2 that did is answered."""
        if connection.incoming.admit(packet.packet_id, packet.qos):
            return True
        ids = session.packet_ids
        if ids is not None and packet.packet_id in ids.left:
            # An earlier connection may have ended between the note of the identifier and the message.
            return True
        if not self._exactly_once.is_under_way(session.client_id, packet.packet_id):
            self._answer(connection, PacketType.PUBREC, packet.packet_id)
        return False

    def _answer_refused(
        self,
        connection: MqttConnection,
        qos: int,
        packet_id: int,
        answer: AnswerPlace | None,
        error: MillstreamError,
    ) -> None:
        """Answer a message of QoS 1 or 2 that was refused."""
        if qos == 1:
            connection.incoming.acknowledge()
        self._services.traffic.refused += 1
        reason, properties = reason_of(error), NO_PROPERTIES
        if connection.version is _V5:
            properties = connection.reason_properties(error.message)
            if qos == 2:
                self._forget_received(connection, packet_id)
        elif reason is not ReasonCode.NOT_AUTHORIZED:
            # 3.1.1 has no word for it: without an answer the client sends it again over its next connection.
            _refuse_later(connection, reason, str(error))
            return
        data = encode_acknowledgement(
            Acknowledgement(_ACCEPTED[qos], packet_id, reason, properties), connection.version
        )
        if answer is None:
            connection.send_bytes(data)
        else:
            connection.fill(answer, data)

    @staticmethod
    def _forget_received(connection: MqttConnection, packet_id: int) -> None:
        """A message of QoS 2 was refused: its identifier is free [MQTT-4.3.3-9]."""
        connection.incoming.release(packet_id)
        ids = None if connection.session is None else connection.session.packet_ids
        if ids is not None:
            ids.received.pop(packet_id, None)
            ids.write()

    # Acknowledgements

    def _acknowledge(self, connection: MqttConnection, packet: Acknowledgement) -> None:
        session = connection.session
        assert session is not None
        packet_id = packet.packet_id
        match packet.packet_type:
            case PacketType.PUBACK:
                session.complete(packet_id, 1)
            case PacketType.PUBREC if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
                ids = session.packet_ids
                if ids is not None and ids.shared.pop(packet_id, None) is not None:
                    ids.write()
                session.abandon(packet_id)
            case PacketType.PUBREC:
                self._note_received(connection, session, packet_id)
            case PacketType.PUBCOMP:
                session.forget_released(packet_id)
                session.complete(packet_id, 2)
            case _:
                self._release(connection, session, packet_id)

    def _note_received(self, connection: MqttConnection, session: MqttSession, packet_id: int) -> None:
        """The client has a message of QoS 2: once the store knows that, it is released."""
        sent = session.window.receive(packet_id)
        if sent is None or session.packet_ids is None:
            self._answer(connection, PacketType.PUBREL, packet_id, known=sent is not None)
            return
        session.packet_ids.shared.pop(packet_id, None)
        session.packet_ids.released[packet_id] = None

        session.packet_ids.note(partial(self._send_release, connection, sent))

    @staticmethod
    def _send_release(
        connection: MqttConnection, sent: SentMessage[TakenMessage | None], error: MillstreamError | None
    ) -> None:
        if error is not None:
            connection.refuse(ReasonCode.UNSPECIFIED_ERROR, "The state of a message could not be stored.")
            return
        if sent.item is not None:
            sent.item.acknowledge()
            sent.item = None
        connection.send_bytes(encode_success(PacketType.PUBREL, sent.packet_id))

    def _release(self, connection: MqttConnection, session: MqttSession, packet_id: int) -> None:
        """The client releases a message of QoS 2: once the store knows that, the identifier is free."""
        known = connection.incoming.release(packet_id)
        ids = session.packet_ids
        if not known or ids is None:
            self._answer(connection, PacketType.PUBCOMP, packet_id, known=known)
            return
        ids.received.pop(packet_id, None)
        ids.forget_left(packet_id)

        ids.note(partial(self._complete, connection, packet_id))

    @staticmethod
    def _complete(connection: MqttConnection, packet_id: int, error: MillstreamError | None) -> None:
        if error is None:
            connection.send_bytes(encode_success(PacketType.PUBCOMP, packet_id))
        else:
            connection.refuse(ReasonCode.UNSPECIFIED_ERROR, "The state of a message could not be stored.")

    @staticmethod
    def _answer(connection: MqttConnection, packet: PacketType, packet_id: int, *, known: bool = True) -> None:
        reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        connection.send_bytes(encode_acknowledgement(Acknowledgement(packet, packet_id, reason), connection.version))

    # The end

    def _disconnect(self, connection: MqttConnection, packet: Disconnect) -> None:
        session = connection.session
        assert session is not None
        expiry_s = packet.properties.values.get(PropertyId.SESSION_EXPIRY_INTERVAL)
        if isinstance(expiry_s, int):
            if expiry_s and not session.expiry_s:
                words = "The session expiry of DISCONNECT may not be set where that of CONNECT was 0."
                raise PacketRefused(ReasonCode.PROTOCOL_ERROR, words)
            session.expiry_s = expiry_s
        connection.has_disconnected = True
        connection.will_is_due = packet.reason is ReasonCode.DISCONNECT_WITH_WILL
        connection.close()


def _refuse_later(connection: MqttConnection, reason: ReasonCode, words: str) -> None:
    """Close the connection of a client of 3.1.1 whose message was refused, after a while: it will come again."""
    asyncio.get_running_loop().call_later(REFUSAL_DELAY_S, connection.refuse, reason, words)
