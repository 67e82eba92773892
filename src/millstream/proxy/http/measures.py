"""The metrics of an HTTP port."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from millstream.telemetry.counters import RpcLatency
from millstream.telemetry.metrics import MetricsPage
from millstream.telemetry.port_traffic import PortTraffic, add_port

__all__ = ["add_http"]

_PROXY: Final = "proxy"
_HTTP: Final = "http"
_WAITING: Final = frozenset(("receive", "websocket"))
_OTHER: Final = "other"


def add_http(page: MetricsPage, connections: int, traffic: PortTraffic, latency: RpcLatency) -> None:
    """What the port carries, and how long requests took by action and status."""
    add_port(page, _HTTP, connections, traffic)
    for key, histogram in latency.rows():
        action, status = (str(key[0]), int(key[1])) if key is not None else (_OTHER, 0)
        labels = (
            action,
            str(status) if status else _OTHER,
            "true" if action in _WAITING else "false",
            "success" if status < HTTPStatus.BAD_REQUEST else "process_request_failed",
        )
        page.add_histogram("rocketmq_rpc_latency_milliseconds", histogram, _HTTP, *labels, node_type=_PROXY)
