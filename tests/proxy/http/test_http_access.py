"""Who may do what over HTTP where access control is on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from http_ground import HttpGround, memory_ground

from access_samples import ANN, BOB, sample_guard, signed_headers

SEND = "/v1/topics/orders/messages"
RECEIVE = "/v1/groups/billing/topics/orders/receive"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[HttpGround]:
    async with memory_ground(guard=sample_guard(tmp_path)) as opened:
        yield opened


async def test_a_user_is_known_by_basic_and_by_the_header_that_grpc_signs(guarded: HttpGround) -> None:
    basic = await guarded.client.post(SEND, content=b"x", auth=(ANN.access_key, ANN.secret_key))
    assert basic.status_code == 200, basic.text
    signed = await guarded.client.post(RECEIVE, headers=signed_headers(ANN))
    assert len(signed.json()["messages"]) == 1


@pytest.mark.parametrize("headers", [{}, {"authorization": "Basic ?"}, {"authorization": "Bearer x"}])
async def test_a_stranger_is_asked_for_credentials(guarded: HttpGround, headers: dict[str, str]) -> None:
    answer = await guarded.client.post(SEND, content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "MS-2301")
    assert answer.headers["www-authenticate"].startswith("Basic ")


async def test_a_wrong_secret_and_a_user_without_rights_are_refused(guarded: HttpGround) -> None:
    wrong = await guarded.client.post(SEND, content=b"x", auth=(ANN.access_key, "other-secret"))
    assert wrong.status_code == 401
    forbidden = await guarded.client.post(SEND, content=b"x", auth=(BOB.access_key, BOB.secret_key))
    assert (forbidden.status_code, forbidden.json()["code"]) == (403, "MS-2302")
    other = await guarded.client.post(RECEIVE.replace("billing", "sales"), auth=(ANN.access_key, ANN.secret_key))
    assert other.status_code == 403


async def test_the_health_of_the_port_is_told_to_everybody(guarded: HttpGround) -> None:
    assert (await guarded.client.get("/health")).status_code == 200
