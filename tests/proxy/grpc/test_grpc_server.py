"""The service on a real port: limits, streams, and how it starts and stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from dialled import CLIENT_ID, Dialled
from memory_backend import MemoryBackend
from service_calls import METADATA

from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import StartRefused
from millstream.model.message import MAX_BODY_BYTES, Address, StoredMessage
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import SERVICE_NAME
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.processor import Processor
from patience import eventually, within_patience


@pytest.fixture
async def server(processor: Processor) -> AsyncIterator[GrpcServer]:
    serving = GrpcServer(processor, "127.0.0.1", 0)
    yield serving
    await serving.close(0)


@pytest.fixture
async def dialled(server: GrpcServer) -> AsyncIterator[Dialled]:
    client = Dialled(await server.start())
    yield client
    await client.channel.close()


async def test_a_body_over_the_limit_gets_a_status_and_not_a_broken_call(dialled: Dialled) -> None:
    assert (await dialled.send(bytes(MAX_BODY_BYTES))).status.code == m.OK
    assert (await dialled.send(bytes(MAX_BODY_BYTES + 1))).status.code == m.MESSAGE_BODY_TOO_LARGE
    assert (await dialled.send(bytes(15 * 1024 * 1024))).status.code == m.MESSAGE_BODY_TOO_LARGE


async def test_a_request_over_the_frame_limit_is_refused_by_the_transport(dialled: Dialled) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dialled.send(bytes(17 * 1024 * 1024))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await dialled.send(b"still here")).status.code == m.OK


async def test_a_method_that_the_service_does_not_have_is_unimplemented(dialled: Dialled) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dialled.channel.unary_unary(f"/{SERVICE_NAME}/Nothing")(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_the_producers_address_is_noted(dialled: Dialled, backend: MemoryBackend) -> None:
    await dialled.send(b"body")
    assert backend.log[0].born_host.host == "127.0.0.1"
    assert backend.log[0].born_host.port > 0


async def test_a_telemetry_stream_stays_open_and_answers_each_settings(dialled: Dialled) -> None:
    stream = dialled.telemetry()
    asked = m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing()))
    for _ in range(2):
        await stream.write(asked)
        assert (await stream.read()).status.code == m.OK
    stream.cancel()


@pytest.mark.parametrize(("metadata", "words"), [(CLIENT_ID, "no publishing or subscription"), ((), "x-mq-client-id")])
async def test_telemetry_that_is_refused_ends_as_an_invalid_argument(
    dialled: Dialled, metadata: Any, words: str
) -> None:
    stream = dialled.telemetry(metadata)
    await stream.write(m.TelemetryCommand(settings=m.Settings()))
    assert words in (await stream.read()).status.message
    with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
        await stream.read()
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_long_poll_ends_with_its_client(dialled: Dialled, processor: Processor) -> None:
    call = dialled.receive()
    await eventually(lambda: len(processor._waiting) == 1)
    call.cancel()
    await eventually(lambda: not processor._waiting)
    await dialled.send(b"body")
    assert len([frame async for frame in dialled.receive(0)]) == 3


async def test_a_client_that_vanishes_loses_its_stream(dialled: Dialled, processor: Processor) -> None:
    stream = dialled.telemetry()
    await stream.write(m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing())))
    await stream.read()
    record = processor.clients.find(METADATA["x-mq-client-id"])
    assert record is not None
    assert record.stream_lost_s is None
    await dialled.channel.close()
    await eventually(lambda: record.stream_lost_s is not None)


async def test_closing_answers_waiting_receives_and_ends_telemetry_at_once(
    server: GrpcServer, dialled: Dialled, processor: Processor
) -> None:
    call, stream = dialled.receive(), dialled.telemetry()
    await stream.write(m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing())))
    await stream.read()
    await eventually(lambda: len(processor._waiting) == 1)
    await within_patience(server.close(grace_s=3_600))
    assert [frame.status.code async for frame in call] == [m.MESSAGE_NOT_FOUND]
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await stream.read()
    assert told.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_port_in_use_is_told_by_number(server: GrpcServer, processor: Processor) -> None:
    port = await server.start()
    with pytest.raises(StartRefused, match=str(port)) as refused:
        await GrpcServer(processor, "127.0.0.1", port).start()
    assert refused.value.name == "PORT_IN_USE"


async def test_a_port_that_another_program_listens_on_is_told_too(processor: Processor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(StartRefused) as refused:
            await GrpcServer(processor, "127.0.0.1", other.getsockname()[1]).start()
        assert refused.value.name == "PORT_IN_USE"


async def test_a_host_of_another_machine_is_told(processor: Processor) -> None:
    with pytest.raises(StartRefused) as refused:
        await GrpcServer(processor, "192.0.2.1", 0).start()
    assert refused.value.name == "ADDRESS_NOT_LOCAL"


async def test_a_closed_port_can_be_taken_again(processor: Processor) -> None:
    first = GrpcServer(processor, "127.0.0.1", 0)
    port = await first.start()
    await first.close(0)
    second = GrpcServer(processor, "127.0.0.1", port)
    assert await second.start() == port
    await second.close(0)


def a_question(number: int) -> RecoverOrphanedTransaction:
    host = Address("127.0.0.1", 1)
    stored = StoredMessage("orders", 0, number, number, bytes(1024 * 1024), {"UNIQ_KEY": str(number)}, 0, host, 0, host)
    return RecoverOrphanedTransaction(stored, str(number))


async def test_a_client_that_does_not_read_its_stream_holds_back_nobody_and_little_memory(
    dialled: Dialled, processor: Processor
) -> None:
    stream = dialled.telemetry()
    publishing = m.Publishing(topics=[m.Resource(name="orders")])
    await stream.write(m.TelemetryCommand(settings=m.Settings(client_type=m.PRODUCER, publishing=publishing)))
    assert (await stream.read()).WhichOneof("command") == "settings"
    told, refused = 0, 0
    # The connection takes some; when nothing moves any more the outbox fills, and then it takes no more either.
    while refused < 50:
        if processor.tell(METADATA["x-mq-client-id"], a_question(told)):
            told, refused = told + 1, 0
        else:
            refused += 1
        await asyncio.sleep(0.002)
    assert processor.outboxes.waiting <= 8
    assert (await dialled.send(b"others go on")).status.code == m.OK
    for number in range(told):
        asked = (await within_patience(stream.read())).recover_orphaned_transaction_command
        assert asked.transaction_id == str(number)
    assert processor.tell(METADATA["x-mq-client-id"], a_question(told))
    stream.cancel()


async def test_before_a_stop_clients_are_told_to_reconnect(
    dialled: Dialled, server: GrpcServer, processor: Processor
) -> None:
    stream = dialled.telemetry()
    publishing = m.Publishing(topics=[m.Resource(name="orders")])
    await stream.write(m.TelemetryCommand(settings=m.Settings(client_type=m.PRODUCER, publishing=publishing)))
    await stream.read()
    await processor.reconnect_all()
    await server.close(0)
    assert (await stream.read()).reconnect_endpoints_command.nonce
    with pytest.raises(grpc.aio.AioRpcError):
        await stream.read()
