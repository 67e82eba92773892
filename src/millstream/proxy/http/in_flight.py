"""The deliveries that a WebSocket's client has and has not settled. Pure: monotonic seconds are passed in."""

from __future__ import annotations

from millstream.model.handles import ReceiptHandle

__all__ = ["InFlight"]


class InFlight:
    """At most `limit` deliveries, each until it is settled or its time is over."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, tuple[ReceiptHandle, float]] = {}

    def add(self, handle: ReceiptHandle, now_s: float) -> None:
        """A delivery goes to the client, or is kept under a new handle."""
        self._held[handle.encode()] = (handle, now_s + handle.invisible_ms / 1000)

    def remove(self, text: str) -> bool:
        """Whether the client had it; it has it no more."""
        return self._held.pop(text, None) is not None

    def room(self, now_s: float) -> int:
        """How many more may go to the client."""
        if len(self._held) >= self._limit:
            self._forget_expired(now_s)
        return self._limit - len(self._held)

    def next_end_s(self) -> float:
        """When the time of one of them is over at the earliest; there has to be one."""
        return min(end_s for _, end_s in self._held.values())

    def take_all(self, now_s: float) -> list[ReceiptHandle]:
        """Those that the client leaves behind."""
        self._forget_expired(now_s)
        held, self._held = self._held, {}
        return [handle for handle, _ in held.values()]

    def _forget_expired(self, now_s: float) -> None:
        # The broker gives them to others, or to the client again.
        self._held = {text: held for text, held in self._held.items() if held[1] > now_s}
