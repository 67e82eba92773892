"""A background task that works in rounds, one after the other, while there is work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from millstream.model.errors import MillstreamError

__all__ = ["PeriodicTask"]

_RETRY_S = 1.0

_log = logging.getLogger(__name__)


class PeriodicTask:
    """Calls `act` in a task of its own: at once again if it says that there is more to do, else after `rest_s`.

    `rest_s` gives seconds, None to rest until `wake`. A round that fails is said in the log, with `waiting` as the
    subject, and tried again in a second.
    """

    def __init__(self, waiting: str, act: Callable[[], Awaitable[bool]], rest_s: Callable[[], float | None]) -> None:
        self._waiting = waiting
        self._act = act
        self._rest_s = rest_s
        self._woken = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name=self._waiting)

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    async def close(self) -> bool:
        """Finish the round that is under way; whether there were any."""
        self._closing = True
        self._woken.set()
        if self._task is None:
            return False
        await self._task
        self._task = None
        return True

    async def _run(self) -> None:
        while not self._closing:
            try:
                busy = await self._act()
            except MillstreamError as error:
                _log.error("%s have to wait: %s", self._waiting, error)
                await self._rest(_RETRY_S)
                continue
            if busy:
                # A round need not have waited for anything: others get their turn now.
                await asyncio.sleep(0)
            else:
                await self._rest(self._rest_s())

    async def _rest(self, timeout_s: float | None) -> None:
        self._woken.clear()
        if self._closing:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
