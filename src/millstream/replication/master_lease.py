"""The lease of a master, for operations that the sync state set does not protect."""

from __future__ import annotations

from typing import Final

__all__ = ["CLOCK_DRIFT", "MasterLease", "takeover_wait_s"]

CLOCK_DRIFT: Final = 0.1
"""By how much two monotonic clocks may differ in speed: who waits for a lease to end waits so much longer."""


def takeover_wait_s(lease_s: float) -> float:
    """How long after the last answered heartbeat of a master the next one waits, so that never two hold the lease."""
    return lease_s * (1 + CLOCK_DRIFT)


class MasterLease:
    """Counted from when the answered request was **sent**: the answer may have been on its way for long.

    All times are seconds of one monotonic clock. Compare before each answer that the lease guards: a process that was
    stopped (SIGSTOP, a pause of the machine) does not notice.
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._ends_s = float("-inf")

    def renew(self, epoch: int, sent_s: float, lease_s: float) -> None:
        """Note an answer to a request that was sent in `epoch`. One of a lower epoch than the last counts nothing."""
        if epoch < self._epoch:
            return
        if epoch > self._epoch:
            self._epoch, self._ends_s = epoch, float("-inf")
        self._ends_s = max(self._ends_s, sent_s + lease_s)

    def drop(self) -> None:
        """Hold it no longer: after a goodbye, or when another master is known."""
        self._ends_s = float("-inf")

    def left_s(self, epoch: int, now_s: float) -> float:
        """For how long the master of `epoch` may go on; 0 where it may not."""
        return self._ends_s - now_s if self.is_held(epoch, now_s) else 0.0

    def is_held(self, epoch: int, now_s: float) -> bool:
        """Whether the master of `epoch` may answer."""
        return epoch == self._epoch and now_s < self._ends_s
