"""The roles of a process: started in order, reported on its pages, stopped in reverse order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Final, Generic, TypeVar

from millstream.model.message import Address
from millstream.security.signature import Credentials
from millstream.server.condition import Condition
from millstream.server.metrics.page import ServerMetrics
from millstream.server.pages import open_pages
from millstream.server.site import Site

__all__ = ["Served"]

_Told = TypeVar("_Told")

_RENEWAL_CHECK_S: Final = 86_400.0
"""Seconds between two looks at when the certificate ends."""


class Served(ABC, Generic[_Told]):
    """Started once, all calls from one event loop. `start` gives the addresses that were taken, in the form `_Told`."""

    def __init__(self, site: Site, condition: Condition) -> None:
        self.site = site
        self._resources = AsyncExitStack()
        self._metrics = ServerMetrics(site.clock)
        self._condition = condition

    @property
    def made_user(self) -> Credentials | None:
        """The super user that this start had to make."""
        return self.site.made_user

    async def start(self) -> _Told:
        """Listen, and recover what there is. Raises StartRefused, StoreError, and leaves nothing open then."""
        self.site.open_descriptors()
        try:
            opened = await self._open()
        except BaseException:
            await self.close()
            raise
        renewing = asyncio.create_task(self._renew_forever(), name="certificate-renewal")
        self._resources.callback(renewing.cancel)
        self._condition.state = "serving"
        return opened

    def reload_certificate(self) -> None:
        """Read the certificate again, for new connections; where that fails the log says so and the old one holds."""
        self.site.reload_certificate()

    async def close(self) -> None:
        """Take no more requests, answer what is under way, write what is to be kept."""
        self._condition.state = "stopping"
        await self._resources.aclose()

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(_RENEWAL_CHECK_S)
            self.site.renew_certificate()

    @abstractmethod
    async def _open(self) -> _Told:
        """Open the roles; what is opened goes into `_resources`."""

    async def _open_pages(self, port: int) -> Address:
        """First, so that one can ask why the server is not ready while its log is recovered."""
        pages, bound = await open_pages(self._metrics, self._condition, self.site, port)
        self._resources.push_async_callback(pages.close)
        return Address(self.site.reachable_host, bound)
