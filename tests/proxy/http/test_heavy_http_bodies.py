"""Packed bodies that take long to unpack: the port goes on meanwhile, and no more is made than may lie in memory."""

from __future__ import annotations

import asyncio
import base64

import pytest
from http_ground import HttpGround

from millstream.model.errors import ConsumeRefused
from millstream.model.message import OutgoingMessage
from millstream.model.properties import UNIQUE_KEY
from millstream.proxy.budget import Answers
from patience import eventually, within_patience
from slow_unpacking import HEAVY_BODY, packed, slow_unpacking
from websocket_peer import WebSocketPeer

_THREADS = {"millstream-heavy"}
_BOMB = bytes(4_000_000)
"""Packed it has a few kilobytes."""


async def send(ground: HttpGround, *bodies: bytes) -> None:
    """Packed bodies in one queue."""
    for number, body in enumerate(bodies):
        message: OutgoingMessage = packed("orders", body, **{UNIQUE_KEY: f"u{number}"})
        message.queue_id = 0
        await ground.processor.send([message])


def body_of(message: dict[str, dict[str, str]]) -> bytes:
    return base64.b64decode(message["event"]["data_base64"])


@pytest.mark.parametrize("body", [HEAVY_BODY, _BOMB], ids=["large", "grows"])
async def test_the_port_goes_on_while_the_body_of_a_receive_is_unpacked(ground: HttpGround, body: bytes) -> None:
    with slow_unpacking() as slow:
        await send(ground, body)
        receiving = asyncio.create_task(ground.receive())
        await eventually(slow.begun.is_set)
        assert (await ground.client.get("/health")).status_code == 200
        assert not receiving.done()
        slow.go_on.set()
        [message] = await within_patience(receiving)
    assert (body_of(message), slow.threads) == (body, _THREADS)


async def test_the_port_goes_on_while_a_body_for_a_websocket_is_unpacked(ground: HttpGround) -> None:
    peer = await WebSocketPeer.open(ground.port, "/v1/groups/g/topics/orders/websocket")
    with slow_unpacking() as slow:
        await send(ground, _BOMB)
        await eventually(slow.begun.is_set)
        assert (await ground.client.get("/health")).status_code == 200
        slow.go_on.set()
        [message] = (await peer.receive())["messages"]
    assert (body_of(message), slow.threads) == (_BOMB, _THREADS)
    await peer.close()


async def test_what_unpacking_makes_counts_as_memory_of_the_answer(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[int] = []
    monkeypatch.setattr(Answers, "grow", lambda _self, _share, more_bytes: grown.append(more_bytes))
    await send(ground, _BOMB, _BOMB)
    assert len(await ground.receive(max="32")) == 2
    assert all(len(_BOMB) * 0.9 < one < len(_BOMB) for one in grown)
    assert len(grown) == 2


async def test_messages_that_grow_too_large_together_are_refused_and_come_again(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    def refuse(_self: Answers, _share: object, more_bytes: int) -> None:
        refused.append(more_bytes)
        raise ConsumeRefused("TOO_MANY_REQUESTS", "full")

    await send(ground, _BOMB)
    with monkeypatch.context() as patch:
        patch.setattr(Answers, "grow", refuse)
        answer = await ground.client.post("/v1/groups/g/topics/orders/receive", params={"wait": "20s"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        peer = await WebSocketPeer.open(ground.port, "/v1/groups/h/topics/orders/websocket")
        await eventually(lambda: len(refused) == 2)
    [message] = (await peer.receive())["messages"]
    # What no client was sent was no attempt.
    assert (body_of(message), message["attempt"]) == (_BOMB, 1)
    await peer.close()
    [message] = await ground.receive()
    assert (body_of(message), message["attempt"]) == (_BOMB, 1)
