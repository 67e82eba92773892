"""The options of a nexmark table as numbers, and the time of each event."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["NexmarkSettings", "NexmarkTimes", "is_finite", "is_paced"]


_SIZE_UNITS = {"": 1, "b": 1, "bytes": 1, "k": 1024, "kb": 1024, "m": 1024 * 1024, "mb": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class NexmarkSettings:
    """What the events depend on: equal settings make equal events.

    `events` in all or up to a stop before, 0 for no end. Rates are events a second of event time, `period_ms` how long
    the rate takes from the first to the next and back. The shares say how many of
    `person_share + auction_share + bid_share` events in a row are of a kind. Sizes are bytes of an event, filled up by
    its `extra`. A hot ratio of n sends n - 1 of n to the few that are hot. An event's time lies up to `disorder_ms`
    before its turn.
    """

    events: int = 0
    first_rate: int = 10_000
    next_rate: int = 10_000
    has_sine_rate: bool = False
    period_ms: int = 600_000
    person_share: int = 1
    auction_share: int = 3
    bid_share: int = 46
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4
    disorder_ms: int = 0
    seed: int = 1

    @classmethod
    def of(cls, options: Mapping[str, str], *, period_ms: int, disorder_ms: int) -> NexmarkSettings:
        """The values of the WITH options, which the connector's rules have checked, else the defaults."""

        def number(key: str, default: int) -> int:
            return int(options.get(key, default))

        return cls(
            events=min((most for most in (number("events.num", 0), number("stop-at", -1)) if most > 0), default=0),
            first_rate=max(1, number("first-event.rate", 10_000)),
            next_rate=max(1, number("next-event.rate", 10_000)),
            has_sine_rate=options.get("rate.shape", "SQUARE").upper() == "SINE",
            period_ms=max(1, period_ms),
            person_share=number("person.proportion", 1),
            auction_share=number("auction.proportion", 3),
            bid_share=number("bid.proportion", 46),
            person_bytes=_bytes(options.get("person.avg-size", "200 b")),
            auction_bytes=_bytes(options.get("auction.avg-size", "500 b")),
            bid_bytes=_bytes(options.get("bid.avg-size", "100 b")),
            hot_auctions=max(1, number("bid.hot-ratio.auctions", 2)),
            hot_bidders=max(1, number("bid.hot-ratio.bidders", 4)),
            hot_sellers=max(1, number("auction.hot-ratio.sellers", 4)),
            disorder_ms=disorder_ms,
            seed=number("seed", 1),
        )

    @property
    def shares(self) -> int:
        """How many events in a row hold every kind in its share."""
        return max(1, self.person_share + self.auction_share + self.bid_share)


def is_paced(options: Mapping[str, str]) -> bool:
    """Whether events wait for their turn. Nexmark has had two options for that; the newer one is followed."""
    as_fast_as_read = options.get("max-emit-speed")
    if as_fast_as_read is not None:
        return as_fast_as_read.lower() == "false"
    return options.get("rate.limited", "false").lower() == "true"


def is_finite(options: Mapping[str, str]) -> bool:
    """Whether a job ends behind the last event. One whose events wait for their turn does not: it runs on the clock."""
    has_end = NexmarkSettings.of(options, period_ms=1, disorder_ms=0).events > 0
    return has_end and options.get("keep-alive", "false").lower() == "false" and not is_paced(options)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    return int(found[1]) * _SIZE_UNITS.get(found[2], 1) if found else 0


_SINE_STEPS = 10


class NexmarkTimes:
    """Microseconds from the first event's time."""

    def __init__(self, settings: NexmarkSettings) -> None:
        rates = _rates(settings)
        self._step_us = settings.period_ms * 1000 / len(rates)
        self._gaps_us = np.array([1_000_000 / rate for rate in rates])
        self._firsts: npt.NDArray[np.float64] = np.concatenate(([0.0], np.cumsum(self._step_us / self._gaps_us)))
        self._period_us = settings.period_ms * 1000.0

    def turns_us(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """When the events of those numbers have their turn."""
        events = self._firsts[-1]
        periods = np.floor(numbers / events)
        within = numbers - periods * events
        steps = np.clip(np.searchsorted(self._firsts, within, side="right") - 1, 0, len(self._gaps_us) - 1)
        since_step_us = (within - self._firsts[steps]) * self._gaps_us[steps]
        turns_us = periods * self._period_us + steps * self._step_us + since_step_us
        return np.asarray(np.round(turns_us), dtype=np.int64)

    def events_until(self, elapsed_us: int) -> int:
        """How many events have had their turn after that time."""
        periods, rest_us = divmod(elapsed_us, self._period_us)
        step = min(int(rest_us // self._step_us), len(self._gaps_us) - 1)
        within = self._firsts[step] + (rest_us - step * self._step_us) / self._gaps_us[step]
        return math.floor(float(periods * self._firsts[-1] + within)) + 1


def _rates(settings: NexmarkSettings) -> list[float]:
    first, second = settings.first_rate, settings.next_rate
    if first == second:
        return [first]
    if not settings.has_sine_rate:
        return [first, second]
    middle, swing = (first + second) / 2, (first - second) / 2
    return [middle + swing * math.cos(2 * math.pi * step / _SINE_STEPS) for step in range(_SINE_STEPS)]
