"""Where the half messages of this proxy's remoting clients lie, for clients that do not say it when they end them."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MAX_HALVES", "HalfMessageLocation", "HalfMessageTable"]

MAX_HALVES: Final = 100_000
"""Half messages whose place is remembered; the oldest is forgotten first."""


class HalfMessageLocation(NamedTuple):
    """The topic, and the broker where the client named one."""

    topic: str
    broker_name: str = ""


class HalfMessageTable:
    """Topics of half messages by message id. RocketMQ's clients before 5.0 end a transaction without its topic."""

    def __init__(self) -> None:
        self._places: dict[str, HalfMessageLocation] = {}

    def note(self, message_id: str, place: HalfMessageLocation) -> None:
        """What was noted first stays."""
        if message_id in self._places:
            return
        if len(self._places) >= MAX_HALVES:
            del self._places[next(iter(self._places))]
        self._places[message_id] = place

    def find(self, *message_ids: str) -> HalfMessageLocation | None:
        """The place that is noted for one of the ids, or None."""
        return next((self._places[one] for one in message_ids if one in self._places), None)
