"""The brokers that could not be connected to of late: nobody waits for them, and they are tried in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from millstream.model.errors import MillstreamError, Unreachable
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["FORGOTTEN_S", "RETRY_S", "SLOW_S", "Unheard"]

SLOW_S: Final = 0.5
"""Seconds of a failed attempt to connect from which on the next requests fail without an attempt of their own."""

RETRY_S: Final = 1.0
"""Seconds between two attempts in the background."""

FORGOTTEN_S: Final = 60.0
"""Seconds after the last request for it that a broker is tried no longer."""

Connect = Callable[[str], Awaitable[RemotingConnection]]


class Unheard:
    """Connects by `connect`, which takes an address and gives the open connection or raises Unreachable."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._asked_s: dict[str, float] = {}
        self._trying: dict[str, asyncio.Task[None]] = {}

    async def connection(self, address: str, connect: Connect | None = None) -> RemotingConnection:
        """A connection to a broker, by `connect` if it is given; Unreachable at once where it was not heard of late."""
        now_s = asyncio.get_running_loop().time()
        if address in self._trying:
            self._asked_s[address] = now_s
            raise Unreachable(f"{address} did not answer of late.")
        try:
            return await (connect or self._connect)(address)
        except Unreachable:
            if asyncio.get_running_loop().time() - now_s >= SLOW_S and address not in self._trying:
                self._asked_s[address] = now_s
                self._trying[address] = asyncio.create_task(self._try(address), name=f"try-{address}")
            raise

    def close(self) -> None:
        """Try none any longer."""
        for task in self._trying.values():
            task.cancel()

    async def _try(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while loop.time() - self._asked_s[address] < FORGOTTEN_S:
                await asyncio.sleep(RETRY_S)
                try:
                    await self._connect(address)
                except MillstreamError:
                    continue
                return
        finally:
            del self._trying[address], self._asked_s[address]
