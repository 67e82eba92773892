"""The error for an invalid Sigma document."""

from __future__ import annotations

__all__ = ["Fault", "MissingValues"]


class Fault(Exception):
    """A reason, at a line that counts from 1 where it has one."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class MissingValues(Fault):
    """A placeholder that no file gives values; `field` asks for it, None where it is a keyword."""

    def __init__(self, placeholder: str, field: str | None = None, line: int | None = None) -> None:
        super().__init__(f"the placeholder %{placeholder}% has no values", line)
        self.placeholder = placeholder
        self.field = field
