"""Clients of event streams, for `http_streams`: a process of its own.

Called as `python -m benchmarks.http_stream_load HOST PORT STREAMS TOPICS`. It opens the streams, spread over the
topics, and obeys the lines that it reads: `one COUNT` sends messages one after the other and waits for each to be
everywhere, `many COUNT BYTES` sends them at once, `stop` lets every second stream read no more, `go` lets all read
again. It answers each with a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

__all__ = ["main"]

_MARK = b"id: "
_PATIENCE_S = 300.0
_BATCH = 100


class _Stream(asyncio.Protocol):
    """Counts events."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.is_open = asyncio.Event()
        self.count = 0
        self.last_s = 0.0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(f"GET /v1/topics/{self.topic}/stream HTTP/1.1\r\nhost: x\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        found = data.count(_MARK)
        self._rest = data[-len(_MARK) + 1 :]
        if found:
            self.count += found
            self.last_s = time.perf_counter()
        if not self.is_open.is_set() and b": still here" in data:
            self.is_open.set()


class _Load:
    def __init__(self, host: str, port: int, streams: int, topics: int) -> None:
        self._host, self._port, self._topics = host, port, topics
        self._streams = [_Stream(f"stream-{number % topics}") for number in range(streams)]
        self._stuck: set[_Stream] = set()
        self._sent = [0] * topics

    async def open(self) -> None:
        """All streams, and a connection for posts."""
        loop = asyncio.get_running_loop()
        for stream in self._streams:
            await loop.create_connection(lambda stream=stream: stream, self._host, self._port)  # type: ignore[misc]
            await stream.is_open.wait()
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def one(self, count: int) -> dict[str, float]:
        """Milliseconds from a post to its first and its last stream."""
        first_ms, last_ms = [], []
        for number in range(count):
            topic = number % self._topics
            began_s = time.perf_counter()
            await self._post(topic, 1, 100)
            listening = [one for one in self._streams if one.topic == f"stream-{topic}" and one not in self._stuck]
            await self._arrived(listening)
            times = [one.last_s - began_s for one in listening]
            first_ms.append(min(times) * 1000)
            last_ms.append(max(times) * 1000)
        return {
            "first_p50_ms": round(statistics.median(first_ms), 2),
            "last_p50_ms": round(statistics.median(last_ms), 2),
            "last_max_ms": round(max(last_ms), 2),
        }

    async def many(self, count: int, body_bytes: int) -> dict[str, float]:
        """Seconds until all that read have the messages, and how far apart the first and the last of them are then."""
        listening = [one for one in self._streams if one not in self._stuck]
        before = sum(one.count for one in listening)
        began_s = time.perf_counter()
        for topic in range(self._topics):
            left = count // self._topics
            while left:
                some = min(left, _BATCH)
                await self._post(topic, some, body_bytes)
                left -= some
        await self._arrived(listening)
        ends_s = [one.last_s - began_s for one in listening]
        return {
            "events": sum(one.count for one in listening) - before,
            "seconds": round(max(ends_s), 3),
            "first_ready_s": round(min(ends_s), 3),
        }

    async def stop(self) -> dict[str, float]:
        """Every second stream reads nothing."""
        self._stuck = set(self._streams[self._topics :: 2] if self._topics > 1 else self._streams[::2])
        for one in self._stuck:
            one.transport.pause_reading()
        return {"stuck": len(self._stuck)}

    async def go(self) -> dict[str, float]:
        """All read, and have everything in the end."""
        began_s = time.perf_counter()
        lacking = sum(self._wanted(one) - one.count for one in self._stuck)
        for one in self._stuck:
            one.transport.resume_reading()
        self._stuck = set()
        await self._arrived(self._streams)
        return {"events": lacking, "seconds": round(time.perf_counter() - began_s, 3)}

    def _wanted(self, stream: _Stream) -> int:
        return self._sent[int(stream.topic.partition("-")[2])]

    async def _arrived(self, streams: list[_Stream]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while any(one.count < self._wanted(one) for one in streams):  # noqa: ASYNC110 - a loop that measures
                await asyncio.sleep(0.0005)

    async def _post(self, topic: int, count: int, body_bytes: int) -> None:
        event = {"specversion": "1.0", "id": "A1", "source": "/bench", "type": "t", "data": "x" * body_bytes}
        body = json.dumps([event] * count).encode()
        self._sent[topic] += count
        head = (
            f"POST /v1/topics/stream-{topic}/messages HTTP/1.1\r\nhost: x\r\n"
            f"content-type: application/cloudevents-batch+json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        await self._reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))


async def _run() -> None:
    host, port, streams, topics = sys.argv[1:]
    load = _Load(host, int(port), int(streams), int(topics))
    await load.open()
    print("{}", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        print(json.dumps(await getattr(load, line[0])(*map(int, line[1:]))), flush=True)


def main() -> None:
    """Obey until the input ends."""
    asyncio.run(_run())


if __name__ == "__main__":
    main()
