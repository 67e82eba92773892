"""What the page /metrics tells of an HTTP port."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from millstream.telemetry.counters import RpcLatency
from millstream.telemetry.metrics import MetricsPage

__all__ = ["add_http"]

_PROXY: Final = "proxy"
_WAITING: Final = frozenset(("receive",))
_OTHER: Final = "other"


def add_http(page: MetricsPage, connections: int, latency: RpcLatency) -> None:
    """Open connections, and how long requests took by action and status."""
    page.add("millstream_http_connections", connections, node_type=_PROXY)
    for key, histogram in latency.rows():
        action, status = (str(key[0]), int(key[1])) if key is not None else (_OTHER, 0)
        labels = (
            action,
            str(status) if status else _OTHER,
            "true" if action in _WAITING else "false",
            "success" if status < HTTPStatus.BAD_REQUEST else "process_request_failed",
        )
        page.add_histogram("rocketmq_rpc_latency_milliseconds", histogram, "http", *labels, node_type=_PROXY)
