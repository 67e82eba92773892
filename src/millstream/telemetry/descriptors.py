"""The descriptors of this process: how many it may have, how many it has, and a higher limit where that is allowed."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

__all__ = ["MAX_DESCRIPTORS", "descriptor_limit", "descriptors_in_use", "raise_descriptor_limit"]

MAX_DESCRIPTORS: Final = 1_048_576
"""Descriptors that a process asks for at most, also where the system sets no limit."""


def descriptor_limit() -> int:
    """How many descriptors this process may have open, by its soft limit."""
    return _cap_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, which needs no permission; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _cap_limit(hard)
    if _cap_limit(soft) < wanted:
        # Some systems name a hard limit that they do not grant: then the soft one stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def descriptors_in_use() -> int | None:
    """How many descriptors this process has open, where /proc shows it."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # One is the listing's own.
    except OSError:
        return None


def _cap_limit(limit: int) -> int:
    return MAX_DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, MAX_DESCRIPTORS)
