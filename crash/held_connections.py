"""Connections of an attack, which are open until it is over."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from crash.attacked_server import AttackedServer
from crash.protocol_inputs import close_connection, open_address, open_amqp, open_mqtt

__all__ = ["HeldConnections"]


class HeldConnections:
    """Each is open until `let_go`, and reads nothing unless it is to."""

    def __init__(self, server: AttackedServer) -> None:
        self._server = server
        self._open: list[asyncio.StreamWriter] = []
        self._reading: list[asyncio.Task[None]] = []

    async def connect(self, address: str, *, reads: bool = False, is_open: bool = False) -> asyncio.StreamWriter:
        """One more. `is_open` is for one of MQTT or AMQP that was opened as it should be."""
        openers = {self._server.amqp: open_amqp, self._server.mqtt: open_mqtt} if is_open else {}
        reader, writer = await openers.get(address, open_address)(address)
        self._open.append(writer)
        if reads:
            self._reading.append(asyncio.create_task(_read_on(reader)))
        else:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        return writer

    async def let_go(self) -> None:
        """Cut all of them off."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for writer in self._open:
            await close_connection(writer, reset=True)
        self._open, self._reading = [], []
        await self._server.settle()


async def _read_on(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
