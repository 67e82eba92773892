"""Messages given back by pulling consumers and then popped, against a model that keeps where each one is.

Whatever comes between: each of them is delivered with the right number, at its time, and to its own topic's consumers;
and in the end it is acknowledged, a dead letter, or still with the consumer that pulled it, each of them once.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from broker_bench import MEMORY, Bench, running
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from example_counts import scaled
from millstream.broker.delivery.timers import Timers
from millstream.model.clock import ManualClock
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PoppedMessage, PullRequest, SendBackRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record

T = TypeVar("T")

MAX_ATTEMPTS = 3
INVISIBLE_MS = 20_000
TOPICS = ("t", "u")
DELAYS_MS = {0: 10_000, 1: 1_000, 2: 5_000}


@dataclass
class Held:
    """One message: `pulled`, `waiting` until `until_ms`, `there` (out of sight until then), `acknowledged`, `dead`."""

    topic: str
    log_offset: int
    state: str = "pulled"
    deliveries: int = 1
    until_ms: int = 0
    popped: PoppedMessage | None = None


class RetriesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=MEMORY))
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.messages: dict[str, Held] = {}
        self.opened = AsyncExitStack()
        self._run(self._open())
        self.bench.broker.groups.create(GroupConfig("g", max_attempts=MAX_ATTEMPTS))
        for topic in TOPICS:
            self.bench.broker.topics.create(TopicConfig(topic))

    def _run(self, work: Awaitable[T]) -> T:
        async def whole() -> T:
            return await work

        return self.loop.run_until_complete(whole())

    async def _open(self) -> None:
        broker = await self.opened.enter_async_context(running(self.scratch / "data", clock=self.clock))
        self.bench = Bench(broker, self.clock)
        # Its rounds are run by the rules alone.
        await self.timers._task.close()

    @property
    def timers(self) -> Timers:
        return self.bench.broker.maintenance.timers

    def _in(self, state: str) -> list[str]:
        return [name for name, held in self.messages.items() if held.state == state]

    @rule(topic=st.sampled_from(TOPICS))
    def send_and_pull(self, topic: str) -> None:
        name = f"m{len(self.messages)}"
        [receipt] = self._run(self.bench.send(name, topic=topic, UNIQ_KEY=name))
        self.bench.broker.queues.commit("g", topic, 0, receipt.queue_offset + 1)
        self.messages[name] = Held(topic, receipt.log_offset)

    @precondition(lambda self: self._in("pulled"))
    @rule(data=st.data(), level=st.sampled_from([-1, *DELAYS_MS]), limit=st.sampled_from([None, 0, 9]))
    def give_back(self, data: st.DataObject, level: int, limit: int | None) -> None:
        held = self.messages[data.draw(st.sampled_from(self._in("pulled")))]
        request = SendBackRequest("g", held.log_offset, level, "", limit, topics=(held.topic,))
        self._run(self.bench.broker.delivery.send_back(request))
        held.state = "dead" if level < 0 or limit == 0 else "waiting"
        held.until_ms = self.clock.now_ms() + DELAYS_MS.get(level, 0)

    @precondition(lambda self: self._in("pulled"))
    @rule(data=st.data(), times=st.integers(1, MAX_ATTEMPTS), level=st.sampled_from([1, 2]))
    def send_copy(self, data: st.DataObject, times: int, level: int) -> None:
        name = data.draw(st.sampled_from(self._in("pulled")))
        held = self.messages[name]
        properties = {"RETRY_TOPIC": held.topic, "UNIQ_KEY": name, "DELAY": str(level)}
        copy = OutgoingMessage("%RETRY%g", name.encode(), properties, queue_id=0, reconsume_times=times)
        self._run(self.bench.broker.delivery.send_retry(copy, None))
        held.state = "dead" if times >= MAX_ATTEMPTS else "waiting"
        held.deliveries = times
        held.until_ms = self.clock.now_ms() + DELAYS_MS[level]

    @rule(wait_ms=st.sampled_from([0, 1_000, 4_000, 10_000, INVISIBLE_MS]))
    def pass_time(self, wait_ms: int) -> None:
        self.clock.advance_ms(wait_ms)
        while self._run(self.timers._round()):
            pass
        for held in self.messages.values():
            if held.state == "waiting" and held.until_ms <= self.clock.now_ms():
                held.state = "there"

    @rule(topic=st.sampled_from(TOPICS), count=st.sampled_from([1, 32]))
    def pop(self, topic: str, count: int) -> None:
        now_ms = self.clock.now_ms()
        visible = {name for name in self._in("there") if self.messages[name].until_ms <= now_ms}
        visible = {name for name in visible if self.messages[name].topic == topic}
        popped = self._run(self.bench.pop(topic=topic, max_messages=count, invisible_ms=INVISIBLE_MS))
        buried = {name for name in self._dead_letters() if self.messages[name].state != "dead"}
        for name in buried:
            assert self.messages[name].deliveries == MAX_ATTEMPTS
            self.messages[name].state = "dead"
        for one in popped:
            held = self.messages[one.message.body.decode()]
            assert (one.message.topic, one.delivery_attempt) == (topic, held.deliveries + 1)
            held.deliveries, held.until_ms, held.popped = one.delivery_attempt, now_ms + INVISIBLE_MS, one
        taken = {one.message.body.decode() for one in popped}
        assert len(taken) == len(popped)
        assert taken | buried <= visible
        assert len(taken | buried) >= min(count, len(visible))

    @precondition(lambda self: any(held.popped for held in self.messages.values()))
    @rule(data=st.data(), acknowledges=st.booleans())
    def answer(self, data: st.DataObject, acknowledges: bool) -> None:
        name = data.draw(st.sampled_from([name for name, held in self.messages.items() if held.popped]))
        held = self.messages[name]
        if held.state != "there":
            return
        assert held.popped is not None
        if acknowledges:
            self.bench.broker.delivery.ack(AckRequest("g", held.topic, held.popped.handle))
            held.state, held.popped = "acknowledged", None
        else:
            self._run(self.bench.broker.delivery.move_to_dead_letter(AckRequest("g", held.topic, held.popped.handle)))
            held.state, held.popped = "dead", None

    @rule()
    def restart(self) -> None:
        self._run(self.opened.aclose())
        self.opened = AsyncExitStack()
        self._run(self._open())

    def _dead_letters(self) -> list[str]:
        if self.bench.broker.topics.find("%DLQ%g") is None:
            return []
        found = self._run(self.bench.broker.queues.pull(PullRequest("x", "%DLQ%g", 0, 0, max_messages=1000))).records
        return [decode_record(record).body.decode() for record in found]

    def teardown(self) -> None:
        try:
            for _ in range(MAX_ATTEMPTS + 1):
                self.pass_time(INVISIBLE_MS)
                for topic in TOPICS:
                    self.pop(topic, 32)
            assert not self._in("waiting")
            assert not self._in("there")
            assert sorted(self._dead_letters()) == sorted(self._in("dead"))
        finally:
            self._run(self.opened.aclose())
            self.loop.close()
            shutil.rmtree(self.scratch)


TestRetries = RetriesMachine.TestCase
TestRetries.settings = settings(
    max_examples=scaled(40), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
