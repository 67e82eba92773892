"""When each event happens: at the table's rate, which may go up and down over a period."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from millstream.streams.connectors.nexmark.settings import NexmarkSettings

__all__ = ["NexmarkTimes"]

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
