"""Serves an ASGI application on a port in the caller's event loop, without signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from millstream.model.message import Address
from millstream.security.tls import ServerIdentity
from millstream.transport.listening import listen_refused

__all__ = ["AsgiServer"]

_BACKLOG = 1024


class AsgiServer:
    """Serves `application` over HTTP/1.1; over TLS alone where there is an `identity`.

    At most `max_connections` connections and waiting requests are there at a time; others are answered 503. `stop_s`
    is how long requests that are under way may take once it is to stop.
    """

    def __init__(
        self, application: Any, *, identity: ServerIdentity | None, max_connections: int, stop_s: float
    ) -> None:
        self._application = application
        self._identity = identity
        self._max_connections = max_connections
        self._stop_s = stop_s
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> Address:
        """Listen, on a free port for 0; where. Raises StartRefused: PORT_IN_USE, ADDRESS_NOT_LOCAL."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise listen_refused(host, port, error) from None
        config = uvicorn.Config(
            self._application,
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=self._max_connections,
            timeout_graceful_shutdown=int(self._stop_s),
        )
        config.load()
        if self._identity is not None:
            config.ssl = self._identity.context
        self._server = _Server(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        await self._server.ready.wait()
        return Address(host, listener.getsockname()[1])

    def stop(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.should_exit = True

    async def wait(self) -> None:
        """Return once it has stopped."""
        if self._serving is not None:
            await self._serving


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
