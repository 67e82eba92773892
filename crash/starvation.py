"""A process without a free descriptor, as one with hundreds of connections is."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

__all__ = ["no_free_descriptor"]


@contextlib.contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Within the block every open, accept and socket of this process fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
