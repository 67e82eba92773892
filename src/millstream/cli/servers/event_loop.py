"""The event loop of long-running commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

__all__ = ["loop_factory"]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else the standard one."""
    with contextlib.suppress(ImportError):
        import uvloop

        return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)
    return None
