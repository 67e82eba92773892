"""Waiting for input that Ctrl-C ends whenever it comes."""

from __future__ import annotations

import os
import select
import signal

__all__ = ["wait_for_input"]

_WOKEN_BYTES = 64
"""Signals that are taken note of at a time."""


def wait_for_input(descriptor: int) -> None:
    """Returns once something can be read from the descriptor; raises what a signal's handler raises.

    A read alone misses a signal that comes after Python last looked for one and before the system began to wait: it
    is then handled when the read ends, which may be never. For the main thread.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        while True:
            ready, _, _ = select.select([descriptor, woken], [], [])
            if descriptor in ready:
                return
            os.read(woken, _WOKEN_BYTES)
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)
