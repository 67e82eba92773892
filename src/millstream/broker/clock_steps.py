"""The log lines of a broker whose wall clock jumped forward or back."""

from __future__ import annotations

from millstream.model.errors import MillstreamError

__all__ = ["clock_stepped"]


def clock_stepped(step_ms: int) -> MillstreamError:
    """The line of the log about a step of so many milliseconds, forward or (negative) back; nothing has failed."""
    direction = "forward" if step_ms > 0 else "back"
    cause = ", or the machine slept" if step_ms > 0 else ""
    return MillstreamError(
        "CLOCK_STEPPED",
        f"The machine's clock was put {direction} by {abs(step_ms) / 1000:.1f} s{cause}. Invisible times and checks of "
        "transactions last as long as before; delayed messages are due by the new time.",
    )
