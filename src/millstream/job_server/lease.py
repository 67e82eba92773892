"""The lease of the leader, from the lock of the job topic's queue. Pure: time is passed in."""

from __future__ import annotations

from typing import Final

__all__ = ["RENEW_S", "TAKEOVER_S", "TRUST_S", "Lease"]

RENEW_S: Final = 5.0
"""Seconds between two requests for the lock."""

TRUST_S: Final = 30.0
"""Seconds for which a granted lock is trusted, from before it was asked for: the broker keeps it for 60. What is left
is time for drivers to end."""

TAKEOVER_S: Final = 10.0
"""Seconds that a server waits after it has written its epoch, where the one before it has not said that its drivers
have ended: a broker that has lost its locks may grant one too early."""


class Lease:
    """Monotonic seconds come in; whether the lock is held comes out."""

    def __init__(self) -> None:
        self._until_s: float | None = None

    def grant(self, asked_s: float) -> None:
        """The broker granted what was asked for at that time."""
        self._until_s = asked_s + TRUST_S

    def lose(self) -> None:
        """The broker said that another server has the lock, or it was given back."""
        self._until_s = None

    def is_held(self, now_s: float) -> bool:
        """Whether this server may run jobs."""
        return self._until_s is not None and now_s < self._until_s
