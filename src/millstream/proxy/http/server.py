"""The HTTP port of a proxy: its resources behind one port."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.model.clock import Clock, SystemClock
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.http.answer import HttpAnswer, json_answer
from millstream.proxy.http.application import HttpApplication, Route
from millstream.proxy.http.deliveries import DeliveryResource
from millstream.proxy.http.gate import HttpGate
from millstream.proxy.http.measures import add_http
from millstream.proxy.http.openapi import show_api
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.sends import SendResource
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.streams import StreamResource
from millstream.proxy.http.webhooks.book import SubscriptionBook
from millstream.proxy.http.webhooks.resource import SubscriptionResource
from millstream.proxy.http.webhooks.sink import Sink
from millstream.proxy.http.websockets import WebSocketResource
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.outbound import OutboundRule
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.security.web_origins import WebOrigins
from millstream.telemetry.metrics import MetricsPage
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.http_caller import OutboundCaller
from millstream.transport.http_port import AsgiPort
from millstream.transport.strangers import StrangerLog

__all__ = ["CLOSE_GRACE_S", "HttpServer"]

CLOSE_GRACE_S: Final = 1.0
"""Seconds that a stop waits for the answers to requests that are under way."""


class HttpServer:
    """Serves clients on `host`:`port` (0 takes a free port). The processor is started and closed by its owner.

    `guard` is the access control, `tls` what is shown to TLS clients and whether others are let in. `memory`,
    `descriptors` and `strangers` are for servers that share them with others of the process.
    `origin` is by what name sinks of subscriptions know this server, `webhook_networks` which networks of their own
    they may lie in: addresses and CIDR. Raises ILLEGAL_POLICY for one that is neither. `http_origins` are the origins
    whose pages may use the port beside its own; StartRefused with ILLEGAL_SETTING.
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
        origin: str = "",
        webhook_networks: Sequence[str] = (),
        http_origins: Sequence[str] = (),
    ) -> None:
        clock = clock or SystemClock()
        memory = memory or ConnectionMemory()
        service = HttpService(processor, HttpGate(guard), memory, clock)
        # What clients do not read lies in answers and in the windows of streams.
        memory.watch(lambda: processor.answers.used_bytes)
        self._processor = processor
        self._traffic = service.traffic
        self._latency = service.latency
        self._streams = StreamResource(service)
        sink = Sink(OutboundCaller(OutboundRule(webhook_networks)), origin or host)
        memory.watch(lambda: self._streams.tails.size_bytes)
        self._book = SubscriptionBook(processor, backend, sink, guard, clock)
        subscriptions = SubscriptionResource(service, self._book, sink)
        routes = _routes(
            SendResource(service), DeliveryResource(service), WebSocketResource(service), self._streams, subscriptions
        )
        self._application = HttpApplication(routes, service, WebOrigins(http_origins))
        self._port = AsgiPort(
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
        add_http(page, self._port.connections, self._traffic, self._latency)

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        """Listen, on sockets that do so already if there are some; the bound port.

        StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails.
        """
        port = await self._port.start(listening)
        await self._book.start()
        return port

    async def close(self) -> None:
        """Take no more requests and answer those under way; receives that wait end at once."""
        self._port.stop_listening()
        await self._book.close()
        self._processor.end_waits()
        self._streams.end_streams()
        await self._port.close(CLOSE_GRACE_S)


def _routes(
    sends: SendResource,
    deliveries: DeliveryResource,
    websockets: WebSocketResource,
    streams: StreamResource,
    subscriptions: SubscriptionResource,
) -> Mapping[str, Mapping[str, Route]]:
    place = "/v1/groups/*/topics/*"
    return {
        "/v1/topics/*/messages": {"POST": Route("send", sends.send)},
        "/v1/topics/*/messages/*": {"DELETE": Route("recall", sends.recall)},
        "/v1/topics/*/stream": {"GET": Route("stream", streams.stream)},
        f"{place}/websocket": {"GET": Route("websocket", websockets.open)},
        f"{place}/receive": {"POST": Route("receive", deliveries.receive)},
        f"{place}/ack": {"POST": Route("ack", deliveries.ack)},
        f"{place}/nack": {"POST": Route("nack", deliveries.nack)},
        f"{place}/extend": {"POST": Route("extend", deliveries.extend)},
        f"{place}/dead-letter": {"POST": Route("dead-letter", deliveries.dead_letter)},
        "/v1/subscriptions": {
            "GET": Route("list-subscriptions", subscriptions.list_all),
            "POST": Route("subscribe", subscriptions.create),
        },
        "/v1/subscriptions/*": {
            "GET": Route("show-subscription", subscriptions.show),
            "PUT": Route("subscribe", subscriptions.replace),
            "DELETE": Route("unsubscribe", subscriptions.delete),
        },
        "/v1/openapi.json": {"GET": Route("openapi", show_api, is_open=True)},
        "/health": {"GET": Route("health", _health, is_open=True)},
    }


async def _health(request: HttpRequest) -> HttpAnswer:
    return json_answer({"status": "ok"})
