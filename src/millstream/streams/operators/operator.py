"""The protocol that all stateful operators share: rows in, timers, state, changed rows out."""

from __future__ import annotations

from typing import Protocol

from millstream.streams.operators.batch_times import BatchTimes
from millstream.streams.operators.changes import Changes, OperatorOutput
from millstream.streams.operators.state import OperatorState

__all__ = ["Operator"]


class Operator(Protocol):
    """One operator in one bucket. Instances are made from a plan node's plain values and hold no rows of their own:
    everything that has to outlive a turn is in the tables and timers that `open` takes from its state.

    A turn is `process` once per input that has rows, in the order of the inputs, then `advance`. Both are functions
    of their arguments and of the state alone: a replay of the same turn on the same state says the same. (State that
    was restored may hold its keys in another order; what is said of different keys may then be too.)
    """

    def open(self, state: OperatorState) -> None:
        """Take the tables and timers; called once, before they are filled and before any turn."""
        ...

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take the rows of input `number`, which counts from 0."""
        ...

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say what is final now: the watermark has come to `turn.watermark_us`."""
        ...
