"""Two controllers under lost answers, slow networks, clocks that run apart and changes of the leader.

RocketMQ issue 7017: an isolated master acknowledges what the next one lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from replica_set_samples import NAME, heartbeat
from shared_log import LogMember, SharedLog

from millstream.controller.controller import Controller
from millstream.controller.elections import LEASE_S
from millstream.controller.replica_sets import ReplicaSet, ReplicaSets
from millstream.controller.replicated_log import ControllerPeer
from millstream.model.clock import ManualClock
from millstream.model.errors import Refused
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    ElectRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody

NUMBERS = st.sampled_from((1, 2, 3))
REACHED = st.sampled_from(((0, 1), (0,), (1,)))
"""Which controllers hear what replicas send."""
SLOWEST = 1.09
"""How much longer a second of a broker's clock may take than one of the controller's."""

_T = TypeVar("_T")


class LeasedMasters(RuleBasedStateMachine):
    """Three replicas of a set that acknowledges what some of them have, so that a master needs its lease.

    Whenever another one becomes the master nobody believes any more that it has a lease. Each controller hears what
    arrives at it; one that was deposed answers on until it asks the others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.shared = SharedLog()
        self.states = (ReplicaSets(), ReplicaSets())
        self.logs = [LogMember(self.shared, ControllerPeer(f"n{at}", f"h{at}:1"), self.states[at]) for at in (0, 1)]
        self.controllers = [
            Controller(sets, log, clock=self.clock) for sets, log in zip(self.states, self.logs, strict=True)
        ]
        self.at = 0
        self.ends_s = dict.fromkeys((1, 2, 3), 0.0)
        """Until when each replica believes that it has a lease, by the controllers' clock."""
        self.epoch = 0

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """What the work gives; None where it is refused."""
        try:
            return self.loop.run_until_complete(work)
        except Refused:
            return None

    @property
    def now_s(self) -> float:
        return self.clock.monotonic_s()

    @property
    def leader(self) -> Controller:
        return self.controllers[self.at]

    @property
    def found(self) -> ReplicaSet:
        self.logs[self.at].catch_up()
        found = self.states[self.at].find(NAME)
        assert found is not None
        return found

    @initialize()
    def begin(self) -> None:
        self.clock.advance_ms(10_000)
        self.logs[0].take_lead()
        for number in (1, 2, 3):
            self.run(self.leader.apply_id(ApplyIdRequest("c", NAME, number, f"h{number}:10911;{number}")))
            self.run(self.leader.register(self.registration(number)))
            self.leader.beat(heartbeat(number))
        self.run(self.leader.elect(ElectRequest(NAME, "c", 1)))
        self.let_all_in()
        assert self.found.members == (1, 2, 3)

    def registration(self, number: int) -> RegisterReplicaRequest:
        return RegisterReplicaRequest("c", NAME, number, f"h{number}:10911", all_ack="false")

    @rule(
        number=NUMBERS,
        delay_ms=st.sampled_from((0, 100, 500, 1400)),
        heard=st.sets(NUMBERS),
        is_lost=st.booleans(),
        reached=REACHED,
    )
    def beat_late(self, number: int, delay_ms: int, heard: set[int], is_lost: bool, reached: tuple[int, ...]) -> None:
        """A heartbeat arrives that was sent before; the lease counts from when it was sent."""
        sent_s = self.now_s
        self.pass_time(delay_ms, heard - {number}, (0, 1))
        self.arrive(number, sent_s, is_lost, reached)

    def arrive(
        self, number: int, sent_s: float, is_lost: bool, reached: tuple[int, ...], *, is_goodbye: bool = False
    ) -> None:
        told = heartbeat(number, is_goodbye=is_goodbye)
        for controller in (self.controllers[at] for at in reached):
            lease_ms = self.run(controller.renew_lease(told)) if controller.beat(told) else 0
            if lease_ms and not is_lost:
                self.ends_s[number] = max(self.ends_s[number], sent_s + LEASE_S * SLOWEST)

    @rule(amount_ms=st.sampled_from((100, 300, 500, 1000, 1500)), heard=st.sets(NUMBERS, min_size=1), reached=REACHED)
    def pass_time(self, amount_ms: int, heard: set[int], reached: tuple[int, ...]) -> None:
        self.clock.advance_ms(amount_ms)
        for number in heard:
            self.arrive(number, self.now_s, False, reached)
        self.run(self.hold_elections())
        self.let_all_in()

    @rule(master_s=st.sampled_from((0.5, 0.9)), others_s=st.sampled_from((0.5, 0.9)))
    def cut_off_the_master(self, master_s: float, others_s: float) -> None:
        """For four seconds it reaches only the controller that was the leader, as the others reach the new one."""
        former, master = self.at, self.found.master
        self.at = 1 - former
        self.logs[self.at].take_lead()
        begin_s, sent = self.now_s, dict.fromkeys((1, 2, 3), 0.0)
        while self.now_s < begin_s + 4 and self.found.master == master:
            self.clock.advance_ms(100)
            for number in (1, 2, 3):
                every_s = master_s if number == master else others_s
                if self.now_s - max(sent[number], begin_s) >= every_s:
                    sent[number] = self.now_s
                    self.arrive(number, self.now_s, False, (former if number == master else self.at,))
            self.run(self.hold_elections_at(self.leader))
            self.nobody_else_has_a_lease_when_a_master_is_elected()

    async def hold_elections(self) -> None:
        for controller in self.controllers:
            await self.hold_elections_at(controller)

    async def hold_elections_at(self, controller: Controller) -> None:
        controller.tick()
        await asyncio.gather(*controller._electing.values())

    @rule(number=NUMBERS)
    def lose_connection(self, number: int) -> None:
        for controller in self.controllers:
            self.run(controller.note_closed(NAME, number))
        self.run(self.hold_elections())

    @rule(number=NUMBERS)
    def say_goodbye(self, number: int) -> None:
        self.ends_s[number] = 0.0
        self.arrive(number, self.now_s, True, (0, 1), is_goodbye=True)

    @rule(number=NUMBERS)
    def start_again(self, number: int) -> None:
        self.ends_s[number] = 0.0
        self.run(self.leader.register(self.registration(number)))

    @rule(number=NUMBERS, at=st.sampled_from((0, 1)))
    def ask_for_a_master(self, number: int, at: int) -> None:
        self.run(self.controllers[at].elect(ElectRequest(NAME, "c", number)))

    @rule(at=st.sampled_from((0, 1)))
    def change_leader(self, at: int) -> None:
        """The other one does not know until it asks."""
        self.at = at
        self.logs[at].take_lead()
        self.run(self.hold_elections())

    @rule(fate=st.sampled_from(("lost", "unanswered")))
    def fail_a_proposal(self, fate: str) -> None:
        self.shared.fates.append(fate)

    @rule()
    def follow(self) -> None:
        self.logs[1 - self.at].catch_up()

    def let_all_in(self) -> None:
        """The master has all living replicas in its set, so that one of them can follow it."""
        found = self.found
        if found.master is None:
            return
        living = {number for number in (1, 2, 3) if self.leader.lives(NAME, number)}
        asked = AlterSetRequest(NAME, found.master, found.master_epoch)
        self.run(self.leader.alter(asked, SyncStateSetBody([*living], found.set_epoch)))

    @invariant()
    def nobody_else_has_a_lease_when_a_master_is_elected(self) -> None:
        if not self.shared.entries or self.found.master_epoch == self.epoch:
            return
        found = self.found
        self.epoch = found.master_epoch
        if found.master is not None:
            others = {number: end_s for number, end_s in self.ends_s.items() if number != found.master}
            assert max(others.values()) <= self.now_s, (found, self.ends_s, self.now_s)

    @invariant()
    def controllers_that_applied_all_agree(self) -> None:
        for log in self.logs:
            log.catch_up()
        assert self.states[0].encode() == self.states[1].encode()


TestLeasedMasters = LeasedMasters.TestCase
TestLeasedMasters.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
