"""Finds new masters of failed brokers, also between requests. Logs nothing while all is well."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from millstream.proxy.remote.routes import RouteCache

__all__ = ["DOUBT_S", "LEAST_INTERVAL_S", "MAX_DOUBTED", "WATCH_INTERVAL_S", "MasterWatch"]

_log = logging.getLogger(__name__)

WATCH_INTERVAL_S: Final = 0.5
"""Seconds between two questions to the nameservers while a master is doubted; one question is about all of them."""

LEAST_INTERVAL_S: Final = 0.1
"""Seconds between two of these questions at least, however often masters fail and answer again."""

DOUBT_S: Final = 120.0
"""Seconds without another failure after which a master is doubted no longer; nameservers forget silent ones then."""

MAX_DOUBTED: Final = 1024
"""Addresses that are doubted at a time at most, as many as a nameserver knows brokers; a further one is not watched."""


@dataclass(slots=True)
class _Doubt:
    brokers: frozenset[tuple[str, str]]
    """Nameservers and names of the brokers whose master was at the address."""
    until_s: float


class MasterWatch:
    """Has `routes` find the masters of all clusters again until those that are doubted are elsewhere, or answer."""

    def __init__(self, routes: RouteCache) -> None:
        self._routes = routes
        self._doubts: dict[str, _Doubt] = {}
        self._is_new = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False
        self._looked_s = -math.inf

    @property
    def doubted(self) -> frozenset[str]:
        """The addresses that are watched now."""
        return frozenset(self._doubts)

    def doubt(self, address: str) -> None:
        """The master at the address refused, was silent or closed its connection; nothing if there is none."""
        until_s = asyncio.get_running_loop().time() + DOUBT_S
        known = self._doubts.get(address)
        if known is not None:
            known.until_s = until_s
            return
        brokers = self._routes.brokers_at(address)
        if not brokers or len(self._doubts) >= MAX_DOUBTED or self._is_closed:
            return
        self._doubts[address] = _Doubt(brokers, until_s)
        self._is_new.set()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="proxy-masters")

    def trust(self, address: str) -> None:
        """The master at the address answered."""
        self._doubts.pop(address, None)

    async def close(self) -> None:
        """Watch no longer."""
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._doubts:
            await asyncio.sleep(max(0.0, self._looked_s + LEAST_INTERVAL_S - loop.time()))
            self._looked_s = loop.time()
            self._is_new.clear()
            try:
                await self._look()
            except Exception:  # noqa: BLE001 - the next turn may find what this one could not read
                _log.exception("the look for new masters failed; the next turn follows")
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_INTERVAL_S):
                    await self._is_new.wait()
            now_s = loop.time()
            for address in [address for address, doubt in self._doubts.items() if doubt.until_s <= now_s]:
                del self._doubts[address]

    async def _look(self) -> None:
        masters = await self._routes.find_masters()
        for address, doubt in list(self._doubts.items()):
            present = [masters.get(nameservers, {}).get(name, address) for nameservers, name in doubt.brokers]
            if address not in present:
                _log.info("The master that was at %s is at %s now.", address, ", ".join(sorted(set(present))))
                self._doubts.pop(address, None)
