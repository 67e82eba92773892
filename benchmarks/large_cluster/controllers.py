"""Controllers in the simulated cluster: heartbeats, masters that die at one time, and a start from the disk."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.large_cluster.layout import Layout, Member
from benchmarks.large_cluster.port import Line, Port, frame_of
from millstream.consensus.raft_storage import RaftFiles
from millstream.controller.controller import TICK_S, Controller, ControllerOptions
from millstream.controller.liveness import Liveness
from millstream.controller.raft_log import RaftLog
from millstream.controller.remoting import ControllerHandlers
from millstream.controller.replica_sets import Replica, ReplicaSet, ReplicaSets, SetChange
from millstream.controller.replicated_log import ControllerPeer, LogRole
from millstream.model.clock import ManualClock
from millstream.protocol.remoting.administration.controller_requests import BrokerHeartbeat, RaftEnvelope
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder

__all__ = ["SimulatedControllers", "measure_heartbeats", "measure_rack", "measure_recovery", "running_controllers"]

BEAT_S = 0.5
_PEERS = tuple(ControllerPeer(f"n{number}", f"10.8.0.{number}:9877") for number in range(3))
_GROUP = "g"
_MIB = 2**20

Figures = dict[str, object]


class _Wire:
    """What one controller sends to the others: frames that are delivered in the next turn of the loop."""

    def __init__(self, group: SimulatedControllers, sender: str) -> None:
        self._group = group
        self._sender = sender

    def send(self, peer_id: str, message: bytes) -> None:
        envelope = RaftEnvelope(_GROUP, self._sender, peer_id)
        frame = frame_of(RemotingCommand(RequestCode.RAFT_MESSAGE, envelope.encode(), message))
        self._group.messages += 1
        asyncio.get_running_loop().call_soon(self._group.deliver, peer_id, frame)

    async def close(self) -> None:
        """Nothing to close."""


@dataclass
class SimulatedControllers:
    """Three members, of which the leader has the controller. `followers_cpu_s` is what the others took."""

    layout: Layout
    directory: Path
    clock: ManualClock = field(default_factory=ManualClock)
    logs: dict[str, RaftLog] = field(default_factory=dict)
    sets: dict[str, ReplicaSets] = field(default_factory=dict)
    told: deque[tuple[str, RemotingCommand]] = field(default_factory=deque)
    leader: str = ""
    messages: int = 0
    followers_cpu_s: float = 0.0

    async def start(self) -> None:
        """Start all and wait until one leads."""
        for peer in _PEERS:
            sets = self.sets[peer.id] = ReplicaSets()
            storage = RaftFiles(self.directory / peer.id)
            self.logs[peer.id] = log = RaftLog(sets, _GROUP, peer, _PEERS, storage, _Wire(self, peer.id))
            log.start()
        await _until(lambda: any(log.role is LogRole.LEADER for log in self.logs.values()))
        self.leader = next(name for name, log in self.logs.items() if log.role is LogRole.LEADER)
        self.controller = Controller(
            self.sets[self.leader],
            self.logs[self.leader],
            ControllerOptions(peers=_PEERS),
            self.clock,
            notify=lambda address, command: self.told.append((address, command)),
        )
        self.port = Port(ControllerHandlers(self.controller).table)
        self._lines = {member: Line(member.address) for member in self.layout.members()}
        self._frames = {
            member: frame_of(RemotingCommand(RequestCode.BROKER_HEARTBEAT, self.layout.heartbeat(member).encode()))
            for member in self.layout.members()
        }

    def deliver(self, receiver: str, frame: bytes) -> None:
        """A message reaches a controller."""
        began_s = time.process_time()
        for command in FrameDecoder().feed(frame):
            self.logs[receiver].receive(command, Line("10.8.0.9"))  # type: ignore[arg-type]
        if receiver != self.leader:
            self.followers_cpu_s += time.process_time() - began_s

    async def fill(self) -> None:
        """All sets are there with all members, the first one the master."""
        log = self.logs[self.leader]
        for set_number in range(self.layout.sets):
            made = SetChange("apply-id", Member(set_number, 1).name, 0, _fresh_set(self.layout, set_number))
            assert await log.propose(made)
            found = self.sets[self.leader].find(made.name)
            assert found is not None
            await self._promote(found)

    def is_electing(self) -> bool:
        """Whether an election is under way."""
        return any(task.get_name().startswith("elect-") for task in asyncio.all_tasks())

    async def _promote(self, found: ReplicaSet) -> None:
        members = tuple(sorted(found.replicas))
        after = ReplicaSet(found.cluster, found.name, found.replicas, found.next_id, 1, 1, members, 1)
        assert await self.logs[self.leader].propose(SetChange("elect", found.name, found.revision, after))

    async def beat(self, members: list[Member]) -> None:
        """These replicas send a heartbeat each, all at one time."""
        await asyncio.gather(*(self.port.serve(self._frames[one], self._lines[one]) for one in members))


async def _until(holds: Callable[[], bool], *, poll_s: float = 0.005) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(poll_s)


def _fresh_set(layout: Layout, set_number: int) -> ReplicaSet:
    members = [Member(set_number, number) for number in range(1, layout.replicas + 1)]
    replicas = {one.id: Replica(one.address, f"{one.address};1", all_ack=True) for one in members}
    return ReplicaSet(layout.identity(members[0]).cluster, members[0].name, replicas, layout.replicas + 1)


@asynccontextmanager
async def running_controllers(layout: Layout, directory: Path) -> AsyncIterator[SimulatedControllers]:
    """Three controllers that know the layout's sets."""
    group = SimulatedControllers(layout, directory)
    await group.start()
    await group.fill()
    try:
        yield group
    finally:
        for log in group.logs.values():
            await log.close()


async def measure_heartbeats(layout: Layout, *, seconds: float = 5, beat_s: float = BEAT_S) -> Figures:
    """All replicas send heartbeats every `beat_s`, spread over that time; what the leader takes of a core."""
    with tempfile.TemporaryDirectory() as scratch:
        async with running_controllers(layout, Path(scratch)) as group:
            members = list(layout.members())
            await group.beat(members)
            began_s = time.process_time()
            await group.beat(members)
            burst_us = (time.process_time() - began_s) / len(members) * 1e6
            group.messages, group.followers_cpu_s = 0, 0.0
            began_s, parts = time.process_time(), round(beat_s * 100)
            for _ in range(round(seconds / beat_s)):
                for part in range(parts):
                    await group.beat(members[part::parts])
                    group.clock.advance_ms(round(beat_s * 1000 / parts))
                    if part % round(parts * TICK_S / beat_s) == 0:
                        group.controller.tick()
                    # In real time, because questions to the other controllers are counted by it.
                    await asyncio.sleep(beat_s / parts)
            cpu_s = time.process_time() - began_s - group.followers_cpu_s
            return {
                "heartbeats_a_second": round(len(members) / beat_s),
                "cpu_us_a_heartbeat_of_a_burst": round(burst_us, 1),
                "leader_share_of_a_core": round(cpu_s / seconds, 3),
                "follower_share_of_a_core": round(group.followers_cpu_s / 2 / seconds, 3),
                "messages_a_second": round(group.messages / seconds),
                "elections": sum(group.controller.election_counts.values()),
            }


async def measure_rack(layout: Layout) -> Figures:
    """A rack of masters falls silent at one time: when each has a successor, and what that takes."""
    with tempfile.TemporaryDirectory() as scratch:
        async with running_controllers(layout, Path(scratch)) as group:
            members = list(layout.members())
            await group.beat(members)
            dead = {Member(number, 1) for number in range(layout.rack)}
            living = [one for one in members if one not in dead]
            group.messages, elapsed_s, began_s = 0, 0.0, time.process_time()
            election_s = 0.0
            beat_due_s = BEAT_S
            while _led_by_dead(group, dead):
                group.clock.advance_ms(round(TICK_S * 1000))
                elapsed_s += TICK_S
                if elapsed_s >= beat_due_s:
                    beat_due_s += BEAT_S
                    await group.beat(living)
                began_tick_s = time.monotonic()
                group.controller.tick()
                await _until(lambda: not group.is_electing(), poll_s=0)
                election_s = max(election_s, time.monotonic() - began_tick_s)
            return {
                "masters": layout.rack,
                "simulated_s_until_all_are_elected": round(elapsed_s, 1),
                "longest_look_s": round(election_s, 3),
                "cpu_s": round(time.process_time() - began_s, 3),
                "raft_messages": group.messages,
                "notifications": len(group.told),
                "elected": group.controller.election_counts.total(),
            }


def _state_bytes(document: bytes) -> int:
    """What the sets take in memory, each of whose replicas was heard once."""
    gc.collect()
    tracemalloc.start()
    sets, liveness = ReplicaSets(), Liveness()
    sets.restore(document)
    for found in sets:
        for number, replica in found.replicas.items():
            liveness.note(BrokerHeartbeat(found.cluster, replica.address, found.name, number), 0.0)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held_bytes


def _led_by_dead(group: SimulatedControllers, dead: set[Member]) -> bool:
    sets = group.controller.sets
    return any((found := sets.find(one.name)) is None or found.master == one.id for one in dead)


async def measure_recovery(layout: Layout) -> Figures:
    """Three controllers start from their disks: until the state is read, and until one of them leads."""
    with tempfile.TemporaryDirectory() as scratch:
        async with running_controllers(layout, Path(scratch)):
            pass
        stored_bytes = sum(file.stat().st_size for file in (Path(scratch) / "n0").rglob("*") if file.is_file())
        group, began_s = SimulatedControllers(layout, Path(scratch)), time.monotonic()
        began_cpu_s = time.process_time()
        await group.start()
        led_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        sets = len(group.controller.sets)
        document = group.controller.sets.encode()
        state_bytes = _state_bytes(document)
        for log in group.logs.values():
            await log.close()
        return {
            "replicas": layout.sets * layout.replicas,
            "sets": sets,
            "stored_mib": round(stored_bytes / _MIB, 2),
            "state_as_json_mib": round(len(document) / _MIB, 2),
            "state_mib": round(state_bytes / _MIB, 2),
            "seconds_until_one_leads": round(led_s, 2),
            "cpu_s_of_all_three": round(cpu_s, 3),
        }
