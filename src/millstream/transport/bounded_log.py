"""Lines of a log about what strangers do: so many at once, then one a second, and how many were left out."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["BURST_LINES", "BoundedLog"]

BURST_LINES: Final = 20
"""Lines about closed connections that are written one after the other at most; after them one a second."""


class BoundedLog:
    """Writes warnings to `log`. Times are of the monotonic clock, in seconds."""

    def __init__(self, log: logging.Logger, *, burst_lines: int = BURST_LINES) -> None:
        self._log = log
        self._burst_lines = float(burst_lines)
        self._lines = self._burst_lines
        self._filled_s = 0.0
        self._left_out = 0

    def warning(self, now_s: float, line: str) -> None:
        """Write the line, or count it."""
        self._lines = min(self._burst_lines, self._lines + max(0.0, now_s - self._filled_s))
        self._filled_s = now_s
        if self._lines < 1:
            self._left_out += 1
            return
        self._lines -= 1
        left_out, self._left_out = self._left_out, 0
        self._log.warning("%s%s", line, f" ({left_out} such lines before it were left out.)" if left_out else "")
