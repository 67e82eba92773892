"""What becomes of deliveries over HTTP: acknowledged, given back, kept longer, or given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.model.errors import MillstreamError, Refused
from millstream.proxy.processor import Processor
from millstream.security.policy import RequiredAccess

__all__ = ["DEFAULT_INVISIBLE_MS", "MAX_HANDLES", "DeliveryPlace", "Settlement", "check_handles", "settle"]

DEFAULT_INVISIBLE_MS: Final = 60_000
"""Milliseconds for which deliveries are hidden from others, where the client names no time."""

MAX_HANDLES: Final = 1_000
"""Handles of one request, or of one command of a WebSocket, at most."""

_ENTRIES_PER_TURN: Final = 64
"""Handles in one turn of the event loop: a long list must not make others wait."""


@dataclass(frozen=True, slots=True)
class DeliveryPlace:
    """Whose deliveries of which topic."""

    group: str
    topic: str

    @property
    def wishes(self) -> tuple[RequiredAccess, RequiredAccess]:
        """What a user needs to receive there."""
        return RequiredAccess.consume(self.group), RequiredAccess.read(self.topic)


@dataclass(slots=True)
class Settlement:
    """What became of each handle, as JSON has it, and the first refusal."""

    results: list[dict[str, Any]]
    failure: MillstreamError | None = None


def check_handles(handles: Sequence[str]) -> None:
    """HTTP_REQUEST where there are none, or too many."""
    if not 1 <= len(handles) <= MAX_HANDLES:
        raise Refused("HTTP_REQUEST", f"The request has {len(handles)} handles; 1 to {MAX_HANDLES} are taken.")


async def settle(
    processor: Processor, place: DeliveryPlace, action: str, handles: Sequence[str], time_ms: int | None
) -> Settlement:
    """Settle the deliveries one by one. `action` is ack, nack, extend or dead-letter; `time_ms` is after what time they
    come again, or for how long they are kept."""
    found = Settlement([])
    for number, handle in enumerate(handles, 1):
        result: dict[str, Any] = {"handle": handle}
        try:
            renewed = await _settle_one(processor, place, action, handle, time_ms)
            if renewed is not None:
                result["renewed"] = renewed
        except MillstreamError as error:
            result |= {"error": error.message, "code": error.label}
            found.failure = found.failure or error
        found.results.append(result)
        if not number % _ENTRIES_PER_TURN:
            await asyncio.sleep(0)
    return found


async def _settle_one(
    processor: Processor, place: DeliveryPlace, action: str, handle: str, time_ms: int | None
) -> str | None:
    """The new handle of a delivery that is kept."""
    group, topic = place.group, place.topic
    if action == "ack":
        await processor.ack(group, topic, handle, in_time=True)
    elif action == "nack":
        await processor.change_invisible(group, topic, handle, time_ms or 0, in_time=True)
    elif action == "extend":
        invisible_ms = DEFAULT_INVISIBLE_MS if time_ms is None else time_ms
        return await processor.change_invisible(group, topic, handle, invisible_ms, suspend=True, in_time=True)
    else:
        await processor.dead_letter(group, topic, handle)
    return None
