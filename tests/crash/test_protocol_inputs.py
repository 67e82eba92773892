"""Parts of crash programme X7."""

from __future__ import annotations

import asyncio

from crash.protocol_inputs import close_connection, open_address


async def test_a_connection_that_the_server_has_cut_off_is_closed_without_an_error() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await open_address(f"127.0.0.1:{port}")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await close_connection(writer, reset=True)
