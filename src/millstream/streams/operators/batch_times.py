"""One turn of an operator: the rows of a micro-batch for its bucket, and what time it is before and after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["END_OF_TIME_US", "START_OF_TIME_US", "BatchTimes"]

START_OF_TIME_US: Final = -(2**63)
"""The watermark before anything is known."""

END_OF_TIME_US: Final = 2**63 - 1
"""The watermark when a bounded run has read everything: no row comes any more."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times of a micro-batch, in microseconds since 1970; equal in every bucket and at every replay.

    A row with an event time at or before `watermark_before_us` is late. After the rows, event time has come to
    `watermark_us`: what ends at or before it is final. `now_us` is the processing time of the whole turn.
    """

    watermark_before_us: int = START_OF_TIME_US
    watermark_us: int = START_OF_TIME_US
    now_us: int = 0

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after this turn."""
        return self.watermark_us >= END_OF_TIME_US
