"""The load of the HTTP port: posts on keep-alive connections, one in flight on each. A process of its own.

Called as `python -m benchmarks.http_load HOST PORT TOPIC CONNECTIONS REQUESTS EVENTS`; EVENTS is 1 for binary mode,
more for a batch of so many. It writes requests and reads answers as bytes, so that it costs little beside the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

__all__ = ["main"]

_BODY = b"x" * 100
_END = b"\r\n\r\n"


def _request(host: str, topic: str, events: int) -> bytes:
    if events == 1:
        head = (
            "ce-specversion: 1.0\r\nce-id: A234-1234\r\nce-source: /shop/orders\r\n"
            "ce-type: com.example.order.created\r\nce-time: 2026-11-24T08:30:00Z\r\ncontent-type: text/plain\r\n"
        )
        body = _BODY
    else:
        event = {
            "specversion": "1.0",
            "id": "A234-1234",
            "source": "/shop/orders",
            "type": "com.example.order.created",
            "time": "2026-11-24T08:30:00Z",
            "datacontenttype": "application/json",
            "data": {"note": "x" * 88},
        }
        head = "content-type: application/cloudevents-batch+json\r\n"
        body = json.dumps([event] * events).encode()
    line = f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nhost: {host}\r\n{head}content-length: {len(body)}\r\n\r\n"
    return line.encode() + body


class _Connection(asyncio.Protocol):
    """Sends the request again when its answer is there, until the count is used up."""

    def __init__(self, request: bytes, left: list[int], done: asyncio.Future[None]) -> None:
        self._request = request
        self._left = left
        self._done = done
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, mark, body = self._answer.partition(_END)
        if not mark or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(AssertionError(self._answer[:500].decode()))
            return
        self._answer = b""
        self._send()

    def _send(self) -> None:
        if self._left[0] > 0:
            self._left[0] -= 1
            self._transport.write(self._request)
        elif not self._done.done():
            self._done.set_result(None)


async def _run(host: str, port: int, request: bytes, connections: int, count: int) -> float:
    loop = asyncio.get_running_loop()
    left, ends = [count], [loop.create_future() for _ in range(connections)]
    started_s = time.monotonic()
    for end in ends:
        await loop.create_connection(lambda end=end: _Connection(request, left, end), host, port)  # type: ignore[misc]
    await asyncio.gather(*ends)
    return time.monotonic() - started_s


def main() -> None:
    """Run the load and print its seconds."""
    host, port, topic, connections, count, events = sys.argv[1:]
    request = _request(host, topic, int(events))
    print(asyncio.run(_run(host, int(port), request, int(connections), int(count))))


if __name__ == "__main__":
    main()
