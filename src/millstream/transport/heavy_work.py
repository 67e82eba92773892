"""A small thread pool for work that takes long, such as decompressing megabytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from millstream.model.errors import ConsumeRefused

__all__ = ["HEAVY_BYTES", "HEAVY_WORK", "MAX_HEAVY_BYTES", "MAX_HEAVY_THREADS", "HeavyWork"]

MAX_HEAVY_THREADS: Final = 2
"""Threads of a process for such work; what comes meanwhile waits."""

MAX_HEAVY_BYTES: Final = 256 * 1024 * 1024
"""Bytes of such work, under way and waiting, at most; TOO_MANY_REQUESTS refuses more."""

HEAVY_BYTES: Final = 64 * 1024
"""With fewer bytes work is done at once: to hand it to a thread costs more."""

_Result = TypeVar("_Result")


class HeavyWork:
    """The threads of one process; for event loops of any number of threads."""

    def __init__(self, *, threads: int = MAX_HEAVY_THREADS, max_bytes: int = MAX_HEAVY_BYTES) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="millstream-heavy")
        self._max_bytes = max_bytes
        self._mutex = threading.Lock()
        self.used_bytes = 0
        """Of what is under way or waits."""

    async def run(self, size_bytes: int, work: Callable[[], _Result]) -> _Result:
        """What the work returns or raises. Raises TOO_MANY_REQUESTS over the limit of bytes."""
        with self._mutex:
            if self.used_bytes and self.used_bytes + size_bytes > self._max_bytes:
                words = f"{self.used_bytes} bytes wait to be worked on; the limit is {self._max_bytes}."
                raise ConsumeRefused("TOO_MANY_REQUESTS", words)
            self.used_bytes += size_bytes
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: self._release(size_bytes))
        return await asyncio.wrap_future(future)

    def _release(self, size_bytes: int) -> None:
        with self._mutex:
            self.used_bytes -= size_bytes


HEAVY_WORK: Final = HeavyWork()
"""The one of this process. Its threads begin with its first work."""
