"""Calls of a proxy whose brokers do not answer."""

from __future__ import annotations

import asyncio

import pytest

from millstream.model.errors import TimedOut
from millstream.model.message import Address
from millstream.proxy.grpc.adapter import MARGIN_S, in_time
from millstream.proxy.grpc.call import GrpcCall
from patience import PATIENCE_S


def call(deadline_s: float | None) -> GrpcCall:
    return GrpcCall("client", Address("10.0.0.9", 1), deadline_s)


async def test_a_call_that_nothing_answers_is_told_so_before_its_deadline() -> None:
    async def hang(_: GrpcCall, __: object) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(TimedOut, match=r"No broker answered within 0\.3 s"):
        async with asyncio.timeout(PATIENCE_S):
            await in_time(hang)(call(MARGIN_S + 0.05), None)


async def test_a_call_without_a_deadline_and_one_in_time_are_answered_as_ever() -> None:
    async def answer(_: GrpcCall, request: object) -> object:
        await asyncio.sleep(0)
        return request

    assert await in_time(answer)(call(None), "a") == "a"
    assert await in_time(answer)(call(60.0), "b") == "b"


async def test_a_handlers_own_timeout_stays_its_own() -> None:
    async def fail(_: GrpcCall, __: object) -> str:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await in_time(fail)(call(60.0), None)
