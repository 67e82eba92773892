"""Syslog over UDP: datagrams are read many at a time, and left in the kernel while too many bytes wait.

Source: RFC 5426 (facts only): one message a datagram.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.syslog.events import SyslogBatchBuilder
from millstream.ingest.syslog.framing import SyslogFrame
from millstream.ingest.topic_writer import TopicWriter
from millstream.model.message import Address
from millstream.transport.listening import listen_refused

__all__ = ["RECEIVE_BUFFER_BYTES", "DatagramListener", "drops_in"]

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
            parcel = self._maker.parcel(peer, frames, now)
            if parcel is not None and (self._held is not None or self._outlet.offer(parcel) is None):
                self._hold(parcel)
        return count > 0

    def _hold(self, parcel: EventBatch) -> None:
        """Wait for room with what was read; meanwhile the kernel holds what comes."""
        loop = asyncio.get_running_loop()
        if self._socket is not None:
            loop.remove_reader(self._socket)
        self._held = loop.create_task(self._wait(self._held, parcel))

    async def _wait(self, before: asyncio.Task[None] | None, parcel: EventBatch) -> None:
        if before is not None:
            await before
        await self._outlet.put(parcel)
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
