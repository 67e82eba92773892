"""Messages between their receive and the connections of their clients: as they were received, and as what is made of
them. No other budget knows what is being made, and it is larger than they are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from millstream.model.operations import PoppedMessage
from millstream.proxy.processor import Processor, ReceiveRequest

__all__ = ["MAX_UNWRITTEN_BYTES", "UnwrittenMessages"]

MAX_UNWRITTEN_BYTES: Final = 16 * 1024 * 1024
"""Bytes of messages of one port that are received and not yet written; a further receive waits until there are fewer.
A receive that began before, or at a broker of another process, brings what it brings."""


class UnwrittenMessages:
    """Of one port; all calls from one event loop. Receives that wait go on in the order in which they came, one in a
    turn of the loop: how much each brings shows behind it."""

    def __init__(self) -> None:
        self.used_bytes = 0
        """Bytes of the bodies of those that are there now."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_waking = False

    async def receive(self, processor: Processor, wish: ReceiveRequest) -> list[PoppedMessage]:
        """As `Processor.receive`, once there is room. What it gives is to be handed to `remove`."""
        if self._waiting or self.used_bytes >= MAX_UNWRITTEN_BYTES:
            await self._wait_for_room()
        popped = await processor.receive(wish)
        self.used_bytes += _size_bytes(popped)
        return popped

    def remove(self, popped: Sequence[PoppedMessage]) -> None:
        """They are written, or given back."""
        self.used_bytes -= _size_bytes(popped)
        self._wake_later()

    async def _wait_for_room(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        finally:
            # Until then it is in the way of who comes later.
            self._waiting.remove(place)

    def _wake_later(self) -> None:
        if self._waiting and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        if self._waiting and self.used_bytes < MAX_UNWRITTEN_BYTES:
            if not self._waiting[0].done():
                self._waiting[0].set_result(None)
            self._wake_later()


def _size_bytes(popped: Sequence[PoppedMessage]) -> int:
    return sum([len(one.message.body) for one in popped])
