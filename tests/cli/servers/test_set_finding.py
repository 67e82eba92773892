from __future__ import annotations

from typing import Any

import pytest

from millstream.cli.servers.finding import Finding, Severity
from millstream.cli.servers.set_finding import of_controllers, of_set
from millstream.client.replica_operations import ControllerStatus, SetStatus
from millstream.model.errors import Unreachable
from millstream.protocol.remoting.administration.broker_report import ReplicaProgress, SetReport
from millstream.protocol.remoting.administration.sync_state_sets import InSyncReplica, ReplicaSetInfo

A, B, C = "10.0.0.1:9877", "10.0.0.2:9877", "10.0.0.3:9877"


def report(**changed: Any) -> SetReport:
    replicas = [ReplicaProgress(number, f"10.0.0.{number}:1", True, 0) for number in (2, 3)]
    told: dict[str, Any] = {
        "broker_id": 1, "epoch": 4, "set_epoch": 7, "members": [1, 2, 3], "replicas": replicas, "takes_writes": True,
        "all_in_set": True, "in_sync_replicas": 2, "min_in_sync": 2, "log_end": 900, "confirmed": 900,
        "lease_left_ms": 3000, "controllers": [A],
    }  # fmt: skip
    return SetReport(**{**told, **changed})


def info(members: tuple[int, ...] = (1, 2, 3), *, master: int | None = 1, dead: tuple[int, ...] = ()) -> ReplicaSetInfo:
    rows = {one: InSyncReplica("b", one, f"10.0.0.{one}:10911", one not in dead) for one in (1, 2, 3)}
    return ReplicaSetInfo(
        master,
        rows[master].broker_address if master else None,
        4,
        7,
        [row for one, row in rows.items() if one in members],
        [row for one, row in rows.items() if one not in members],
    )


def bad(findings: list[Finding]) -> list[tuple[Severity, str]]:
    return [(one.state, one.words) for one in findings if one.state is not Severity.OK]


def controller(address: str, leader: str | None = A) -> ControllerStatus:
    return ControllerStatus(address, leader, (A, B, C), None)


def dead_controller(address: str) -> ControllerStatus:
    return ControllerStatus(address, None, (), Unreachable("It does not answer."))


def test_a_whole_set_is_one_row_that_names_master_epoch_and_members() -> None:
    [row] = of_set(SetStatus("c", "b", report(), info()))
    assert (row.state, row.words) == (Severity.OK, "master 1 of epoch 4, set [1, 2, 3]")


@pytest.mark.parametrize(
    ("told", "known", "state", "words"),
    [
        (None, info((1, 2), master=None), Severity.PROBLEM, "no master; the last set is [1, 2] of epoch 4"),
        (report(takes_writes=False), info((1, 2)), Severity.PROBLEM, "takes no messages"),
        (report(), info((1,)), Severity.WARNING, "set of 1: the disk of replica 1 is the only copy"),
        (report(), info(dead=(3,)), Severity.WARNING, "replica 3 at 10.0.0.3:10911 is dead"),
        (report(), info((1, 2)), Severity.WARNING, "replica 3 at 10.0.0.3:10911 is not in the set, 0 bytes behind"),
        (report(min_in_sync=1), info(), Severity.WARNING, "min_in_sync 1"),
        (report(damaged_bytes=1200), info(), Severity.WARNING, "replica 1 at 10.0.0.1:10911 has 1,200 damaged bytes"),
        (
            report(replicas=[ReplicaProgress(2, "10.0.0.2:1", True, 0, 300), ReplicaProgress(3, None, True, None)]),
            info(),
            Severity.WARNING,
            "replica 2 at 10.0.0.2:10911 has 300 damaged bytes in its log",
        ),
        (report(all_in_set=False), info(), Severity.WARNING, "a message counts with 2 copies"),
    ],
)
def test_what_is_at_risk_with_a_set_is_a_finding_with_a_remedy(
    told: SetReport | None, known: ReplicaSetInfo, state: Severity, words: str
) -> None:
    found = [one for one in of_set(SetStatus("c", "b", told, known)) if words in one.words]
    assert [one.state for one in found] == [state]
    assert found[0].remedy


def test_without_controllers_the_masters_word_counts() -> None:
    found = SetStatus("c", "b", report(members=[1, 2]), None)
    assert (found.master_id, found.members, found.epoch) == (1, [1, 2], 4)
    assert [(one.broker_id, one.in_set) for one in found.replicas] == [(1, True), (2, True), (3, False)]


def test_what_a_replica_without_connection_lacks_is_unknown_and_not_zero() -> None:
    away = [ReplicaProgress(2, None, True, None), ReplicaProgress(3, "10.0.0.3:1", True, 5)]
    found = SetStatus("c", "b", report(replicas=away), info())
    assert [one.behind_bytes for one in found.replicas] == [0, None, 5]


def test_controllers_are_well_with_a_leader_and_more_than_one() -> None:
    [row] = of_controllers([controller(A), controller(B), controller(C)])
    assert (row.state, row.words) == (Severity.OK, f"3 of 3 answer; {A} leads")
    assert of_controllers([]) == []


def test_one_controller_a_silent_one_and_none_that_leads_are_said() -> None:
    [(state, words)] = bad(of_controllers([controller(A)]))
    assert (state, "one controller alone" in words) == (Severity.WARNING, True)
    assert bad(of_controllers([controller(A), controller(B), dead_controller(C)])) == [
        (Severity.PROBLEM, "It does not answer.")
    ]
    lost = bad(of_controllers([controller(A, None), dead_controller(B), dead_controller(C)]))
    assert (Severity.PROBLEM, "no leader") in lost
