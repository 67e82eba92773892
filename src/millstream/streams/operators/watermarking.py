"""The operator of CURRENT_WATERMARK."""

from __future__ import annotations

from typing import Final

from millstream.streams.operators.batch_times import START_OF_TIME_US, BatchTimes
from millstream.streams.operators.changes import Changes, OperatorOutput
from millstream.streams.operators.state import OperatorState

__all__ = ["WatermarkTeller"]

_MILLISECOND_US: Final = 1000


class WatermarkTeller:
    """Says each row with the watermark before its micro-batch, in whole milliseconds; None before any."""

    def open(self, state: OperatorState) -> None:
        """There is nothing to keep: event time is kept with every operator."""

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the rows at once."""
        before_us = turn.watermark_before_us
        told = None if before_us == START_OF_TIME_US else before_us - before_us % _MILLISECOND_US
        for kind, row in changes:
            out.emit(kind, (*row, told))

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """No row waits."""
