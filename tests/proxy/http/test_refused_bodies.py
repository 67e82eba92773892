"""Bodies of requests that are given up in the middle."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from millstream.model.clock import ManualClock
from millstream.model.errors import ConnectionFailed
from millstream.model.message import Address
from millstream.proxy.http.request import HttpRequest, QueryParameters
from millstream.transport.connection_memory import ConnectionMemory, HalfFrames
from millstream.transport.http_port import READ_AHEAD_BYTES

_SIZE = 100_000


class Bounds:
    """A process in which a body and a half have their place."""

    def __init__(self) -> None:
        self.memory = ConnectionMemory()
        self.memory.frames = HalfFrames(_SIZE * 3 // 2)
        self.clock = ManualClock()


async def test_a_body_that_is_given_up_is_freed_with_its_refusal() -> None:
    part = bytes(_SIZE)
    before = sys.getrefcount(part)

    async def receive() -> Any:
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(_message: Any) -> None:
        raise AssertionError("nothing is answered here")

    headers = {"content-length": str(4 * _SIZE)}
    request = HttpRequest("POST", headers, QueryParameters({}), Address("127.0.0.1", 1), receive, send, is_read=False)
    gc.disable()
    try:
        with pytest.raises(ConnectionFailed) as refused:
            await request.body(Bounds())
        assert refused.value.name == "REQUESTS_OVER_BUDGET"
        del refused
        after = sys.getrefcount(part)
        assert after == before
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("headers", "ahead_bytes"),
    [
        ({"content-length": str(4 * _SIZE)}, READ_AHEAD_BYTES),
        ({"content-length": str(_SIZE + 10)}, 10),
        ({"transfer-encoding": "chunked"}, READ_AHEAD_BYTES),
    ],
)
async def test_what_the_port_reads_ahead_of_a_body_counts_with_it(headers: dict[str, str], ahead_bytes: int) -> None:
    bounds = Bounds()
    counted: list[int] = []

    async def receive() -> Any:
        counted.append(bounds.memory.used_bytes)
        is_over = len(counted) == 2
        return {"type": "http.request", "body": b"" if is_over else bytes(_SIZE), "more_body": not is_over}

    async def send(_message: Any) -> None:
        raise AssertionError("nothing is answered here")

    request = HttpRequest("POST", headers, QueryParameters({}), Address("127.0.0.1", 1), receive, send, is_read=False)
    await request.body(bounds)
    assert counted == [0, _SIZE + ahead_bytes]
    assert bounds.memory.used_bytes == 0
