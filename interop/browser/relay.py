"""A TCP relay in a thread of its own: what lies behind it may be changed, and its connections cut."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

__all__ = ["Relay"]

_CHUNK_BYTES: Final = 1 << 16


class Relay:
    """Listens on `address` for clients of `target` (both `host:port`) while it is entered."""

    def __init__(self, target: str) -> None:
        self.target = target
        """Where the next client is led to."""
        self.address = ""
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = server = self._call(asyncio.start_server(self._lead, "127.0.0.1", 0))
        self.address = "{}:{}".format(*server.sockets[0].getsockname())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        self._call(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Reset all connections, and those to come until `mend`."""
        self._is_cut = True
        self._call(self._abort_all())

    def mend(self) -> None:
        """Lead clients to the target again."""
        self._is_cut = False

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _abort_all(self) -> None:
        for one in self._open:
            one.transport.abort()

    async def _settle(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            beyond, toward = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, toward}
        if self._is_cut:
            await self._abort_all()
        await asyncio.gather(_pass_on(reader, toward), _pass_on(beyond, writer))
        self._open -= {writer, toward}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
