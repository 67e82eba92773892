"""A nameserver in the simulated cluster: all brokers register, clients ask for routes, and it starts again empty."""

from __future__ import annotations

import gc
import heapq
import random
import time
from dataclasses import dataclass, field

from benchmarks.large_cluster.layout import Layout, Member, topic_name
from benchmarks.large_cluster.port import Line, Port, frame_of, resident_bytes
from millstream.broker.registrar import RETRY_S, refused_pause_s
from millstream.cluster.nameserver import RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import ManualClock
from millstream.protocol.remoting.administration.registration import MAX_COMPRESSION, MAX_REGISTRATION_BYTES
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.heavy_work import HEAVY_BYTES, MAX_HEAVY_BYTES

__all__ = ["SimulatedNameserver", "measure_registrations", "measure_restart"]

_MIB = 2**20
_REGISTRATION_S = 30
_WHOLE_S = 300
_ANSWER_S = 3.0
"""Seconds after which a broker gives up its registration and tries again, as `Registrar` does."""

_POLL_S = 30
_SEED = 7
_SAMPLE = 2_000
"""Routes that are asked for to know what one costs."""

Figures = dict[str, object]


class SimulatedNameserver:
    """The product's registry and handlers, and one connection for each broker."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.clock = ManualClock()
        self.registry = RouteRegistry()
        self.port = Port(nameserver_handlers(self.registry, clock=self.clock))
        self._lines: dict[Member, Line] = {}
        self._client = Line("10.9.9.9")
        self._asked = 0

    async def register(self, member: Member, frame: bytes) -> RemotingCommand:
        """A broker sends a registration over its connection."""
        line = self._lines.get(member)
        if line is None:
            line = self._lines[member] = Line(member.address.partition(":")[0])
        answer = await self.port.serve(frame, line)
        assert answer is not None
        return answer

    async def register_all(self) -> None:
        """All brokers tell all their topics, one after another."""
        frames = _WholeRegistrations(self.layout)
        for member in self.layout.members():
            answer = await self.register(member, frames.of(member))
            assert answer.code == ResponseCode.SUCCESS, answer

    async def ask_routes(self, count: int) -> int:
        """Ask for so many routes, over all topics by turns; how many were there."""
        step = max(self.layout.topics // count, 1)
        found = 0
        for _ in range(count):
            self._asked = (self._asked + step) % self.layout.topics
            fields = {"topic": topic_name(self._asked), "acceptStandardJsonOnly": "true"}
            frame = frame_of(RemotingCommand(RequestCode.GET_ROUTE_BY_TOPIC, fields))
            answer = await self.port.serve(frame, self._client)
            found += answer is not None and answer.code == ResponseCode.SUCCESS
        return found

    async def replace_rack(self) -> Figures:
        """The connections of a rack of masters close, and their second replicas register as masters of a later epoch.

        What that costs, and how many routes that proxies and clients keep name one of these sets.
        """
        layout = self.layout
        began_s = time.process_time()
        for number in range(layout.rack):
            self._lines.pop(Member(number, 1)).close()
        closing_s = time.process_time() - began_s
        for number in range(layout.rack):
            topics, successor = layout.topics_of(number), Member(number, 2)
            told = layout.identity(successor, master=2, epoch=2).registration(topics, whole=True)
            answer = await self.register(successor, frame_of(told))
            assert answer.code == ResponseCode.SUCCESS, answer
        registered = self.port.take_figures()
        affected = layout.routes_a_second * _POLL_S * layout.rack / layout.sets
        members = [self.registry.members(Member(number, 1).name) for number in range(layout.rack)]
        return {
            "closing_cpu_s": round(closing_s, 3),
            "registrations": registered,
            "routes_that_change_for_somebody": round(affected),
            "sets_with_a_new_master": sum(0 in one and len(one) == layout.replicas - 1 for one in members),
        }


class _WholeRegistrations:
    """The registrations that tell everything; sets of one cluster have equal topics, so each is packed once a set."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._frames: dict[Member, bytes] = {}

    def of(self, member: Member) -> bytes:
        frame = self._frames.get(member)
        if frame is None:
            topics = self._layout.topics_of(member.set_number)
            command = self._layout.identity(member).registration(topics, whole=True)
            frame = self._frames[member] = frame_of(command)
        return frame


async def measure_registrations(layout: Layout) -> Figures:
    """All brokers register at one nameserver; then what 30 s cost in which nothing changes."""
    nameserver = SimulatedNameserver(layout)
    gc.collect()
    before_bytes = resident_bytes()
    await nameserver.register_all()
    gc.collect()
    held_bytes = resident_bytes() - before_bytes
    first = nameserver.port.take_figures()
    for member in layout.members():
        frame = frame_of(layout.identity(member).registration((), whole=False))
        assert (await nameserver.register(member, frame)).code == ResponseCode.SUCCESS
    repeated = nameserver.port.take_figures()
    asked = min(_SAMPLE, layout.topics)
    assert await nameserver.ask_routes(asked) == asked
    routes = nameserver.port.take_figures()
    core = {
        "registrations": repeated["cpu_s"] / _REGISTRATION_S + first["cpu_s"] / _WHOLE_S,
        "routes": layout.routes_a_second * routes["cpu_us_a_request"] / 1e6,
    }
    return {
        "memory_mib": round(held_bytes / _MIB, 1),
        "first": first,
        "nothing_changed": repeated,
        "routes": routes,
        "routes_a_second": round(layout.routes_a_second),
        "routes_mib_a_second": round(layout.routes_a_second * routes["sent_mib"] / asked, 1),
        "share_of_a_core": {name: round(share, 4) for name, share in core.items()},
        "rack": await nameserver.replace_rack(),
        "topics": len(nameserver.registry.topics()),
        "brokers": len(nameserver.registry.cluster_info().broker_addr_table),
    }


@dataclass(order=True, slots=True)
class _Attempt:
    """A broker sends its registration, at a second of the simulated time."""

    sent_s: float
    number: int
    member: Member = field(compare=False)
    refusals: int = field(default=0, compare=False)


@dataclass(slots=True)
class _Waiting:
    """What one core has taken and not finished, when it will have, and what heavy registrations it may hold."""

    share: float
    """Of the core that is left for registrations, beside the routes that clients ask for."""
    free_s: float = 0.0
    ends_s: list[float] = field(default_factory=list)

    def admits(self, now_s: float, body_bytes: int) -> bool:
        """Whether another compressed registration is taken."""
        self.ends_s = [end_s for end_s in self.ends_s if end_s > now_s]
        return len(self.ends_s) < MAX_HEAVY_BYTES // min(MAX_REGISTRATION_BYTES, body_bytes * MAX_COMPRESSION)

    def take(self, now_s: float, cpu_s: float, *, is_heavy: bool) -> float:
        """When a request is answered that comes now."""
        self.free_s = max(self.free_s, now_s) + cpu_s / self.share
        if is_heavy:
            self.ends_s.append(self.free_s)
        return self.free_s


async def measure_restart(layout: Layout, *, route_cpu_us: float) -> Figures:
    """A nameserver starts empty: all brokers connect within a second while clients ask for routes as before.

    Handling is real and its processor time is measured; the queue before the one core is simulated with it, as are the
    brokers' waits for answers and between attempts. `route_cpu_us` is what a route costs.
    """
    nameserver, frames = SimulatedNameserver(layout), _WholeRegistrations(layout)
    left = 1 - layout.routes_a_second * route_cpu_us / 1e6
    core = _Waiting(max(left, 0.05))
    members = list(layout.members())
    chance = random.Random(_SEED)
    chance.shuffle(members)
    due = [_Attempt(number / len(members), number, member) for number, member in enumerate(members)]
    heapq.heapify(due)
    figures = {"attempts": 0, "refused": 0, "timed_out": 0}
    known_s, settled_s, max_wait_s = 0.0, 0.0, 0.0
    known: set[Member] = set()
    while due:
        attempt = heapq.heappop(due)
        now_s, member, frame = attempt.sent_s, attempt.member, frames.of(attempt.member)
        figures["attempts"] += 1
        if figures["attempts"] > 20 * len(members):
            return {**figures, "brokers_known": len(known), "seconds": None}
        needs_topics = nameserver.registry.needs_topics(member.name, member.id if member.id > 1 else 0, member.address)
        is_heavy = needs_topics and (len(frame) > HEAVY_BYTES or layout.topics_per_set > 100)
        if is_heavy and not core.admits(now_s, len(frame)):
            figures["refused"] += 1
            attempt.refusals += 1
            attempt.sent_s = now_s + refused_pause_s(attempt.refusals, chance.random, is_busy=True)
            heapq.heappush(due, attempt)
            continue
        answer = await nameserver.register(member, frame)
        assert answer.code == ResponseCode.SUCCESS, answer
        ends_s = core.take(now_s, nameserver.port.last_cpu_s, is_heavy=is_heavy)
        known.add(member)
        max_wait_s = max(max_wait_s, ends_s - now_s)
        if len(known) == len(members) and not known_s:
            known_s = ends_s
        if ends_s - now_s > _ANSWER_S:
            figures["timed_out"] += 1
            attempt.refusals, attempt.sent_s = 0, now_s + _ANSWER_S + RETRY_S
            heapq.heappush(due, attempt)
        settled_s = max(settled_s, ends_s)
    asked = min(_SAMPLE, layout.topics)
    return {
        **figures,
        "brokers_known": len(known),
        "routes_found": await nameserver.ask_routes(asked) / asked,
        "share_left_for_registrations": round(left, 3),
        "seconds_until_all_are_known": round(known_s, 2),
        "seconds_until_all_have_an_answer": round(settled_s, 2),
        "longest_wait_s": round(max_wait_s, 2),
    }
