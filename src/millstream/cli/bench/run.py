"""One benchmark from start to end: create topic and group, run the load, report, clean up.

Which messages of a run have arrived, when and how often: each carries a mark of the run and its number.

What a load goes through: sends and receives of one topic, over remoting by our own client.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.cli.bench.load import Exhausted, Load, LoadPlan
from millstream.cli.bench.report import BenchReport, CpuMeter
from millstream.client.client import Client
from millstream.client.operations import parse_addresses
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError, Refused
from millstream.model.group import GroupConfig
from millstream.model.message import Message
from millstream.model.operations import PullStatus
from millstream.model.topic import TopicConfig
from millstream.telemetry.counters import LatencyRecorder
from millstream.telemetry.processes import owner_of

__all__ = ["MARK_BYTES", "POLL_MS", "Arrivals", "BenchRun", "BenchSetting", "Endpoint", "RemotingEndpoint"]

POLL_MS: Final = 1000
"""How long a receive waits for messages."""


class Endpoint(Protocol):
    """One protocol's way to the topic. A lane is one receiver; each is used by one task at a time."""

    @property
    def lanes(self) -> int:
        """Receivers that there can be at once."""
        ...

    async def send(self, body: bytes) -> None:
        """Store one message."""
        ...

    async def receive(self, lane: int, *, wait_ms: int) -> Sequence[bytes]:
        """The next bodies of a lane, acknowledged where the protocol has it; none after `wait_ms` without any."""
        ...

    async def rewind(self, lane: int) -> bool:
        """Begin again at the first message; False where that cannot be done."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


class RemotingEndpoint:
    """Sends of one message each, and pulls of up to `batch` messages, one lane for each queue."""

    def __init__(self, client: Client, topic: str, batch: int, starts: Sequence[tuple[QueueAddress, int]]) -> None:
        self._client = client
        self._producer = Producer(client)
        self._puller = Puller(client)
        self._topic = topic
        self._batch = batch
        self._starts = starts
        self._positions = [offset for _, offset in starts]

    @property
    def lanes(self) -> int:
        """One for each queue."""
        return len(self._starts)

    async def send(self, body: bytes) -> None:
        """See `Endpoint`."""
        await self._producer.send(Message(self._topic, body))

    async def receive(self, lane: int, *, wait_ms: int) -> Sequence[bytes]:
        """See `Endpoint`. The messages are decoded, as an application would have it."""
        queue, position = self._starts[lane][0], self._positions[lane]
        batch = await self._puller.pull(queue, position, max_messages=self._batch, wait_ms=wait_ms)
        self._positions[lane] = batch.next_offset
        return [message.body for message in batch.messages()] if batch.status is PullStatus.FOUND else ()

    async def rewind(self, lane: int) -> bool:
        """See `Endpoint`."""
        await asyncio.sleep(0)
        self._positions[lane] = self._starts[lane][1]
        return True

    async def close(self) -> None:
        """See `Endpoint`."""
        await self._client.close()


_RUN_BYTES: Final = 8
_NUMBER_BYTES: Final = 8

MARK_BYTES: Final = _RUN_BYTES + _NUMBER_BYTES
"""Bytes of a body that the mark takes."""

_LAST_ARRIVALS_S: Final = 10.0
"""How long arrivals are waited for after the last send."""


class Arrivals:
    """The book of one run. Messages of other runs and of strangers are passed over."""

    def __init__(self, size: int) -> None:
        self._run = os.urandom(_RUN_BYTES)
        self._padding = b"x" * (size - MARK_BYTES)
        self._due_s: dict[int, float] = {}
        self._sent: set[int] = set()
        self._seen: set[int] = set()
        self._changed = asyncio.Event()
        self.duplicates = 0
        self.latency = LatencyRecorder()

    def body(self, number: int, due_s: float) -> bytes:
        """The body of a message whose time runs from `due_s` on."""
        self._due_s[number] = due_s
        return self._run + number.to_bytes(_NUMBER_BYTES, "big") + self._padding

    def note_sent(self, number: int) -> None:
        """The server has acknowledged it: it has to arrive."""
        self._sent.add(number)
        self._changed.set()

    def note(self, body: bytes, now_s: float, measured_from_s: float) -> None:
        """Something has arrived."""
        if not body.startswith(self._run):
            return
        number = int.from_bytes(body[_RUN_BYTES:MARK_BYTES], "big")
        if number in self._seen:
            self.duplicates += 1
            return
        self._seen.add(number)
        self._changed.set()
        due_s = self._due_s.pop(number)
        if due_s >= measured_from_s:
            self.latency.add(now_s - due_s)

    @property
    def delivered(self) -> int:
        """Messages that have arrived, each counted once."""
        return len(self._seen)

    @property
    def missing(self) -> int:
        """Messages that were acknowledged to the sender and have not arrived."""
        return len(self._sent - self._seen)

    async def wait_for_all(self) -> None:
        """Wait until nothing is missing, for a while at most."""
        try:
            async with asyncio.timeout(_LAST_ARRIVALS_S):
                while self.missing:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


_FILL_AT_A_TIME = 1000
_EMPTY_ANSWERS = 3
"""Empty answers in a row after which a receiver believes that there is nothing more."""

_RECEIVERS = 4
"""Receivers of `bench e2e` over gRPC; over remoting each queue has one."""


@dataclass(frozen=True, slots=True)
class BenchSetting:
    """What is to be measured. `topic` None makes one; `grpc` None goes over remoting."""

    what: str
    plan: LoadPlan
    size: int
    topic: str | None
    queues: int
    grpc: str | None
    messages: int
    batch: int
    nameserver: str
    timeout_s: float

    def check(self) -> None:
        """ValueError where the parts do not fit."""
        if self.what == "e2e" and self.size < MARK_BYTES:
            raise ValueError(f"--size: e2e marks its messages, which takes {MARK_BYTES} bytes at least.")
        if self.grpc is not None:
            try:
                parse_addresses(self.grpc)
            except ValueError as error:
                raise ValueError(f"--grpc: {error}.") from None


class BenchRun:
    """Runs it once. Ctrl-C ends it early; what was measured until then is reported."""

    def __init__(self, setting: BenchSetting) -> None:
        self._setting = setting
        self._topic = setting.topic or f"bench-{secrets.token_hex(4)}"
        self._group = f"bench-{secrets.token_hex(4)}"
        self._stopped = asyncio.Event()

    async def run(self) -> BenchReport | None:
        """The report; None if it was stopped before the load began."""
        setting = self._setting
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stopped.set)
        async with Client(setting.nameserver, timeout_s=setting.timeout_s) as client, self._own_topic(client):
            if setting.what == "consume" and setting.topic is None:
                await self._fill(client)
            starts = await self._starts(client)
            if self._stopped.is_set():
                return None
            async with self._own_group(client, starts):
                endpoint = self._endpoint(client, starts)
                try:
                    address = setting.grpc or starts[0][0].broker_address
                    host, _, port = address.rpartition(":")
                    cpu = CpuMeter(await asyncio.to_thread(owner_of, host.strip("[]"), int(port)))
                    report = await getattr(self, f"_{setting.what}")(endpoint, cpu)
                finally:
                    if setting.grpc is not None:
                        await endpoint.close()
        assert isinstance(report, BenchReport)
        report.interrupted = self._stopped.is_set()
        return report

    @asynccontextmanager
    async def _own_topic(self, client: Client) -> AsyncIterator[None]:
        if self._setting.topic is not None:
            await client.queues(self._topic)  # TOPIC_NOT_FOUND before anything else happens
            yield
            return
        queues = self._setting.queues
        await client.create_topic(TopicConfig(self._topic, read_queues=queues, write_queues=queues))
        try:
            yield
        finally:
            try:
                await client.delete_topic(self._topic)
            except MillstreamError as error:
                print(f"note: the topic {self._topic} is left behind: {error}", file=sys.stderr)

    @asynccontextmanager
    async def _own_group(self, client: Client, starts: Sequence[tuple[QueueAddress, int]]) -> AsyncIterator[None]:
        """The group that receives over gRPC, put to the starts; pulls over remoting need none."""
        if self._setting.grpc is None or self._setting.what == "produce":
            yield
            return
        await client.create_group(GroupConfig(self._group))
        try:
            for queue, offset in starts:
                await client.commit_offset(self._group, queue, offset)
            yield
        finally:
            try:
                await client.delete_group(self._group)
            except MillstreamError as error:
                print(f"note: the group {self._group} is left behind: {error}", file=sys.stderr)

    async def _fill(self, client: Client) -> None:
        left, body, producer = self._setting.messages, b"x" * self._setting.size, Producer(client)
        while left > 0 and not self._stopped.is_set():
            part = min(left, _FILL_AT_A_TIME)
            await producer.send_many([Message(self._topic, body)] * part)
            left -= part

    async def _starts(self, client: Client) -> list[tuple[QueueAddress, int]]:
        """Where each queue is read from: its first message for `consume`, its end for `e2e`."""
        ranges = await client.queue_ranges(self._topic)
        is_consume = self._setting.what == "consume"
        if is_consume and not any(item.range.max_offset > item.range.min_offset for item in ranges):
            raise Refused("NOTHING_TO_CONSUME", f"The topic {self._topic!r} has no messages.")
        return [(item.queue, item.range.min_offset if is_consume else item.range.max_offset) for item in ranges]

    def _endpoint(self, client: Client, starts: Sequence[tuple[QueueAddress, int]]) -> Endpoint:
        setting = self._setting
        if setting.grpc is None:
            return RemotingEndpoint(client, self._topic, setting.batch, starts)
        from millstream.cli.bench.grpc_endpoint import GrpcEndpoint

        lanes = _RECEIVERS if setting.what == "e2e" else setting.plan.in_flight
        return GrpcEndpoint(
            setting.grpc, self._topic, self._group, batch=setting.batch, lanes=lanes, timeout_s=setting.timeout_s
        )

    async def _produce(self, endpoint: Endpoint, cpu: CpuMeter) -> BenchReport:
        body = b"x" * self._setting.size

        async def send(_worker: int, _number: int, _due_s: float) -> int:
            await endpoint.send(body)
            return 1

        load = Load(self._setting.plan, send, cpu.take)
        await load.run(self._stopped)
        return self._report(load, cpu, "a send")

    async def _consume(self, endpoint: Endpoint, cpu: CpuMeter) -> BenchReport:
        plan = self._setting.plan
        lanes = min(plan.in_flight, endpoint.lanes)
        empty_answers = [0] * lanes

        async def receive(worker: int, _number: int, _due_s: float) -> int:
            bodies = await endpoint.receive(worker, wait_ms=0)
            empty_answers[worker] = 0 if bodies else empty_answers[worker] + 1
            if not bodies:
                await endpoint.rewind(worker)
                if empty_answers[worker] >= _EMPTY_ANSWERS:
                    raise Exhausted
            return len(bodies)

        load = Load(LoadPlan(lanes, plan.duration_s, plan.warm_up_s, plan.rate), receive, cpu.take)
        await load.run(self._stopped)
        size = self._setting.batch
        what = f"a pull of up to {size} messages"
        if self._setting.grpc is not None:
            what = f"a receive of up to {size} messages and their acknowledgement"
        return self._report(load, cpu, what)

    async def _e2e(self, endpoint: Endpoint, cpu: CpuMeter) -> BenchReport:
        arrivals = Arrivals(self._setting.size)

        async def send(_worker: int, number: int, due_s: float) -> int:
            await endpoint.send(arrivals.body(number, due_s))
            arrivals.note_sent(number)
            return 1

        load = Load(self._setting.plan, send, cpu.take)
        receivers = [asyncio.ensure_future(_receive(endpoint, lane, arrivals, load)) for lane in range(endpoint.lanes)]
        try:
            await load.run(self._stopped)
            await arrivals.wait_for_all()
        finally:
            for receiver in receivers:
                receiver.cancel()
            await asyncio.gather(*receivers, return_exceptions=True)
        report = self._report(load, cpu, "a message until its arrival at a consumer of this process")
        report.latency = arrivals.latency
        report.delivered, report.missing = arrivals.delivered, arrivals.missing
        report.duplicates = arrivals.duplicates
        return report

    def _report(self, load: Load, cpu: CpuMeter, what: str) -> BenchReport:
        setting = self._setting
        since = "from its start; a closed loop makes pauses look short, --rate shows them"
        if load.plan.rate is not None:
            since = "from the moment it was due: no coordinated omission"
        protocol, own = "gRPC" if setting.grpc else "remoting", setting.topic is None
        words = f"of {what}, {since}"
        return BenchReport(setting.what, protocol, self._topic, own, setting.size, load, cpu, load.latency, words)


async def _receive(endpoint: Endpoint, lane: int, arrivals: Arrivals, load: Load) -> None:

    while True:
        try:
            bodies = await endpoint.receive(lane, wait_ms=POLL_MS)
        except MillstreamError as error:
            load.errors += 1
            load.first_error = load.first_error or error
            await asyncio.sleep(0.1)
            continue
        for body in bodies:
            arrivals.note(body, load.now_s(), load.measured_from_s)
