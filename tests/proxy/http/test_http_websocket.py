"""Receiving over a WebSocket, by real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from http_ground import HttpGround, memory_ground
from memory_backend import unforeseen

from access_samples import ANN, BOB, sample_guard, signed_headers
from millstream.model.errors import Unreachable
from millstream.model.handles import ReceiptHandle
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.model.topic import TopicConfig
from millstream.proxy.http import websockets
from millstream.proxy.processor import Processor
from millstream.proxy.throttle import Throttle, parse_throttle_rule
from millstream.security.guard import Guard
from millstream.security.policy import RequiredAccess
from millstream.telemetry.metrics import MetricsPage
from millstream.transport.websocket_connection import MAX_WEBSOCKET_MESSAGE_BYTES
from patience import eventually, within_patience
from websocket_peer import Closed, WebSocketPeer, client_frame, handshake

PATH = "/v1/groups/g/topics/orders/websocket"
BILLING = "/v1/groups/billing/topics/orders/websocket"


async def opened(ground: HttpGround, query: str = "", path: str = PATH, **headers: str) -> WebSocketPeer:
    return await WebSocketPeer.open(ground.port, f"{path}{query}", **headers)


async def received(peer: WebSocketPeer, count: int) -> list[dict[str, Any]]:
    """So many messages, from as many frames as they come in."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += (await peer.receive())["messages"]
    return found


def body_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["event"]["data_base64"])


async def closed(peer: WebSocketPeer) -> Closed:
    """How the server closes it; what comes before is passed over."""
    while True:
        try:
            await peer.receive()
        except Closed as end:
            return end


async def answered(ground: HttpGround, path: str = PATH, **headers: str) -> tuple[int, dict[str, str], Any]:
    """Status, header fields and JSON of the answer to a handshake that is refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
    writer.write(handshake(path, **headers))
    head, _, body = (await within_patience(reader.read())).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    return int(first.split(" ")[1]), dict(line.lower().split(": ", 1) for line in lines), json.loads(body)


async def test_messages_come_as_receive_answers_them_and_are_gone_once_they_are_acknowledged(
    ground: HttpGround,
) -> None:
    peer = await opened(ground)
    await ground.post("one", key="k1")
    [message] = await received(peer, 1)
    assert message.keys() == {"handle", "attempt", "queue", "offset", "event"}
    assert (body_of(message), message["attempt"], message["event"]["subject"]) == (b"one", 1, "k1")
    peer.send({"action": "ack", "handles": [message["handle"]]})
    assert await peer.receive() == {"action": "ack", "results": [{"handle": message["handle"]}]}
    await peer.close()
    assert await ground.receive(wait="0s") == []


async def test_a_delivery_that_is_given_back_comes_again_and_one_that_is_extended_has_a_new_handle(
    ground: HttpGround,
) -> None:
    peer = await opened(ground)
    await ground.post("work")
    [first] = await received(peer, 1)
    peer.send({"action": "nack", "handles": [first["handle"]]})
    assert (await peer.receive())["action"] == "nack"
    [second] = await received(peer, 1)
    assert second["attempt"] == 2
    peer.send({"action": "extend", "handles": [second["handle"]], "invisible": "5m"})
    [result] = (await peer.receive())["results"]
    assert result["renewed"] != second["handle"]
    peer.send({"action": "ack", "handles": [second["handle"]]})
    [late] = (await peer.receive())["results"]
    assert late["code"] == "MS-3201"
    peer.send({"action": "dead-letter", "handles": [result["renewed"]]})
    assert (await peer.receive())["results"] == [{"handle": result["renewed"]}]
    peer.drop()
    [dead] = await ground.receive(topic="%25DLQ%25g", group="gravedigger")
    assert base64.b64decode(dead["event"]["data_base64"]) == b"work"


async def test_a_client_has_no_more_messages_than_it_names_until_it_settles_some(ground: HttpGround) -> None:
    for number in range(7):
        await ground.post(f"{number}")
    peer = await opened(ground, "?max_in_flight=3")
    first = await received(peer, 3)
    waiting = asyncio.create_task(peer.receive())
    await ground.post("7")
    assert len(await ground.receive(max="32")) == 5
    assert not waiting.done()
    await ground.post("8")
    peer.send({"action": "ack", "handles": [one["handle"] for one in first[:2]]})
    assert (await within_patience(waiting))["action"] == "ack"
    [message] = await received(peer, 1)
    assert body_of(message) == b"8"
    peer.drop()


async def test_what_the_client_had_not_settled_comes_to_others_in_a_second_when_it_goes(ground: HttpGround) -> None:
    for number in range(3):
        await ground.post(f"{number}")
    peer = await opened(ground, "?invisible=1h")
    messages = await received(peer, 3)
    done, kept, _ = messages
    peer.send({"action": "extend", "handles": [kept["handle"]], "invisible": "2h"})
    peer.send({"action": "ack", "handles": [done["handle"]]})
    for _ in range(2):
        await peer.receive()
    peer.drop()
    found: list[dict[str, Any]] = []
    while len(found) < 2:
        found += await ground.receive(max="32")
    assert sorted(map(body_of, found)) == sorted(map(body_of, messages[1:]))


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many deliveries were left behind, by those who left some."""
    found: list[int] = []
    release = Processor.release

    def note_release(self: Processor, group: str, topic: str, handles: Sequence[ReceiptHandle]) -> None:
        found.append(len(handles))
        release(self, group, topic, handles)

    monkeypatch.setattr(Processor, "release", note_release)
    return found


async def test_what_is_acknowledged_just_before_the_close_is_acknowledged(
    ground: HttpGround, released: list[int]
) -> None:
    await ground.post("one")
    peer = await opened(ground)
    [message] = await received(peer, 1)
    peer.send({"action": "ack", "handles": [message["handle"]]})
    peer.writer.write(client_frame(b"\x03\xe8", 8))
    assert (await closed(peer)).code == 1000
    await eventually(lambda: not ground.server._traffic.sessions)
    assert released == []


async def test_a_filter_and_a_namespace_hold_as_for_receive(memory: HttpGround) -> None:
    memory.processor.backend.topics["tenant%orders"] = TopicConfig("tenant%orders")  # type: ignore[attr-defined]
    peer = await opened(memory, "?filter=b", x_mq_namespace="tenant")
    for tag in "ab":
        sent = await memory.client.post(
            f"/v1/topics/orders/messages?tag={tag}", content=tag, headers={"x-mq-namespace": "tenant"}
        )
        assert sent.status_code == 200
    [message] = await received(peer, 1)
    assert body_of(message) == b"b"
    peer.drop()


async def test_messages_of_a_client_may_come_in_pieces_and_behind_the_handshake_at_once(memory: HttpGround) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", memory.port)
    command = b'{"action": "ack", "handles": ["x"]}'
    pieces = client_frame(command[:9], final=False) + client_frame(b"?", 9) + client_frame(command[9:], 0)
    writer.write(handshake(PATH) + pieces)
    await within_patience(reader.readuntil(b"\r\n\r\n"))
    peer = WebSocketPeer(reader, writer)
    assert await within_patience(peer.frame()) == (10, b"?")
    [result] = (await peer.receive())["results"]
    assert result["code"] == "MS-3201"
    await peer.close()


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"\x81\x01a", 1002, "has to be masked"),
        (client_frame(b"x", 0), 1002, "goes on with no message"),
        (client_frame(b"x", 2), 1003, "binary"),
        (client_frame(b"\xff"), 1007, "not UTF-8"),
        (client_frame(b"x" * (MAX_WEBSOCKET_MESSAGE_BYTES + 1))[:20], 1009, "the limit is 262144"),
        (client_frame(b"{"), 1008, "MS-5102"),
        (client_frame(b"[" * 100_000), 1008, "MS-5102"),
        (client_frame(b'{"action": "eat", "handles": ["x"]}'), 1008, "MS-5102"),
        (client_frame(b'{"action": "ack", "handles": []}'), 1008, "MS-5102"),
        (client_frame(b'{"action": "ack", "handles": ["x"], "delay": "1s"}'), 1008, "has no delay"),
        (client_frame(b'{"action": "nack", "handles": ["x"], "delay": "soon"}'), 1008, "delay:"),
        (client_frame(b'{"action": "ack", "handles": ["x"], "more": 1}'), 1008, "MS-5102"),
    ],
)
async def test_a_client_that_breaks_the_rules_is_told_by_the_code_and_the_log_has_a_line(
    memory: HttpGround, caplog: pytest.LogCaptureFixture, data: bytes, code: int, words: str
) -> None:
    peer = await opened(memory)
    with caplog.at_level(logging.INFO):
        peer.writer.write(data + client_frame(b"more", 1))
        end = await closed(peer)
    assert (end.code, words in end.words) == (code, True), end.words
    lines = [record for record in caplog.records if "Closing the WebSocket" in record.getMessage()]
    assert len(lines) == 1
    assert len(lines[0].getMessage()) <= 560
    assert not [record for record in caplog.records if record.exc_info and "state_topics" not in record.name]
    peer.drop()


async def test_a_message_of_a_client_as_large_as_the_limit_is_taken(memory: HttpGround) -> None:
    peer = await opened(memory)
    command = b'{"action": "ack", "handles": ["x"]}'
    peer.send(command + b" " * (MAX_WEBSOCKET_MESSAGE_BYTES - len(command)))
    assert (await peer.receive())["action"] == "ack"
    peer.drop()


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        (PATH, {"upgrade": "", "connection": "close"}, 426, "MS-5105"),
        (PATH, {"sec_websocket_version": "8"}, 426, "MS-5105"),
        (PATH, {"sec_websocket_key": "short"}, 400, "MS-5102"),
        (PATH, {"origin": "http://elsewhere.example"}, 403, "MS-5106"),
        (PATH, {"origin": "null"}, 403, "MS-5106"),
        (f"{PATH}?max_in_flight=0", {}, 400, "MS-5102"),
        (f"{PATH}?max_in_flight=1001", {}, 400, "MS-5102"),
        (f"{PATH}?invisible=1s", {}, 400, "MS-3202"),
        (f"{PATH}?wait=1s", {}, 400, "MS-5102"),
        (f"{PATH}?sql=a%20%3E", {}, 400, "MS-3101"),
        ("/v1/groups/g/topics/none/websocket", {}, 404, "MS-2101"),
        ("/v1/groups/a%20b/topics/orders/websocket", {}, 400, "MS-2202"),
        ("/v1/nothing", {}, 404, "MS-5100"),
    ],
)
async def test_a_websocket_that_cannot_be_opened_is_refused_as_http_does(
    memory: HttpGround, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    found, fields, problem = await answered(memory, path, **headers)
    assert (found, problem["code"]) == (status, code), problem
    assert fields["content-type"] == "application/problem+json"
    if headers.keys() == {"sec_websocket_version"}:
        assert fields["sec-websocket-version"] == "13"


async def test_a_page_of_the_port_itself_may_open_a_websocket(memory: HttpGround) -> None:
    peer = await opened(memory, origin="http://LOCALHOST:8082", host="localhost:8082")
    await peer.close()


async def test_no_more_websockets_are_open_than_the_limit(memory: HttpGround, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websockets, "MAX_WEBSOCKETS", 1)
    peer = await opened(memory)
    assert (await answered(memory))[0] == 429
    await peer.close()
    await eventually(lambda: not memory.server._traffic.sessions)
    await (await opened(memory)).close()


async def test_a_stop_of_the_server_closes_with_1001_and_gives_back_what_is_not_settled(
    ground: HttpGround, released: list[int]
) -> None:
    await ground.post("one")
    peer = await opened(ground)
    await received(peer, 1)
    closing = asyncio.create_task(ground.server.close())
    assert (await closed(peer)).code == 1001
    peer.writer.write(client_frame(b"\x03\xe9", 8))
    await within_patience(closing)
    assert released == [1]
    peer.drop()


async def with_failing_receives(memory: HttpGround, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Closed:
    """How a WebSocket ends whose second receive fails so."""
    peer = await opened(memory, "?max_in_flight=1")
    await memory.post("one")
    [message] = await received(peer, 1)

    async def fail(broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        raise error

    monkeypatch.setattr(memory.processor.backend, "pop", fail)
    peer.send({"action": "ack", "handles": [message["handle"]]})
    end = await closed(peer)
    peer.drop()
    return end


async def test_a_broker_that_goes_away_closes_with_1013(memory: HttpGround, monkeypatch: pytest.MonkeyPatch) -> None:
    end = await with_failing_receives(memory, monkeypatch, Unreachable("The broker is away."))
    assert (end.code, end.words) == (1013, "MS-5001: The broker is away.")


async def test_a_failure_that_nobody_foresees_closes_with_1011_and_tells_nothing(
    memory: HttpGround, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    end = await with_failing_receives(memory, monkeypatch, unforeseen())
    assert end.code == 1011
    assert "secret" not in end.words
    assert "unforeseen" in caplog.text


async def test_who_receives_more_often_than_a_rule_allows_is_refused_at_first_and_waits_later(
    memory: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.processor.throttle = Throttle([parse_throttle_rule("client=http:* group=g calls=1")])
    peer = await opened(memory)
    assert (await answered(memory))[2]["code"] == "MS-2330"
    for text in ("one", "two"):
        await memory.post(text)
        [message] = await received(peer, 1)
        assert body_of(message) == text.encode()
    peer.drop()


async def test_the_page_of_metrics_tells_of_websockets_their_messages_and_commands(memory: HttpGround) -> None:
    peer = await opened(memory)
    await memory.post("one")
    [message] = await received(peer, 1)
    peer.send({"action": "ack", "handles": [message["handle"], "x"]})
    await peer.receive()
    page = MetricsPage(cluster="c", node_id="n")
    memory.server.add_metrics(page)
    text = page.text()
    node = 'cluster="c",node_type="proxy",node_id="n",protocol_type="http"'
    assert f"millstream_port_sessions{{{node}}} 1" in text
    assert f"millstream_port_connections{{{node}}} 2" in text
    assert f"millstream_port_messages_out_total{{{node}}} 1" in text
    assert 'request_code="ack",response_code="409",is_long_polling="false",result="process_request_failed"' in text
    await peer.close()
    await eventually(lambda: memory.server.connections == 1)


# Users


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[HttpGround]:
    async with memory_ground(guard=sample_guard(tmp_path)) as found:
        yield found


def basic(user: Any) -> str:
    return "Basic " + base64.b64encode(f"{user.access_key}:{user.secret_key}".encode()).decode()


async def test_users_show_themselves_and_need_the_rights_of_receive(
    guarded: HttpGround, caplog: pytest.LogCaptureFixture
) -> None:
    await (await opened(guarded, path=BILLING, authorization=basic(ANN))).close()
    signed = {name.replace("-", "_"): value for name, value in signed_headers(ANN).items()}
    await (await opened(guarded, path=BILLING, **signed)).close()
    assert (await answered(guarded, BILLING))[0] == 401
    assert (await answered(guarded, BILLING, authorization=basic(BOB)))[0] == 403
    assert '"action": "websocket"' in caplog.text


async def test_who_loses_its_rights_is_closed_with_1008_at_the_next_command(
    guarded: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await opened(guarded, path=BILLING, authorization=basic(ANN))
    allow = Guard.allow

    def allow_as_bob(self: Guard, name: str, wishes: Iterable[RequiredAccess], *, peer: str, action: str) -> None:
        allow(self, BOB.access_key, wishes, peer=peer, action=action)

    monkeypatch.setattr(Guard, "allow", allow_as_bob)
    peer.send({"action": "ack", "handles": ["x"]})
    end = await closed(peer)
    assert (end.code, end.words.startswith("MS-2302")) == (1008, True)
    peer.drop()
