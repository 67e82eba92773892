"""The sessions of the clients that are connected here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.connection import MqttConnection
from millstream.proxy.mqtt.opening import ConnectRefused, session_expiry_s
from millstream.proxy.mqtt.session import Session

if TYPE_CHECKING:
    from millstream.proxy.mqtt.server import MqttServer

__all__ = ["SessionTable"]


class SessionTable:
    """One session for each client id."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def claim(self, connect: Connect, user: str, connection: MqttConnection) -> tuple[Session, bool]:
        """The session of a client, and whether it was there before. An older connection of the client id is closed
        [MQTT-3.1.4-3]. NOT_AUTHORIZED where it is another user's."""
        held = self._sessions.get(connect.client_id)
        if held is not None and held.user != user:
            raise ConnectRefused(ReasonCode.NOT_AUTHORIZED, "The client id is another user's.")
        if held is not None and held.connection is not None:
            self._server.statistics.takeovers += 1
            held.connection.refuse(ReasonCode.SESSION_TAKEN_OVER, "Another connection has the client id now.")
            self.end(held)
        session = Session(connect.client_id, user, self._server.statistics)
        session.expiry_s = session_expiry_s(connect)
        session.connection = connection
        self._sessions[connect.client_id] = session
        return session, False

    def leave(self, connection: MqttConnection) -> None:
        """The connection is gone."""
        session = connection.session
        if session is None or session.connection is not connection:
            return
        self.end(session)

    def end(self, session: Session) -> None:
        """Forget a session."""
        session.connection = None
        for subscription in session.subscriptions.values():
            self._server.subscriptions.remove(subscription)
        session.subscriptions.clear()
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
