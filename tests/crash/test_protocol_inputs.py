"""Parts of crash programme X7."""

from __future__ import annotations

import asyncio
from pathlib import Path

from crash.attacked_server import count_descriptors
from crash.protocol_inputs import close_connection, open_address


def test_files_of_the_store_are_no_descriptors_that_an_attack_leaves(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    descriptors = Path("/proc/self/fd")
    with (tmp_path / "data" / "00").open("w"), (tmp_path / "other").open("w"):
        both = count_descriptors(descriptors, tmp_path / "nowhere")
        assert count_descriptors(descriptors, tmp_path / "data") == both - 1


async def test_a_connection_that_the_server_has_cut_off_is_closed_without_an_error() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await open_address(f"127.0.0.1:{port}")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await close_connection(writer, reset=True)
