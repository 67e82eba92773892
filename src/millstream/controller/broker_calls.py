"""The controller's requests to brokers: liveness checks, and notices of a new master."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from millstream.model.errors import MillstreamError, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["MAX_LINES", "MAX_WAITING", "REACH_S", "TELL_S", "BrokerCalls", "address_of"]

_log = logging.getLogger(__name__)

REACH_S: Final = 0.1
"""Seconds that a broker has to take a connection after the one of its heartbeats closed."""

TELL_S: Final = 3.0
"""Seconds in which a broker must be reached to be told something; it asks itself now and then, too."""

MAX_LINES: Final = 256
"""Brokers that are told something at a time at most; others wait, and are told the newest alone."""

MAX_WAITING: Final = 10_000
"""Brokers at most that wait to be told something; others are not told, and find out when they ask."""


class BrokerCalls:
    """Each call opens a connection of its own: elections are rare, and a dead broker must not hold up others."""

    def __init__(self, credentials: Credentials | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._credentials = credentials
        self._tls = tls
        self._telling: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, RemotingCommand] = {}
        """What brokers that wait are to be told, by address, the first one first."""

    async def reach(self, address: str) -> bool:
        """Whether something listens at `host:port` and takes a connection within `REACH_S`."""
        try:
            # Without TLS: that somebody takes the connection is all that is asked.
            connection = await RemotingConnection.open(address_of(address), timeout_s=REACH_S)
        except MillstreamError:
            return False
        await connection.close()
        return True

    def notify(self, address: str, command: RemotingCommand) -> None:
        """Send a request that nobody answers; a broker that cannot be reached is not told."""
        if len(self._telling) < MAX_LINES:
            self._begin(address, command)
        elif address in self._waiting or len(self._waiting) < MAX_WAITING:
            self._waiting[address] = command
        else:
            _log.warning("%s is not told of an election: %d others wait to be told.", address, MAX_WAITING)

    async def close(self) -> None:
        """Tell nobody any more."""
        self._waiting.clear()
        for task in list(self._telling):
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _begin(self, address: str, command: RemotingCommand) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(address, command))
        self._telling.add(task)
        task.add_done_callback(self._go_on)

    def _go_on(self, told: asyncio.Task[None]) -> None:
        self._telling.discard(told)
        if self._waiting:
            address = next(iter(self._waiting))
            self._begin(address, self._waiting.pop(address))

    async def _tell(self, address: str, command: RemotingCommand) -> None:
        try:
            connection = await RemotingConnection.open(
                address_of(address), timeout_s=TELL_S, credentials=self._credentials, tls=self._tls
            )
        except MillstreamError as error:
            _log.warning("%s is not told of an election: %s", address, error)
            return
        connection.notify(command)
        await connection.close()


def address_of(text: str) -> Address:
    """The address of `host:port`. Raises Unreachable for another text."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise Unreachable(f"{text[:80]!r} is no address of the form host:port.")
    return Address(host.strip("[]"), int(port))
