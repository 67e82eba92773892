"""A topic as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
from http_ground import HttpGround


async def events_of(stream: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Ids and events; ("", {}) for a comment."""
    place = ""
    async for line in stream.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            place = value
        elif name == "data":
            yield place, json.loads(value)
        elif line.startswith(":"):
            yield "", {}


async def test_a_stream_brings_what_is_sent_after_it_began_as_it_comes(ground: HttpGround) -> None:
    await ground.post("before")
    async with ground.client.stream("GET", "/v1/topics/orders/stream") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        events = events_of(stream)
        assert await anext(events) == ("", {})
        await ground.client.post(
            "/v1/topics/orders/messages", content=b'{\n"n": 1}', headers={"content-type": "application/json"}
        )
        _, event = await anext(events)
        assert event["data"] == {"n": 1}


async def test_a_stream_goes_on_behind_the_last_event_that_its_client_names(ground: HttpGround) -> None:
    for number in range(4):
        await ground.post(f"{number}", key=f"k{number}")
    async with ground.client.stream("GET", "/v1/topics/orders/stream", params={"from": "earliest"}) as stream:
        found = []
        async for place, event in events_of(stream):
            if event:
                found.append((place, event["subject"]))
            if len(found) == 2:
                break
    seen = {subject for _, subject in found}
    headers = {"last-event-id": found[-1][0]}
    async with ground.client.stream("GET", "/v1/topics/orders/stream", headers=headers) as stream:
        rest = set()
        async for _, event in events_of(stream):
            if event:
                rest.add(event["subject"])
            if len(rest) == 2:
                break
    assert seen | rest == {"k0", "k1", "k2", "k3"}


async def test_a_stream_ends_when_its_server_closes(ground: HttpGround) -> None:
    async with ground.client.stream("GET", "/v1/topics/orders/stream") as stream:
        events = events_of(stream)
        await anext(events)
        await ground.server.close()
        assert [event async for event in events] == []


async def test_a_last_event_id_of_another_form_is_refused(ground: HttpGround) -> None:
    answer = await ground.client.get("/v1/topics/orders/stream", headers={"last-event-id": "x@y"})
    assert (answer.status_code, answer.json()["code"]) == (400, "MS-5102")
