"""Senders of syslog while too many bytes wait for the broker, over a lane that the test holds up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import pytest_asyncio

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.syslog.input import SyslogInput, SyslogOptions
from millstream.ingest.topic_writer import InputStatistics, Target, TopicWriter
from millstream.model.message import Address

WAITING_BYTES = 64 * 1024


class HeldLane:
    """Sends nothing before it is let go."""

    max_rows = 1000

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.bodies: list[bytes] = []
        self._wanted = 0
        self._all = asyncio.Event()

    async def has(self, count: int) -> None:
        """Return when so many events have come."""
        self._wanted = count
        if len(self.bodies) < count:
            await self._all.wait()

    async def send(self, topic: str, event_batches: Sequence[EventBatch]) -> None:
        await self.go.wait()
        self.bodies += [body for event_batch in event_batches for body in event_batch.bodies]
        if len(self.bodies) >= self._wanted > 0:
            self._all.set()


class Held:
    """An input whose outlet is held up."""

    def __init__(self) -> None:
        self.lane = HeldLane()
        self.tally = InputStatistics()
        self.outlet = TopicWriter(self.lane, Target("logs", waiting_bytes=WAITING_BYTES), self.tally, print, hold_s=0.0)
        options = SyslogOptions("127.0.0.1", udp_port=0, tcp_port=0, is_raw=True)
        self.input = SyslogInput(options, self.outlet, self.tally, print)
        self.places: dict[str, Address] = {}

    async def until_quiet(self) -> None:
        """Return when nothing more is taken in."""
        before = -1
        while self.tally.taken != before:
            before = self.tally.taken
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture
async def held() -> AsyncIterator[Held]:
    held = Held()
    held.outlet.start()
    held.places = dict(await held.input.start())
    yield held
    held.lane.go.set()
    await held.input.stop()
    await held.outlet.close(10)


async def test_connections_are_not_read_on_while_too_much_waits_and_nothing_is_lost(held: Held) -> None:
    place = held.places["syslog-tcp"]
    _, writer = await asyncio.open_connection(place.host, place.port)
    lines = [b"<13>%07d " % number + b"x" * 400 for number in range(20_000)]
    writer.write(b"".join(line + b"\n" for line in lines))
    await held.until_quiet()
    assert 0 < held.tally.taken < len(lines)
    # What may wait, and what was read in one go before the connection was stopped.
    assert held.outlet.waiting_bytes < WAITING_BYTES + 1024 * 1024
    held.lane.go.set()
    await writer.drain()
    writer.close()
    await held.lane.has(len(lines))
    assert held.lane.bodies == lines


async def test_datagrams_stay_in_the_kernel_while_too_much_waits(held: Held) -> None:
    place = held.places["syslog-udp"]
    bodies = [b"<13>%07d " % number + b"x" * 400 for number in range(3000)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for start in range(0, len(bodies), 100):
            for body in bodies[start : start + 100]:
                sender.sendto(body, (place.host, place.port))
            await asyncio.sleep(0)
    await held.until_quiet()
    assert 0 < held.tally.taken < len(bodies)
    held.lane.go.set()
    await held.lane.has(len(bodies))
    assert held.lane.bodies == bodies


async def test_what_was_read_before_a_stop_is_sent_by_it(held: Held) -> None:
    place = held.places["syslog-udp"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(1500):
            sender.sendto(b"<13>%07d " % number + b"x" * 400, (place.host, place.port))
    await held.until_quiet()
    taken = held.tally.taken
    await held.input.stop()
    held.lane.go.set()
    assert await held.outlet.close(10) == 0
    assert len(held.lane.bodies) == held.tally.taken >= taken > 0
