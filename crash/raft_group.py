"""A group of Raft members on simulated disks, clocks and network, and what must hold after each event."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from millstream.consensus.entry_log import EntryLog
from millstream.consensus.raft import HardState, InstalledSnapshot, NotLeader, RaftOptions
from millstream.consensus.raft_messages import Entry, RaftMessage, decode_message, encode_message
from millstream.consensus.raft_node import NodeOutput, RaftNode
from millstream.consensus.raft_storage import PersistedState
from millstream.model.errors import StoreError

__all__ = ["BrokenInvariant", "RaftGroup", "SimulatedDisk"]

OPTIONS = RaftOptions(election_timeout_ms=300, heartbeat_ms=50, batch_bytes=64)
SNAPSHOT_ENTRIES = 12
HEALING_MS = 10 * 2 * OPTIONS.election_timeout_ms
"""Ten of the longest election timeouts: in that time a healed group has a leader and makes progress."""


class BrokenInvariant(Exception):
    """What must hold did not."""


class _Crash(Exception):
    """The member's process ends before its disk does what it is asked for."""


class SimulatedDisk:
    """Each call is whole or not done, as those of `RaftFiles` are."""

    def __init__(self) -> None:
        self._hard_state = HardState()
        self._base = (0, 0)
        self._state: bytes | None = None
        self._entries: list[Entry] = []
        self.calls_until_crash: int | None = None
        self.is_full = False

    def load(self) -> PersistedState:
        return PersistedState(self._hard_state, EntryLog(*self._base, list(self._entries)), self._state)

    def save_vote(self, hard_state: HardState) -> None:
        self._begin()
        self._hard_state = hard_state

    def save_snapshot(self, snapshot: InstalledSnapshot, following: Sequence[Entry]) -> None:
        self._begin()
        self._base, self._state = (snapshot.index, snapshot.term), snapshot.state
        self._entries = list(following)

    def rewrite(self, first_index: int, entries: Sequence[Entry]) -> None:
        self._begin()
        self._entries = list(entries)

    def append(self, first_index: int, entries: Sequence[Entry]) -> None:
        self._begin()
        if first_index != self._base[0] + len(self._entries) + 1:
            raise BrokenInvariant(f"entries are written at {first_index}, behind {self._base} + {len(self._entries)}")
        self._entries += entries

    def _begin(self) -> None:
        if self.is_full:
            raise StoreError("DISK_FULL", "There is no room.")
        if self.calls_until_crash is not None:
            self.calls_until_crash -= 1
            if self.calls_until_crash < 0:
                raise _Crash


class _Journal:
    """The state machine: all that was applied, in order."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def apply(self, data: bytes) -> int:
        self.lines.append(data)
        return len(self.lines)

    def encode(self) -> bytes:
        return b"\n".join(self.lines)

    def restore(self, state: bytes) -> None:
        self.lines = state.split(b"\n") if state else []


@dataclass
class _Member:
    name: str
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    node: RaftNode | None = None
    journal: _Journal = field(default_factory=_Journal)
    drift: float = 1.0
    incarnation: int = 0
    reads: dict[int, int] = field(default_factory=dict)
    """Of each read that waits: up to where something was committed anywhere when it was asked for."""


class RaftGroup:
    """`size` members. `run` lets so many random events happen; every invariant is checked after each."""

    def __init__(self, choose: random.Random, size: int) -> None:
        self._choose = choose
        self.now_ms = 0
        names = [f"n{number}" for number in range(size)]
        self.members = {name: _Member(name) for name in names}
        self._names = names
        self._queue: list[tuple[int, int, str, str, bytes]] = []
        self._order = count()
        self._cut: set[tuple[str, str]] = set()
        self._loss = 0.0
        self._slowest_ms = 5
        self._proposals = count(1)
        self._leaders: dict[int, str] = {}
        self._committed: list[tuple[int, bytes]] = []
        """All that any member ever applied, from index 1 on."""
        self.counts = {"elections": 0, "committed": 0, "crashes": 0, "snapshots_installed": 0, "reads": 0, "cuts": 0}
        for member in self.members.values():
            self._start(member)

    def run(self, events: int) -> None:
        """Random faults, then healing: there is a leader again, and it makes progress."""
        for _ in range(events):
            self._happen()
        self.heal()

    def heal(self) -> None:
        """End all faults. Raises `BrokenInvariant` where the group does not recover."""
        self._cut.clear()
        self._loss, self._slowest_ms = 0.0, 5
        for member in self.members.values():
            member.disk.is_full, member.disk.calls_until_crash = False, None
            if member.node is None:
                self._start(member)
        until_ms, before = self.now_ms + HEALING_MS, len(self._committed)
        while self.now_ms < until_ms:
            self._pass_time(10)
            self._propose()
        if len(self._committed) <= before:
            raise BrokenInvariant(f"the healed group committed nothing in {HEALING_MS} ms")
        lines = {member.journal.encode() for member in self.members.values() if member.node is not None}
        self._pass_time(HEALING_MS)
        lines = {member.journal.encode() for member in self.members.values()}
        if len(lines) != 1:
            raise BrokenInvariant("the members of the healed group differ")

    def _happen(self) -> None:
        choose = self._choose
        kind = choose.random()
        if kind < 0.55:
            self._pass_time(choose.choice((1, 5, 20, 60)))
        elif kind < 0.80:
            self._propose()
        elif kind < 0.86:
            self._read()
        elif kind < 0.89:
            self._crash(self.members[choose.choice(self._names)])
        elif kind < 0.90:
            self.members[choose.choice(self._names)].disk.calls_until_crash = choose.randrange(3)
        elif kind < 0.94:
            self._restart()
        elif kind < 0.97:
            self._change_network()
        elif kind < 0.975:
            disk = self.members[choose.choice(self._names)].disk
            disk.is_full = not disk.is_full
        elif kind < 0.98:
            for member in self.members.values():
                self._crash(member)
        else:
            self._pass_time(choose.randrange(2 * OPTIONS.election_timeout_ms))

    def _change_network(self) -> None:
        choose = self._choose
        kind = choose.random()
        if kind < 0.35:
            self._cut.clear()
        elif kind < 0.6:
            # One way or both, between two members.
            first, second = choose.choice(self._names), choose.choice(self._names)
            self._cut.add((first, second))
            if choose.random() < 0.5:
                self._cut.add((second, first))
        elif kind < 0.8:
            alone = choose.choice(self._names)
            self._cut |= {(alone, other) for other in self._names} | {(other, alone) for other in self._names}
        else:
            self._loss = choose.choice((0.0, 0.1, 0.4))
            self._slowest_ms = choose.choice((5, 40, 400))
        self.counts["cuts"] += 1

    def _start(self, member: _Member) -> None:
        member.incarnation += 1
        member.journal = _Journal()
        member.reads = {}
        member.drift = self._choose.uniform(0.9, 1.1)
        member.disk.calls_until_crash = None
        member.node = RaftNode(
            member.name,
            self._names,
            member.disk,
            member.journal,
            options=OPTIONS,
            random=random.Random(self._choose.random()),
            now_ms=self._time_of(member),
            snapshot_entries=SNAPSHOT_ENTRIES,
        )

    def _restart(self) -> None:
        down = [member for member in self.members.values() if member.node is None]
        if down:
            self._start(self._choose.choice(down))

    def _crash(self, member: _Member) -> None:
        if member.node is not None:
            member.node = None
            self.counts["crashes"] += 1

    def _time_of(self, member: _Member) -> int:
        return int(self.now_ms * member.drift)

    def _pass_time(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while True:
            due_ms = self._queue[0][0] if self._queue else until_ms
            self.now_ms = min(due_ms, until_ms, self.now_ms + 10)
            while self._queue and self._queue[0][0] <= self.now_ms:
                self._deliver(*heapq.heappop(self._queue)[2:])
            for member in self.members.values():
                self._step(member, lambda node, now_ms: node.tick(now_ms))
            if self.now_ms >= until_ms:
                return

    def _deliver(self, sender: str, receiver: str, data: bytes) -> None:
        message = decode_message(data)
        self._step(self.members[receiver], lambda node, now_ms: node.receive(sender, message, now_ms))

    def _propose(self) -> None:
        member = self.members[self._choose.choice(self._names)]
        data = b"%d" % next(self._proposals)
        self._step(member, lambda node, now_ms: node.propose(data, now_ms)[2])

    def _read(self) -> None:
        leading = [member for member in self.members.values() if member.node is not None and member.node.raft.leads]
        if not leading:
            return
        # An old leader too, which has not heard of the new one.
        member = self._choose.choice(leading)
        committed = len(self._committed)

        def ask(node: RaftNode, now_ms: int) -> NodeOutput:
            number, output = node.request_read(now_ms)
            member.reads[number] = committed
            return output

        self._step(member, ask)

    def _step(self, member: _Member, act: object) -> None:
        node = member.node
        if node is None:
            return
        try:
            output: NodeOutput = act(node, self._time_of(member))  # type: ignore[operator]
        except NotLeader:
            return
        except (_Crash, StoreError):
            # What is in memory is ahead of the disk: the process ends, as the product's does.
            self._crash(member)
            return
        for receiver, message in output.messages:
            self._send(member.name, receiver, message)
        self.counts["snapshots_installed"] += output.is_restored
        self._note_commits(member, output)
        self._check_leader(node, member)
        self._check_reads(node, member, output)

    def _send(self, sender: str, receiver: str, message: RaftMessage) -> None:
        if (sender, receiver) in self._cut or self._choose.random() < self._loss:
            return
        for _ in range(2 if self._choose.random() < 0.02 else 1):
            at_ms = self.now_ms + 1 + self._choose.randrange(self._slowest_ms)
            heapq.heappush(self._queue, (at_ms, next(self._order), sender, receiver, encode_message(message)))

    def _note_commits(self, member: _Member, output: NodeOutput) -> None:
        """What is committed never changes, and every member commits the same."""
        for index, term, line in output.applied:
            found = (term, b"" if line is None else member.journal.lines[line - 1])
            if index == len(self._committed) + 1:
                self._committed.append(found)
                self.counts["committed"] += 1
            elif index > len(self._committed):
                raise BrokenInvariant(f"{member.name} commits {index} behind {len(self._committed)}")
            elif self._committed[index - 1] != found:
                raise BrokenInvariant(f"{member.name} commits {found} at {index}, not {self._committed[index - 1]}")
        if output.applied or output.is_restored:
            assert member.node is not None
            applied = member.node.raft.applied_index
            if member.journal.lines != [data for _, data in self._committed[:applied] if data]:
                raise BrokenInvariant(f"{member.name} applied other entries than were committed up to {applied}")

    def _check_leader(self, node: RaftNode, member: _Member) -> None:
        """One leader a term, and it has all that was committed before."""
        raft = node.raft
        if raft.role.value != "leader":
            return
        if raft.term not in self._leaders:
            self._leaders[raft.term] = member.name
            self.counts["elections"] += 1
            self._check_completeness(node, member)
        elif self._leaders[raft.term] != member.name:
            raise BrokenInvariant(f"{self._leaders[raft.term]} and {member.name} lead in term {raft.term}")

    def _check_completeness(self, node: RaftNode, member: _Member) -> None:
        log = node.raft.log
        for index in range(log.base_index + 1, len(self._committed) + 1):
            entries = log.slice(index, index)
            if not entries or (entries[0].term, entries[0].data) != self._committed[index - 1]:
                raise BrokenInvariant(f"{member.name} leads in term {node.raft.term} without committed entry {index}")

    def _check_reads(self, node: RaftNode, member: _Member, output: NodeOutput) -> None:
        """A read sees all that was committed anywhere before it was asked for."""
        for number in output.failed_reads:
            member.reads.pop(number, None)
        for number in output.ready_reads:
            committed = member.reads.pop(number, 0)
            self.counts["reads"] += 1
            if node.raft.applied_index < committed:
                raise BrokenInvariant(f"a read at {member.name} sees {node.raft.applied_index} of {committed} entries")

    def check_logs(self) -> None:
        """Where two logs agree on an entry's term, they agree on all before it."""
        logs = [member.node.raft.log for member in self.members.values() if member.node is not None]
        for first in logs:
            for second in logs:
                last = min(first.last_index, second.last_index)
                begin = max(first.base_index, second.base_index) + 1
                same = [first.slice(at, at) == second.slice(at, at) for at in range(begin, last + 1)]
                terms = [first.term_at(at) == second.term_at(at) for at in range(begin, last + 1)]
                agreed = max((place for place, is_same in enumerate(terms) if is_same), default=-1)
                if not all(same[: agreed + 1]):
                    raise BrokenInvariant("two logs agree on an entry and differ before it")
