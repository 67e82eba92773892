"""Events of one input on their way to the topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["MAX_EVENT_BYTES", "EventBatch"]

MAX_EVENT_BYTES: Final = 3 * 1024 * 1024
"""Bytes of one event at most, whatever the input: with its properties it still is a message of 4 MiB."""

_ROW_BYTES: Final = 64
"""What an event counts beyond its body, so that many small ones are bounded too."""


@dataclass(slots=True)
class EventBatch:
    """Events in their order. `shared` are properties of all of them, `own` those of single ones, over `shared`.

    `keys` and `tags` name one for each event, or are None. `dead` sends them to the dead-letter topic.
    """

    bodies: Sequence[bytes]
    shared: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    keys: Sequence[str | None] | None = None
    tags: Sequence[str | None] | None = None
    dead: bool = False
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.size_bytes = sum(map(len, self.bodies)) + _ROW_BYTES * len(self.bodies)

    def properties(self, place: int) -> dict[str, str]:
        """All properties of one event."""
        own = self.own.get(place)
        return {**self.shared, **own} if own else dict(self.shared)

    def part(self, begin: int, end: int) -> EventBatch:
        """The events with `begin <= place < end`."""
        own = {place - begin: found for place, found in self.own.items() if begin <= place < end}
        keys = None if self.keys is None else self.keys[begin:end]
        tags = None if self.tags is None else self.tags[begin:end]
        return EventBatch(self.bodies[begin:end], self.shared, own, keys, tags, self.dead)
