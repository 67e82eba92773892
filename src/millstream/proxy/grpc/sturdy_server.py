"""grpc.aio's server with two faults mended that any client could use.

A call whose path is no UTF-8 ends the loop that accepts calls, and with it the whole server; and headers that are no
UTF-8, or clients that go before their answer, put stack traces into the log. Both were found in grpcio 1.85, on whose
inner names this module stands; where those are missing the server is as grpcio made it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc.aio
from grpc._cython import cygrpc
from grpc.aio._server import Server

__all__ = ["sturdy_server"]

_IS_KNOWN = hasattr(cygrpc, "_MethodResolver") and hasattr(cygrpc.AioServer, "_request_call")

_ABOUT_CLIENTS = ("Invalid encoding on", "ExecuteBatchError raised in core")
"""How the lines begin that say what a client did: a header that is no text, and an answer that nobody waits for."""


def sturdy_server(options: tuple[tuple[str, Any], ...]) -> Any:
    """A `grpc.aio.Server` with these channel arguments, for registered methods only."""
    logger = logging.getLogger("grpc._cython.cygrpc")
    if _is_about_the_server not in logger.filters:
        logger.addFilter(_is_about_the_server)
    if not _IS_KNOWN:
        return grpc.aio.server(options=options)
    server = Server.__new__(Server)
    server._loop = cygrpc.get_working_loop()
    server._server = _Server(server._loop, None, (), (), options, None)
    return server


class _Server(cygrpc.AioServer if _IS_KNOWN else object):  # type: ignore[misc]
    """Answers calls of unknown methods itself: the loop that accepts calls would read their paths."""

    async def _request_call(self) -> None:
        loop = asyncio.get_running_loop()
        nothing = cygrpc._MethodResolver([], {})
        answering: set[asyncio.Task[None]] = set()
        while True:
            call = await super()._request_call()
            refused = cygrpc._handle_rpc("unknown", nothing, (), call, loop, False)
            task = loop.create_task(cygrpc._schedule_rpc_coro(refused, call, loop, "unknown"))
            answering.add(task)
            task.add_done_callback(answering.discard)


def _is_about_the_server(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_ABOUT_CLIENTS)
