"""S14: the wall clock of a running server is put forward and back by up to an hour, and while it is down."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from crash.programme import ProgrammeRun, scratch_directory
from crash.stepped_server import SteppedWall
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PoppedMessage, PopRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.proxy.remote.backend import RemoteBackend
from millstream.server.child import ServerProcess
from millstream.store.message_store import MessageStore

__all__ = ["step_the_clock"]

HOUR_MS: Final = 3_600_000
HELD_MS: Final = 3_000
LATE_S: Final = 5.0
"""Seconds after its time within which a message that was not acknowledged comes again."""

_PLAIN, _LATER, _GROUP, _BROKER = "plain", "later", "readers", "broker-a"
_MESSAGES = 20
_STEPPED = re.compile(r"MS-1065")


def step_the_clock(run: ProgrammeRun) -> None:
    """S14. 2 rounds of a step (ci), 20 (full), 1,000 (soak); every other one with a restart under a changed clock."""
    rounds = run.by_size(2, 20, 1_000)
    with scratch_directory(on_disk=True) as root:
        wall = SteppedWall(root / "clock")
        for number in range(rounds):
            server = ServerProcess(
                root / "data",
                log=root / "server.log",
                through=(sys.executable, "-m", "crash.stepped_server", str(wall.file)),
            )
            with server:
                asyncio.run(_Round(run, wall, number).go(server.addresses.nameserver))
            if number % 2:
                # Only back: after a step forward while nobody looks all invisible times are over.
                wall.ahead_ms -= HOUR_MS
                run.count("steps_while_down")
        log = (root / "server.log").read_text(errors="replace")
        if len(_STEPPED.findall(log)) < run.counts.get("steps", 0):
            run.fail("the log does not name each step of the clock")
        if "Traceback" in log:
            run.fail(f"the server's log has: {log[log.index('Traceback') :][:2000]}")
        _look_at_the_log(run, root)
        if run.failures:
            run.fail("the data and the log of this run", root)


class _Round:
    """The clients of one life of the server."""

    def __init__(self, run: ProgrammeRun, wall: SteppedWall, number: int) -> None:
        self._run = run
        self._wall = wall
        self._number = number
        self._acknowledged: set[str] = set()
        self._backend: RemoteBackend

    async def go(self, nameserver: str) -> None:
        await asyncio.to_thread(_create_topics, nameserver)
        self._backend = RemoteBackend(nameserver)
        await self._backend.start()
        try:
            await self._held_over_a_step()
            await self._delayed_over_steps()
        finally:
            await self._backend.close()

    def _step(self, amount_ms: int) -> None:
        self._wall.ahead_ms += amount_ms
        self._run.count("steps")

    async def _held_over_a_step(self) -> None:
        """What is popped stays away for its time, comes again after it, and old handles acknowledge."""
        names = [f"plain-{self._number}-{number}" for number in range(_MESSAGES)]
        await self._send(_PLAIN, names)
        popped: list[PoppedMessage] = []
        await self._until(lambda: len(popped) >= _MESSAGES, lambda: self._pop_into(_PLAIN, popped, HELD_MS))
        popped_s = time.monotonic()
        self._step(self._run.random.choice((-1, 1)) * self._run.random.randrange(HOUR_MS // 2, HOUR_MS))
        again: list[PoppedMessage] = []
        for message in popped[::2]:
            await self._ack(_PLAIN, message)
        while time.monotonic() - popped_s < HELD_MS / 1000 - 1.0:
            await self._pop_into(_PLAIN, again, HELD_MS)
            await asyncio.sleep(0.1)
        if again:
            self._run.fail(f"{len(again)} messages came again before their invisible time was over")
        wanted = len(popped[1::2])
        await self._until(lambda: len(again) >= wanted, lambda: self._pop_into(_PLAIN, again, 60_000))
        for message in again:
            await self._ack(_PLAIN, message)
        if time.monotonic() - popped_s > HELD_MS / 1000 + LATE_S:
            self._run.fail(f"what was not acknowledged came again {time.monotonic() - popped_s:.1f} s after its pop")

    async def _delayed_over_steps(self) -> None:
        """Delayed messages are due by the wall clock, and each comes once."""
        far = [f"far-{self._number}-{number}" for number in range(_MESSAGES)]
        near = [f"near-{self._number}-{number}" for number in range(_MESSAGES)]
        await self._send(_LATER, far, delay_ms=HOUR_MS // 2)
        came: list[PoppedMessage] = []
        await asyncio.sleep(0.5)
        await self._pop_into(_LATER, came, 60_000)
        if came:
            self._run.fail(f"{len(came)} delayed messages came before they were due")
        self._step(HOUR_MS)
        await self._until(lambda: len(came) >= _MESSAGES, lambda: self._pop_into(_LATER, came, 60_000))
        self._step(-HOUR_MS)
        await self._send(_LATER, near, delay_ms=1_000)
        await self._until(lambda: len(came) >= 2 * _MESSAGES, lambda: self._pop_into(_LATER, came, 60_000))
        self._step(HOUR_MS)
        await asyncio.sleep(0.3)
        await self._pop_into(_LATER, came, 60_000)
        self._step(-HOUR_MS)
        for message in came:
            await self._ack(_LATER, message)
        bodies = Counter(message.message.body.decode() for message in came)
        if bodies != Counter(far + near):
            self._run.fail(f"delayed messages came as {(bodies - Counter(far + near)) or 'not all'}, each was due once")

    async def _send(self, topic: str, names: list[str], *, delay_ms: int = 0) -> None:
        properties = {"TIMER_DELAY_MS": str(delay_ms)} if delay_ms else {}
        messages = [
            OutgoingMessage(topic, name.encode(), {"UNIQ_KEY": name, **properties}, queue_id=0) for name in names
        ]
        await self._backend.send(messages)
        self._run.count("acknowledged", len(names))

    async def _pop_into(self, topic: str, found: list[PoppedMessage], invisible_ms: int) -> None:
        taken = await self._backend.pop(_BROKER, PopRequest(_GROUP, topic, invisible_ms, queue_id=0))
        for message in taken:
            name = message.message.body.decode()
            if name in self._acknowledged:
                self._run.fail(f"{name} came again after it was acknowledged")
        found += taken

    async def _ack(self, topic: str, popped: PoppedMessage) -> None:
        try:
            await self._backend.ack(AckRequest(_GROUP, topic, popped.handle))
        except MillstreamError as error:
            self._run.fail(f"an acknowledgement was refused: {error}")
        self._acknowledged.add(popped.message.body.decode())

    async def _until(self, is_done: Callable[[], bool], act: Callable[[], Awaitable[None]]) -> None:
        deadline_s = time.monotonic() + 20
        while not is_done():
            await act()
            if time.monotonic() > deadline_s:
                self._run.fail(f"round {self._number}: messages did not come within 20 s")
                return
            await asyncio.sleep(0.05)


def _create_topics(nameserver: str) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(_PLAIN, read_queues=1, write_queues=1))
        client.create_topic(TopicConfig(_LATER, MessageType.DELAY, read_queues=1, write_queues=1))


def _look_at_the_log(run: ProgrammeRun, root: Path) -> None:
    """Store timestamps never fall, in any queue."""
    store = MessageStore.open(root / "data" / "store")
    for topic in (_PLAIN, _LATER):
        entries = store.entries(topic, 0, 0, 1_000_000)
        times = [decode_record(store.read(entry)).store_timestamp_ms for entry in entries]
        run.count("stored", len(times))
        if times != sorted(times):
            run.fail(f"the store timestamps of {topic} fall")
    store.close()
