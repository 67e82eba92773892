"""How much a counter grew in the last minute, hour and day, from looks at it in between. Pure: times are handed in."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["DAY_MS", "HOUR_MS", "LOOK_INTERVAL_MS", "MINUTE_MS", "Growth", "TrafficHistory"]

LOOK_INTERVAL_MS: Final = 10_000
"""Milliseconds between two looks."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

_WIDTH: Final = 3
"""Numbers of one look: when (ms), messages, bytes."""


@dataclass(frozen=True, slots=True)
class _Span:
    interval_ms: int
    looks: int


_SPANS: Final = (_Span(LOOK_INTERVAL_MS, 7), _Span(10 * MINUTE_MS, 7), _Span(HOUR_MS, 25))
"""What is kept for sums of a minute, an hour and a day: one look more than intervals, about 900 bytes in all."""


class Growth(NamedTuple):
    """What was added in `elapsed_ms`, which is what was asked for or, of a young counter, less."""

    messages: int
    size_bytes: int
    elapsed_ms: int

    @property
    def messages_per_s(self) -> float:
        return self.messages * 1000 / self.elapsed_ms if self.elapsed_ms > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes * 1000 / self.elapsed_ms if self.elapsed_ms > 0 else 0.0


class TrafficHistory:
    """The looks at one counter, which begins with nothing at `since_ms`; times never go backward."""

    __slots__ = ("_looks",)

    def __init__(self, since_ms: int) -> None:
        first = (since_ms, 0, 0)
        self._looks = tuple(array("q", first) for _ in _SPANS)

    def note(self, now_ms: int, messages: int, size_bytes: int) -> None:
        """Keep what the counter shows now; once in `LOOK_INTERVAL_MS` is enough."""
        for span, looks in zip(_SPANS, self._looks, strict=True):
            if now_ms - looks[-_WIDTH] >= span.interval_ms:
                looks.extend((now_ms, messages, size_bytes))
                if len(looks) > span.looks * _WIDTH:
                    del looks[:_WIDTH]

    def growth(self, span_ms: int, now_ms: int, messages: int, size_bytes: int) -> Growth:
        """What was added in the last `span_ms`, up to the counter's present state; the span may be one interval longer.

        Spans up to a minute are exact to 10 s, up to an hour to 10 minutes, longer ones to an hour.
        """
        looks = self._covering(span_ms)
        then_ms, then_messages, then_bytes = _at(looks, now_ms - span_ms)
        # A counter that sums others falls where one of those is forgotten.
        return Growth(max(messages - then_messages, 0), max(size_bytes - then_bytes, 0), now_ms - then_ms)

    def growth_seen(self, span_ms: int) -> Growth:
        """The same up to the last look alone, so it does not change between two looks; nothing before the first."""
        last_ms, messages, size_bytes = self._looks[0][-_WIDTH:]
        return self.growth(span_ms, last_ms, messages, size_bytes)

    def _covering(self, span_ms: int) -> array[int]:
        kept = next((looks for span, looks in zip(_SPANS, self._looks, strict=True) if _covers(span, span_ms)), None)
        return self._looks[-1] if kept is None else kept


def _at(looks: array[int], time_ms: int) -> array[int]:
    """The last look at or before the time, or the first one there is."""
    place = 0
    while place + _WIDTH < len(looks) and looks[place + _WIDTH] <= time_ms:
        place += _WIDTH
    return looks[place : place + _WIDTH]


def _covers(span: _Span, span_ms: int) -> bool:
    return span_ms <= span.interval_ms * (span.looks - 1)
