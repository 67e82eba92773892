"""Pages of browsers that use the HTTP port: its own, those of origins that it was told, and all others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from http_ground import HttpGround, memory_ground

from access_samples import ANN, sample_guard
from millstream.model.errors import StartRefused
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.http.origins import MAX_ASKED_FIELDS_BYTES, PREFLIGHT_AGE_S
from millstream.proxy.http.server import HttpServer
from websocket_peer import WebSocketPeer

SHOP = "https://shop.example:8443"
ELSEWHERE = "https://elsewhere.example"
MESSAGES = "/v1/topics/orders/messages"
SOCKET = "/v1/groups/g/topics/orders/websocket"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,ce-id"}


@pytest.fixture
async def shop() -> AsyncIterator[HttpGround]:
    async with memory_ground(http_origins=[SHOP]) as ground:
        yield ground


async def test_a_page_of_another_site_may_neither_send_nor_look(memory: HttpGround) -> None:
    for origin in (ELSEWHERE, "null", f"http://127.0.0.1:{memory.port + 1}", f"{ELSEWHERE}:{memory.port}"):
        for method, path in (("POST", MESSAGES), ("GET", "/v1/openapi.json"), ("OPTIONS", MESSAGES)):
            answer = await memory.client.request(method, path, content=b"x", headers={"origin": origin, **ASKS})
            assert (answer.status_code, answer.json()["code"]) == (403, "MS-5106")
            assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_the_port_itself_may_do_all_and_no_field_of_cors_is_there(memory: HttpGround) -> None:
    headers = {"origin": f"http://127.0.0.1:{memory.port}"}
    answer = await memory.client.post(MESSAGES, content=b"x", headers=headers)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_page_of_an_origin_that_was_told_reads_answers_refusals_and_what_a_receive_brings(
    shop: HttpGround,
) -> None:
    headers = {"origin": SHOP.upper()}
    sent = await shop.client.post(MESSAGES, content=b"x", headers=headers)
    receive = "/v1/groups/g/topics/orders/receive"
    received = await shop.client.post(receive, headers=headers, params={"wait": "5s"})
    refused = await shop.client.post("/v1/topics/none/messages", content=b"x", headers=headers)
    assert [one.status_code for one in (sent, received, refused)] == [200, 200, 404]
    assert len(received.json()["messages"]) == 1
    for answer in (sent, received, refused):
        assert answer.headers["access-control-allow-origin"] == SHOP.upper()
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert answer.headers["vary"] == "origin"


async def test_the_question_of_a_browser_is_answered_with_the_methods_of_the_path(shop: HttpGround) -> None:
    answer = await shop.client.options(MESSAGES, headers={"origin": SHOP, **ASKS})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "content-type,ce-id"
    assert answer.headers["access-control-max-age"] == str(PREFLIGHT_AGE_S)
    # RFC 9110, section 8.6.
    assert "content-length" not in answer.headers
    several = await shop.client.options("/v1/subscriptions/1", headers={"origin": SHOP, **ASKS})
    assert several.headers["access-control-allow-methods"] == "GET, PUT, DELETE"


@pytest.mark.parametrize("fields", ["a:b", "a\tb", "x" * (MAX_ASKED_FIELDS_BYTES + 1)])
async def test_a_question_for_what_are_no_header_fields_is_refused(shop: HttpGround, fields: str) -> None:
    headers = {"origin": SHOP, **ASKS, "access-control-request-headers": fields}
    answer = await shop.client.options(MESSAGES, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "MS-5102")


async def test_the_question_of_a_browser_needs_no_user_and_what_follows_does(tmp_path: Path) -> None:
    async with memory_ground(guard=sample_guard(tmp_path), http_origins=[SHOP]) as ground:
        asked = await ground.client.options(MESSAGES, headers={"origin": SHOP, **ASKS})
        assert asked.status_code == 204
        refused = await ground.client.post(MESSAGES, content=b"x", headers={"origin": SHOP})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, SHOP)
        user = (ANN.access_key, ANN.secret_key)
        sent = await ground.client.post(MESSAGES, content=b"x", headers={"origin": SHOP}, auth=user)
        assert sent.status_code == 200


async def test_all_origins_may_use_the_port_without_the_secret_that_a_browser_keeps() -> None:
    async with memory_ground(http_origins=["*"]) as ground:
        answer = await ground.client.post(MESSAGES, content=b"x", headers={"origin": ELSEWHERE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
        assert "access-control-allow-credentials" not in answer.headers
        await (await WebSocketPeer.open(ground.port, SOCKET, origin="null")).close()


async def test_a_page_of_an_origin_that_was_told_opens_websockets_and_others_do_not(shop: HttpGround) -> None:
    await (await WebSocketPeer.open(shop.port, SOCKET, origin=SHOP)).close()
    for origin in (ELSEWHERE, f"{SHOP}0", SHOP.removesuffix(":8443")):
        with pytest.raises(AssertionError, match="403"):
            await WebSocketPeer.open(shop.port, SOCKET, origin=origin)


@pytest.mark.parametrize(
    "origin", ["shop.example", "https://shop.example/", "null", "https://*.example", "ftp://a", ""]
)
def test_what_is_no_origin_is_refused_at_the_start(memory: HttpGround, origin: str) -> None:
    backend = cast("BrokerBackend", memory.processor.backend)
    with pytest.raises(StartRefused, match="http_origins") as refusal:
        HttpServer(memory.processor, backend, "127.0.0.1", 0, http_origins=[origin])
    assert refusal.value.name == "ILLEGAL_SETTING"
