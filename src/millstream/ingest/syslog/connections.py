"""Syslog over TCP and TLS: each connection is cut into messages; none is read on while too many bytes wait."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import datetime
from typing import Final, cast

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.rate_limited_log import RateLimitedLog
from millstream.ingest.syslog.events import SyslogBatchBuilder
from millstream.ingest.syslog.framing import FrameCutter, SyslogFrame
from millstream.ingest.topic_writer import TopicWriter
from millstream.model.message import Address
from millstream.transport.listening import listen_refused

__all__ = ["MAX_PEERS", "ConnectionListener"]

MAX_PEERS: Final = 4000
"""Connections of one port at the same time at most; the next one is closed at once."""

HANDSHAKE_S: Final = 10.0
"""Seconds that a TLS handshake may take."""


class ConnectionListener:
    """Listens on one TCP port for an outlet; with `tls` only for TLS connections."""

    def __init__(
        self,
        place: Address,
        outlet: TopicWriter,
        maker: SyslogBatchBuilder,
        complaints: RateLimitedLog,
        max_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._place = place
        self.outlet = outlet
        self.maker = maker
        self.complaints = complaints
        self.max_bytes = max_bytes
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.peers: set[_Peer] = set()

    async def start(self) -> Address:
        """Listen; where it is. Raises StartRefused."""
        host, port = self._place.host, self._place.port
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Peer(self),
                host or None,
                port,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls else None,
            )
        except OSError as error:
            raise listen_refused(host, port, error) from None
        return Address(host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and let go of all peers, with what came of their last messages."""
        if self._server is None:
            return
        self._server.close()
        for peer in list(self.peers):
            peer.leave()
        await asyncio.sleep(0)


class _Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, listener: ConnectionListener) -> None:
        self._listener = listener
        self._cutter = FrameCutter(listener.max_bytes)
        self._transport: asyncio.Transport | None = None
        self._host = "unknown"
        self._held: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio.
        transport = self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self._host = address[0] if isinstance(address, tuple) else "unknown"
        if len(self._listener.peers) >= MAX_PEERS:
            self._listener.complaints.add("many", f"{MAX_PEERS:,} peers are connected; {self._host} was sent away")
            self._listener.maker.tally.broken += 1
            transport.abort()
            return
        connection = transport.get_extra_info("socket")
        if connection is not None:
            # A peer that vanished without a word is noticed, though nothing is ever sent to it.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._listener.peers.add(self)
        self._listener.maker.tally.peers += 1

    def data_received(self, data: bytes) -> None:
        self._give(self._cutter.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        if self not in self._listener.peers:
            return
        self._listener.peers.discard(self)
        self._listener.maker.tally.peers -= 1
        was_between = self._cutter.is_between
        left = self._cutter.end()
        if not was_between or exc is not None:
            self._listener.maker.tally.broken += 1
            why = f": {exc}" if exc is not None else ""
            where = "" if was_between else " in the middle of a message"
            self._listener.complaints.add("left", f"{self._host} went{where}{why}")
        if left is not None:
            self._give([left])

    def leave(self) -> None:
        """Close the connection at the stop of the gateway."""
        if self._transport is not None:
            self._transport.abort()

    def _give(self, frames: list[SyslogFrame]) -> None:
        parcel = self._listener.maker.parcel(self._host, frames, datetime.now())
        if parcel is None:
            return
        if self._held is not None or self._listener.outlet.offer(parcel) is None:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()
            self._held = asyncio.get_running_loop().create_task(self._wait(self._held, parcel))

    async def _wait(self, before: asyncio.Task[None] | None, parcel: EventBatch) -> None:
        if before is not None:
            await before
        await self._listener.outlet.put(parcel)
        if self._held is asyncio.current_task():
            self._held = None
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
