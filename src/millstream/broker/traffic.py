"""Traffic of a broker in the last minute, hour and day, by topic and by group.

`TrafficHistory` is the pure part for one counter: times are passed in. `Traffic` looks at the broker's counters.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from millstream.broker.statistics import Statistics
from millstream.model.clock import Clock
from millstream.model.topic import MessageType

__all__ = [
    "DAY_MS",
    "HOUR_MS",
    "LOOK_INTERVAL_MS",
    "MINUTE_MS",
    "Day",
    "Flow",
    "FlowKey",
    "Growth",
    "Traffic",
    "TrafficHistory",
]


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


class Flow(Enum):
    """What is counted: messages that were stored, delivered, or set aside; of the whole broker all that were stored,
    delivered, began to wait for their time, and were delivered at it."""

    PUT = "put"
    GET = "get"
    DEAD = "dead"
    ALL_PUT = "all put"
    ALL_GET = "all get"
    SCHEDULED = "scheduled"
    SETTLED = "settled"


FlowKey = tuple[Flow, str, str]
"""Flow, topic and group; "" where a flow has none."""


class _Total(NamedTuple):
    messages: int
    size_bytes: int


_KEYS_A_TURN = 256
"""Flows that are noted before others get their turn."""

_NOTHING = _Total(0, 0)
_KINDS = tuple(kind.value for kind in MessageType)
_WHOLE = (Flow.ALL_PUT, Flow.ALL_GET, Flow.SCHEDULED, Flow.SETTLED)


class Day(NamedTuple):
    """Messages since the broker started: up to the beginning of yesterday and of today, and up to now."""

    yesterday_morning: int
    today_morning: int
    now: int


class Traffic:
    """Counted since the broker started. `look` is called every 10 s. What is counted together with others has no
    flow of its own."""

    def __init__(self, statistics: Statistics, clock: Clock) -> None:
        self._statistics = statistics
        self._clock = clock
        self._histories: dict[FlowKey, TrafficHistory] = {}
        self._started_ms = self._last_look_ms = self._now_ms()
        self._today = self._date()
        self._mornings: dict[Flow, tuple[int, int]] = {Flow.ALL_PUT: (0, 0), Flow.ALL_GET: (0, 0)}

    async def look(self) -> None:
        """Note what the counters show."""
        now_ms = self._now_ms()
        totals = self._totals()
        for gone in self._histories.keys() - totals.keys():
            del self._histories[gone]
        before_ms, self._last_look_ms = self._last_look_ms, now_ms
        for number, (key, total) in enumerate(totals.items(), start=1):
            history = self._histories.get(key)
            if history is None:
                history = self._histories[key] = TrafficHistory(before_ms)
            history.note(now_ms, *total)
            if not number % _KEYS_A_TURN:
                await asyncio.sleep(0)
        self._turn_day(totals)

    def growth(self, flow: Flow, topic: str, group: str, span_ms: int) -> Growth:
        """What went by in the last `span_ms`, give or take a sixth."""
        key = (flow, topic, group)
        history = self._histories.get(key) or TrafficHistory(self._last_look_ms)
        return history.growth(span_ms, self._now_ms(), *self._total(key))

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the broker was made."""
        return self._now_ms() - self._started_ms

    def rate(self, flow: Flow, topic: str = "", group: str = "", span_ms: int = MINUTE_MS) -> float:
        """Messages a second in the last `span_ms` before the last look; 0 before there was one."""
        history = self._histories.get((flow, topic, group))
        return 0.0 if history is None else history.growth_seen(span_ms).messages_per_s

    def is_apart(self, flow: Flow, topic: str, group: str) -> bool:
        """Whether there is a counter for this alone, or would be one at its first message."""
        counted = self._statistics
        match flow:
            case Flow.PUT:
                return counted.incoming.other is None or any((topic, kind) in counted.incoming for kind in _KINDS)
            case Flow.GET:
                return counted.outgoing.other is None or (group, topic) in counted.outgoing
            case Flow.DEAD:
                return counted.dead_letters.other is None or (group, topic) in counted.dead_letters
        return True

    def total(self, flow: Flow) -> Growth:
        """The whole broker's messages since it was made."""
        return Growth(*self._total((flow, "", "")), self.elapsed_ms)

    def day(self, flow: Flow) -> Day:
        """The whole broker's messages; `flow` is ALL_PUT or ALL_GET."""
        yesterday, today = self._mornings[flow]
        return Day(yesterday, today, max(self._total((flow, "", "")).messages, today))

    def _turn_day(self, totals: dict[FlowKey, _Total]) -> None:
        today = self._date()
        if today == self._today:
            return
        self._today = today
        for flow, (_, this_morning) in self._mornings.items():
            self._mornings[flow] = this_morning, totals[flow, "", ""].messages

    def _total(self, key: FlowKey) -> _Total:
        flow, topic, group = key
        counted = self._statistics
        match flow:
            case Flow.PUT:
                kinds = (counted.incoming.get((topic, kind)) for kind in _KINDS)
                found = [one for one in kinds if one is not None]
                return _Total(sum(one.messages for one in found), sum(one.size_bytes for one in found))
            case Flow.GET:
                taken = counted.outgoing.get((group, topic))
                return _NOTHING if taken is None else _Total(taken.messages, taken.size_bytes)
            case Flow.DEAD:
                buried = counted.dead_letters.get((group, topic))
                return _NOTHING if buried is None else _Total(buried.number, 0)
            case Flow.ALL_PUT:
                rows = [row for _, row in counted.incoming.rows()]
                return _Total(sum(one.messages for one in rows), sum(one.size_bytes for one in rows))
            case Flow.ALL_GET:
                gets = [row for _, row in counted.outgoing.rows()]
                return _Total(sum(one.messages for one in gets), sum(one.size_bytes for one in gets))
            case Flow.SCHEDULED:
                return _Total(sum(row.scheduled for _, row in counted.timers.rows()), 0)
            case Flow.SETTLED:
                return _Total(sum(row.settled for _, row in counted.timers.rows()), 0)

    def _totals(self) -> dict[FlowKey, _Total]:
        totals: dict[FlowKey, _Total] = {}
        for (topic, _), put in self._statistics.incoming.items():
            before = totals.get((Flow.PUT, topic, ""), _NOTHING)
            totals[Flow.PUT, topic, ""] = _Total(before.messages + put.messages, before.size_bytes + put.size_bytes)
        totals.update(self._group_totals())
        for flow in _WHOLE:
            totals[flow, "", ""] = self._total((flow, "", ""))
        return totals

    def _group_totals(self) -> Iterator[tuple[FlowKey, _Total]]:
        for (group, topic), taken in self._statistics.outgoing.items():
            yield (Flow.GET, topic, group), _Total(taken.messages, taken.size_bytes)
        for (group, topic), buried in self._statistics.dead_letters.items():
            yield (Flow.DEAD, topic, group), _Total(buried.number, 0)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    def _date(self) -> object:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).date()
