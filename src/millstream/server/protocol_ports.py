"""The ports of a proxy for protocols beside RocketMQ's own. Each adapter is loaded only where its port is wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.proxy.processor import Processor
from millstream.server.site import Site
from millstream.telemetry.metrics import MetricsPage

__all__ = ["HTTP_PORT", "PortMaker", "ProtocolPort", "ProtocolPorts", "WantedPort", "http_port"]

_log = logging.getLogger(__name__)

HTTP_PORT: Final = 8082
"""Where clients look for HTTP; 8080 and 8081 are the proxy's for RocketMQ's own protocols."""


class ProtocolPort(Protocol):
    """What each adapter is to the proxy: made with the port's number, opened and closed once."""

    async def start(self) -> int:
        """Listen; the port that was bound. Raises StartRefused: PORT_IN_USE, ADDRESS_NOT_LOCAL."""
        ...

    async def close(self) -> None:
        """Take no more requests, and answer or give back what is under way."""
        ...

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of the port."""
        ...


PortMaker = Callable[[Site, Processor, int], ProtocolPort]
"""Makes the adapter of one protocol for a port; 0 takes a free one."""


@dataclass(frozen=True, slots=True)
class WantedPort:
    """A port to open, by the name of its protocol. `must_open` False: the proxy goes on where the port is taken."""

    protocol: str
    port: int
    make: PortMaker
    must_open: bool = True


class ProtocolPorts:
    """Opened once, for a processor that was started."""

    def __init__(self, site: Site, processor: Processor, wanted: Sequence[WantedPort]) -> None:
        self._site = site
        self._processor = processor
        self._wanted = wanted
        self._resources = AsyncExitStack()
        self._open: list[ProtocolPort] = []
        self.addresses: dict[str, Address] = {}
        """Where clients reach each protocol that is served."""
        self.missing: dict[str, str] = {}
        """Why each of the others is not."""

    async def start(self) -> None:
        """Listen. Raises StartRefused; `close` ends what was opened before."""
        for wanted in self._wanted:
            port = wanted.make(self._site, self._processor, wanted.port)
            try:
                bound = await port.start()
            except StartRefused as error:
                if wanted.must_open or error.name != "PORT_IN_USE":
                    raise
                self.missing[wanted.protocol] = error.message
                _log.warning("There is no port for %s: %s", wanted.protocol, error.message)
                continue
            self._resources.push_async_callback(port.close)
            self._open.append(port)
            self.addresses[wanted.protocol] = Address(self._site.reachable_host, bound)

    async def close(self) -> None:
        """Close them all."""
        await self._resources.aclose()

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of each port."""
        for port in self._open:
            port.add_metrics(page)


def http_port(site: Site, processor: Processor, port: int) -> ProtocolPort:
    """HTTP and CloudEvents."""
    from millstream.proxy.http.server import HttpServer

    return HttpServer(
        processor,
        processor.backend,
        site.host,
        port,
        guard=site.guard,
        tls=site.identity,
        memory=site.memory,
        descriptors=site.descriptors,
        strangers=site.strangers,
        clock=site.clock,
    )
