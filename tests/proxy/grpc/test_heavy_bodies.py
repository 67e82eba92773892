"""Bodies that are large once they are unpacked: made in threads, bounded, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
import zlib
from collections.abc import Callable
from hashlib import md5
from typing import Any

import lz4.frame
import pytest
from memory_backend import MemoryBackend
from service_calls import Service, receive_request

from millstream.model.clock import ManualClock
from millstream.model.message import MAX_BODY_BYTES, OutgoingMessage, SystemFlag
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc import message_encoder as bodies
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.processor import Processor
from millstream.transport.heavy_work import HEAVY_BYTES
from millstream.transport.strangers import StrangerLog

PACKERS = pytest.mark.parametrize(
    "pack", [gzip.compress, zlib.compress, lz4.frame.compress], ids=["gzip", "zlib", "lz4"]
)
Pack = Callable[[bytes], bytes]


async def send_packed(processor: Processor, *packed: bytes) -> None:
    for body in packed:
        await processor.send([OutgoingMessage("orders", body, {"UNIQ_KEY": "id"}, system_flag=SystemFlag.COMPRESSED)])


@PACKERS
@pytest.mark.parametrize("size_bytes", [HEAVY_BYTES, HEAVY_BYTES + 1, MAX_BODY_BYTES])
async def test_a_body_of_any_size_up_to_the_limit_arrives_unpacked(
    service: Service, processor: Processor, pack: Pack, size_bytes: int
) -> None:
    plain = b"0123456789abcdef" * (size_bytes // 16) + b"x" * (size_bytes % 16)
    await send_packed(processor, pack(plain))
    received = (await service.receive())[1].message
    assert received.body == plain
    assert received.system_properties.body_digest.checksum == md5(plain).hexdigest().upper()


@PACKERS
async def test_a_body_that_would_grow_beyond_the_limit_of_a_body_is_unpacked_no_further(
    service: Service, processor: Processor, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    unpack = bodies._unpack
    monkeypatch.setattr(bodies, "_unpack", lambda *told: made.append(unpack(*told)) or made[-1])
    bomb = pack(bytes(MAX_BODY_BYTES * 3))
    await send_packed(processor, bomb)
    assert (await service.receive())[1].message.body == bomb
    assert max(map(len, made)) == MAX_BODY_BYTES + 1


async def test_others_are_served_while_a_body_is_unpacked(
    service: Service, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, unpack = threading.Event(), bodies._unpack

    def slow(body: bytes, limit: int) -> bytes:
        if limit > HEAVY_BYTES + 1:
            assert others.wait(10), "nobody was served meanwhile"
        return unpack(body, limit)

    monkeypatch.setattr(bodies, "_unpack", slow)
    plain = bytes(1 << 20)
    await send_packed(processor, gzip.compress(plain))
    receiving = asyncio.create_task(service.receive())
    await asyncio.sleep(0.01)
    assert (await service.send("ordered", message_group="g")).status.code == m.OK
    others.set()
    assert (await receiving)[1].message.body == plain


async def test_a_large_plain_body_is_a_late_frame_and_a_small_one_is_none(service: Service) -> None:
    await service.send(body=b"small")
    await service.send(body=bytes(1 << 20))
    frames = await service.adapter.streaming("ReceiveMessage", service.metadata, receive_request(), 3.0)
    made = list(frames)
    assert [isinstance(frame, LateFrame) for frame in made] == [False, False, True, False]


async def test_messages_of_a_frame_that_cannot_be_made_come_back(
    service: Service, processor: Processor, backend: MemoryBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(body: bytes, limit: int) -> bytes:
        if limit > HEAVY_BYTES + 1:
            raise MemoryError
        return bytes(limit)

    unpack = bodies._unpack
    monkeypatch.setattr(bodies, "_unpack", broken)
    await send_packed(processor, gzip.compress(bytes(1 << 20)))
    frames = await service.receive()
    assert [frame.WhichOneof("content") for frame in frames] == ["status", "status"]
    assert frames[-1].status.code == m.INTERNAL_SERVER_ERROR
    await asyncio.sleep(0.01)
    assert [change.invisible_ms for change in backend.changes] == [1000]
    monkeypatch.setattr(bodies, "_unpack", unpack)
    clock.advance_ms(1000)
    assert len((await service.receive())[1].message.body) == 1 << 20


async def test_bodies_that_nobody_can_unpack_are_one_line_a_second(
    service: Service, processor: Processor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(bodies, "_strangers", StrangerLog(clock))
    await send_packed(processor, *[b"not packed"] * 20)
    frames: list[Any] = await service.receive()
    assert len(frames) == 22
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
