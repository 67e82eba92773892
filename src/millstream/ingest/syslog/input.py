"""Syslog as an input of a gateway."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.ingest.rate_limited_log import RateLimitedLog
from millstream.ingest.syslog.framing import DEFAULT_FRAME_BYTES
from millstream.ingest.syslog.listeners import ConnectionListener, DatagramListener
from millstream.ingest.syslog.message import SyslogBatchBuilder
from millstream.ingest.topic_writer import InputStatistics, TopicWriter
from millstream.model.message import Address
from millstream.security.tls import ServerIdentity, TlsFiles

__all__ = ["SyslogInput", "SyslogOptions"]

_LOOK_S: Final = 1.0
"""Seconds between two looks at what the kernel dropped."""


@dataclass(frozen=True, slots=True)
class SyslogOptions:
    """Where to listen: each port that is not None. `tls_port` needs `tls_files`."""

    host: str = "0.0.0.0"
    udp_port: int | None = None
    tcp_port: int | None = None
    tls_port: int | None = None
    tls_files: TlsFiles | None = None
    is_raw: bool = False
    max_bytes: int = DEFAULT_FRAME_BYTES


class SyslogInput:
    """Listens for syslog until it is stopped."""

    name = "syslog"

    def __init__(
        self, options: SyslogOptions, outlet: TopicWriter, tally: InputStatistics, say: Callable[[str], None]
    ) -> None:
        self.outlet = outlet
        self.tally = tally
        self._identity = ServerIdentity(options.tls_files) if options.tls_files is not None else None
        maker, complaints = SyslogBatchBuilder(tally, options.is_raw), RateLimitedLog(say)
        self._complaints = complaints
        self._datagrams: DatagramListener | None = None
        if options.udp_port is not None:
            self._datagrams = DatagramListener(
                Address(options.host, options.udp_port), outlet, maker, options.max_bytes
            )
        self._connections: dict[str, ConnectionListener] = {}
        ports: dict[str, tuple[int | None, ssl.SSLContext | None]] = {"syslog-tcp": (options.tcp_port, None)}
        if self._identity is not None:
            ports["syslog-tls"] = options.tls_port, self._identity.context
        for name, (port, tls) in ports.items():
            if port is not None:
                self._connections[name] = ConnectionListener(
                    Address(options.host, port), outlet, maker, complaints, options.max_bytes, tls
                )
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> Mapping[str, Address]:
        """Listen on all ports."""
        places = {}
        if self._datagrams is not None:
            places["syslog-udp"] = await self._datagrams.start()
            self._looking = asyncio.get_running_loop().create_task(self._look(self._datagrams))
        for name, listener in self._connections.items():
            places[name] = await listener.start()
        return places

    async def wait(self) -> None:
        """Never return: there is always more to come."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Close the ports."""
        if self._looking is not None:
            self._looking.cancel()
        if self._datagrams is not None:
            await self._datagrams.stop()
        for listener in self._connections.values():
            await listener.stop()

    async def finish(self) -> None:
        """Nothing is noted: who sent by syslog does not send again."""

    def reload_certificate(self) -> None:
        """Read the certificate again; the old one holds where it cannot be used."""
        if self._identity is not None:
            self._identity.reload()

    async def _look(self, datagrams: DatagramListener) -> None:
        reported_drops = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            datagrams.look_for_drops()
            if self.tally.kernel_drops > reported_drops:
                reported_drops = self.tally.kernel_drops
                self._complaints.add(
                    "drops", f"the kernel has dropped {reported_drops:,} datagrams: they come too fast"
                )
