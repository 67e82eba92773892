"""Why a Sigma document is no rule."""

from __future__ import annotations

__all__ = ["Fault"]


class Fault(Exception):
    """A reason, at a line that counts from 1 where it has one."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
