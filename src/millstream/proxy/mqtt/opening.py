"""Handles CONNECT: authentication, session lookup, and the limits in CONNACK."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from millstream.model.errors import AccessRefused, MillstreamError
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Auth, Connack, Connect
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode, connect_return_code
from millstream.protocol.mqtt.topic_aliases import OutgoingAliases
from millstream.proxy.mqtt.access import PendingAuthentication
from millstream.proxy.mqtt.connection import MAX_PACKET_BYTES, MAX_RECEIVE, MAX_TOPIC_ALIASES, MqttConnection
from millstream.proxy.mqtt.refusal_reasons import ConnectRefused
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session import MAX_INFLIGHT, MAX_SESSION_EXPIRY_S
from millstream.proxy.mqtt.sessions import SessionTable
from millstream.proxy.mqtt.shared_deliveries import finish_shared
from millstream.security.scram import SCRAM_SHA_256

__all__ = [
    "KEEP_ALIVE_FACTOR",
    "MAX_CLIENT_ID_BYTES",
    "MAX_SILENCE_S",
    "ConnectHandler",
]

MAX_CLIENT_ID_BYTES: Final = 256
"""Bytes of a client id at most."""

MAX_SILENCE_S: Final = 12 * 3600.0
"""Seconds without a packet after which the connection of a client without keep alive is closed."""

KEEP_ALIVE_FACTOR: Final = 1.5
"""So many times its keep alive a client may be silent [MQTT-3.1.2-22]."""

_V5: Final = ProtocolVersion.V5


class ConnectHandler:
    """Opens the connections of one port."""

    def __init__(
        self, services: MqttServices, sessions: SessionTable, watch_silence: Callable[[MqttConnection], None]
    ) -> None:
        """`watch_silence` is called with each connection whose keep alive counts from then on."""
        self._services = services
        self._sessions = sessions
        self._watch_silence = watch_silence

    async def open(self, connection: MqttConnection, connect: Connect) -> None:
        """Let the client in, or say why not."""
        try:
            told = self._properties_of(connection, connect)
            if PropertyId.AUTHENTICATION_METHOD in connect.properties.values:
                self._begin_authentication(connection, connect, told)
                return
            user = self._user_of(connection, connect)
        except MillstreamError as error:
            self._refuse(connection, error)
            return
        await self._let_in(connection, connect, user, told)

    async def go_on(self, connection: MqttConnection, packet: Auth) -> None:
        """The client's proof has come: let it in, or say why not."""
        pending, connection.authentication = connection.authentication, None
        assert pending is not None
        given = packet.properties
        is_next = packet.reason is ReasonCode.CONTINUE_AUTHENTICATION
        if not is_next or given.text(PropertyId.AUTHENTICATION_METHOD) != SCRAM_SHA_256:
            words = "AUTH is not the next step of the authentication."
            self._refuse(connection, ConnectRefused(ReasonCode.PROTOCOL_ERROR, words))
            return
        proof = given.values.get(PropertyId.AUTHENTICATION_DATA)
        try:
            data = proof if isinstance(proof, bytes) else b""
            user, shown = self._services.access.end_scram(pending.exchange, data, connection.peer)
        except AccessRefused as error:
            self._refuse(connection, ConnectRefused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, error.message))
            return
        values = {**pending.told.values, **_scram_properties(shown).values}
        await self._let_in(connection, pending.connect, user, Properties(values))

    def _begin_authentication(self, connection: MqttConnection, connect: Connect, told: Properties) -> None:
        method = connect.properties.text(PropertyId.AUTHENTICATION_METHOD) or ""
        exchange = self._services.access.begin_scram() if method == SCRAM_SHA_256 else None
        if exchange is None:
            raise ConnectRefused(
                ReasonCode.BAD_AUTHENTICATION_METHOD, f"There is no authentication by {method[:40]!r}."
            )
        first = connect.properties.values.get(PropertyId.AUTHENTICATION_DATA)
        try:
            answer = exchange.begin(first if isinstance(first, bytes) else b"")
        except ValueError as error:
            raise ConnectRefused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, f"Of the authentication {error}.") from None
        connection.authentication = PendingAuthentication(connect, exchange, told)
        connection.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, _scram_properties(answer)))

    async def _let_in(self, connection: MqttConnection, connect: Connect, user: str, told: Properties) -> None:
        try:
            session, is_present = await self._sessions.claim(connect, user, connection)
        except MillstreamError as error:
            self._refuse(connection, error)
            return
        if not connection.is_open:
            self._sessions.abandon(session)
            return
        connection.let_in(session)
        session.window.limit = min(connect.properties.number(PropertyId.RECEIVE_MAXIMUM, MAX_INFLIGHT), MAX_INFLIGHT)
        self._watch_silence(connection)
        self._services.statistics.connects += 1
        connection.send(_connack(connection, ReasonCode.SUCCESS, is_present, told))
        ids = session.packet_ids
        left = [] if ids is None else list(ids.shared.values())
        session.resume()
        if ids is not None and left:
            connection.run(finish_shared(self._services.backend, ids, left, session.send_left))

    def _user_of(self, connection: MqttConnection, connect: Connect) -> str:
        if PropertyId.AUTHENTICATION_DATA in connect.properties.values:
            raise ConnectRefused(ReasonCode.PROTOCOL_ERROR, "CONNECT has authentication data and no method.")
        try:
            return self._services.access.user_of(connect, connection.peer)
        except AccessRefused as error:
            raise ConnectRefused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, error.message) from None

    def _properties_of(self, connection: MqttConnection, connect: Connect) -> Properties:
        """Take over what the client says of itself; what CONNACK tells it."""
        wanted = connect.properties
        told: dict[PropertyId, int | str | bytes] = {}
        # First, because they hold for a refusal as well.
        connection.max_packet_bytes = (
            wanted.number(PropertyId.MAXIMUM_PACKET_SIZE, 0) if wanted is not NO_PROPERTIES else 0
        ) or None
        connection.tells_reasons = wanted.number(PropertyId.REQUEST_PROBLEM_INFORMATION, 1) == 1
        size_bytes = len(connect.client_id.encode())
        if size_bytes > MAX_CLIENT_ID_BYTES:
            words = f"The client id has {size_bytes} bytes; the limit is {MAX_CLIENT_ID_BYTES}."
            raise ConnectRefused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, words)
        if not connect.client_id:
            if connect.version is not _V5 and not connect.clean_start:
                words = "A client without a client id has to begin with a clean session."
                raise ConnectRefused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, words)
            connect.client_id = f"auto-{uuid.uuid4().hex}"
            told[PropertyId.ASSIGNED_CLIENT_IDENTIFIER] = connect.client_id
        aliases = min(wanted.number(PropertyId.TOPIC_ALIAS_MAXIMUM, 0), MAX_TOPIC_ALIASES)
        if aliases:
            connection.outgoing_aliases = OutgoingAliases(aliases)
        connection.keep_alive_s = connect.keep_alive_s * KEEP_ALIVE_FACTOR or MAX_SILENCE_S
        expiry_s = wanted.number(PropertyId.SESSION_EXPIRY_INTERVAL, 0)
        if expiry_s > MAX_SESSION_EXPIRY_S:
            told[PropertyId.SESSION_EXPIRY_INTERVAL] = MAX_SESSION_EXPIRY_S
        told[PropertyId.RECEIVE_MAXIMUM] = MAX_RECEIVE
        told[PropertyId.MAXIMUM_PACKET_SIZE] = MAX_PACKET_BYTES
        told[PropertyId.TOPIC_ALIAS_MAXIMUM] = MAX_TOPIC_ALIASES
        return Properties(told)

    def _refuse(self, connection: MqttConnection, error: MillstreamError) -> None:
        self._services.traffic.refused += 1
        reason = error.reason if isinstance(error, ConnectRefused) else ReasonCode.SERVER_UNAVAILABLE
        connection.send(_connack(connection, reason, False, connection.reason_properties(error.message)))
        connection.refuse(reason, error.message)


def _scram_properties(data: bytes) -> Properties:
    return Properties({PropertyId.AUTHENTICATION_METHOD: SCRAM_SHA_256, PropertyId.AUTHENTICATION_DATA: data})


def _connack(connection: MqttConnection, reason: ReasonCode, session_present: bool, properties: Properties) -> Connack:
    """The answer in the form of its version."""
    if connection.version is _V5:
        return Connack(session_present, reason, properties=properties)
    return Connack(session_present, return_code=connect_return_code(reason))
