"""One member of a Raft group, message by message."""

from __future__ import annotations

from random import Random

import pytest

from millstream.consensus.entry_log import EntryLog
from millstream.consensus.raft import HardState, NotLeader, Raft, RaftOptions, RaftRole
from millstream.consensus.raft_messages import (
    MAX_ENTRY_BYTES,
    MAX_MESSAGE_BYTES,
    AppendAnswer,
    AppendEntries,
    Entry,
    SnapshotChunk,
    VoteAnswer,
    VoteRequest,
    decode_message,
    encode_message,
)
from millstream.model.errors import ConnectionFailed, StartRefused

OPTIONS = RaftOptions(election_timeout_ms=100, heartbeat_ms=20)
LATE_MS = 250
"""Later than any election timeout."""


def member(name: str = "a", others: str = "bc", *, term: int = 0, entries: list[Entry] | None = None) -> Raft:
    return Raft(
        name,
        [name, *others],
        hard_state=HardState(term),
        log=EntryLog(entries=entries or []),
        options=OPTIONS,
        random=Random(1),
        now_ms=0,
    )


def leader(*, term: int = 0, entries: list[Entry] | None = None) -> Raft:
    raft = member(term=term, entries=entries)
    raft.tick(LATE_MS)
    raft.receive("b", VoteAnswer(term + 1, is_given=True, is_pre=True), LATE_MS)
    raft.receive("b", VoteAnswer(term + 1, is_given=True), LATE_MS)
    assert raft.role is RaftRole.LEADER
    raft.take_output()
    raft.note_persisted()
    return raft


def accept(raft: Raft, sender: str, match_index: int, answered_round: int = 1, now_ms: int = LATE_MS) -> None:
    raft.receive(sender, AppendAnswer(raft.term, True, match_index, answered_round), now_ms)


@pytest.mark.parametrize("members", [["a", "b"], ["a", "a", "b"], ["b", "c", "d"], ["a", "b", "c", "d"], []])
def test_a_group_that_cannot_be_is_refused(members: list[str]) -> None:
    with pytest.raises(StartRefused, match="1, 3 or 5"):
        Raft("a", members, hard_state=HardState(), log=EntryLog(), random=Random(1), now_ms=0)


def test_a_member_that_is_alone_leads_and_commits_at_once() -> None:
    raft = member(others="")
    raft.tick(LATE_MS)
    assert raft.role is RaftRole.LEADER
    assert not raft.leads
    raft.take_output()
    raft.note_persisted()
    assert raft.take_output().committed == [(1, Entry(1, b""))]
    assert raft.leads
    raft.propose(b"x", LATE_MS)
    assert raft.take_output().committed == []
    raft.note_persisted()
    assert raft.take_output().committed == [(2, Entry(1, b"x"))]


def test_who_hears_nothing_asks_first_whether_votes_would_be_given() -> None:
    raft = member()
    raft.tick(LATE_MS)
    output = raft.take_output()
    assert output.hard_state is None
    assert output.messages == [(other, VoteRequest(1, 0, 0, is_pre=True)) for other in "bc"]
    raft.receive("b", VoteAnswer(1, is_given=True, is_pre=True), LATE_MS)
    output = raft.take_output()
    assert output.hard_state == HardState(1, "a")
    assert output.messages == [(other, VoteRequest(1, 0, 0)) for other in "bc"]


@pytest.mark.parametrize("seed", range(20))
def test_who_has_heard_no_leader_since_its_start_asks_soon_and_again(seed: int) -> None:
    heard_by_ms = 2 * OPTIONS.heartbeat_ms
    soon_ms = heard_by_ms + OPTIONS.election_timeout_ms // 2
    raft = Raft("a", "abc", hard_state=HardState(3), log=EntryLog(), options=OPTIONS, random=Random(seed), now_ms=0)
    for start_ms in (0, soon_ms):
        raft.tick(start_ms + heard_by_ms - 1)
        assert raft.take_output().messages == []
        raft.tick(start_ms + soon_ms)
        assert raft.take_output().messages == [(other, VoteRequest(4, 0, 0, is_pre=True)) for other in "bc"]


@pytest.mark.parametrize("seed", range(20))
def test_who_has_heard_a_leader_waits_a_whole_election_timeout(seed: int) -> None:
    raft = Raft("a", "abc", hard_state=HardState(1), log=EntryLog(), options=OPTIONS, random=Random(seed), now_ms=0)
    raft.receive("b", AppendEntries(1, 0, 0, 0, 1), 10)
    raft.take_output()
    raft.tick(10 + OPTIONS.election_timeout_ms - 1)
    assert raft.take_output().messages == []


def test_a_member_that_hears_its_leader_would_give_no_vote_to_another() -> None:
    raft = member()
    raft.receive("b", AppendEntries(1, 0, 0, 0, 1), 1_000)
    raft.take_output()
    raft.receive("c", VoteRequest(2, 0, 0, is_pre=True), 1_050)
    assert raft.take_output().messages == [("c", VoteAnswer(1, is_given=False, is_pre=True))]
    raft.receive("c", VoteRequest(2, 0, 0, is_pre=True), 1_500)
    assert raft.take_output().messages == [("c", VoteAnswer(2, is_given=True, is_pre=True))]
    assert raft.term == 1


def test_a_vote_is_given_once_a_term_and_only_to_whom_has_as_much() -> None:
    raft = member(term=2, entries=[Entry(1, b"x"), Entry(2, b"y")])
    for asked, is_given in (
        (VoteRequest(3, 9, 1), False),
        (VoteRequest(3, 1, 2), False),
        (VoteRequest(3, 2, 2), True),
    ):
        raft.receive("b", asked, 1)
        assert raft.take_output().messages == [("b", VoteAnswer(3, is_given))]
    assert raft.hard_state == HardState(3, "b")
    raft.receive("c", VoteRequest(3, 5, 3), 1)
    assert raft.take_output().messages == [("c", VoteAnswer(3, is_given=False))]


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """Raft, figure 8: it may be at most members and still be replaced."""
    raft = leader(term=1, entries=[Entry(1, b"old")])
    accept(raft, "b", 1)
    accept(raft, "c", 1)
    assert raft.take_output().committed == []
    accept(raft, "b", 2)
    assert raft.take_output().committed == [(1, Entry(1, b"old")), (2, Entry(2, b""))]


def test_nobody_proposes_or_reads_but_at_the_leader() -> None:
    raft = member()
    raft.receive("b", AppendEntries(1, 0, 0, 0, 1), 1)
    with pytest.raises(NotLeader) as refused:
        raft.propose(b"x", 1)
    assert refused.value.leader == "b"
    leading = leader()
    with pytest.raises(NotLeader):
        leading.request_read(LATE_MS)  # the first entry of its term is not committed yet
    with pytest.raises(ValueError, match=str(MAX_ENTRY_BYTES)):
        leading.propose(b"x" * (MAX_ENTRY_BYTES + 1), LATE_MS)


def test_a_read_waits_for_answers_to_what_was_sent_after_it() -> None:
    raft = leader()
    accept(raft, "b", 1)
    number = raft.request_read(LATE_MS)
    raft.take_output()
    accept(raft, "c", 1, answered_round=1)
    assert raft.take_output().ready_reads == []
    accept(raft, "b", 1, answered_round=2)
    assert raft.take_output().ready_reads == [number]


def test_a_leader_that_nobody_answers_steps_down_and_its_reads_fail() -> None:
    raft = leader()
    accept(raft, "b", 1)
    number = raft.request_read(LATE_MS)
    for now_ms in range(LATE_MS, LATE_MS + 300, 10):
        raft.tick(now_ms)
    assert raft.role is not RaftRole.LEADER
    assert raft.take_output().failed_reads == [number]


def test_entries_that_do_not_fit_are_replaced_and_none_that_is_committed() -> None:
    raft = member(term=3, entries=[Entry(1, b"a"), Entry(2, b"b"), Entry(2, b"c")])
    raft.receive("b", AppendEntries(3, 3, 3, 1, 1), 1)
    answer = raft.take_output().messages[0][1]
    assert answer == AppendAnswer(3, is_accepted=False, match_index=1, round=1)
    raft.receive("b", AppendEntries(3, 1, 1, 2, 2, (Entry(3, b"d"),)), 1)
    output = raft.take_output()
    assert (output.truncate_from, output.first_appended, output.appended) == (2, 2, [Entry(3, b"d")])
    assert output.committed == [(1, Entry(1, b"a")), (2, Entry(3, b"d"))]
    # The same message again, late, changes nothing.
    raft.receive("b", AppendEntries(3, 1, 1, 2, 2, (Entry(3, b"d"),)), 1)
    output = raft.take_output()
    assert (output.truncate_from, output.appended, output.committed) == (None, [], [])


def test_a_member_that_lost_what_it_had_is_asked_at_heartbeats_alone() -> None:
    raft = leader()
    accept(raft, "b", 1)
    raft.take_output()
    raft.receive("b", AppendAnswer(1, False, 0, 1), LATE_MS)
    assert raft.take_output().messages == []


def test_messages_of_strangers_and_of_earlier_terms_change_nothing() -> None:
    raft = member(term=5)
    raft.receive("x", VoteRequest(9, 9, 9), 1)
    assert raft.term == 5
    raft.receive("b", AppendEntries(4, 0, 0, 0, 1, (Entry(4, b"x"),)), 1)
    output = raft.take_output()
    assert output.appended == []
    assert output.messages == [("b", AppendAnswer(5, is_accepted=False, match_index=0, round=1))]


def test_a_message_is_read_as_it_was_written_and_garbage_is_refused() -> None:
    for message in (
        VoteRequest(1, 2, 3, is_pre=True),
        AppendEntries(1, 2, 3, 4, 5, (Entry(1, b"x"), Entry(2, b""))),
        SnapshotChunk(1, 2, 3, 4, 5, 6, b"state"),
    ):
        assert decode_message(encode_message(message)) == message
    for data in (b"", b"\x00", b"x" * 100, encode_message(VoteRequest(1, 2, 3))[:-1], b"\x80"):
        with pytest.raises(ConnectionFailed):
            decode_message(data)
    with pytest.raises(ConnectionFailed, match="bytes"):
        decode_message(bytes(MAX_MESSAGE_BYTES + 1))
