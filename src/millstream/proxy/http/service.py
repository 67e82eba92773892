"""Services that all HTTP resources share."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.model.clock import Clock
from millstream.proxy.http.gate import HttpGate
from millstream.proxy.http.unwritten import UnwrittenMessages
from millstream.proxy.processor import Processor
from millstream.telemetry.counters import RpcLatency
from millstream.telemetry.port_traffic import PortTraffic
from millstream.transport.connection_memory import ConnectionMemory

__all__ = ["HttpService"]


@dataclass(frozen=True, slots=True)
class HttpService:
    """The operations, who may use them, and what bounds and counts requests."""

    processor: Processor
    gate: HttpGate
    memory: ConnectionMemory
    clock: Clock
    unwritten: UnwrittenMessages = field(default_factory=UnwrittenMessages)
    traffic: PortTraffic = field(default_factory=PortTraffic)
    latency: RpcLatency = field(default_factory=RpcLatency)
    """How long the requests took, by action and status; the commands of WebSockets among them."""
