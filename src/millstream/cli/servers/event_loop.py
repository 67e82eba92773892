"""The event loop of long-running commands."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import cast

__all__ = ["describe_loop", "loop_factory"]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else the standard one."""
    with contextlib.suppress(ImportError):
        import uvloop

        return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)
    return None


def describe_loop() -> str:
    """Which loop `loop_factory` makes: `uvloop 0.23.0`, or `asyncio`."""
    if loop_factory() is None:
        return "asyncio"
    return f"uvloop {sys.modules['uvloop'].__version__}"
