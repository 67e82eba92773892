"""Who becomes master, and when."""

from __future__ import annotations

from typing import Any

import pytest
from replica_set_samples import NAME, elections_at, heartbeat, led_set, replica_set, with_replica

from millstream.controller.elections import LEASE_MARGIN, LEASE_S, ElectionOutcome
from millstream.controller.liveness import SILENCE_S
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.controller_requests import BY_CONTROLLER

NOW_S = 100.0
SILENT_S = NOW_S + SILENCE_S


def test_the_first_election_chooses_the_replica_that_asks() -> None:
    elections, _ = elections_at()
    election = elections.elect(replica_set(1, 2), 2, NOW_S)
    assert election.change is not None
    assert election.change.after is not None
    after = election.change.after
    assert (after.master, after.master_epoch, after.members, after.set_epoch) == (2, 1, (2,), 1)


def test_a_controller_holds_no_first_election_of_its_own() -> None:
    elections, _ = elections_at(1, 2)
    assert elections.elect(replica_set(1, 2), BY_CONTROLLER, NOW_S).outcome is ElectionOutcome.NOBODY
    assert elections.find_due([replica_set(1, 2)], NOW_S) == []


@pytest.mark.parametrize(("asker", "is_designated"), [(2, False), (BY_CONTROLLER, False), (1, True)])
def test_a_living_master_stays_unless_another_one_is_designated(asker: int, is_designated: bool) -> None:
    elections, _ = elections_at(1, 2)
    election = elections.elect(led_set(1, 2), asker, NOW_S, is_designated=is_designated)
    assert (election.outcome, election.change) == (ElectionOutcome.KEPT, None)


def test_a_designated_member_takes_over_from_a_living_master_which_stays_a_member() -> None:
    elections, _ = elections_at(1, 2)
    election = elections.elect(led_set(1, 2), 2, NOW_S, is_designated=True)
    assert election.change is not None
    assert election.change.after is not None
    after = election.change.after
    assert (after.master, after.master_epoch, after.members, after.set_epoch) == (2, 4, (1, 2), 8)


def test_who_is_designated_and_dead_or_no_member_is_not_replaced_by_another_one() -> None:
    elections, _ = elections_at(2)
    found = led_set(1, 2, 3, members=(1, 2))
    assert elections.elect(found, 3, SILENT_S - 0.1, is_designated=True).outcome is ElectionOutcome.NOBODY


@pytest.mark.parametrize(
    ("second", "third", "chosen"),
    [
        ({"epoch": 2, "max_offset": 9000}, {"epoch": 3, "max_offset": 10}, 3),
        ({"max_offset": 1001}, {"max_offset": 1000, "priority": 0}, 2),
        ({"priority": 5}, {"priority": 4}, 3),
        ({}, {}, 2),
        ({"max_offset": 1001, "priority": 0, "is_damaged": True}, {"max_offset": 1000}, 3),
        ({"is_damaged": True}, {"is_damaged": True}, 2),
    ],
)
def test_a_whole_log_wins_then_the_longest_one_of_the_last_epoch_wins_then_the_lower_priority_then_the_lower_id(
    second: dict[str, Any], third: dict[str, Any], chosen: int
) -> None:
    elections, liveness = elections_at()
    liveness.note(heartbeat(2, **second), NOW_S)
    liveness.note(heartbeat(3, **third), NOW_S)
    election = elections.elect(led_set(1, 2, 3), BY_CONTROLLER, NOW_S)
    assert election.change is not None
    assert election.change.after is not None
    assert election.change.after.master == chosen


def test_the_new_set_is_the_living_members_of_the_old_one_and_the_old_one_is_kept() -> None:
    elections, _ = elections_at(2, 3, 5)
    election = elections.elect(led_set(1, 2, 3, 4, 5, members=(1, 2, 3, 4)), BY_CONTROLLER, NOW_S)
    assert election.change is not None
    assert election.change.after is not None
    assert election.change.after.members == (2, 3)
    assert election.change.after.last_members == (1, 2, 3, 4)


def test_replicas_outside_the_set_are_elected_only_where_that_is_allowed() -> None:
    """The set's members are preferred then, after them those of the set before."""
    found = led_set(1, 2, 3, members=(1,), last_members=(1, 2))
    elections, liveness = elections_at(2)
    liveness.note(heartbeat(3, max_offset=5000), NOW_S)
    nobody = elections.elect(found, BY_CONTROLLER, NOW_S)
    assert nobody.outcome is ElectionOutcome.NOBODY
    elections.is_unclean = True
    election = elections.elect(found, BY_CONTROLLER, NOW_S)
    assert election.change is not None
    assert election.change.after is not None
    assert (election.change.after.master, election.change.after.members) == (2, (2,))


def test_where_nobody_is_fit_the_controller_notes_it_once_and_keeps_the_set() -> None:
    elections, _ = elections_at()
    election = elections.elect(led_set(1, 2), BY_CONTROLLER, SILENT_S)
    assert election.outcome is ElectionOutcome.NOBODY
    assert election.change is not None
    after = election.change.after
    assert after is not None
    assert (after.master, after.master_epoch, after.members, after.set_epoch) == (None, 4, (1, 2), 7)
    assert elections.find_due([after], SILENT_S) == []
    assert elections.elect(after, BY_CONTROLLER, SILENT_S).change is None


def test_a_replica_that_asks_where_nobody_is_fit_changes_nothing() -> None:
    elections, _ = elections_at()
    election = elections.elect(led_set(1, 2), 2, SILENT_S)
    assert (election.outcome, election.change) == (ElectionOutcome.NOBODY, None)


def test_a_learner_is_never_elected_10013() -> None:
    """RocketMQ issue 10013: not by the first election, not by designation, not for want of others."""
    elections, _ = elections_at(1, 2)
    with pytest.raises(NameRefused, match="learner") as refused:
        elections.elect(with_replica(replica_set(1, 2), 2, is_learner=True), 2, NOW_S)
    assert refused.value.name == "ELECT_MASTER_FAILED"
    elections, _ = elections_at(2, is_unclean=True)
    found = with_replica(led_set(1, 2, members=(1,)), 2, is_learner=True)
    assert elections.elect(found, BY_CONTROLLER, NOW_S).outcome is ElectionOutcome.NOBODY


def test_a_replica_that_is_not_registered_cannot_ask() -> None:
    elections, _ = elections_at(1)
    with pytest.raises(NameRefused) as refused:
        elections.elect(led_set(1, 2), 9, NOW_S)
    assert refused.value.name == "BROKER_NEEDS_TO_BE_REGISTERED"


def test_a_replica_that_was_never_heard_is_no_candidate() -> None:
    """A controller that has just become the leader counts it as living, and does not know how far its log goes."""
    elections, liveness = elections_at()
    liveness.restart(NOW_S)
    liveness.note(heartbeat(1), NOW_S)
    liveness.lose(NAME, 1)
    liveness.note(heartbeat(3, max_offset=0), NOW_S)
    election = elections.elect(led_set(1, 2, 3), BY_CONTROLLER, NOW_S)
    assert election.change is not None
    assert election.change.after is not None
    assert (election.change.after.master, election.change.after.members) == (3, (2, 3))


def test_a_master_is_due_for_replacement_after_two_seconds_of_silence() -> None:
    elections, liveness = elections_at(1, 2)
    assert elections.find_due([led_set(1, 2)], SILENT_S - 0.01) == []
    liveness.note(heartbeat(2), SILENT_S - 0.01)
    assert elections.find_due([led_set(1, 2)], SILENT_S) == [NAME]


def test_a_master_whose_port_is_closed_is_replaced_at_once() -> None:
    elections, liveness = elections_at(1, 2)
    liveness.lose(NAME, 1)
    assert elections.find_due([led_set(1, 2)], NOW_S) == [NAME]


def test_a_set_without_a_master_is_due_when_a_member_comes_back_9717() -> None:
    """RocketMQ issues 5009, 5712, 9717: the scan for such sets did not find them."""
    found = led_set(1, 2, master=1, members=(1,))
    elections, liveness = elections_at(2)
    nobody = elections.elect(found, BY_CONTROLLER, SILENT_S).change
    assert nobody is not None
    assert nobody.after is not None
    assert elections.find_due([nobody.after], SILENT_S) == []
    liveness.note(heartbeat(1), SILENT_S + 1)
    assert elections.find_due([nobody.after], SILENT_S + 1) == [NAME]


def test_the_lease_is_waited_for_where_the_master_does_not_wait_for_every_member_7017() -> None:
    """RocketMQ issue 7017: an isolated master acknowledges what the next one lacks."""
    found = with_replica(led_set(1, 2), 1, all_ack=False)
    elections, liveness = elections_at(1, 2)
    liveness.grant_lease(NAME, 1, NOW_S)
    end_s = NOW_S + LEASE_S * LEASE_MARGIN
    for now_s in (SILENT_S, end_s - 0.01):
        liveness.note(heartbeat(2), now_s)
        assert elections.find_due([found], now_s) == []
        with pytest.raises(NameRefused, match="lease") as refused:
            elections.elect(found, 2, now_s)
        assert refused.value.name == "ELECT_MASTER_FAILED"
    assert elections.find_due([found], end_s) == [NAME]
    assert elections.elect(found, 2, end_s).outcome is ElectionOutcome.ELECTED


@pytest.mark.parametrize("all_ack", [True, None])
def test_no_lease_is_waited_for_where_the_set_protects_what_is_acknowledged_or_there_is_none(
    all_ack: bool | None,
) -> None:
    elections, liveness = elections_at(1, 2)
    liveness.grant_lease(NAME, 1, NOW_S)
    liveness.lose(NAME, 1)
    assert elections.find_due([with_replica(led_set(1, 2), 1, all_ack=all_ack)], NOW_S) == [NAME]


def test_a_goodbye_ends_the_lease() -> None:
    elections, liveness = elections_at(1, 2)
    liveness.grant_lease(NAME, 1, NOW_S)
    liveness.note(heartbeat(1, is_goodbye=True), NOW_S)
    found = with_replica(led_set(1, 2), 1, all_ack=False)
    assert elections.find_due([found], NOW_S) == [NAME]
    assert elections.elect(found, 2, NOW_S).previous_lease_s == 0


def test_a_new_master_learns_how_long_the_former_one_may_hold_its_lease_also_after_a_gap() -> None:
    elections, liveness = elections_at(1)
    liveness.grant_lease(NAME, 1, NOW_S)
    gap = elections.elect(with_replica(led_set(1, 2), 1, all_ack=True), BY_CONTROLLER, SILENT_S).change
    assert gap is not None
    assert gap.after is not None
    liveness.note(heartbeat(2), SILENT_S)
    election = elections.elect(gap.after, BY_CONTROLLER, SILENT_S)
    assert election.previous_lease_s == pytest.approx(LEASE_S * LEASE_MARGIN - SILENCE_S)


def test_a_master_that_dies_soon_does_not_hide_its_predecessors_lease() -> None:
    elections, liveness = elections_at(1, 2, 3)
    found = led_set(1, 2, 3)
    for number in (1, 2, 3):
        found = with_replica(found, number, all_ack=True)
    liveness.grant_lease(NAME, 1, NOW_S)
    liveness.lose(NAME, 1)
    second = elections.elect(found, BY_CONTROLLER, NOW_S).change
    assert second is not None
    assert second.after is not None
    liveness.note(heartbeat(2, is_goodbye=True), NOW_S + 0.3)
    third = elections.elect(second.after, BY_CONTROLLER, NOW_S + 0.3)
    assert third.previous_lease_s == pytest.approx(LEASE_S * LEASE_MARGIN - 0.3)


def test_a_new_leader_counts_with_leases_that_its_predecessor_gave_until_they_must_have_ended() -> None:
    found = with_replica(led_set(1, 2), 1, all_ack=False)
    elections, liveness = elections_at()
    liveness.restart(NOW_S)
    for later_s, is_due in ((SILENCE_S, False), (LEASE_S * LEASE_MARGIN, True)):
        liveness.note(heartbeat(2), NOW_S + later_s)
        assert bool(elections.find_due([found], NOW_S + later_s)) is is_due


def test_after_a_change_of_leader_nobody_is_dead_for_two_seconds() -> None:
    elections, liveness = elections_at(1, 2)
    liveness.restart(NOW_S + 50)
    assert elections.find_due([led_set(1, 2)], NOW_S + 51.9) == []
    assert elections.find_due([led_set(1, 2)], NOW_S + 52) == [NAME]
