"""Unreadable objects: logged once, skipped, and tried again after a while."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Final

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import MillstreamError

__all__ = ["LOSS_MS", "MAX_LOSSES", "ColdLosses"]

LOSS_MS: Final = 10 * 60 * 1000
"""Milliseconds for which what is damaged or missing is passed over; then it is read again."""

MAX_LOSSES: Final = 10_000
"""Blocks and objects that are known as lost at most; beyond that the oldest are read again sooner."""

_log = logging.getLogger(__name__)


class ColdLosses:
    """Objects by key, and blocks of them by number, None for an object as a whole. Fit for any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.passed_over = 0
        """How often a block or an object was found lost."""
        self._clock = clock or SystemClock()
        self._since_ms: OrderedDict[tuple[str, int | None], int] = OrderedDict()
        self._named: OrderedDict[tuple[str, int | None], None] = OrderedDict()
        self._mutex = threading.Lock()

    def __contains__(self, place: tuple[str, int | None]) -> bool:
        return place in self._since_ms

    def note(self, key: str, block: int | None, what: str, error: MillstreamError) -> None:
        """This stayed damaged or missing however often it was fetched. `what` names the messages."""
        place = key, block
        with self._mutex:
            self.passed_over += 1
            self._since_ms[place] = self._clock.now_ms()
            self._since_ms.move_to_end(place)
            is_new = place not in self._named
            self._named[place] = None
            for places in (self._since_ms, self._named):
                if len(places) > MAX_LOSSES:
                    places.popitem(last=False)
        if is_new:
            _log.error("Passed over damaged cold messages: %s. %s", what, error)

    def expire(self) -> None:
        """Have what was lost for `LOSS_MS` read again; a clock that was put back counts as that."""
        if not self._since_ms:
            return
        with self._mutex:
            now_ms = self._clock.now_ms()
            for place, since_ms in list(self._since_ms.items()):
                if not since_ms <= now_ms < since_ms + LOSS_MS:
                    del self._since_ms[place]

    def forget(self, key: str) -> None:
        """The object is deleted."""
        with self._mutex:
            for places in (self._since_ms, self._named):
                for place in [place for place in places if place[0] == key]:
                    del places[place]
