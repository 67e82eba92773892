"""The HTTP port of a proxy: its resources behind one port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.model.clock import Clock, SystemClock
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.http.answer import HttpAnswer, json_answer
from millstream.proxy.http.application import HttpApplication, Route
from millstream.proxy.http.deliveries import DeliveryResource
from millstream.proxy.http.gate import HttpGate
from millstream.proxy.http.measures import add_http
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.sends import SendResource
from millstream.proxy.http.streams import StreamResource
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.metrics import MetricsPage
from millstream.telemetry.port_traffic import PortTraffic
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.http_port import HttpPort
from millstream.transport.strangers import StrangerLog

__all__ = ["CLOSE_GRACE_S", "HttpServer"]

CLOSE_GRACE_S: Final = 1.0
"""Seconds that a stop waits for the answers to requests that are under way."""


class HttpServer:
    """Serves clients on `host`:`port` (0 takes a free port). The processor is started and closed by its owner.

    `guard` is the access control, `tls` what is shown to TLS clients and whether others are let in. `memory`,
    `descriptors` and `strangers` are for servers that share them with others of the process.
    """

    def __init__(
        self,
        processor: Processor,
        backend: BrokerBackend,
        host: str,
        port: int,
        *,
        guard: Guard | None = None,
        tls: tuple[ServerIdentity, TlsMode] | None = None,
        memory: ConnectionMemory | None = None,
        descriptors: DescriptorBudget | None = None,
        strangers: StrangerLog | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        memory = memory or ConnectionMemory()
        gate = HttpGate(guard)
        self._processor = processor
        self._traffic = traffic = PortTraffic()
        self._streams = StreamResource(processor, gate, traffic)
        sends = SendResource(processor, gate, memory, clock, traffic)
        deliveries = DeliveryResource(processor, gate, memory, clock, traffic)
        routes = _routes(sends, deliveries, self._streams)
        self._application = HttpApplication(routes, gate, clock, traffic)
        self._port = HttpPort(
            self._application,
            host,
            port,
            clock=clock,
            memory=memory,
            tls=tls,
            descriptors=descriptors,
            strangers=strangers,
        )

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self._port.connections

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of this port."""
        add_http(page, self._port.connections, self._traffic, self._application.latency)

    async def start(self) -> int:
        """Listen; the bound port. StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails."""
        return await self._port.start()

    async def close(self) -> None:
        """Take no more requests and answer those under way; receives that wait end at once."""
        self._port.stop_listening()
        self._processor.end_waits()
        self._streams.end_streams()
        await self._port.close(CLOSE_GRACE_S)


def _routes(
    sends: SendResource, deliveries: DeliveryResource, streams: StreamResource
) -> Mapping[str, Mapping[str, Route]]:
    place = "/v1/groups/*/topics/*"
    return {
        "/v1/topics/*/messages": {"POST": Route("send", sends.send)},
        "/v1/topics/*/messages/*": {"DELETE": Route("recall", sends.recall)},
        "/v1/topics/*/stream": {"GET": Route("stream", streams.stream)},
        f"{place}/receive": {"POST": Route("receive", deliveries.receive)},
        f"{place}/ack": {"POST": Route("ack", deliveries.ack)},
        f"{place}/nack": {"POST": Route("nack", deliveries.nack)},
        f"{place}/extend": {"POST": Route("extend", deliveries.extend)},
        f"{place}/dead-letter": {"POST": Route("dead-letter", deliveries.dead_letter)},
        "/health": {"GET": Route("health", _health, is_open=True)},
    }


async def _health(request: HttpRequest) -> HttpAnswer:
    return json_answer({"status": "ok"})
