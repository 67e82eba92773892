"""What the source `rules` is told beside the topic that it reads: where its rules are and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_ALLOWANCE_MS", "Judged"]

DEFAULT_ALLOWANCE_MS = 60_000
"""How long one call of a rule's user function may hold a worker that the stage cannot stop, where a table is silent."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The rules of a read: `store` has them, `directory` is the job's own place for versions in use and notes.

    `version` judges a batch; micro-batches have theirs in their positions. `time_fields` tell an event's time, the
    first that is there. `python_path` is where the rules' user functions are found beside what a worker has.
    """

    store: str
    directory: str
    version: int = 0
    time_fields: tuple[str, ...] = ()
    allowance_ms: int = DEFAULT_ALLOWANCE_MS
    python_path: tuple[str, ...] = ()
