"""The page /metrics of one server."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.model.clock import Clock
from millstream.proxy.processor import Processor
from millstream.proxy.tracer import Tracer
from millstream.server.metrics.broker_metrics import add_broker
from millstream.server.metrics.client_metrics import add_connections, add_proxy, add_remoting
from millstream.server.metrics.group_metrics import add_groups
from millstream.telemetry.exposition import CONTENT_TYPE, MetricsPage
from millstream.telemetry.process_tree import ProcessSample, ProcessTree
from millstream.transport.http_pages import Page
from millstream.transport.remoting_server import RemotingServer

__all__ = ["PROCESS_SAMPLE_S", "ServerMetrics"]

PROCESS_SAMPLE_S: Final = 5.0
"""Seconds for which memory and processor time are told again before they are read again."""


@dataclass(slots=True)
class ServerMetrics:
    """Makes the page. Parts that are None are not there (yet), and nothing is told of them."""

    clock: Clock
    cluster: str = "DefaultCluster"
    node_id: str = "broker-a"
    broker: Broker | None = None
    consumers: ConsumerRegistry | None = None
    producers: ProducerRegistry | None = None
    processor: Processor | None = None
    tracer: Tracer | None = None
    remoting: dict[str, RemotingServer] = field(default_factory=dict)
    """Remoting ports by node type."""
    _processes: list[ProcessSample] | None = None
    _sampled_s: float | None = None

    async def page(self) -> Page:
        """The page as of now. Gives others a turn where it looks at many groups."""
        page = MetricsPage(cluster=self.cluster, node_id=self.node_id)
        page.add("millstream_build_info", 1, __version__, node_type="server")
        if self.broker is not None:
            await add_broker(page, self.broker)
            await add_groups(page, self.broker)
        add_connections(page, self.processor, self.consumers, self.producers)
        if self.processor is not None:
            add_proxy(page, self.processor)
        if self.tracer is not None:
            page.add("millstream_trace_records_dropped_total", self.tracer.dropped, node_type="proxy")
        for node_type, server in self.remoting.items():
            add_remoting(page, server, node_type)
        await self._add_processes(page)
        return Page(200, CONTENT_TYPE, page.text())

    async def _add_processes(self, page: MetricsPage) -> None:
        now_s = self.clock.monotonic_s()
        if self._sampled_s is None or now_s - self._sampled_s >= PROCESS_SAMPLE_S:
            self._processes = await asyncio.to_thread(ProcessTree([os.getpid()]).sample)
            self._sampled_s = now_s
        memory_bytes: Counter[str] = Counter()
        cpu_s: dict[str, float] = {}
        for sample in self._processes or ():
            memory_bytes[sample.kind] += sample.memory_bytes
            cpu_s[sample.kind] = cpu_s.get(sample.kind, 0.0) + sample.cpu_s
        for kind, number in memory_bytes.items():
            page.add("millstream_process_memory_bytes", number, kind, node_type="server")
        for kind, seconds in cpu_s.items():
            page.add("millstream_process_cpu_seconds", seconds, kind, node_type="server")
