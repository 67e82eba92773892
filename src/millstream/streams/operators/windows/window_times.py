"""Assigns times to windows, and windows to slices. All in microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

__all__ = ["Cumulating", "Hopping", "Slicing", "Span", "last_moment"]

_MILLISECOND_US = 1000

Span = tuple[int, int]
"""Start and end of a window; the end is the first moment behind it."""


def last_moment(end_us: int) -> int:
    """The last millisecond of a window: the window is over when the watermark has reached it."""
    return end_us - _MILLISECOND_US


class Slicing(Protocol):
    """Windows that are made of slices, each of which lies in one or more windows as a whole."""

    def starts(self, times_us: Sequence[int]) -> list[int]:
        """The start of the slice that each moment is in."""
        ...

    def windows_of(self, slice_us: int) -> Iterator[Span]:
        """The windows with that slice, the earliest end first."""
        ...

    def slices_of(self, window: Span) -> Iterator[int]:
        """The slices of a window, in order."""
        ...

    def last_needed(self, window: Span) -> Iterator[int]:
        """The slices that no later window needs when this one is over."""
        ...


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of `size_us` every `slide_us`; tumbling ones where both are equal."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    @property
    def _step_us(self) -> int:
        return gcd(self.size_us, self.slide_us)

    def starts(self, times_us: Sequence[int]) -> list[int]:
        return _starts(times_us, self._step_us, self.offset_us)

    def windows_of(self, slice_us: int) -> Iterator[Span]:
        last = slice_us - (slice_us - self.offset_us) % self.slide_us
        first = last - (last - slice_us + self.size_us - 1) // self.slide_us * self.slide_us
        for start in range(first, last + 1, self.slide_us):
            if start <= slice_us < start + self.size_us:
                yield start, start + self.size_us

    def slices_of(self, window: Span) -> Iterator[int]:
        return iter(range(window[0], window[1], self._step_us))

    def last_needed(self, window: Span) -> Iterator[int]:
        return iter(range(window[0], min(window[0] + self.slide_us, window[1]), self._step_us))


@dataclass(frozen=True, slots=True)
class Cumulating:
    """Windows that begin every `size_us` and end after each `step_us` of it."""

    size_us: int
    step_us: int
    offset_us: int = 0

    def starts(self, times_us: Sequence[int]) -> list[int]:
        return _starts(times_us, self.step_us, self.offset_us)

    def windows_of(self, slice_us: int) -> Iterator[Span]:
        start = slice_us - (slice_us - self.offset_us) % self.size_us
        for end in range(slice_us + self.step_us, start + self.size_us + 1, self.step_us):
            yield start, end

    def slices_of(self, window: Span) -> Iterator[int]:
        return iter(range(window[0], window[1], self.step_us))

    def last_needed(self, window: Span) -> Iterator[int]:
        whole = window[1] - window[0] == self.size_us
        return self.slices_of(window) if whole else iter(())


def _starts(times_us: Sequence[int], step_us: int, offset_us: int) -> list[int]:
    return [time_us - (time_us - offset_us) % step_us for time_us in times_us]
