"""Traffic counters of a proxy port, and their lines on the metrics page."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.telemetry.metrics import MetricsPage

__all__ = ["PortTraffic", "add_port"]

_PROXY = "proxy"


@dataclass(slots=True)
class PortTraffic:
    """Plain numbers since the start; `sessions` are those that are there now."""

    sessions: int = 0
    """MQTT sessions, AMQP channels; of HTTP requests that wait for messages."""
    messages_in: int = 0
    """Messages that clients sent."""
    messages_out: int = 0
    """Messages that clients were sent."""
    refused: int = 0
    """Connections, subscriptions, sends and declarations that were not allowed or not possible."""
    dropped: int = 0
    """Messages that a client did not get and will not: it did not read, or takes none of that size."""


def add_port(page: MetricsPage, protocol: str, connections: int, traffic: PortTraffic) -> None:
    """Tell the page of one port; `protocol` is what the label protocol_type says."""
    page.add("millstream_port_connections", connections, protocol, node_type=_PROXY)
    page.add("millstream_port_sessions", traffic.sessions, protocol, node_type=_PROXY)
    page.add("millstream_port_messages_in_total", traffic.messages_in, protocol, node_type=_PROXY)
    page.add("millstream_port_messages_out_total", traffic.messages_out, protocol, node_type=_PROXY)
    page.add("millstream_port_refused_total", traffic.refused, protocol, node_type=_PROXY)
    page.add("millstream_port_dropped_total", traffic.dropped, protocol, node_type=_PROXY)
