"""The epochs of a log by offset, and the point where two logs diverge."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Self

__all__ = ["EpochList", "EpochStart"]


_by_epoch = attrgetter("epoch")
_by_log_offset = attrgetter("log_offset")


class EpochStart(NamedTuple):
    """From `log_offset` on the log was written in `epoch`."""

    epoch: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class EpochList:
    """The starts of a log's epochs, oldest first: epochs ascend, starts never go back. A value, which never changes.

    Ends are not kept: an epoch ends where the next begins, the last one at the log's end. Two epochs may begin at one
    offset; the earlier one is empty then and still there (#9942).
    """

    starts: tuple[EpochStart, ...] = ()

    @classmethod
    def check(cls, starts: Iterable[EpochStart], log_end: int) -> Self:
        """The list of a log that ends at `log_end`. Raises ValueError where epochs or starts are out of order."""
        result = cls()
        for epoch, log_offset in starts:
            result = result.append(epoch, log_offset)
        if result.starts and result.starts[-1].log_offset > log_end:
            raise ValueError(
                f"Epoch {result.epoch} begins at {result.starts[-1].log_offset}, behind the end {log_end}."
            )
        return result

    @property
    def epoch(self) -> int:
        """The latest epoch; -1 in an empty list."""
        return self.starts[-1].epoch if self.starts else -1

    def append(self, epoch: int, log_offset: int) -> Self:
        """The list with a new latest epoch. Raises ValueError unless it is higher and begins not before the last."""
        if epoch <= self.epoch or epoch < 0:
            raise ValueError(f"Epoch {epoch} does not follow epoch {self.epoch}.")
        if log_offset < (self.starts[-1].log_offset if self.starts else 0):
            raise ValueError(f"Epoch {epoch} cannot begin at {log_offset}, before epoch {self.epoch}.")
        return type(self)((*self.starts, EpochStart(epoch, log_offset)))

    def cut_suffix(self, log_end: int) -> Self:
        """The list of the log that ends at `log_end` now: without the epochs of which nothing is left."""
        return type(self)(tuple(start for start in self.starts if start.log_offset < log_end))

    def cut_prefix(self, log_start: int) -> Self:
        """The list of the log that begins at `log_start` now.

        The epoch that holds `log_start` keeps its own start, by which another log's list names it.
        """
        held = [start for start in self.starts if start.log_offset <= log_start]
        later = [start for start in self.starts if start.log_offset > log_start]
        return type(self)((*held[-1:], *later))

    def at(self, log_offset: int) -> EpochStart | None:
        """The epoch in which the byte at `log_offset` was written; None before the first."""
        # Not all are looked at: a master asks for this with each fetch, and there is an epoch for each election.
        place = bisect_right(self.starts, log_offset, key=_by_log_offset)
        return self.starts[place - 1] if place else None

    def end_of(self, epoch: int, log_end: int) -> int:
        """Where an epoch of the list ends in the log, which ends at `log_end`."""
        place = bisect_right(self.starts, epoch, key=_by_epoch)
        return min(self.starts[place].log_offset, log_end) if place < len(self.starts) else log_end

    def holds(self, start: EpochStart) -> bool:
        """Whether the list has that epoch with that start."""
        place = bisect_right(self.starts, start.epoch, key=_by_epoch)
        return place > 0 and self.starts[place - 1] == start

    def divergence(self, log_end: int, other: EpochList, other_end: int) -> int | None:
        """Up to where both logs are the same; None where no epoch is in both lists with the same start.

        The latest epoch that both know decides: they are the same up to where the shorter one of its two parts ends.
        """
        known = set(other.starts)
        for start in reversed(self.starts):
            if start in known:
                return min(self.end_of(start.epoch, log_end), other.end_of(start.epoch, other_end))
        return None
