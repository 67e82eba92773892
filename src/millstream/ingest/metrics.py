"""The pages of a gateway: what its inputs have done, and whether it takes events."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from millstream.ingest.outlet import Outlet
from millstream.ingest.tally import Tally
from millstream.telemetry.exposition import CONTENT_TYPE, MetricsPage
from millstream.transport.http_pages import HttpPages, Page

__all__ = ["Measured", "gateway_pages"]

_TOTALS: Final = tuple("stored refused cut dead malformed dropped kernel_drops turned_away broken unreadable".split())


class Measured(Protocol):
    """An input as the page sees it."""

    name: str
    tally: Tally
    outlet: Outlet


def gateway_pages(inputs: Sequence[Measured], host: str, port: int) -> HttpPages:
    """The pages /metrics and /healthz, not open yet."""

    async def metrics() -> Page:
        return Page(200, CONTENT_TYPE, _metrics_text(inputs))

    async def health() -> Page:
        away = [one.name for one in inputs if one.outlet.is_away]
        words = f"events of {', '.join(away)} wait for the broker" if away else "ok"
        return Page(503 if away else 200, "text/plain; charset=utf-8", words + "\n")

    return HttpPages({"/metrics": metrics, "/healthz": health}, host, port)


def _metrics_text(inputs: Sequence[Measured]) -> str:
    page = MetricsPage(cluster="", node_id=f"{socket.gethostname()}-{os.getpid()}")
    for one in inputs:
        tally, name = one.tally, one.name
        add = page.add
        add("millstream_ingest_taken_total", tally.taken, name, node_type="ingest")
        add("millstream_ingest_taken_bytes_total", tally.taken_bytes, name, node_type="ingest")
        for outcome in _TOTALS:
            count = getattr(tally, outcome)
            add("millstream_ingest_events_total", count, name, outcome, node_type="ingest")
        add("millstream_ingest_retries_total", tally.retries, name, node_type="ingest")
        add("millstream_ingest_waiting_bytes", one.outlet.waiting_bytes, name, node_type="ingest")
        add("millstream_ingest_unread_bytes", tally.unread_bytes, name, node_type="ingest")
        add("millstream_ingest_peers", tally.peers, name, node_type="ingest")
    return page.text()
