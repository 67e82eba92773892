"""Clients that go, that are slow, and that ask for too much; and what is counted of them."""

from __future__ import annotations

import asyncio

from http_ground import HttpGround

from millstream.model.clock import ManualClock
from millstream.proxy.throttle import Throttle, parse_throttle_rule
from millstream.telemetry.metrics import MetricsPage
from millstream.transport.http_port import HEAD_LIMIT_S, AsgiPort

RECEIVE = b"POST /v1/groups/g/topics/orders/receive?wait=20s HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_a_message_is_not_taken_for_a_receiver_that_went_while_it_waited(memory: HttpGround) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", memory.port)
    writer.write(RECEIVE)
    await writer.drain()
    async with asyncio.timeout(60):
        while not memory.processor._waiting:  # noqa: ASYNC110 - that it waits has no event
            await asyncio.sleep(0.01)
        writer.close()
        while memory.processor._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await memory.post("for another one")
    [found] = await memory.receive()
    assert found["attempt"] == 1


async def test_who_sends_more_than_a_rule_allows_is_told_to_wait(memory: HttpGround) -> None:
    memory.processor.throttle = Throttle([parse_throttle_rule("client=http:* calls=1")])
    assert (await memory.post("one")).status_code == 200
    answer = await memory.post("two")
    assert (answer.status_code, answer.json()["code"]) == (429, "MS-2330")
    assert answer.headers["retry-after"] == "1"


async def test_the_page_of_metrics_tells_of_requests_and_messages(memory: HttpGround) -> None:
    await memory.post("one")
    await memory.receive()
    await memory.post("", topic="none")
    page = MetricsPage(cluster="c", node_id="n")
    memory.server.add_metrics(page)
    text = page.text()
    node = 'cluster="c",node_type="proxy",node_id="n",protocol_type="http"'
    for name in ("in", "out"):
        assert f"millstream_port_messages_{name}_total{{{node}}} 1" in text
    assert 'request_code="send",response_code="404",is_long_polling="false",result="process_request_failed"' in text
    assert 'request_code="receive",response_code="200",is_long_polling="true",result="success"' in text


async def test_a_head_that_does_not_come_to_its_end_is_given_up() -> None:
    clock = ManualClock()
    port = AsgiPort(None, clock=clock)
    number = await port.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(b"GET / HTTP/1.1\r\nx-slow: ")
        await writer.drain()
        reading = asyncio.create_task(reader.read())
        async with asyncio.timeout(60):
            while not reading.done():
                clock.advance_ms(int(HEAD_LIMIT_S) * 1000)
                await asyncio.sleep(0.05)
        answer = await reading
        assert answer.startswith(b"HTTP/1.1 408 ")
        writer.close()
    finally:
        await port.close(0.0)
