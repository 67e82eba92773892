"""A load generator for the gRPC port, in a process of its own: grpc.aio stubs, and no more work than the calls need."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS

__all__ = ["BODY", "LoadProcess", "ack_request", "percentiles_ms", "receive_request", "send_request"]

BODY = b"x" * 100
INVISIBLE_S = 300
_CONNECTIONS_OF_IDLE = 100
_TIMEOUT_S = 60.0
_POLL_S = 20.0
_BEAT_S = 5.0
_ALL_RECEIVED_S = 120.0
_LANGUAGE = (("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.0.9"))
"""Without them the reference takes no settings."""


_RECEIVED = (m.OK, m.MESSAGE_NOT_FOUND, 0)
"""Statuses of a receive that did what it should, or of a frame that has none."""


def send_request(topic: str, message_id: str = "m", body: bytes = BODY) -> m.SendMessageRequest:
    """One message."""
    system = m.SystemProperties(message_id=message_id, body_encoding=m.IDENTITY)
    return m.SendMessageRequest(messages=[m.Message(topic=m.Resource(name=topic), body=body, system_properties=system)])


def receive_request(topic: str, group: str, batch: int, wait_s: float) -> m.ReceiveMessageRequest:
    """From all queues of a topic."""
    return m.ReceiveMessageRequest(
        group=m.Resource(name=group),
        message_queue=m.MessageQueue(topic=m.Resource(name=topic), id=-1),
        batch_size=batch,
        invisible_duration=m.Duration(seconds=INVISIBLE_S),
        long_polling_timeout=m.Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9)),
    )


def ack_request(topic: str, group: str, *handles: str) -> m.AckMessageRequest:
    """Of deliveries, each named by its handle."""
    entries = [m.AckMessageEntry(receipt_handle=handle) for handle in handles]
    return m.AckMessageRequest(group=m.Resource(name=group), topic=m.Resource(name=topic), entries=entries)


def consumer_settings(topic: str, group: str) -> m.TelemetryCommand:
    """What a simple consumer of a topic says of itself."""
    subscription = m.Subscription(
        group=m.Resource(name=group),
        subscriptions=[
            m.SubscriptionEntry(topic=m.Resource(name=topic), expression=m.FilterExpression(type=m.TAG, expression="*"))
        ],
    )
    return m.TelemetryCommand(settings=m.Settings(client_type=m.SIMPLE_CONSUMER, subscription=subscription))


def percentiles_ms(taken_s: Sequence[float]) -> dict[str, float]:
    """Of latencies in seconds."""
    ordered = sorted(taken_s)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 3),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 3),
    }


class LoadProcess:
    """The generator, seen from the process that measures; leaving the block ends it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.grpc_load"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Of the generator."""
        return self._process.pid

    def run(self, job: str, **words: Any) -> dict[str, Any]:
        """What a job of `_Load` found."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"job": job, **words}) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


class _Client:
    """Stubs over one connection."""

    def __init__(self, address: str, client_id: str = "bench@1@0@a") -> None:
        # Channels with equal options would share one connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(address, options=options)
        self.metadata = (("x-mq-client-id", client_id), *_LANGUAGE)
        self.send = METHODS["SendMessage"].stub(self.channel)
        self.ack = METHODS["AckMessage"].stub(self.channel)
        self._receive = METHODS["ReceiveMessage"].stub(self.channel)
        self._heartbeat = METHODS["Heartbeat"].stub(self.channel)
        self._telemetry = METHODS["Telemetry"].stub(self.channel)
        self._said: Any = None

    async def be_consumer(self, topic: str, group: str) -> asyncio.Task[None]:
        """Say what consumer this is; the call stays open, and heartbeats follow, as those of a client do."""
        self._said = self._telemetry(metadata=self.metadata)
        await self._said.write(consumer_settings(topic, group))
        await self._said.read()
        return asyncio.create_task(self._beat(group))

    async def _beat(self, group: str) -> None:
        request = m.HeartbeatRequest(group=m.Resource(name=group), client_type=m.SIMPLE_CONSUMER)
        while True:
            answer = await self._heartbeat(request, metadata=self.metadata, timeout=_TIMEOUT_S)
            assert answer.status.code == m.OK, answer.status.message
            await asyncio.sleep(_BEAT_S)

    async def receive(self, request: m.ReceiveMessageRequest) -> list[m.Message]:
        call = self._receive(request, metadata=self.metadata, timeout=_TIMEOUT_S)
        messages = []
        async for frame in call:
            if frame.WhichOneof("content") == "message":
                messages.append(frame.message)
            else:
                assert frame.status.code in _RECEIVED, frame.status.message
        return messages


class _Load:
    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._handles: dict[str, list[str]] = {}
        self._idle: list[asyncio.Task[None]] = []
        self._idle_clients: list[_Client] = []
        self._idle_groups: set[str] = set()
        self._arrived_s: list[float] = []
        self._polls = 0
        self._reading: list[asyncio.Task[None]] = []
        self._read = 0
        self._beating: list[asyncio.Task[None]] = []

    def _client(self, address: str) -> _Client:
        if address not in self._clients:
            self._clients[address] = _Client(address)
        return self._clients[address]

    async def send(self, address: str, topic: str, count: int, in_flight: int) -> dict[str, Any]:
        """Messages by calls of their own."""
        client, request = self._client(address), send_request(topic)

        async def one() -> bool:
            answer = await client.send(request, metadata=client.metadata, timeout=_TIMEOUT_S)
            assert answer.status.code == m.OK, answer.status.message
            return True

        return await _in_flight(one, count, in_flight)

    async def receive(
        self, address: str, topic: str, group: str, count: int, in_flight: int, batch: int
    ) -> dict[str, Any]:
        """Up to `batch` messages a call, `count` calls; the handles are kept for `ack`."""
        client, request = self._client(address), receive_request(topic, group, batch, 1)
        kept = self._handles.setdefault(group, [])
        before = len(kept)

        async def one() -> bool:
            kept.extend(message.system_properties.receipt_handle for message in await client.receive(request))
            return True

        found = await _in_flight(one, count, in_flight)
        return found | {"messages": len(kept) - before}

    async def ack(self, address: str, topic: str, group: str, count: int, in_flight: int) -> dict[str, Any]:
        """Deliveries that `receive` took, by calls of their own."""
        client, handles = self._client(address), self._handles[group]

        async def one() -> bool:
            request = ack_request(topic, group, handles.pop())
            answer = await client.ack(request, metadata=client.metadata, timeout=_TIMEOUT_S)
            assert answer.status.code == m.OK, answer.status.message
            return True

        return await _in_flight(one, count, in_flight)

    async def open_consumer(self, address: str, topic: str, group: str) -> dict[str, Any]:
        """Say what consumer the client of that address is; servers may want that before its first receive."""
        self._beating.append(await self._client(address).be_consumer(topic, group))
        return {}

    async def receive_all(
        self, address: str, topic: str, group: str, messages: int, in_flight: int, batch: int
    ) -> dict[str, Any]:
        """Receive until so many messages have come; the handles are kept for `ack` and `ack_all`."""
        client, request = self._client(address), receive_request(topic, group, batch, 1)
        kept = self._handles.setdefault(f"{address} {group}", [])
        wanted, calls, empty = len(kept) + messages, 0, 0
        taken_s: list[float] = []
        end_s, give_up_s = 0.0, time.monotonic() + _ALL_RECEIVED_S

        async def lane() -> None:
            nonlocal calls, empty, end_s
            while len(kept) < wanted:
                assert time.monotonic() < give_up_s, f"{wanted - len(kept)} messages did not come"
                began_s = time.perf_counter()
                found = await client.receive(request)
                calls, empty = calls + 1, empty + (not found)
                kept.extend(message.system_properties.receipt_handle for message in found)
                if found:
                    # The last calls find nothing and wait: they are no part of the time.
                    end_s = time.perf_counter()
                    taken_s.append(end_s - began_s)

        before, began_s = len(kept), time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(in_flight)))
        seconds = end_s - began_s
        return {
            "calls": calls,
            "empty_calls": empty,
            "messages": len(kept) - before,
            "messages_per_s": round((len(kept) - before) / seconds),
            **percentiles_ms(taken_s),
        }

    async def ack_all(
        self, address: str, topic: str, group: str, messages: int, in_flight: int, batch: int
    ) -> dict[str, Any]:
        """Acknowledge so many messages that `receive_all` took, `batch` of them a call."""
        client, handles = self._client(address), self._handles[f"{address} {group}"]
        calls = messages // batch

        async def one() -> bool:
            chosen, handles[-batch:] = handles[-batch:], []
            request = ack_request(topic, group, *chosen)
            answer = await client.ack(request, metadata=client.metadata, timeout=_TIMEOUT_S)
            assert answer.status.code == m.OK, answer.status.message
            return True

        found = await _in_flight(one, calls, in_flight)
        return {**found, "messages": calls * batch, "messages_per_s": found["calls_per_s"] * batch}

    async def trips(self, address: str, topic: str, group: str, count: int, in_flight: int) -> dict[str, Any]:
        """From a send to its delivery to a consumer that waits, with `in_flight` messages on their way."""
        client = self._client(address)
        waiting: dict[bytes, asyncio.Future[float]] = {}
        loop = asyncio.get_running_loop()

        async def consume() -> None:
            request = receive_request(topic, group, 32, 5)
            while True:
                for message in await client.receive(request):
                    arrived = waiting.pop(message.body, None)
                    if arrived is not None:
                        arrived.set_result(time.perf_counter())
                    done = ack_request(topic, group, message.system_properties.receipt_handle)
                    await client.ack(done, metadata=client.metadata, timeout=_TIMEOUT_S)

        consumers = [asyncio.create_task(consume()) for _ in range(2 if in_flight == 1 else 8)]
        await asyncio.sleep(0.2)
        taken_s: list[float] = []
        number = 0

        async def one() -> bool:
            nonlocal number
            number += 1
            body = b"%d" % number
            waiting[body] = loop.create_future()
            arrived, began_s = waiting[body], time.perf_counter()
            await client.send(send_request(topic, f"t{number}", body), metadata=client.metadata, timeout=_TIMEOUT_S)
            taken_s.append(await arrived - began_s)
            return True

        found = await _in_flight(one, count, in_flight)
        await _end(consumers)
        return found | percentiles_ms(taken_s)

    async def paced(self, address: str, topic: str, group: str, count: int, pause_s: float) -> dict[str, Any]:
        """The same trip for messages that are sent at times of their own, whether or not earlier ones have come."""
        client = self._client(address)
        began_s: dict[bytes, float] = {}
        taken_s: list[float] = []
        sent_s: list[float] = []
        everything = asyncio.Event()

        async def consume() -> None:
            request = receive_request(topic, group, 32, 5)
            while True:
                for message in await client.receive(request):
                    if message.body in began_s:
                        taken_s.append(time.perf_counter() - began_s[message.body])
                    if len(taken_s) == count:
                        everything.set()
                    done = ack_request(topic, group, message.system_properties.receipt_handle)
                    await client.ack(done, metadata=client.metadata, timeout=_TIMEOUT_S)

        async def send(body: bytes) -> None:
            began_s[body] = time.perf_counter()
            await client.send(send_request(topic, body.decode(), body), metadata=client.metadata, timeout=_TIMEOUT_S)
            sent_s.append(time.perf_counter() - began_s[body])

        consumers = [asyncio.create_task(consume()) for _ in range(2)]
        await asyncio.sleep(0.2)
        run = time.monotonic_ns()
        sends = []
        for number in range(count):
            sends.append(asyncio.create_task(send(b"%d-%d" % (run, number))))
            await asyncio.sleep(pause_s)
        await asyncio.gather(*sends)
        await asyncio.wait_for(everything.wait(), _TIMEOUT_S)
        await _end(consumers)
        return {"trip": percentiles_ms(taken_s), "send": percentiles_ms(sent_s)}

    async def read_backlog(self, address: str, topic: str, group: str, in_flight: int) -> dict[str, Any]:
        """Begin to take and acknowledge what is there, 32 messages a call, until `stop_reading`."""
        client = _Client(address, "backlog@1@0@a")
        self._read = 0

        async def consume() -> None:
            request = receive_request(topic, group, 32, 1)
            while True:
                messages = await client.receive(request)
                handles = [message.system_properties.receipt_handle for message in messages]
                if handles:
                    done = ack_request(topic, group, *handles)
                    await client.ack(done, metadata=client.metadata, timeout=_TIMEOUT_S)
                    self._read += len(handles)

        self._reading = [asyncio.create_task(consume()) for _ in range(in_flight)]
        return {}

    async def stop_reading(self) -> dict[str, Any]:
        """How many messages of the backlog were read."""
        await _end(self._reading)
        return {"read": self._read}

    async def wait_idle(self, address: str, topic: str, count: int, groups: int) -> dict[str, Any]:
        """Begin to wait with `count` consumers of `groups` groups, each poll after the other, until the end."""
        self._idle_clients = [_Client(address, f"idle-{number}") for number in range(_CONNECTIONS_OF_IDLE)]
        self._idle = [
            asyncio.create_task(
                self._poll(
                    self._idle_clients[number % _CONNECTIONS_OF_IDLE], topic, number, groups, number / count * _POLL_S
                )
            )
            for number in range(count)
        ]
        return {}

    async def _poll(self, client: _Client, topic: str, number: int, groups: int, delay_s: float) -> None:
        # Consumers do not all come in the same moment, so their polls do not end in one.
        await asyncio.sleep(delay_s)
        request = receive_request(topic, f"idle-{number % groups}", 32, _POLL_S)
        metadata = (("x-mq-client-id", f"idle-{number}@1@0@a"),)
        while True:
            self._polls += 1
            call = client._receive(request, metadata=metadata, timeout=_TIMEOUT_S)
            async for frame in call:
                if frame.WhichOneof("content") == "message":
                    self._arrived_s.append(time.perf_counter())

    async def idle_polls(self) -> dict[str, Any]:
        """How many polls began so far."""
        return {"polls": self._polls}

    async def reach_idle(self, address: str, topic: str, count: int, groups: int) -> dict[str, Any]:
        """From sends, one after the other, to the delivery to the first and to one consumer of each group."""
        client, first_s, last_s = self._client(address), [], []
        for _ in range(count):
            self._arrived_s.clear()
            began_s = time.perf_counter()
            await client.send(send_request(topic), metadata=client.metadata, timeout=_TIMEOUT_S)
            while len(self._arrived_s) < groups:  # noqa: ASYNC110 - the polls are the events, many of them
                await asyncio.sleep(0.001)
            first_s.append(self._arrived_s[0] - began_s)
            last_s.append(self._arrived_s[-1] - began_s)
            await asyncio.sleep(0.05)
        return {"first": percentiles_ms(first_s), "all_groups": percentiles_ms(last_s)}

    async def end(self) -> None:
        await _end([*self._idle, *self._reading, *self._beating])
        for client in (*self._clients.values(), *self._idle_clients):
            await client.channel.close()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _in_flight(one: Callable[[], Awaitable[bool]], count: int, in_flight: int) -> dict[str, Any]:
    left = count
    taken_s: list[float] = []

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began_s = time.perf_counter()
            await one()
            taken_s.append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    seconds = time.perf_counter() - began_s
    return {"calls": count, "calls_per_s": round(count / seconds), **percentiles_ms(taken_s)}


async def _main() -> None:
    load = _Load()
    while line := await asyncio.to_thread(sys.stdin.readline):
        words = json.loads(line)
        found = await getattr(load, words.pop("job"))(**words)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    with suppress(grpc.aio.AioRpcError):
        await load.end()


if __name__ == "__main__":
    asyncio.run(_main())
