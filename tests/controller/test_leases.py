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

    @rule(number=NUMBERS, delay_ms=st.sampled_from((0, 100, 500, 1400)), heard=st.sets(NUMBERS), is_lost=st.booleans())
    def beat_late(self, number: int, delay_ms: int, heard: set[int], is_lost: bool) -> None:
        """A heartbeat arrives that was sent before; the lease counts from when it was sent."""
        sent_s = self.now_s
        self.pass_time(delay_ms, heard - {number})
        self.arrive(number, sent_s, is_lost)

    def arrive(self, number: int, sent_s: float, is_lost: bool, *, is_goodbye: bool = False) -> None:
        """A heartbeat reaches both controllers."""
        told = heartbeat(number, is_goodbye=is_goodbye)
        for controller in self.controllers:
            lease_ms = self.run(controller.renew_lease(told)) if controller.beat(told) else 0
            if lease_ms and not is_lost:
                self.ends_s[number] = max(self.ends_s[number], sent_s + LEASE_S * SLOWEST)

    @rule(amount_ms=st.sampled_from((100, 300, 500, 1000, 1500)), heard=st.sets(NUMBERS, min_size=1))
    def pass_time(self, amount_ms: int, heard: set[int]) -> None:
        self.clock.advance_ms(amount_ms)
        for number in heard:
            self.arrive(number, self.now_s, False)
        self.run(self.hold_elections())
        self.let_all_in()

    async def hold_elections(self) -> None:
        for controller in self.controllers:
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
        self.arrive(number, self.now_s, True, is_goodbye=True)

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
