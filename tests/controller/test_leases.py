"""Leases under lost answers, slow networks, clocks that run apart and changes of the leader (RocketMQ issue 7017)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from replica_set_samples import NAME, LoneController

from millstream.controller.controller import Controller
from millstream.controller.elections import LEASE_S
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ElectRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody

NUMBERS = st.sampled_from((1, 2, 3))
SLOWEST = 1.09
"""How much longer a second of a broker's clock may take than one of the controller's."""

_T = TypeVar("_T")


class LeasedMasters(RuleBasedStateMachine):
    """Three replicas of a set that acknowledges what some of them have, so that a master needs its lease.

    Whenever another one becomes the master nobody believes any more that it has a lease.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.lone = LoneController()
        self.ends_s = dict.fromkeys((1, 2, 3), 0.0)
        """Until when each replica believes that it has a lease, by the controller's clock."""
        self.epoch = 0

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(work)

    @property
    def now_s(self) -> float:
        return self.lone.clock.monotonic_s()

    @initialize()
    def begin(self) -> None:
        self.lone.clock.advance_ms(10_000)
        for number in (1, 2, 3):
            self.run(self.lone.add(number, all_ack="false"))
        self.run(self.lone.controller.elect(ElectRequest(NAME, "c", 1)))
        self.run(self.lone.controller.alter(AlterSetRequest(NAME, 1, 1), SyncStateSetBody([1, 2, 3], 1)))

    @rule(number=NUMBERS, delay_ms=st.sampled_from((0, 100, 500, 1400)), heard=st.sets(NUMBERS), is_lost=st.booleans())
    def beat_late(self, number: int, delay_ms: int, heard: set[int], is_lost: bool) -> None:
        """A heartbeat arrives that was sent before; the lease counts from when it was sent."""
        sent_s = self.now_s
        self.pass_time(delay_ms, heard - {number})
        self.arrive(number, sent_s, is_lost)

    def arrive(self, number: int, sent_s: float, is_lost: bool) -> None:
        if self.run(self.lone.beat(number)) and not is_lost:
            self.ends_s[number] = max(self.ends_s[number], sent_s + LEASE_S * SLOWEST)

    @rule(amount_ms=st.sampled_from((100, 300, 500, 1000, 1500)), heard=st.sets(NUMBERS, min_size=1))
    def pass_time(self, amount_ms: int, heard: set[int]) -> None:
        self.lone.clock.advance_ms(amount_ms)
        for number in heard:
            self.arrive(number, self.now_s, False)
        self.run(self.hold_elections())
        self.let_all_in()

    async def hold_elections(self) -> None:
        self.lone.controller.tick()
        await asyncio.gather(*self.lone.controller._electing.values())

    @rule(number=NUMBERS)
    def lose_connection(self, number: int) -> None:
        self.lone.closed.add(f"h{number}:10911")
        self.run(self.lone.controller.note_closed(NAME, number))
        self.lone.closed.clear()
        self.run(self.hold_elections())

    @rule(number=NUMBERS)
    def say_goodbye(self, number: int) -> None:
        self.ends_s[number] = 0.0
        self.run(self.lone.beat(number, is_goodbye=True))

    @rule(number=NUMBERS)
    def start_again(self, number: int) -> None:
        self.ends_s[number] = 0.0
        asked = RegisterReplicaRequest("c", NAME, number, f"h{number}:10911", all_ack="false")
        self.run(self.lone.controller.register(asked))

    @rule(number=NUMBERS)
    def ask_for_a_master(self, number: int) -> None:
        with suppress(NameRefused):
            self.run(self.lone.controller.elect(ElectRequest(NAME, "c", number)))

    @rule()
    def change_leader(self) -> None:
        """Another controller leads: it has the sets, and heard nobody."""
        lone = self.lone
        lone.controller = Controller(lone.sets, lone.log, lone.options, lone.clock, reach=lone.controller.reach)
        self.run(self.hold_elections())

    def let_all_in(self) -> None:
        """The master has all living replicas in its set, so that one of them can follow it."""
        found = self.lone.sets.find(NAME)
        if found is None or found.master is None:
            return
        living = {number for number in (1, 2, 3) if self.lone.controller.lives(NAME, number)}
        asked = AlterSetRequest(NAME, found.master, found.master_epoch)
        with suppress(NameRefused):
            self.run(self.lone.controller.alter(asked, SyncStateSetBody([*living], found.set_epoch)))

    @invariant()
    def nobody_else_has_a_lease_when_a_master_is_elected(self) -> None:
        found = self.lone.sets.find(NAME)
        if found is None or found.master_epoch == self.epoch:
            return
        self.epoch = found.master_epoch
        if found.master is not None:
            others = {number: end_s for number, end_s in self.ends_s.items() if number != found.master}
            assert max(others.values()) <= self.now_s, (found, self.ends_s, self.now_s)


TestLeasedMasters = LeasedMasters.TestCase
TestLeasedMasters.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
