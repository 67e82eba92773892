"""A replica gets the master's log byte for byte, cuts its own where both went apart, and is believed no more than it is
due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from replica_pair import Member

from millstream.model.errors import NameRefused
from millstream.replication.follower import NextStep
from millstream.replication.sync_set import AckPolicy

MakeMember = Callable[[int], Member]


@pytest.fixture
def member(tmp_path: Path) -> Iterator[MakeMember]:
    made: list[Member] = []

    def make(broker_id: int) -> Member:
        made.append(Member(tmp_path / str(broker_id), broker_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_what_all_members_have_is_shown_and_not_before(member: MakeMember) -> None:
    master, replica = member(1), member(2)
    master.lead(1, {1, 2})
    replica.follow(1)
    end = master.put(b"a", b"b")
    assert master.shown() == []
    replica.exchange(master, session=1)
    assert replica.store.written_log_offset == end
    assert master.shown() == [], "that it was sent says nothing"
    replica.exchange(master, session=1)
    assert master.shown() == [b"a", b"b"]
    assert replica.shown() == [], "it was not told yet"
    master.put(b"c")
    replica.exchange(master, session=1)
    assert replica.shown() == [b"a", b"b"]


def test_a_member_without_a_session_holds_what_is_confirmed(member: MakeMember) -> None:
    master, replica = member(1), member(2)
    source = master.lead(1, {1, 2, 3})
    replica.follow(1)
    master.put(b"a")
    replica.catch_up(master, 1)
    assert master.shown() == []
    source.sync_set.note_set({1, 2}, 2)
    source.note_own()
    assert master.shown() == [b"a"]


def test_logs_that_went_apart_are_cut_and_are_the_same_then(member: MakeMember) -> None:
    one, two = member(1), member(2)
    one.lead(1, {1, 2})
    two.follow(1)
    one.put(b"a")
    two.catch_up(one, 1)
    one.put(b"lost", b"lost too")
    two.lead(2, {2})
    two.put(b"b")
    one.follow(2)
    one.catch_up(two, 7)
    two.put(b"c")
    one.catch_up(two, 7)
    assert two.shown() == [b"a", b"b", b"c"]
    assert one.store.written_log_offset == two.store.written_log_offset
    assert one.log.epochs == two.log.epochs
    one.store.confirm(two.store.confirmed_log_offset)
    assert one.shown() == two.shown()


def test_an_epoch_in_which_nothing_was_written_is_forgotten_where_the_master_lacks_it(member: MakeMember) -> None:
    one, two = member(1), member(2)
    one.lead(1, {1, 2})
    two.follow(1)
    one.put(b"a")
    two.catch_up(one, 1)
    # What a crash leaves between the note of an epoch and its first record.
    one.log._save(one.log.epochs.append(2, one.log.end))
    two.lead(3, {2})
    one.follow(3)
    one.catch_up(two, 1)
    assert one.log.epochs == two.log.epochs


def test_a_directory_without_replicas_becomes_the_first_of_a_set(member: MakeMember) -> None:
    one, two = member(1), member(2)
    one.put(b"old")
    one.close()
    one.open()
    one.lead(1, {1})
    two.follow(1)
    two.catch_up(one, 1)
    one.put(b"new")
    two.catch_up(one, 1)
    assert [start.epoch for start in one.log.epochs.starts] == [0, 1]
    assert two.log.epochs == one.log.epochs
    two.store.confirm(one.store.confirmed_log_offset)
    assert two.shown() == [b"old", b"new"]


def test_a_log_of_which_nothing_is_known_begins_anew(member: MakeMember) -> None:
    one, two = member(1), member(2)
    two.put(b"of another set")
    one.lead(1, {1})
    two.follow(1)
    step = two.exchange(one, 1)
    assert step is not None
    assert step.next is NextStep.BEGIN_ANEW
    assert step.log_offset == 0


def test_a_master_believes_nothing_that_it_did_not_send(member: MakeMember) -> None:
    master, liar = member(1), member(2)
    source = master.lead(1, {1, 2})
    first_end = master.put(b"a")
    follower = liar.follow(1)
    liar.exchange(master, 1)
    master.put(b"b" * 500)
    fetch = follower.fetch()
    assert fetch.log_offset == first_end
    claims = [
        ("claims the log", replace(fetch, log_offset=master.log.end)),
        ("is the master itself", replace(fetch, broker_id=1)),
        ("not broker-a of cluster-b", replace(fetch, cluster="cluster-b")),
    ]
    for words, false in claims:
        with pytest.raises(NameRefused, match=words):
            source.take(1, false, 1.0)
    assert source.sync_set.confirmed == 0


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_fetch_of_another_epoch_is_refused_and_acknowledges_nothing(member: MakeMember, epoch: int) -> None:
    master, replica = member(1), member(2)
    source = master.lead(2, {1, 2})
    replica.follow(epoch)
    with pytest.raises(NameRefused) as refused:
        replica.exchange(master, 1)
    assert refused.value.name == "FENCED_MASTER_EPOCH"
    assert source.sync_set.confirmed == 0


def test_an_answer_of_another_epoch_changes_nothing(member: MakeMember) -> None:
    master, replica = member(1), member(2)
    source = master.lead(1, {1, 2})
    master.put(b"a")
    follower = replica.follow(1)
    fetched, _ = source.take(1, follower.fetch(), 0.0)
    assert fetched is not None
    later = replica.follow(2)
    with pytest.raises(NameRefused):
        later.take(fetched.fields, bytes(fetched.body))
    assert replica.log.end == 0


def test_a_replica_with_other_files_is_refused(member: MakeMember) -> None:
    master, replica = member(1), member(2)
    master.lead(1, {1, 2})
    replica.with_options(segment_bytes=8192)
    replica.follow(1)
    with pytest.raises(NameRefused, match="files of 8192 bytes"):
        replica.exchange(master, 1)


def test_a_new_session_of_a_replica_replaces_the_old_one(member: MakeMember) -> None:
    master, replica = member(1), member(2)
    source = master.lead(1, {1, 2})
    follower = replica.follow(1)
    assert source.take(1, follower.fetch(), 0.0)[1] is None
    assert source.take(2, follower.fetch(), 0.0)[1] == 1


def test_a_replica_that_is_told_what_is_confirmed_is_owed_nothing(member: MakeMember) -> None:
    master, replica = member(1), member(2)
    source = master.lead(1, {1, 2})
    follower = replica.follow(1)
    master.put(b"a")
    replica.catch_up(master, 1)
    fetch = follower.fetch()
    assert source.owes_confirmation(fetch)
    answer = source.answer(1, fetch, is_due=True)
    assert answer is not None
    follower.take(answer.fields, b"")
    assert replica.shown() == [b"a"]
    assert not source.owes_confirmation(follower.fetch())


def test_what_some_replicas_have_counts_only_while_the_master_may_confirm_7017(member: MakeMember) -> None:
    """RocketMQ issue 7017: where not all of the set must have it, its lease alone keeps a former master from it."""
    master = member(1)
    source = master.lead(1, {1, 2}, policy=AckPolicy(all_in_set=False, in_sync_replicas=1))
    source._may_confirm = lambda: False
    master.put(b"a")
    assert master.shown() == []
    source._may_confirm = lambda: True
    source.note_own()
    assert master.shown() == [b"a"]
