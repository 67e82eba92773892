"""The pages /metrics, /healthz and /readyz of a process."""

from __future__ import annotations

from millstream.model.errors import StartRefused
from millstream.server.condition import Condition
from millstream.server.metrics.page import ServerMetrics
from millstream.server.site import Site
from millstream.transport.http_pages import HttpPages

__all__ = ["open_pages"]

_PORT_REMEDY = "Choose another --metrics-port: 0 takes a free one, off offers no metrics."


async def open_pages(metrics: ServerMetrics, condition: Condition, site: Site, port: int) -> tuple[HttpPages, int]:
    """The open pages, which the caller closes, and their port. Raises StartRefused."""
    pages = HttpPages(
        {"/metrics": metrics.page, "/healthz": condition.health, "/readyz": condition.readiness}, site.host, port
    )
    pages.strangers = site.strangers
    try:
        return pages, await pages.start()
    except StartRefused as error:
        if error.name != "PORT_IN_USE":
            raise
        raise StartRefused(error.name, error.message, remedy=_PORT_REMEDY) from None
