"""Connections between controllers: one to each peer; messages may be lost."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Final

from millstream.controller.broker_calls import address_of
from millstream.controller.replicated_log import ControllerPeer
from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.controller_requests import RaftEnvelope
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["MAX_WAITING", "PeerLines"]

_log = logging.getLogger(__name__)

MAX_WAITING: Final = 64
"""Messages to one controller that wait for a connection at most; the oldest is dropped."""

_OPEN_S: Final = 1.0
"""Seconds in which a connection must be there."""

_RETRY: Final = Backoff(0.05, 1.0)
"""Between two attempts to reach a controller: short, because elections wait for them."""


class PeerLines:
    """Sends messages to the other controllers of a group, in order as long as a connection holds."""

    def __init__(
        self,
        group: str,
        self_id: str,
        others: Iterable[ControllerPeer],
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._lines = {peer.id: _Line(peer, RaftEnvelope(group, self_id, peer.id), credentials, tls) for peer in others}

    def send(self, peer_id: str, message: bytes) -> None:
        """Send a message; it may get lost. Nothing where no such controller is known."""
        line = self._lines.get(peer_id)
        if line is not None:
            line.send(message)

    async def close(self) -> None:
        """Send nothing any more."""
        for line in self._lines.values():
            await line.close()


class _Line:
    """The way to one controller."""

    def __init__(
        self,
        peer: ControllerPeer,
        envelope: RaftEnvelope,
        credentials: Credentials | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._peer = peer
        self._envelope = envelope
        self._credentials = credentials
        self._tls = tls
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._connection: RemotingConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failed = 0

    def send(self, message: bytes) -> None:
        if self._connection is not None and self._connection.is_open:
            self._write(self._connection, message)
            return
        self._waiting.append(message)
        if self._opening is None and not self._is_closed:
            self._opening = asyncio.get_running_loop().create_task(self._open(), name=f"reach-{self._peer.id}")

    async def close(self) -> None:
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _write(self, connection: RemotingConnection, message: bytes) -> None:
        connection.notify(RemotingCommand(RequestCode.RAFT_MESSAGE, self._envelope.encode(), message))

    async def _open(self) -> None:
        try:
            self._connection = connection = await RemotingConnection.open(
                address_of(self._peer.address), timeout_s=_OPEN_S, credentials=self._credentials, tls=self._tls
            )
        except MillstreamError as error:
            if not self._failed:
                _log.warning("The controller %s cannot be reached: %s", self._peer.id, error)
            # What waited is out of date by now.
            self._waiting.clear()
            self._failed += 1
            await asyncio.sleep(_RETRY.wait_s(self._failed - 1))
        else:
            if self._failed:
                _log.warning("The controller %s is reached again.", self._peer.id)
            self._failed = 0
            while self._waiting:
                self._write(connection, self._waiting.popleft())
        finally:
            self._opening = None
