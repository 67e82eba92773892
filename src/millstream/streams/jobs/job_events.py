"""The event history of a job: the last events of one query, with times."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["MAX_EVENTS", "EventKind", "JobEvent", "JobEvents", "merge_events"]

MAX_EVENTS: Final = 50
"""Events that are kept of a job, the last ones."""

MAX_NAMED_QUEUES: Final = 8
"""Queues that the words of one event name; the others are counted."""

_MAX_CHARACTERS: Final = 500

EventKind = Literal[
    "queue_added",
    "queue_removed",
    "checkpoint_completed",
    "checkpoint_failed",
    "savepoint_written",
    "restarted",
    "server_away",
    "server_back",
    "failed",
    "isolated",
]
"""What an event is. A server is a broker, a database or a place of state; a queue is a split of a source."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event. `at_ms` is since 1970; `number` grows in a process, over all of its jobs."""

    at_ms: int
    kind: EventKind
    words: str
    number: int = 0


def merge_events(parts: Iterable[Iterable[JobEvent]]) -> tuple[JobEvent, ...]:
    """The last events of several queries, in their order; one that several tell is there once."""
    found = {event.number: event for part in parts for event in part}
    return tuple(event for _, event in sorted(found.items()))[-MAX_EVENTS:]


class JobEvents:
    """Collects the events of one query; safe to use from several threads."""

    def __init__(self, *, clock_ms: Callable[[], int] | None = None) -> None:
        self._clock_ms = clock_ms or _now_ms
        self._lock = threading.Lock()
        self._events: deque[JobEvent] = deque(maxlen=MAX_EVENTS)
        self._is_away = False

    def note(self, kind: EventKind, words: str) -> None:
        """Something has happened."""
        with self._lock:
            self._events.append(JobEvent(self._clock_ms(), kind, words[:_MAX_CHARACTERS], next(_numbers)))

    def note_queues(self, table: str, before: Mapping[str, int], now: Mapping[str, int]) -> None:
        """The queues of a table as they were and as they are now."""
        added, removed = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
        if added:
            self.note("queue_added", f"{table}: {_list_names(added)}; read from here on.")
        if removed:
            self.note("queue_removed", f"{table}: {_list_names(removed)}; there no more, or its broker is away.")

    @property
    def is_away(self) -> bool:
        """Whether a server that the query needs does not answer."""
        return self._is_away

    def note_away(self, cause: str) -> None:
        """A server does not answer; told once until it is back."""
        if not self._is_away:
            self._is_away = True
            self.note("server_away", cause)

    def note_back(self) -> None:
        """All servers answer; nothing where none was away."""
        if self._is_away:
            self._is_away = False
            self.note("server_back", "The servers that the job needs answer again; it goes on.")

    def last(self) -> tuple[JobEvent, ...]:
        """The last events, in their order."""
        with self._lock:
            return tuple(self._events)


def _list_names(queues: list[str]) -> str:
    more = len(queues) - MAX_NAMED_QUEUES
    names = ", ".join(queues[:MAX_NAMED_QUEUES]) + (f" and {more} more" if more > 0 else "")
    return f"queue {names}" if len(queues) == 1 else f"{len(queues)} queues, {names}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
