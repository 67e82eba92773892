"""How a transaction ends, and how much time its producer wants before it is asked."""

from __future__ import annotations

from enum import Enum

__all__ = ["RECOVERY_TIME_S", "Resolution"]

RECOVERY_TIME_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""The property with the seconds before a transaction's producer is asked for the first time."""


class Resolution(Enum):
    """What a producer says of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """It cannot tell yet, and will be asked again."""
