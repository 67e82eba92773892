"""What replicas and tools ask for: RocketMQ's refusals in RocketMQ's order."""

from __future__ import annotations

import pytest
from replica_set_samples import NAME, led_set, replica_set, with_replica

from millstream.controller.replica_sets import ReplicaSet, ReplicaSets, SetChange
from millstream.controller.set_requests import alter_set, apply_id, clean_replicas, register_replica
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    CleanBrokerRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody
from millstream.protocol.remoting.refusals import response_code_of

ASKED = AlterSetRequest(NAME, 1, 3)


def after(change: SetChange | None) -> ReplicaSet:
    assert change is not None
    assert change.after is not None
    return change.after


def nobody(_number: int) -> bool:
    return False


def everybody(_number: int) -> bool:
    return True


def test_a_master_changes_its_set_and_the_epoch_grows() -> None:
    found = led_set(1, 2, 3, members=(1, 2))
    changed = after(alter_set(found, ASKED, SyncStateSetBody([3, 1], 7), everybody))
    assert (changed.members, changed.set_epoch, changed.last_members) == ((1, 3), 8, (1, 2))
    assert (changed.master, changed.master_epoch) == (1, 3)


@pytest.mark.parametrize(
    ("code", "wanted", "asked"),
    [
        # Each row is right in all that is looked at later.
        (2013, SyncStateSetBody([2, 1], 1), AlterSetRequest(NAME, 2, 1)),
        (2002, SyncStateSetBody([9], 1), AlterSetRequest(NAME, 2, 1)),
        (2000, SyncStateSetBody([9], 1), AlterSetRequest(NAME, 1, 2)),
        (2001, SyncStateSetBody([9], 6), ASKED),
        (2003, SyncStateSetBody([9], 7), ASKED),
        (2003, SyncStateSetBody([4, 1], 7), ASKED),
        (2006, SyncStateSetBody([3], 7), ASKED),
        (2013, SyncStateSetBody([2], 7), ASKED),
    ],
)
def test_a_wish_for_another_set_is_refused_in_rocketmqs_order(
    code: int, wanted: SyncStateSetBody, asked: AlterSetRequest
) -> None:
    found = with_replica(led_set(1, 2, 3, 4, members=(1, 2)), 4, is_learner=True)
    with pytest.raises(NameRefused) as refused:
        alter_set(found, asked, wanted, lambda number: number != 3)
    assert response_code_of(refused.value) == code


def test_nobody_changes_the_set_of_a_broker_that_is_not_known_or_has_no_master() -> None:
    with pytest.raises(NameRefused) as refused:
        alter_set(None, ASKED, SyncStateSetBody([1], 0), everybody)
    assert response_code_of(refused.value) == 2013
    with pytest.raises(NameRefused) as refused:
        alter_set(replica_set(1, 2), AlterSetRequest(NAME, 1, 0), SyncStateSetBody([1], 0), everybody)
    assert response_code_of(refused.value) == 2002


def test_the_first_replica_of_a_name_takes_the_first_id_and_makes_the_set() -> None:
    made = after(apply_id(None, ApplyIdRequest("c", NAME, 1, "h1:10911;5")))
    assert (made.cluster, made.name, made.next_id, made.addresses) == ("c", NAME, 2, {1: "h1:10911"})
    assert (made.master, made.master_epoch, made.members) == (None, 0, ())


def test_an_id_is_taken_once_and_its_holder_may_ask_again() -> None:
    found = replica_set(1)
    second = after(apply_id(found, ApplyIdRequest("c", NAME, 2, "h2:10911;2")))
    assert second.next_id == 3
    assert apply_id(second, ApplyIdRequest("c", NAME, 2, "h2:10911;2")) is None
    with pytest.raises(NameRefused) as refused:
        apply_id(second, ApplyIdRequest("c", NAME, 2, "h9:10911;9"))
    assert response_code_of(refused.value) == 2014


@pytest.mark.parametrize("number", [0, -1, 2, 10_000])
def test_an_id_that_was_given_before_or_is_far_off_is_refused(number: int) -> None:
    found = after(clean_replicas(replica_set(1, 2), CleanBrokerRequest(NAME, "c", ("2",)), nobody))
    with pytest.raises(NameRefused) as refused:
        apply_id(found, ApplyIdRequest("c", NAME, number, "h2:10911;2"))
    assert response_code_of(refused.value) == 2014


@pytest.mark.parametrize("number", [0, 2])
def test_a_new_name_begins_with_the_first_id(number: int) -> None:
    with pytest.raises(NameRefused) as refused:
        apply_id(None, ApplyIdRequest("c", NAME, number, "h1:10911;5"))
    assert response_code_of(refused.value) == 2014


def test_a_replica_tells_its_new_address_and_how_it_acknowledges() -> None:
    found = led_set(1, 2)
    changed = after(register_replica(found, RegisterReplicaRequest("c", NAME, 2, "new:1", all_ack="false")))
    assert (changed.addresses[2], changed.replicas[2].all_ack) == ("new:1", False)
    assert changed.replicas[2].check_code == found.replicas[2].check_code
    assert register_replica(changed, RegisterReplicaRequest("c", NAME, 2, "new:1", all_ack="false")) is None


def test_a_member_that_registers_as_a_learner_leaves_the_set() -> None:
    changed = after(register_replica(led_set(1, 2), RegisterReplicaRequest("c", NAME, 1, "h1:10911", True)))
    assert (changed.members, changed.set_epoch, changed.master, changed.master_epoch) == ((2,), 8, None, 4)


@pytest.mark.parametrize("found", [None, replica_set(1)])
def test_a_replica_without_an_id_cannot_register(found: ReplicaSet | None) -> None:
    with pytest.raises(NameRefused) as refused:
        register_replica(found, RegisterReplicaRequest("c", NAME, 2, "h2:10911"))
    assert response_code_of(refused.value) == 2010


def test_dead_replicas_are_forgotten_and_leave_the_set() -> None:
    found = led_set(1, 2, 3)
    changed = after(clean_replicas(found, CleanBrokerRequest(NAME, "c", ("1", "3")), nobody))
    assert (sorted(changed.replicas), changed.members, changed.master, changed.next_id) == ([2], (2,), None, 4)
    assert (changed.master_epoch, changed.set_epoch) == (4, 8)


def test_a_name_is_forgotten_with_its_last_replica() -> None:
    change = clean_replicas(replica_set(1, 2), CleanBrokerRequest(NAME), everybody)
    assert (change.after, change.name) == (None, NAME)
    assert clean_replicas(replica_set(1), CleanBrokerRequest(NAME, "", ("1",)), nobody).after is None


@pytest.mark.parametrize(
    ("found", "ids"),
    [
        (led_set(1, 2), ()),
        (led_set(1, 2), ("2",)),
        (led_set(1, 2), ("two",)),
        (None, ()),
        (None, ("1",)),
    ],
)
def test_what_lives_or_is_not_known_is_not_cleaned(found: ReplicaSet | None, ids: tuple[str, ...]) -> None:
    with pytest.raises(NameRefused) as refused:
        clean_replicas(found, CleanBrokerRequest(NAME, "c", ids), everybody)
    assert response_code_of(refused.value) == 2009


def test_to_clean_the_living_on_purpose_cleans_those_that_are_named_alone() -> None:
    """RocketMQ forgets the whole broker then, whatever ids are named."""
    asked = CleanBrokerRequest(NAME, "c", ("2",), True)
    assert sorted(after(clean_replicas(led_set(1, 2), asked, everybody)).replicas) == [1]
    assert clean_replicas(led_set(1, 2), CleanBrokerRequest(NAME, "c", (), True), everybody).after is None


def test_two_wishes_that_were_decided_on_one_state_do_not_both_come_to_pass() -> None:
    sets = ReplicaSets()
    first, second = (apply_id(None, ApplyIdRequest("c", NAME, 1, f"h{one}:1;{one}")) for one in (1, 2))
    assert first is not None
    assert second is not None
    assert (sets.apply(first), sets.apply(second)) == (True, False)
    found = sets.find(NAME)
    assert found is not None
    assert found.addresses == {1: "h1:1"}
