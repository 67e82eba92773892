"""A connection that asks a broker what RocketMQ's admin tools ask."""

from __future__ import annotations

from typing import Any

from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import read_fastjson
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["Tool"]


class Tool:
    """Asks by code; `told` gives the body of a success as values."""

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection = connection

    async def ask(self, code: int, body: bytes = b"", **ext: object) -> RemotingCommand:
        return await self._connection.request(RemotingCommand(code, {k: str(v) for k, v in ext.items()}, body), 5)

    async def told(self, code: int, body: bytes = b"", **ext: object) -> Any:
        answer = await self.ask(code, body, **ext)
        assert answer.code == 0, answer
        return read_fastjson(answer.body)
