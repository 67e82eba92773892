"""What clients see of a server that stops as it should."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
import pytest

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.server.all_in_one import AllInOne, AllInOneOptions


async def test_clients_are_told_to_reconnect_before_their_streams_end(tmp_path: Path) -> None:
    server = AllInOne(AllInOneOptions(tmp_path / "data", grpc_port=0, remoting_port=0, nameserver_port=0))
    endpoints = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{endpoints.grpc.port}") as channel:
        stream = METHODS["Telemetry"].stub(channel)(metadata=(("x-mq-client-id", "host@1@0@abc"),))
        publishing = m.Publishing(topics=[m.Resource(name="orders")])
        await stream.write(m.TelemetryCommand(settings=m.Settings(client_type=m.PRODUCER, publishing=publishing)))
        assert (await stream.read()).WhichOneof("command") == "settings"
        await server.close()
        assert (await stream.read()).WhichOneof("command") == "reconnect_endpoints_command"
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
