"""The turn of one pop: look, hand out what was found, or wait and look again, until its time is over."""

from __future__ import annotations

import asyncio
from typing import Protocol

from millstream.broker.dead_letters import DeadLetters
from millstream.broker.look import Look
from millstream.broker.pop import Ledger
from millstream.broker.puller import MAX_WAIT_MS
from millstream.model.operations import PoppedMessage, PopRequest

__all__ = ["PopSource", "take_in_time"]


class PopSource(Protocol):
    """What a pop takes from: the queues of a topic, or the lite topics of a client."""

    dead_letters: DeadLetters

    def look(self, request: PopRequest) -> Look:
        """Take what can be taken now. Raises what refuses the request."""
        ...

    def pass_on(self, request: PopRequest) -> None:
        """Wake the next that waits for the same: this request leaves something."""
        ...

    def freed(self, group: str, topic: str, queue_id: int, ledger: Ledger) -> None:
        """Wake those for whom the end of a delivery opens the queue."""
        ...

    async def wait(self, request: PopRequest, timeout_s: float) -> bool:
        """Wait for something to take; False after the timeout."""
        ...


async def take_in_time(source: PopSource, request: PopRequest) -> list[PoppedMessage]:
    """Deliveries of the source; [] after `wait_ms` (MAX_WAIT_MS at most) with nothing. Raises what the looks raise."""
    deadline_s: float | None = None
    while True:
        look = source.look(request)
        if deadline_s is None and (look.dead or not look.taken):
            # Most find something at once: only those that do not ask for the time.
            deadline_s = asyncio.get_running_loop().time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        if not look.is_complete:
            source.pass_on(request)
        if look.dead:
            for dead in await source.dead_letters.bury_all(request.group, look.dead):
                source.freed(request.group, dead.message.topic, dead.message.queue_id, dead.ledger)
        if look.taken:
            return look.taken
        if look.dead:
            continue
        assert deadline_s is not None
        remaining_s = deadline_s - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            return []
        if not look.is_complete:
            await asyncio.sleep(0)
        elif not await source.wait(request, remaining_s):
            return []
