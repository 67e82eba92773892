"""Packed bodies that take long to unpack: sessions go on meanwhile, and messages keep their order."""

from __future__ import annotations

import asyncio

import pytest
from mqtt_peer import Dial

from millstream.model.message import OutgoingMessage
from millstream.proxy.processor import Processor
from patience import eventually
from slow_unpacking import HEAVY_BODY, packed, slow_unpacking

_THREADS = {"millstream-heavy"}


async def send(processor: Processor, *bodies: bytes) -> None:
    """Bodies in one queue, those of many bytes packed."""
    for body in bodies:
        message = packed("mqtt", body) if len(body) >= len(HEAVY_BODY) else OutgoingMessage("mqtt", body, {})
        message.queue_id = 0
        await processor.send([message])


@pytest.mark.parametrize("topic_filter", ["mqtt", "$share/members/mqtt"])
@pytest.mark.parametrize(("qos", "expiry_s"), [(0, 0), (1, 0), (1, 60)])
async def test_clients_are_served_while_a_body_is_unpacked_and_the_order_is_kept(
    dial: Dial, processor: Processor, topic_filter: str, qos: int, expiry_s: int
) -> None:
    peer, other = await dial(), await dial()
    await peer.connect("c", expiry_s=expiry_s)
    await other.connect("d")
    await peer.subscribe(topic_filter, qos=qos)
    with slow_unpacking() as slow:
        await send(processor, b"first")
        assert (await peer.receive()).payload == b"first"
        await send(processor, HEAVY_BODY, b"last")
        await eventually(slow.begun.is_set)
        await peer.expect_nothing()
        await other.expect_nothing()
        slow.go_on.set()
        assert [(await peer.receive()).payload for _ in range(2)] == [HEAVY_BODY, b"last"]
    assert slow.threads == _THREADS


async def test_what_was_unpacked_for_a_client_that_has_gone_is_for_its_next_connection(
    dial: Dial, processor: Processor
) -> None:
    peer = await dial()
    await peer.connect("c", expiry_s=60)
    await peer.subscribe("mqtt", qos=1)
    with slow_unpacking() as slow:
        await send(processor, HEAVY_BODY, b"last")
        await eventually(slow.begun.is_set)
        peer.close()
        again = await dial()
        connecting = asyncio.create_task(again.connect("c", clean_start=False, expiry_s=60))
        await asyncio.sleep(0)
        slow.go_on.set()
        await connecting
        found = [await again.receive() for _ in range(2)]
    # Nobody has seen them before.
    assert [(one.payload, one.dup) for one in found] == [(HEAVY_BODY, False), (b"last", False)]


async def test_a_body_that_only_light_queues_read_is_unpacked_once(dial: Dial, processor: Processor) -> None:
    peer = await dial()
    await peer.connect("c", expiry_s=60)
    await peer.subscribe("mqtt", qos=1)
    with slow_unpacking() as slow:
        slow.go_on.set()
        await send(processor, HEAVY_BODY)
        assert (await peer.receive()).payload == HEAVY_BODY
        await peer.expect_nothing()
    assert slow.count == 1
