"""A topic as server-sent events."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from http_ground import HttpGround

from millstream.model.operations import PullRequest, PullResult
from millstream.proxy.feed import READ_BYTES
from millstream.proxy.http import topic_tail
from millstream.proxy.local import LocalBackend
from patience import eventually, within_patience

STREAM = "/v1/topics/orders/stream"


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


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> list[PullRequest]:
    """The reads of the log that the proxy asks the broker for."""
    asked: list[PullRequest] = []
    pull = LocalBackend.pull

    async def note_pull(self: LocalBackend, broker_name: str, request: PullRequest) -> PullResult:
        asked.append(request)
        return await pull(self, broker_name, request)

    monkeypatch.setattr(LocalBackend, "pull", note_pull)
    return asked


async def opened_streams(ground: HttpGround, stack: AsyncExitStack, count: int, **query: str) -> list[Any]:
    """Streams that are there; each has said so."""
    found = []
    for _ in range(count):
        stream = await stack.enter_async_context(ground.client.stream("GET", STREAM, params=query))
        found.append(events_of(stream))
        assert await anext(found[-1]) == ("", {})
    return found


async def test_many_streams_over_one_topic_cost_one_read_each_time_something_comes(
    ground: HttpGround, pulls: list[PullRequest]
) -> None:
    async with AsyncExitStack() as stack:
        streams = await opened_streams(ground, stack, 30)
        # One read waits at each of the two queues.
        await eventually(lambda: len(pulls) >= 2)
        for number in range(5):
            await ground.post("x", key=f"k{number}")
            for events in streams:
                _, event = await within_patience(anext(events))
                assert event["subject"] == f"k{number}"
            await eventually(lambda number=number: len(pulls) >= 3 + number)
        # Not 150; on a machine that stands still a read may end with nothing and begin anew.
        assert len(pulls) < 15


async def test_a_topic_that_is_streamed_no_more_is_not_read(ground: HttpGround, pulls: list[PullRequest]) -> None:
    async with AsyncExitStack() as stack:
        await opened_streams(ground, stack, 3)
        assert ground.processor.feed.readers == 2
    await eventually(lambda: not ground.processor.feed.readers)


async def test_a_stream_with_a_filter_gets_what_it_asks_for_and_the_id_passes_over_the_rest(ground: HttpGround) -> None:
    async with AsyncExitStack() as stack:
        [wanted] = await opened_streams(ground, stack, 1, filter="b")
        for number in range(20):
            await ground.post("x", key=f"k{number}", tag="b" if number % 10 == 9 else "a")
        found = [await within_patience(anext(wanted)) for _ in range(2)]
        assert [event["subject"] for _, event in found] == ["k9", "k19"]
        before = [int(part.partition("@")[0]) for part in found[1][0].split(",")]
        assert sum(before) >= 18


async def test_who_does_not_read_holds_up_nobody_and_gets_all_later_from_the_log(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_tail, "MAX_TAIL_BYTES", 2 * READ_BYTES)
    count, tails = 120, ground.server._streams.tails
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", ground.port))
    await asyncio.get_running_loop().sock_sendall(slow, f"GET {STREAM} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await eventually(lambda: ground.server._streams.streams == 1)
    async with AsyncExitStack() as stack:
        [quick] = await opened_streams(ground, stack, 1)
        most = 0
        for number in range(count):
            await ground.post(b"x" * 100_000, key=f"k{number}")
            _, event = await within_patience(anext(quick))
            assert event["subject"] == f"k{number}"
            most = max(most, tails.size_bytes)
    assert 0 < most <= 2 * READ_BYTES
    reader, writer = await asyncio.open_connection(sock=slow, limit=1 << 20)
    subjects: list[str] = []
    while len(subjects) < count:
        line = await within_patience(reader.readline())
        if line.startswith(b"data: "):
            subjects.append(json.loads(line[6:])["subject"])
    assert sorted(subjects) == sorted(f"k{number}" for number in range(count))
    writer.close()


async def test_streams_that_begin_at_different_places_meet_without_a_gap_or_a_repeat(ground: HttpGround) -> None:
    sent = [f"k{number}" for number in range(40)]
    for key in sent[:20]:
        await ground.post("x", key=key)

    async def subjects(events: AsyncIterator[tuple[str, dict[str, Any]]], count: int) -> list[str]:
        found: list[str] = []
        async for _, event in events:
            if event:
                found.append(event["subject"])
            if len(found) == count:
                break
        return found

    async with AsyncExitStack() as stack:
        streams = await opened_streams(ground, stack, 4, **{"from": "earliest"})
        [late] = await opened_streams(ground, stack, 1)
        reading = [asyncio.create_task(subjects(events, 40)) for events in streams]
        for key in sent[20:]:
            await ground.post("x", key=key)
        for task in reading:
            assert sorted(await within_patience(task)) == sorted(sent)
        assert await within_patience(subjects(late, 20)) == sent[20:]


async def test_what_was_stored_before_a_stream_began_does_not_come_late_by_the_feed(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull, may_go_on = LocalBackend.pull, asyncio.Event()

    async def pull_late(self: LocalBackend, broker_name: str, request: PullRequest) -> PullResult:
        found = await pull(self, broker_name, request)
        await may_go_on.wait()
        return found

    monkeypatch.setattr(LocalBackend, "pull", pull_late)
    async with AsyncExitStack() as stack:
        [early] = await opened_streams(ground, stack, 1)
        await ground.post("x", key="before")
        [late] = await opened_streams(ground, stack, 1)
        may_go_on.set()
        _, event = await within_patience(anext(early))
        assert event["subject"] == "before"
        await ground.post("y", key="after")
        _, event = await within_patience(anext(late))
        assert event["subject"] == "after"


async def test_an_id_beyond_the_end_of_a_queue_goes_on_at_its_end(ground: HttpGround) -> None:
    await ground.post("x")
    async with ground.client.stream("GET", STREAM, params={"from": "earliest"}) as stream:
        events = events_of(stream)
        await anext(events)
        place, _ = await within_patience(anext(events))
    beyond = ",".join(f"900{part}" for part in place.split(","))
    async with ground.client.stream("GET", STREAM, headers={"last-event-id": beyond}) as stream:
        events = events_of(stream)
        await anext(events)
        await ground.post("y", key="new")
        _, event = await within_patience(anext(events))
        assert event["subject"] == "new"


async def test_what_expired_before_a_stream_came_is_not_given(ground: HttpGround) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "old", "ce-source": "/s", "ce-type": "t"}
    headers["ce-expirytime"] = "2020-01-01T00:00:00Z"
    await ground.client.post("/v1/topics/orders/messages", headers=headers, content=b"x")
    await ground.post("y", key="fresh")
    async with ground.client.stream("GET", STREAM, params={"from": "earliest"}) as stream:
        events = events_of(stream)
        await anext(events)
        _, event = await within_patience(anext(events))
        assert event["subject"] == "fresh"
