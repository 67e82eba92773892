"""A Raft member with its disk and state machine, driven by the edge and by the simulator alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from millstream.consensus.raft import InstalledSnapshot, Raft, RaftOptions, RaftOutput
from millstream.consensus.raft_messages import RaftMessage
from millstream.consensus.raft_storage import RaftStorage

__all__ = ["SNAPSHOT_ENTRIES", "NodeOutput", "RaftNode", "StateMachine"]

SNAPSHOT_ENTRIES: Final = 1_000
"""Applied entries behind the last snapshot at which the next one is made."""


class StateMachine(Protocol):
    """What the group agrees on. The same entries in the same order give the same state at every member."""

    def apply(self, data: bytes) -> Any:
        """Apply an entry; what the proposer is to hear of it."""
        ...

    def encode(self) -> bytes:
        """The whole state."""
        ...

    def restore(self, state: bytes) -> None:
        """Take up a whole state in place of the present one."""
        ...


@dataclass(slots=True)
class NodeOutput:
    """What came of one step: everything in it is persisted or applied already."""

    messages: list[tuple[str, RaftMessage]] = field(default_factory=list)
    """For the members named. They may get lost, come twice, or in another order."""
    applied: list[tuple[int, int, Any]] = field(default_factory=list)
    """Of each applied entry: index, term, and what the state machine said."""
    is_restored: bool = False
    """Whether a snapshot took the place of the state: proposals that wait do not learn what became of them."""
    ready_reads: list[int] = field(default_factory=list)
    failed_reads: list[int] = field(default_factory=list)


class RaftNode:
    """One member. Each call returns what came of it.

    Raises STORE_FAILED or DISK_FULL where the disk does not take what has to be kept. The member is to be dropped then
    and rebuilt of what is on the disk: what it has in memory is ahead of that.
    """

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        storage: RaftStorage,
        machine: StateMachine,
        *,
        options: RaftOptions | None = None,
        random: Random | None = None,
        now_ms: int,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
    ) -> None:
        found = storage.load()
        if found.snapshot is not None:
            machine.restore(found.snapshot)
        self._storage = storage
        self._machine = machine
        self._snapshot_entries = snapshot_entries
        self.raft = Raft(
            me,
            members,
            hard_state=found.hard_state,
            log=found.log,
            snapshot=found.snapshot,
            options=options,
            random=random or Random(),
            now_ms=now_ms,
        )

    def tick(self, now_ms: int) -> NodeOutput:
        """Time has passed; to be called a few times in each heartbeat."""
        self.raft.tick(now_ms)
        return self._settle()

    def receive(self, sender: str, message: RaftMessage, now_ms: int) -> NodeOutput:
        """A message has come."""
        self.raft.receive(sender, message, now_ms)
        return self._settle()

    def propose(self, data: bytes, now_ms: int) -> tuple[int, int, NodeOutput]:
        """Index and term of the entry, which may be applied already. Raises `NotLeader`.

        An entry of another term that is applied at that index says that this one is lost.
        """
        index = self.raft.propose(data, now_ms)
        term = self.raft.term
        return index, term, self._settle()

    def request_read(self, now_ms: int) -> tuple[int, NodeOutput]:
        """The number of a read, which is among the ready or failed ones of this output or of a later one."""
        number = self.raft.request_read(now_ms)
        return number, self._settle()

    def _settle(self) -> NodeOutput:
        result = NodeOutput()
        # What is persisted may commit more, in a group of one and at a leader whose followers were quicker.
        while (output := self.raft.take_output()) != RaftOutput():
            self._persist(output)
            result.messages += output.messages
            self._apply(output, result)
            self.raft.note_persisted()
        self._compact()
        return result

    def _persist(self, output: RaftOutput) -> None:
        """In this order: no message leaves before the vote and the log that it speaks of are on the disk."""
        if output.hard_state is not None:
            self._storage.save_vote(output.hard_state)
        log = self.raft.log
        if output.snapshot is not None:
            self._storage.save_snapshot(output.snapshot, log.entries)
        elif output.truncate_from is not None:
            self._storage.rewrite(log.base_index + 1, log.entries)
        elif output.appended:
            self._storage.append(output.first_appended, output.appended)

    def _apply(self, output: RaftOutput, result: NodeOutput) -> None:
        if output.snapshot is not None:
            self._machine.restore(output.snapshot.state)
            result.is_restored = True
        for index, entry in output.committed:
            outcome = self._machine.apply(entry.data) if entry.data else None
            result.applied.append((index, entry.term, outcome))
        result.ready_reads += output.ready_reads
        result.failed_reads += output.failed_reads

    def _compact(self) -> None:
        raft = self.raft
        if raft.applied_index - raft.log.base_index < self._snapshot_entries:
            return
        index = raft.applied_index
        term = raft.log.term_at(index)
        assert term is not None
        state = self._machine.encode()
        following = raft.log.slice(index + 1, raft.log.last_index)
        self._storage.save_snapshot(InstalledSnapshot(index, term, state), following)
        raft.compact(index, state)
