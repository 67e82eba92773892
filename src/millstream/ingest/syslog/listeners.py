"""Syslog over UDP, TCP and TLS, with backpressure while too many bytes wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.rate_limited_log import RateLimitedLog
from millstream.ingest.syslog.framing import FrameCutter, SyslogFrame
from millstream.ingest.syslog.message import SyslogBatchBuilder
from millstream.ingest.topic_writer import TopicWriter
from millstream.model.message import Address
from millstream.transport.listening import listen_refused

__all__ = ["MAX_PEERS", "RECEIVE_BUFFER_BYTES", "ConnectionListener", "DatagramListener", "drops_in"]


RECEIVE_BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the kernel's buffer that are asked for; the system's net.core.rmem_max may allow less."""

_DATAGRAMS_AT_A_TIME: Final = 512
"""Datagrams that are read before their events are made; others of the loop have their turn then."""

_MAX_DATAGRAM_BYTES: Final = 65_535
_FORCE_BUFFER: Final = 33
"""SO_RCVBUFFORCE of Linux, which Python does not name: beyond the limit, for those who may."""

_TABLES: Final = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12


class DatagramListener:
    """Reads one UDP port for an outlet."""

    def __init__(self, place: Address, outlet: TopicWriter, maker: SyslogBatchBuilder, max_bytes: int) -> None:
        self._place = place
        self._outlet = outlet
        self._maker = maker
        self._max_bytes = max_bytes
        self._socket: socket.socket | None = None
        self._held: asyncio.Task[None] | None = None

    async def start(self) -> Address:
        """Bind the port; where it is. Raises StartRefused."""
        host, port = self._place.host, self._place.port
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = found[0]
            listener = socket.socket(family, socket.SOCK_DGRAM)
            try:
                listener.setblocking(False)
                _ask_for_buffer(listener)
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise listen_refused(host, port, error) from None
        self._socket = listener
        loop.add_reader(listener, self._take)
        return Address(host, listener.getsockname()[1])

    async def stop(self) -> None:
        """Read what the kernel still holds, as far as there is room, and close the port."""
        if self._socket is None:
            return
        while self._held is None and self._take():
            pass
        listener, self._socket = self._socket, None
        asyncio.get_running_loop().remove_reader(listener)
        self._count_drops(listener)
        listener.close()

    def look_for_drops(self) -> None:
        """Bring the count of the datagrams that the kernel threw away up to date."""
        if self._socket is not None:
            self._count_drops(self._socket)

    def _count_drops(self, listener: socket.socket) -> None:
        drops = drops_in(_lines_of(_TABLES), os.fstat(listener.fileno()).st_ino)
        if drops is not None:
            self._maker.tally.kernel_drops = drops

    def _take(self) -> bool:
        """Read some datagrams and hand them on; whether there were any."""
        assert self._socket is not None
        receive, by_peer = self._socket.recvfrom, dict[str, list[SyslogFrame]]()
        count = 0
        with contextlib.suppress(BlockingIOError, InterruptedError, ConnectionError):
            while count < _DATAGRAMS_AT_A_TIME:
                data, address = receive(_MAX_DATAGRAM_BYTES)
                count += 1
                by_peer.setdefault(address[0], []).append(_frame(data, self._max_bytes))
        now = datetime.now()
        for peer, frames in by_peer.items():
            event_batch = self._maker.make_batch(peer, frames, now)
            if event_batch is not None and (self._held is not None or self._outlet.offer(event_batch) is None):
                self._hold(event_batch)
        return count > 0

    def _hold(self, event_batch: EventBatch) -> None:
        """Wait for room with what was read; meanwhile the kernel holds what comes."""
        loop = asyncio.get_running_loop()
        if self._socket is not None:
            loop.remove_reader(self._socket)
        self._held = loop.create_task(self._wait(self._held, event_batch))

    async def _wait(self, before: asyncio.Task[None] | None, event_batch: EventBatch) -> None:
        if before is not None:
            await before
        await self._outlet.put(event_batch)
        if self._held is asyncio.current_task():
            self._held = None
            if self._socket is not None:
                asyncio.get_running_loop().add_reader(self._socket, self._take)


def drops_in(lines: Iterable[str], inode: int) -> int | None:
    """Datagrams that the kernel dropped at the socket of that inode, by the lines of /proc/net/udp; None without it."""
    for line in lines:
        words = line.split()
        if len(words) > _DROPS and words[_INODE] == str(inode):
            return int(words[_DROPS])
    return None


def _lines_of(tables: Iterable[Path]) -> list[str]:
    lines: list[str] = []
    for table in tables:
        with contextlib.suppress(OSError):
            lines += table.read_text().splitlines()[1:]
    return lines


def _frame(data: bytes, max_bytes: int) -> SyslogFrame:
    body = data.rstrip(b"\r\n\0")
    return SyslogFrame(body) if len(body) <= max_bytes else SyslogFrame(body[:max_bytes], len(body))


def _ask_for_buffer(listener: socket.socket) -> None:
    try:
        listener.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, RECEIVE_BUFFER_BYTES)
    except OSError:
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


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
        event_batch = self._listener.maker.make_batch(self._host, frames, datetime.now())
        if event_batch is None:
            return
        if self._held is not None or self._listener.outlet.offer(event_batch) is None:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()
            self._held = asyncio.get_running_loop().create_task(self._wait(self._held, event_batch))

    async def _wait(self, before: asyncio.Task[None] | None, event_batch: EventBatch) -> None:
        if before is not None:
            await before
        await self._listener.outlet.put(event_batch)
        if self._held is asyncio.current_task():
            self._held = None
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
