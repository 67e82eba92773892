"""The question before something that cannot be undone."""

from __future__ import annotations

import sys

__all__ = ["confirm"]


def confirm() -> bool:
    """Whether the user says yes; without a terminal there is nobody to ask, and it is no."""
    if not sys.stdin.isatty():
        return False
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
