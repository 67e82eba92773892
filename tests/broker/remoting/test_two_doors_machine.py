"""One group pops over remoting and directly, in any order of pops, acknowledgements, changes and passing time.

The model keeps for each message until when it is held and by which handle. Nothing that is held is delivered again,
nothing that is consumed comes back, and all else does.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from broker_bench import MEMORY, Bench, open_bench
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pop_client import Taken, changed, delivery_fields, pop_fields, taken_of

from example_counts import scaled
from millstream.broker.remoting.popping import PopHandlers
from millstream.model.errors import ConsumeRefused
from millstream.model.group import GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.operations import AckRequest, ChangeInvisibleRequest
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection

T = TypeVar("T")

NOBODY = cast("Connection", None)
DOORS = st.sampled_from(["remoting", "broker"])


@dataclass
class Held:
    taken: Taken
    until_ms: int


class TwoDoorsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=MEMORY))
        self.loop = asyncio.new_event_loop()
        self.waiting: set[str] = set()
        self.held: dict[str, Held] = {}
        self.dead: list[Taken] = []
        self.sent = 0

    @initialize(fifo=st.booleans())
    def start(self, fifo: bool) -> None:
        self.opened = open_bench(self.scratch)
        self.bench: Bench = self._run(self.opened.__aenter__())
        self.bench.broker.groups.create(GroupConfig("g", fifo=fifo, max_attempts=1000))
        self.pops = PopHandlers(self.bench.broker)
        self.fifo = fifo

    def _run(self, work: Awaitable[T]) -> T:
        async def whole() -> T:
            return await work

        return self.loop.run_until_complete(whole())

    @property
    def now_ms(self) -> int:
        return self.bench.clock.now_ms()

    @property
    def bodies(self) -> list[str]:
        return sorted(self.held)

    @rule(count=st.integers(1, 5), queue_id=st.integers(0, 1))
    def send(self, count: int, queue_id: int) -> None:
        bodies = [str(self.sent + number) for number in range(count)]
        self.sent += count
        self._run(self.bench.send(*bodies, queue_id=queue_id))
        self.waiting.update(bodies)

    @rule(door=DOORS, count=st.integers(1, 8), invisible_ms=st.integers(1, 500))
    def pop(self, door: str, count: int, invisible_ms: int) -> None:
        if door == "broker":
            popped = self._run(self.bench.pop(max_messages=count, invisible_ms=invisible_ms))
            taken = [
                Taken(
                    each.message.body.decode(), each.handle.encode(), each.handle.queue_id, each.handle.queue_offset,
                    each.delivery_attempt - 1,
                )
                for each in popped
            ]  # fmt: skip
        else:
            fields = pop_fields(maxMsgNums=str(count), invisibleTime=str(invisible_ms))
            answer = self._run(self.pops.pop(RemotingCommand(RequestCode.POP_MESSAGE, fields), NOBODY))
            taken = taken_of(answer)
        over = {body for body, held in self.held.items() if held.until_ms <= self.now_ms}
        assert len({each.body for each in taken}) == len(taken)
        assert {each.body for each in taken} <= self.waiting | over
        if not self.fifo:
            assert len(taken) == min(count, len(self.waiting | over))
        for each in taken:
            self._forget_handle(each.body)
            self.waiting.discard(each.body)
            self.held[each.body] = Held(each, self.now_ms + invisible_ms)

    def _forget_handle(self, body: str) -> None:
        if body in self.held:
            self.dead.append(self.held[body].taken)

    def _ack(self, door: str, taken: Taken) -> bool:
        if door == "remoting":
            fields = delivery_fields(taken)
            code = self.pops.ack(RemotingCommand(RequestCode.ACK_MESSAGE, fields), NOBODY).code
            assert code in (ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE)
            return code == ResponseCode.SUCCESS
        try:
            self.bench.broker.delivery.ack(AckRequest("g", "t", ReceiptHandle.decode(taken.extra_info)))
        except ConsumeRefused:
            return False
        return True

    @precondition(lambda self: self.held)
    @rule(door=DOORS, data=st.data())
    def ack(self, door: str, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(self.bodies))
        assert self._ack(door, self.held.pop(body).taken)

    @precondition(lambda self: self.dead)
    @rule(door=DOORS, data=st.data())
    def ack_with_a_dead_handle(self, door: str, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.dead))
        is_consumed = taken.body not in self.held and taken.body not in self.waiting
        assert self._ack(door, taken) is is_consumed

    @precondition(lambda self: self.held)
    @rule(door=DOORS, data=st.data(), invisible_ms=st.integers(0, 500))
    def change(self, door: str, data: st.DataObject, invisible_ms: int) -> None:
        body = data.draw(st.sampled_from(self.bodies))
        taken = self.held[body].taken
        self._forget_handle(body)
        if door == "remoting":
            fields = delivery_fields(taken, invisibleTime=str(invisible_ms))
            answer = self.pops.change(RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME, fields), NOBODY)
            assert answer.code == ResponseCode.SUCCESS
            taken = changed(taken, answer)
        else:
            request = ChangeInvisibleRequest("g", "t", ReceiptHandle.decode(taken.extra_info), invisible_ms)
            text = self.bench.broker.delivery.change_invisible(request).encode()
            taken = Taken(body, text, taken.queue_id, taken.offset, taken.reconsume_times)
        self.held[body] = Held(taken, self.now_ms + invisible_ms)

    @rule(passed_ms=st.integers(1, 400))
    def wait(self, passed_ms: int) -> None:
        self.bench.clock.advance_ms(passed_ms)

    @invariant()
    def nothing_consumed_counts_as_in_flight(self) -> None:
        if self.sent:
            progress = self.bench.broker.queues.own_progress("g", "t")
            assert sum(each.lag for each in progress) == len(self.waiting) + len(self.held)

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self._run(self.opened.__aexit__(None, None, None))
        self.loop.close()
        shutil.rmtree(self.scratch)


TestTwoDoors = TwoDoorsMachine.TestCase
TestTwoDoors.settings = settings(
    max_examples=scaled(30), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
