"""Messages on their way to consumers: how many bytes of them may lie in memory while their consumers read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from millstream.model.clock import Clock
from millstream.model.operations import PoppedMessage
from millstream.proxy.budget import Budget, Share

__all__ = ["ANSWER_PATIENCE_S", "MAX_ANSWER_BYTES", "MAX_ANSWER_BYTES_PER_CLIENT", "Answers"]

MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""Bytes of messages that are on their way to consumers at most; TOO_MANY_REQUESTS refuses further receives. In memory
they take up to four times as much: the messages, the answer made of one, its bytes, and those of the transport."""

MAX_ANSWER_BYTES_PER_CLIENT = 96 * 1024 * 1024
"""The same for one client."""

ANSWER_PATIENCE_S = 2.0
"""At the limit, answers that were not read for so long are given up: their messages go back."""


class Answers:
    """The answers of one proxy; all calls from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budget = Budget(
            "messages",
            total_bytes=MAX_ANSWER_BYTES,
            owner_bytes=MAX_ANSWER_BYTES_PER_CLIENT,
            patience_s=ANSWER_PATIENCE_S,
        )

    def check(self, client_id: str) -> None:
        """TOO_MANY_REQUESTS where the client could not be handed anything now."""
        self._budget.check(client_id, self._clock.monotonic_s())

    def begin(self, client_id: str, popped: Sequence[PoppedMessage], late_bytes: int = 0) -> Share:
        """Messages are being handed to the client, who may be slow, until `end`. TOO_MANY_REQUESTS over a limit.

        `late_bytes` is what is made of them meanwhile, such as an unpacked body.

        At the limit of all clients the task that hands them over may be cancelled to make room.
        """
        task = asyncio.current_task()
        size_bytes = sum([len(delivery.message.body) for delivery in popped]) + late_bytes
        give_way = None if task is None else task.cancel
        return self._budget.take(client_id, size_bytes, self._clock.monotonic_s(), give_way)

    def end(self, share: Share) -> None:
        """They are handed over, or given up."""
        self._budget.free(share)
