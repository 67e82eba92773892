"""One Raft member, pure: takes messages, proposals and time; returns what to persist, send and apply.

The caller persists `HardState`, the snapshot and the log, in this order and before it sends the messages, then says so
by `note_persisted`. Times are milliseconds of a monotonic clock; members' clocks need not agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final

from millstream.consensus.entry_log import EntryLog
from millstream.consensus.raft_messages import (
    MAX_ENTRY_BYTES,
    AppendAnswer,
    AppendEntries,
    Entry,
    RaftMessage,
    SnapshotAnswer,
    SnapshotChunk,
    VoteAnswer,
    VoteRequest,
)
from millstream.model.errors import StartRefused

__all__ = [
    "GROUP_SIZES",
    "HardState",
    "InstalledSnapshot",
    "NotLeader",
    "Raft",
    "RaftOptions",
    "RaftOutput",
    "RaftRole",
]

GROUP_SIZES: Final = (1, 3, 5)
"""How many members a group may have: an even number tolerates no more failures than one less."""


class RaftRole(Enum):
    """What a member is in its term. A leader leads once the first entry of its term is applied: see `Raft.leads`."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Times and sizes, equal at all members.

    A follower that hears nothing for one to two `election_timeout_ms`, by chance, asks for votes. One that has heard no
    leader since its start asks whether it would get them after two heartbeats and up to half an election timeout, and
    so again: a leader that lives would have been heard by then.
    """

    election_timeout_ms: int = 1_000
    heartbeat_ms: int = 150
    batch_bytes: int = 256 * 1024
    """Entries and parts of snapshots in one message, about."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What must be on the disk before anything that follows from it leaves: the term, and for whom it voted there."""

    term: int = 0
    voted_for: str | None = None


@dataclass(frozen=True, slots=True)
class InstalledSnapshot:
    """A snapshot of the leader that takes the place of the member's state and log."""

    index: int
    term: int
    state: bytes


@dataclass(slots=True)
class RaftOutput:
    """What the caller has to do, in the order of the fields."""

    hard_state: HardState | None = None
    snapshot: InstalledSnapshot | None = None
    truncate_from: int | None = None
    """The log loses this entry and all behind it, before `appended` is written."""
    appended: list[Entry] = field(default_factory=list)
    first_appended: int = 0
    """The index of the first of `appended`."""
    messages: list[tuple[str, RaftMessage]] = field(default_factory=list)
    committed: list[tuple[int, Entry]] = field(default_factory=list)
    """With their indexes, which follow one another over all outputs."""
    ready_reads: list[int] = field(default_factory=list)
    """Reads that may be answered once `committed` is applied."""
    failed_reads: list[int] = field(default_factory=list)
    """Reads whose leader was deposed."""


class NotLeader(Exception):
    """The member does not lead; `leader` does, as far as it knows."""

    def __init__(self, leader: str | None) -> None:
        super().__init__("No member is known to lead." if leader is None else f"{leader} leads.")
        self.leader = leader


@dataclass(slots=True)
class _Follower:
    """What a leader knows of another member."""

    next_index: int
    match_index: int = 0
    is_waiting: bool = False
    """Whether entries are under way; more follow with the answer, or with the next heartbeat."""
    round: int = 0
    """The last round of messages that it has answered."""
    answered_ms: int = 0
    snapshot_bytes: int = 0
    """How much of the snapshot has come there."""


@dataclass(slots=True)
class _Read:
    number: int
    index: int
    round: int


class Raft:
    """One member. Every call may add to the output, which `take_output` gives and empties."""

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        *,
        hard_state: HardState,
        log: EntryLog,
        snapshot: bytes | None = None,
        options: RaftOptions | None = None,
        random: Random,
        now_ms: int,
    ) -> None:
        if me not in members or len({*members}) != len(members) or len(members) not in GROUP_SIZES:
            raise StartRefused(
                "BAD_CONFIGURATION",
                f"The controllers are {', '.join(members) or 'none'}; this one is {me}.",
                remedy="Name 1, 3 or 5 different controllers, this one among them.",
            )
        self.me = me
        self.others = [member for member in members if member != me]
        self.options = options or RaftOptions()
        self.hard_state = hard_state
        self.log = log
        self.role = RaftRole.FOLLOWER
        self.leader: str | None = None
        self.commit_index = log.base_index
        self.applied_index = log.base_index
        self._snapshot = snapshot
        self._random = random
        self._output = RaftOutput()
        self._persisted_index = log.last_index
        self._votes: set[str] = set()
        self._followers: dict[str, _Follower] = {}
        self._round = 0
        self._reads: list[_Read] = []
        self._read_numbers = 0
        self._heard_ms: int | None = None
        self._incoming = bytearray()
        self._incoming_of: tuple[int, int] = (0, 0)
        self._heartbeat_due_ms = self._quorum_due_ms = now_ms
        self._election_due_ms = 0
        self._wait_for_first_election(now_ms)

    @property
    def term(self) -> int:
        """The member's term."""
        return self.hard_state.term

    @property
    def leads(self) -> bool:
        """Whether it is the leader and has applied all that was committed before its term."""
        return self.role is RaftRole.LEADER and self.log.term_at(self.applied_index) == self.term

    @property
    def quorum(self) -> int:
        """How many members decide."""
        return (len(self.others) + 1) // 2 + 1

    def take_output(self) -> RaftOutput:
        """What is to be done since the last call."""
        output, self._output = self._output, RaftOutput()
        return output

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.role is RaftRole.LEADER:
            if now_ms >= self._quorum_due_ms:
                self._check_quorum(now_ms)
            if self.role is RaftRole.LEADER and now_ms >= self._heartbeat_due_ms:
                self._send_to_all(now_ms)
        elif now_ms >= self._election_due_ms:
            self._campaign(now_ms, is_pre=bool(self.others))

    def propose(self, data: bytes, now_ms: int) -> int:
        """The index of the entry if it is committed. Raises `NotLeader`, ValueError over MAX_ENTRY_BYTES."""
        if self.role is not RaftRole.LEADER:
            raise NotLeader(self.leader)
        if not 0 < len(data) <= MAX_ENTRY_BYTES:
            raise ValueError(f"an entry has 1 to {MAX_ENTRY_BYTES} bytes, not {len(data)}")
        self._append([Entry(self.term, data)])
        self._send_news(now_ms)
        return self.log.last_index

    def request_read(self, now_ms: int) -> int:
        """The number of a read, ready once a quorum has confirmed that this member leads. Raises `NotLeader`."""
        if not self.leads:
            raise NotLeader(self.leader)
        self._read_numbers += 1
        self._send_to_all(now_ms)
        self._reads.append(_Read(self._read_numbers, self.commit_index, self._round))
        self._end_reads()
        return self._read_numbers

    def note_persisted(self) -> None:
        """All that the outputs so far asked to persist is on the disk."""
        self._persisted_index = self.log.last_index
        self._advance_commit()

    def compact(self, index: int, state: bytes) -> None:
        """The state after the applied entry at `index` is persisted as a snapshot: entries up to it may go."""
        term = self.log.term_at(index)
        assert term is not None
        assert index <= self.applied_index
        self.log.compact(index, term)
        self._snapshot = state

    def receive(self, sender: str, message: RaftMessage, now_ms: int) -> None:
        """A message of another member has come."""
        if sender not in self.others:
            return
        if message.term > self.term and not self._is_about_future(message):
            self._follow(message.term, None, now_ms)
        match message:
            case VoteRequest():
                self._answer_vote(sender, message, now_ms)
            case VoteAnswer():
                self._count_vote(sender, message, now_ms)
            case AppendEntries():
                self._take_entries(sender, message, now_ms)
            case AppendAnswer():
                self._note_answer(sender, message, now_ms)
            case SnapshotChunk():
                self._take_snapshot(sender, message, now_ms)
            case SnapshotAnswer():
                self._note_snapshot(sender, message, now_ms)

    @staticmethod
    def _is_about_future(message: RaftMessage) -> bool:
        """Whether the term is one that nobody is in yet: a pre-vote's, or the answer that it would be given."""
        if isinstance(message, VoteRequest):
            return message.is_pre
        return isinstance(message, VoteAnswer) and message.is_pre and message.is_given

    # Elections

    def _wait_for_election(self, now_ms: int) -> None:
        timeout_ms = self.options.election_timeout_ms
        self._election_due_ms = now_ms + timeout_ms + self._random.randrange(timeout_ms)

    def _wait_for_first_election(self, now_ms: int) -> None:
        options = self.options
        self._election_due_ms = (
            now_ms + 2 * options.heartbeat_ms + self._random.randrange(options.election_timeout_ms // 2)
        )

    def _set_hard_state(self, term: int, voted_for: str | None) -> None:
        self.hard_state = HardState(term, voted_for)
        self._output.hard_state = self.hard_state

    def _follow(self, term: int, leader: str | None, now_ms: int) -> None:
        if term > self.term:
            self._set_hard_state(term, None)
        if self.role is RaftRole.LEADER:
            self._fail_reads()
        self.role, self.leader = RaftRole.FOLLOWER, leader
        self._wait_for_election(now_ms)

    def _campaign(self, now_ms: int, *, is_pre: bool) -> None:
        self.role = RaftRole.PRE_CANDIDATE if is_pre else RaftRole.CANDIDATE
        self.leader = None
        if not is_pre:
            self._set_hard_state(self.term + 1, self.me)
        self._votes = {self.me}
        if is_pre and self._heard_ms is None:
            self._wait_for_first_election(now_ms)
        else:
            self._wait_for_election(now_ms)
        if len(self._votes) >= self.quorum:
            self._lead(now_ms)
            return
        request = VoteRequest(self.term + is_pre, self.log.last_index, self.log.last_term, is_pre)
        self._output.messages += [(other, request) for other in self.others]

    def _answer_vote(self, sender: str, asked: VoteRequest, now_ms: int) -> None:
        is_current = (asked.last_term, asked.last_index) >= (self.log.last_term, self.log.last_index)
        if asked.is_pre:
            # A leader that is heard needs no successor, so a member that was cut off disturbs nobody when it is back.
            is_led = self.role is RaftRole.LEADER or (
                self._heard_ms is not None and now_ms - self._heard_ms < self.options.election_timeout_ms
            )
            is_given = asked.term > self.term and is_current and not is_led
        else:
            is_given = asked.term == self.term and is_current and self.hard_state.voted_for in (None, sender)
            if is_given:
                self._set_hard_state(self.term, sender)
                self._wait_for_election(now_ms)
        term = asked.term if is_given else self.term
        self._output.messages.append((sender, VoteAnswer(term, is_given, asked.is_pre)))

    def _count_vote(self, sender: str, answer: VoteAnswer, now_ms: int) -> None:
        wanted = RaftRole.PRE_CANDIDATE if answer.is_pre else RaftRole.CANDIDATE
        if self.role is not wanted or not answer.is_given or answer.term != self.term + answer.is_pre:
            return
        self._votes.add(sender)
        if len(self._votes) < self.quorum:
            return
        if answer.is_pre:
            self._campaign(now_ms, is_pre=False)
        else:
            self._lead(now_ms)

    def _lead(self, now_ms: int) -> None:
        self.role, self.leader = RaftRole.LEADER, self.me
        following = self.log.last_index + 1
        self._followers = {other: _Follower(following, answered_ms=now_ms) for other in self.others}
        self._reads = []
        self._quorum_due_ms = now_ms + self.options.election_timeout_ms
        # Nothing of earlier terms is committed by counting; this entry commits all that is before it.
        self._append([Entry(self.term, b"")])
        self._send_to_all(now_ms)

    def _check_quorum(self, now_ms: int) -> None:
        """Step down where no quorum has answered for an election timeout: others may have another leader by now."""
        since_ms = now_ms - self.options.election_timeout_ms
        active = 1 + sum(follower.answered_ms > since_ms for follower in self._followers.values())
        if active < self.quorum:
            self._follow(self.term, None, now_ms)
        self._quorum_due_ms = now_ms + self.options.heartbeat_ms

    # Entries

    def _append(self, entries: Sequence[Entry]) -> None:
        output = self._output
        if not output.appended:
            output.first_appended = self.log.last_index + 1
        self.log.append(entries)
        output.appended += entries

    def _send_to_all(self, now_ms: int) -> None:
        """A round of messages, which prove to reads that this member still leads."""
        self._round += 1
        self._heartbeat_due_ms = now_ms + self.options.heartbeat_ms
        for other, follower in self._followers.items():
            self._send(other, follower)

    def _send_news(self, now_ms: int) -> None:
        for other, follower in self._followers.items():
            if not follower.is_waiting:
                self._send(other, follower)

    def _send(self, other: str, follower: _Follower) -> None:
        if follower.next_index <= self.log.base_index:
            self._send_snapshot(other, follower)
            return
        previous = follower.next_index - 1
        previous_term = self.log.term_at(previous)
        assert previous_term is not None
        entries = self.log.from_index(follower.next_index, self.options.batch_bytes)
        follower.is_waiting = bool(entries)
        message = AppendEntries(self.term, previous, previous_term, self.commit_index, self._round, entries)
        self._output.messages.append((other, message))

    def _take_entries(self, sender: str, message: AppendEntries, now_ms: int) -> None:
        if message.term < self.term:
            self._answer_entries(sender, message, is_accepted=False, match_index=0)
            return
        self._hear_leader(sender, message.term, now_ms)
        previous, entries = message.previous_index, message.entries
        if previous < self.log.base_index:
            # The snapshot holds what comes first: all of that is committed, so it is the leader's as well.
            entries = entries[self.log.base_index - previous :]
            previous = self.log.base_index
        elif self.log.term_at(previous) != message.previous_term:
            self._answer_entries(sender, message, is_accepted=False, match_index=self._agreed_before(previous))
            return
        self._merge(previous, entries)
        last = previous + len(entries)
        self._commit_to(min(message.commit_index, last))
        self._answer_entries(sender, message, is_accepted=True, match_index=last)

    def _agreed_before(self, previous: int) -> int:
        """The largest index below `previous` at which the logs may agree: not within a term that does not fit."""
        if previous > self.log.last_index:
            return self.log.last_index
        term = self.log.term_at(previous)
        assert term is not None
        return max(self.log.first_index_of(term) - 1, self.log.base_index, self.commit_index)

    def _merge(self, previous: int, entries: Sequence[Entry]) -> None:
        """Take the entries behind `previous`; what stands there otherwise goes."""
        for place, entry in enumerate(entries):
            index = previous + 1 + place
            present = self.log.term_at(index)
            if present == entry.term:
                continue
            if present is not None:
                self._truncate(index)
            self._append(entries[place:])
            return

    def _truncate(self, from_index: int) -> None:
        assert from_index > self.commit_index, "a committed entry never changes"
        output = self._output
        if output.appended and from_index >= output.first_appended:
            del output.appended[from_index - output.first_appended :]
        else:
            output.appended.clear()
            output.truncate_from = from_index
        self.log.truncate(from_index)
        self._persisted_index = min(self._persisted_index, from_index - 1)

    def _answer_entries(self, sender: str, message: AppendEntries, *, is_accepted: bool, match_index: int) -> None:
        answer = AppendAnswer(self.term, is_accepted, match_index, message.round)
        self._output.messages.append((sender, answer))

    def _hear_leader(self, sender: str, term: int, now_ms: int) -> None:
        self._follow(term, sender, now_ms)
        self._heard_ms = now_ms

    def _note_answer(self, sender: str, answer: AppendAnswer, now_ms: int) -> None:
        if self.role is not RaftRole.LEADER or answer.term != self.term:
            return
        follower = self._hear_follower(sender, answer.round, now_ms)
        if answer.is_accepted:
            follower.match_index = max(follower.match_index, answer.match_index)
            follower.next_index = max(follower.next_index, follower.match_index + 1)
            self._advance_commit()
        elif answer.match_index < follower.match_index:
            # An old answer; or the member lost what it had said to have, and must not be asked again and again.
            return
        else:
            follower.next_index = max(min(follower.next_index - 1, answer.match_index + 1), follower.match_index + 1)
        follower.is_waiting = False
        if follower.next_index <= self.log.last_index:
            self._send(sender, follower)

    def _hear_follower(self, sender: str, answered_round: int, now_ms: int) -> _Follower:
        follower = self._followers[sender]
        follower.answered_ms = now_ms
        follower.round = max(follower.round, answered_round)
        self._end_reads()
        return follower

    # Commits and reads

    def _advance_commit(self) -> None:
        if self.role is not RaftRole.LEADER:
            return
        matches = sorted([self._persisted_index, *(other.match_index for other in self._followers.values())])
        agreed = matches[-self.quorum]
        # An entry of an earlier term may be at a quorum and still be replaced (Raft, figure 8).
        if agreed > self.commit_index and self.log.term_at(agreed) == self.term:
            self._commit_to(agreed)

    def _commit_to(self, index: int) -> None:
        if index <= self.commit_index:
            return
        entries = self.log.slice(self.commit_index + 1, index)
        self._output.committed += enumerate(entries, start=self.commit_index + 1)
        self.commit_index = self.applied_index = index

    def _end_reads(self) -> None:
        if not self._reads:
            return
        rounds = sorted([self._round, *(follower.round for follower in self._followers.values())])
        confirmed = rounds[-self.quorum]
        self._output.ready_reads += [read.number for read in self._reads if read.round <= confirmed]
        self._reads = [read for read in self._reads if read.round > confirmed]

    def _fail_reads(self) -> None:
        self._output.failed_reads += [read.number for read in self._reads]
        self._reads = []

    # Snapshots

    def _send_snapshot(self, other: str, follower: _Follower) -> None:
        assert self._snapshot is not None
        index, begin = self.log.base_index, follower.snapshot_bytes
        data = self._snapshot[begin : begin + self.options.batch_bytes]
        follower.is_waiting = True
        total = len(self._snapshot)
        message = SnapshotChunk(self.term, index, self.log.base_term, begin, total, self._round, data)
        self._output.messages.append((other, message))

    def _take_snapshot(self, sender: str, chunk: SnapshotChunk, now_ms: int) -> None:
        if chunk.term < self.term:
            self._output.messages.append((sender, SnapshotAnswer(self.term, chunk.index, 0, chunk.round)))
            return
        self._hear_leader(sender, chunk.term, now_ms)
        received = chunk.total_bytes if chunk.index <= self.commit_index else self._gather(chunk)
        self._output.messages.append((sender, SnapshotAnswer(self.term, chunk.index, received, chunk.round)))

    def _gather(self, chunk: SnapshotChunk) -> int:
        """Keep a part of a snapshot, and install it with the last one; how much of it is there."""
        name = (chunk.index, chunk.index_term)
        if self._incoming_of != name or chunk.offset == 0:
            self._incoming_of, self._incoming = name, bytearray()
        if chunk.offset == len(self._incoming):
            self._incoming += chunk.data
        if len(self._incoming) < chunk.total_bytes:
            return len(self._incoming)
        state = bytes(self._incoming)
        self._incoming = bytearray()
        self._install(chunk, state)
        return chunk.total_bytes

    def _install(self, chunk: SnapshotChunk, state: bytes) -> None:
        output = self._output
        output.snapshot = InstalledSnapshot(chunk.index, chunk.index_term, state)
        output.truncate_from, output.appended, output.committed = None, [], []
        self.log.compact(chunk.index, chunk.index_term)
        # The snapshot begins the persisted log again, so what follows it is written again.
        output.appended, output.first_appended = list(self.log.entries), chunk.index + 1
        self._snapshot = state
        self.commit_index = self.applied_index = chunk.index

    def _note_snapshot(self, sender: str, answer: SnapshotAnswer, now_ms: int) -> None:
        if self.role is not RaftRole.LEADER or answer.term != self.term:
            return
        follower = self._hear_follower(sender, answer.round, now_ms)
        follower.is_waiting = False
        if answer.index != self.log.base_index or self._snapshot is None:
            follower.snapshot_bytes = 0
        elif answer.received_bytes >= len(self._snapshot):
            follower.snapshot_bytes = 0
            follower.match_index = max(follower.match_index, answer.index)
            follower.next_index = max(follower.next_index, answer.index + 1)
        else:
            follower.snapshot_bytes = answer.received_bytes
        if follower.next_index <= self.log.last_index:
            self._send(sender, follower)
