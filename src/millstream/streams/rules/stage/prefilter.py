"""What keeps events from being read: those in whose JSON no key of their class is found fit no rule of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from millstream.streams.rules.engines.raw_texts import RawTextFilter, raw_text_filter
from millstream.streams.rules.event_rows import EventRows, Places, Rows
from millstream.streams.rules.predicates import Predicate

__all__ = ["Prefilter"]

_WATCHED_EVENTS: Final = 200
_WATCHED_PER_ATOM: Final = 0.5
"""Events that are watched before a sieve is made: so many, and more for each atom that it would have."""

_TRIED_EVENTS: Final = 500
"""Events after which it is asked again and again whether the sieve pays."""

_MOST_PASS: Final = 0.6
"""The share of events up to which reading the others costs more than looking through the JSON of all."""


class Prefilter:
    """Looks for `atoms`, one of which must be true of an event for a rule of the class to hold.

    It begins to once enough events were watched and few of them had one, and ends where too many pass.
    """

    def __init__(self, atoms: Sequence[Predicate], places: Places) -> None:
        self._atoms = atoms
        self._places = places
        self._filter: RawTextFilter | None = None
        self._watching = bool(atoms)
        self._seen = 0
        self._passed = 0

    @property
    def is_on(self) -> bool:
        """Whether it keeps events back now."""
        return self._filter is not None

    @property
    def events_until_on(self) -> int:
        """How many events more are watched before it may begin."""
        needed = _WATCHED_EVENTS + int(_WATCHED_PER_ATOM * len(self._atoms))
        return max(0, needed - self._seen) if self._watching else 0

    def rows(self, events: EventRows) -> Rows | None:
        """The events that must be looked into; None: all."""
        if self._filter is None:
            return None
        unread = events.unread()
        if unread is None:
            return None
        passed = unread.rows[self._filter.rows(unread.raw)]
        self._seen += len(unread.rows)
        self._passed += len(passed)
        if self._seen >= _TRIED_EVENTS:
            if self._passed > self._seen * _MOST_PASS:
                self._filter = None
            self._seen = self._passed = 0
        if len(unread.rows) == events.count:
            return passed
        read = np.ones(events.count, dtype=np.bool_)
        read[unread.rows] = False
        read[passed] = True
        return np.flatnonzero(read)

    def watch(self, count: int, found: Iterable[Rows]) -> None:
        """Of so many events, those in which an atom was true."""
        if not self._watching:
            return
        passed = np.zeros(count, dtype=np.bool_)
        for rows in found:
            passed[rows] = True
        self._seen += count
        self._passed += int(np.count_nonzero(passed))
        if self.events_until_on:
            return
        self._watching = False
        if self._passed <= self._seen * _MOST_PASS:
            self._filter = raw_text_filter(self._atoms, self._places)
        self._seen = self._passed = 0
