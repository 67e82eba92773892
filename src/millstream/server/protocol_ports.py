"""The proxy's ports for further protocols. Each adapter is imported only when its port is enabled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypedDict

from millstream.model.clock import Clock
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.server.deferred_port import DeferredPort, ProtocolPort
from millstream.server.site import Site
from millstream.telemetry.metrics import MetricsPage
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.strangers import StrangerLog

__all__ = [
    "AMQP_PORT",
    "HTTP_PORT",
    "MQTT_PORT",
    "PortMaker",
    "ProtocolPorts",
    "WantedPort",
    "amqp_port",
    "http_port",
    "mqtt_port",
]

_log = logging.getLogger(__name__)

HTTP_PORT: Final = 8082
"""Where clients look for HTTP; 8080 and 8081 are the proxy's for RocketMQ's own protocols."""

MQTT_PORT: Final = 1883
AMQP_PORT: Final = 5672
"""The ports that are assigned to these protocols (IANA)."""


PortMaker = Callable[[Site, Processor, int], ProtocolPort]
"""Makes the adapter of one protocol for a port; 0 takes a free one."""


@dataclass(frozen=True, slots=True)
class WantedPort:
    """A port to open, by the name of its protocol. `must_open` False: the proxy goes on where the port is taken.

    `is_deferred`: it listens at once, and its adapter is made when it is needed; see `DeferredPort`.
    """

    protocol: str
    port: int
    make: PortMaker
    must_open: bool = True
    is_deferred: bool = False


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
            port = self._make(wanted)
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

    def _make(self, wanted: WantedPort) -> ProtocolPort:
        make = partial(wanted.make, self._site, self._processor, wanted.port)
        if not wanted.is_deferred:
            return make()
        return DeferredPort(wanted.protocol, self._site.host, wanted.port, self._processor.backend, make)

    async def close(self) -> None:
        """Close them all."""
        await self._resources.aclose()

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of each port."""
        for port in self._open:
            port.add_metrics(page)


def mqtt_port(
    site: Site, processor: Processor, port: int, rules: Sequence[str] = (), http_origins: Sequence[str] = ()
) -> ProtocolPort:
    """MQTT 3.1.1 and 5.0. `rules` say which topics hold the messages, as `factory/#=telemetry`, `http_origins` which
    pages of browsers may come; ILLEGAL_SETTING."""
    from millstream.proxy.mqtt.server import MqttServer
    from millstream.proxy.mqtt.topic_rules import parse_topic_rule

    parsed = [parse_topic_rule(rule) for rule in rules]
    return MqttServer(
        processor, processor.backend, site.host, port, rules=parsed, http_origins=http_origins, **_site_options(site)
    )


def amqp_port(site: Site, processor: Processor, port: int, virtual_hosts: Sequence[str] = ()) -> ProtocolPort:
    """AMQP 0-9-1. `virtual_hosts` are those beside `/`, by the names of their namespaces."""
    from millstream.proxy.amqp.server import AmqpServer

    return AmqpServer(
        processor, processor.backend, site.host, port, virtual_hosts=virtual_hosts, **_site_options(site)
    )  # fmt: skip


def http_port(
    site: Site,
    processor: Processor,
    port: int,
    webhook_networks: Sequence[str] = (),
    http_origins: Sequence[str] = (),
) -> ProtocolPort:
    """HTTP and CloudEvents. `webhook_networks` and `http_origins` as of `HttpServer`."""
    from millstream.proxy.http.server import HttpServer

    return HttpServer(
        processor,
        processor.backend,
        site.host,
        port,
        origin=site.reachable_host,
        webhook_networks=webhook_networks,
        http_origins=http_origins,
        **_site_options(site),
    )


class _SiteOptions(TypedDict):
    guard: Guard | None
    tls: tuple[ServerIdentity, TlsMode] | None
    memory: ConnectionMemory
    descriptors: DescriptorBudget
    strangers: StrangerLog
    clock: Clock


def _site_options(site: Site) -> _SiteOptions:
    """What the ports of a process have in common."""
    return {
        "guard": site.guard,
        "tls": site.identity,
        "memory": site.memory,
        "descriptors": site.descriptors,
        "strangers": site.strangers,
        "clock": site.clock,
    }
