"""Where a stream stands: the next offset of every queue. Spark keeps it in the checkpoint as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Position"]


@dataclass(frozen=True, slots=True)
class Position:
    """The next queue offset to read of each queue (key `broker/queue id`).

    `cut_ms` is the store time below which everything was taken, 0 if the cut was another one. `ended` says that the
    final tick was sent: event time is over, and goes on with a later position that is not. `name` is the source's,
    where there are several.
    `wakes` counts the ticks that woke a job while no rows came. `rules` is the version of the rules that judged what
    lies before it, where rules do (see `streams.rules.store`).
    """

    queues: dict[str, int] = field(default_factory=dict)
    cut_ms: int = 0
    ended: bool = False
    name: str = ""
    wakes: int = 0
    rules: int = 0

    def offset(self, queue: str) -> int:
        """The next offset of `queue`; 0 for a queue that is new."""
        return self.queues.get(queue, 0)

    def rows_since(self, earlier: Position) -> int:
        """How many offsets lie between `earlier` and this position."""
        return sum(max(0, offset - earlier.offset(queue)) for queue, offset in self.queues.items())

    def going_on(self) -> Position:
        """The same place while event time goes on."""
        return replace(self, ended=False)

    def to_json(self) -> dict[str, Any]:
        """The form that Spark stores."""
        rules = {"rules": self.rules} if self.rules else {}
        return {
            "queues": self.queues,
            "cut_ms": self.cut_ms,
            "ended": self.ended,
            "name": self.name,
            "wakes": self.wakes,
            **rules,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Position:
        """The value of `to_json`; fields that an older release did not write take their defaults."""
        queues = {str(queue): int(offset) for queue, offset in value.get("queues", {}).items()}
        return cls(
            queues,
            int(value.get("cut_ms", 0)),
            bool(value.get("ended", False)),
            str(value.get("name", "")),
            int(value.get("wakes", 0)),
            int(value.get("rules", 0)),
        )
