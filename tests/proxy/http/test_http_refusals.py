"""What the HTTP port refuses, with the status and the number of the error catalogue."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import cast

import pytest
from http_ground import EVENT, HttpGround
from memory_backend import MemoryBackend, unforeseen

from millstream.model.catalogue import CATALOGUE
from millstream.model.errors import Unreachable
from millstream.proxy.http.problems import STATUSES
from millstream.proxy.http.request import MAX_REQUEST_BYTES
from millstream.transport.connection_memory import HalfFrames
from patience import within_patience

SEND = "/v1/topics/orders/messages"
RECEIVE = "/v1/groups/g/topics/orders/receive"
STRUCTURED = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
WHOLE = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def without(name: str) -> dict[str, str]:
    return {header: value for header, value in EVENT.items() if header != name}


@pytest.mark.parametrize(
    ("headers", "body", "status", "code", "words"),
    [
        (without("ce-id"), b"x", 400, "MS-3270", "the attribute id is missing"),
        (without("ce-specversion"), b"x", 400, "MS-3270", "the attribute specversion is missing"),
        ({**EVENT, "ce-specversion": "0.3"}, b"x", 400, "MS-3270", "specversion is '0.3'"),
        ({**EVENT, "ce-time": "yesterday"}, b"x", 400, "MS-3270", "not of RFC 3339"),
        ({**EVENT, "ce-my_name": "x"}, b"x", 400, "MS-3270", "no name of an attribute"),
        ({**EVENT, "ce-subject": "x" * 1025}, b"x", 400, "MS-3270", "1,025 characters"),
        ({**EVENT, **{f"ce-x{number}": "v" for number in range(57)}}, b"x", 400, "MS-3270", "61 attributes; 60 are"),
        ({**EVENT, **STRUCTURED}, json.dumps(WHOLE).encode(), 400, "MS-3270", "in headers and an event in its body"),
        (STRUCTURED, b"{", 400, "MS-3270", "The body is no CloudEvent"),
        (STRUCTURED, json.dumps({**WHOLE, "Name": "x"}).encode(), 400, "MS-3270", "'Name' is no name"),
        (STRUCTURED, json.dumps({**WHOLE, "data_base64": "?"}).encode(), 400, "MS-3270", "no base64"),
        (STRUCTURED, json.dumps({**WHOLE, "data": 1, "data_base64": "eA=="}).encode(), 400, "MS-3270", "and data_base"),
        (BATCH, b"{}", 400, "MS-3270", "no JSON array"),
        (BATCH, b"[]", 400, "MS-3270", "0 events"),
        (BATCH, b"[" * 100_000, 400, "MS-3270", "nested too deep"),
        (STRUCTURED, b'{"data":' + b"[" * 100_000, 400, "MS-3270", "nested too deep"),
        ({"content-type": "application/cloudevents+avro"}, b"x", 415, "MS-5103", "not as application/cloudevents+avro"),
        ({"content-encoding": "gzip"}, b"x", 415, "MS-5103", "'gzip' is not taken"),
        ({}, b"", 400, "MS-3001", "empty body"),
    ],
)
async def test_a_post_that_cannot_be_taken_says_what_is_wrong(
    memory: HttpGround, headers: dict[str, str], body: bytes, status: int, code: str, words: str
) -> None:
    answer = await memory.client.post(SEND, headers=headers, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert (problem["code"], problem["status"]) == (code, status)
    assert words in problem["detail"]
    assert problem["type"] == f"urn:millstream:{code}"


async def test_a_request_that_waits_to_go_on_ends_when_what_follows_it_is_none(
    memory: HttpGround, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", memory.client.base_url.port)
    head = f"POST {SEND} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    writer.write(head.encode() + b"hello" + b"\0 no request\r\n\r\n")
    await within_patience(reader.read())
    writer.close()
    await memory.client.get("/health")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/topics/none/messages", b"x", 404, "MS-2101"),
        ("POST", "/v1/topics/a%20b/messages", b"x", 400, "MS-2103"),
        ("POST", "/v1/topics/orders", b"x", 404, "MS-5100"),
        ("POST", f"{SEND}/", b"x", 404, "MS-5100"),
        ("POST", "/v1/topics//messages", b"x", 404, "MS-5100"),
        ("GET", "/v1/subscriptions/", b"", 404, "MS-5100"),
        ("GET", SEND, b"", 405, "MS-5101"),
        ("POST", f"{SEND}?unknown=1", b"x", 400, "MS-5102"),
        ("POST", f"{SEND}?tag=a&tag=b", b"x", 400, "MS-5102"),
        ("POST", f"{SEND}?delay=soon", b"x", 400, "MS-5102"),
        ("POST", f"{SEND}?delay=1s&deliverat=2026-11-24", b"x", 400, "MS-5102"),
        ("POST", f"{SEND}?delay=1s", b"x", 400, "MS-3008"),
        ("POST", f"{SEND}?property.KEYS=x", b"x", 400, "MS-3007"),
        ("POST", f"{RECEIVE}?max=33", b"", 400, "MS-5102"),
        ("POST", f"{RECEIVE}?invisible=1s", b"", 400, "MS-3202"),
        ("POST", f"{RECEIVE}?sql=a%20%3E", b"", 400, "MS-3101"),
        ("POST", f"{RECEIVE}?sql=a&filter=b", b"", 400, "MS-5102"),
        ("POST", "/v1/groups/a%20b/topics/orders/receive", b"", 400, "MS-2202"),
        ("POST", "/v1/groups/g/topics/orders/ack", b"{}", 400, "MS-5102"),
        ("POST", "/v1/groups/g/topics/orders/ack", b'{"handles": []}', 400, "MS-5102"),
        ("POST", "/v1/groups/g/topics/orders/ack", b'{"handles": ["x"]}', 422, "MS-3201"),
        ("DELETE", f"{SEND}/xyz", b"", 422, "MS-3013"),
    ],
)
async def test_each_wrong_request_has_its_status_and_number(
    memory: HttpGround, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    answer = await memory.client.request(method, path, content=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_a_broker_that_is_away_is_told_with_a_time_to_come_back(memory: HttpGround) -> None:
    backend = cast("MemoryBackend", memory.processor.backend)
    backend.failure = Unreachable("The broker is away.")
    for path in (SEND, RECEIVE):
        answer = await memory.client.post(path, content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (503, "MS-5001")
        assert answer.headers["retry-after"] == "1"


async def test_an_unforeseen_failure_is_500_and_tells_nothing_of_itself(memory: HttpGround) -> None:
    cast("MemoryBackend", memory.processor.backend).failure = unforeseen()
    answer = await memory.client.post(SEND, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (500, "MS-1006")
    assert "secret" not in answer.text


async def test_a_post_without_a_length_has_no_body(memory: HttpGround) -> None:
    head = f"POST {SEND} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = await raw(memory, head.encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"MS-3001" in answer


async def test_an_answer_in_a_format_that_there_is_not_is_refused(memory: HttpGround) -> None:
    answer = await memory.client.post(RECEIVE, headers={"accept": "text/html"})
    assert (answer.status_code, answer.json()["code"]) == (406, "MS-5104")


async def test_a_namespace_keeps_names_apart(memory: HttpGround) -> None:
    answer = await memory.client.post(SEND, headers={"x-mq-namespace": "tenant"}, content=b"x")
    assert answer.json()["detail"] == "The topic tenant%orders does not exist."


async def raw(memory: HttpGround, request: bytes) -> bytes:
    """All that a connection answers to bytes, until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", memory.port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The levels of what the port has said of requests."""
    return [record.levelname for record in caplog.records if record.name == "millstream.proxy.http.application"]


async def test_a_body_over_the_limit_is_refused_before_it_is_read(memory: HttpGround) -> None:
    head = f"POST {SEND} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {MAX_REQUEST_BYTES + 1}\r\n\r\n"
    answer = await raw(memory, head.encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


async def test_a_client_that_is_cut_off_for_others_memory_is_no_error_of_the_server(
    memory: HttpGround, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    frames = HalfFrames(total_bytes=100_000)
    monkeypatch.setattr(HalfFrames, "note_bytes", partial(HalfFrames.note_bytes, frames))
    monkeypatch.setattr(HalfFrames, "end", partial(HalfFrames.end, frames))
    head = f"POST {SEND} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
    answer = await raw(memory, head.encode() + bytes(300_000))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"MS-5015" in answer
    assert not said(caplog)


async def test_a_chunked_body_is_taken_with_its_trailers_and_bounded(memory: HttpGround) -> None:
    head = f"POST {SEND} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    answer = await raw(memory, head + b"3\r\nabc\r\n0\r\nx-more: 1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    part = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    answer = await raw(memory, head + part * 9)
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1 HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1 HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /v1 HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
async def test_a_request_of_which_two_readers_could_make_two_things_is_refused(
    memory: HttpGround, request_bytes: bytes
) -> None:
    answer = await raw(memory, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"MS-5010" in answer


async def test_a_head_over_the_limit_is_refused(memory: HttpGround) -> None:
    answer = await raw(memory, b"GET /health HTTP/1.1\r\nx: " + b"y" * 200_000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"MS-5013" in answer


async def test_what_follows_a_refused_head_is_not_taken_up(
    memory: HttpGround, caplog: pytest.LogCaptureFixture
) -> None:
    large = b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 70_000 + b"\r\n\r\n"
    behind = f"POST {SEND} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\na".encode()
    answer = await raw(memory, large + behind)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert said(caplog) == []


async def test_pipelined_posts_are_answered_in_their_order(memory: HttpGround) -> None:
    one = f"POST {SEND} HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na".encode()
    last = f"POST {SEND} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n\r\nb".encode()
    answer = await raw(memory, one * 3 + last)
    assert answer.count(b"HTTP/1.1 200 ") == 4


async def test_http_1_0_is_answered_and_closed(memory: HttpGround) -> None:
    answer = await raw(memory, b"GET /health HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b'{"status":"ok"}')


def test_every_error_with_a_status_is_in_the_catalogue() -> None:
    assert STATUSES.keys() <= CATALOGUE.keys()
