"""Subscriptions over HTTP, with a broker and a sink behind real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_ground import EVENT, HttpGround, http_ground
from scripted_sink import ScriptedSink, running_sink


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[HttpGround]:
    async with http_ground(tmp_path, webhook_networks=["127.0.0.0/8"]) as opened:
        yield opened


@pytest.fixture
async def sink() -> AsyncIterator[ScriptedSink]:
    async with running_sink() as opened:
        yield opened


async def subscribe(ground: HttpGround, sink: ScriptedSink, **more: Any) -> httpx.Response:
    wanted = {"sink": sink.url, "config": {"topic": "orders", "group": "g"}, **more}
    return await ground.client.post("/v1/subscriptions", json=wanted)


async def send(ground: HttpGround, key: str, kind: str = "order.created") -> None:
    headers = {**EVENT, "ce-id": key, "ce-type": kind, "content-type": "text/plain"}
    answer = await ground.client.post("/v1/topics/orders/messages", headers=headers, content=f"body of {key}")
    assert answer.status_code == 200


async def test_events_that_the_filters_take_are_posted_to_the_sink_and_acknowledged(
    hooked: HttpGround, sink: ScriptedSink
) -> None:
    answer = await subscribe(
        hooked,
        sink,
        filters=[{"prefix": {"type": "order."}}],
        protocolsettings={"headers": {"authorization": "Bearer x"}},
    )
    assert answer.status_code == 201, answer.text
    await send(hooked, "1", "invoice.created")
    await send(hooked, "2")
    event = await sink.next_event()
    assert event.body == b"body of 2"
    assert (event.headers["ce-id"], event.headers["ce-type"]) == ("2", "order.created")
    assert (event.headers["content-type"], event.headers["authorization"]) == ("text/plain", "Bearer x")
    shown = (await hooked.client.get(answer.headers["location"])).json()
    assert shown["filters"] == [{"prefix": {"type": "order."}}]
    assert sink.events.empty()


async def test_an_event_that_the_sink_does_not_take_is_posted_again_and_one_too_late_is_not_counted(
    hooked: HttpGround, sink: ScriptedSink
) -> None:
    sink.answers = ["HTTP/1.1 500 No", "HTTP/1.1 503 Later\r\nRetry-After: 1", "HTTP/1.1 302 There\r\nLocation: /x"]
    await subscribe(hooked, sink, config={"topic": "orders", "group": "g", "mode": "structured"})
    await send(hooked, "1")
    events = [await sink.next_event() for _ in range(4)]
    assert {event.headers["content-type"] for event in events} == {"application/cloudevents+json"}
    assert len({event.body for event in events}) == 1


async def test_a_sink_that_is_gone_ends_its_subscription_and_keeps_its_events(
    hooked: HttpGround, sink: ScriptedSink
) -> None:
    sink.answers = ["HTTP/1.1 410 Gone"]
    location = (await subscribe(hooked, sink)).headers["location"]
    await send(hooked, "1")
    await sink.next_event()
    async with asyncio.timeout(60):
        while (await hooked.client.get(location)).status_code != 404:  # noqa: ASYNC110 - the end has no event here
            await asyncio.sleep(0.05)
    [kept] = await hooked.receive()
    assert kept["event"]["id"] == "1"


async def test_a_subscription_is_listed_replaced_and_deleted(hooked: HttpGround, sink: ScriptedSink) -> None:
    location = (await subscribe(hooked, sink)).headers["location"]
    changed = {"sink": sink.url, "config": {"topic": "orders", "group": "g"}, "types": ["a"]}
    assert (await hooked.client.put(location, json=changed)).json()["types"] == ["a"]
    [listed] = (await hooked.client.get("/v1/subscriptions")).json()
    assert location.endswith(listed["id"])
    assert (await hooked.client.delete(location)).status_code == 204
    assert (await hooked.client.get(location)).json()["code"] == "MS-3272"
    assert (await hooked.client.get("/v1/subscriptions")).json() == []


async def test_a_sink_that_does_not_want_events_or_lies_in_a_private_network_is_refused(
    memory: HttpGround, hooked: HttpGround, sink: ScriptedSink
) -> None:
    private = await subscribe(memory, sink)
    assert (private.status_code, private.json()["code"]) == (422, "MS-3274")
    assert "no address that may be called" in private.json()["detail"]
    sink.handshake = "HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: elsewhere.example"
    unwanted = await subscribe(hooked, sink)
    assert (unwanted.status_code, unwanted.json()["code"]) == (422, "MS-3274")
    assert sink.events.empty()


async def test_a_subscription_is_there_again_after_its_proxy_was_away(tmp_path: Path, sink: ScriptedSink) -> None:
    async with http_ground(tmp_path, webhook_networks=["127.0.0.0/8"]) as first:
        location = (await subscribe(first, sink)).headers["location"]
    async with http_ground(tmp_path, webhook_networks=["127.0.0.0/8"]) as second:
        await send(second, "1")
        assert (await sink.next_event()).headers["ce-id"] == "1"
        assert (await second.client.get(location)).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"sink": "ftp://x/"},
        {"sink": "http://user@x/"},
        {"config": {"topic": "a b"}},
        {"config": {"topic": "rmq_sys_x"}},
        {"config": {"topic": "orders", "mode": "fast"}},
        {"protocol": "MQTT"},
        {"protocolsettings": {"headers": {"Host": "x"}}},
        {"owner": "root"},
        {"unknown": 1},
    ],
)
async def test_a_subscription_that_cannot_be_is_refused(memory: HttpGround, wrong: dict[str, Any]) -> None:
    wanted = {"sink": "https://example.com/", "config": {"topic": "orders"}, **wrong}
    answer = await memory.client.post("/v1/subscriptions", json=wanted)
    assert (answer.status_code, answer.json()["code"]) == (400, "MS-3271"), answer.text
