"""Ages of heartbeats, and of leases."""

from __future__ import annotations

import pytest
from replica_set_samples import NAME, heartbeat

from millstream.controller.liveness import LONGEST_SILENCE_S, SHORTEST_SILENCE_S, SILENCE_S, Liveness


@pytest.mark.parametrize(
    ("timeout_ms", "silence_s"),
    [(0, SILENCE_S), (-5, SILENCE_S), (10_000, 10.0), (1, SHORTEST_SILENCE_S), (2**60, LONGEST_SILENCE_S)],
)
def test_a_replica_lives_for_the_time_that_it_names_within_bounds(timeout_ms: int, silence_s: float) -> None:
    liveness = Liveness()
    liveness.note(heartbeat(1, timeout_ms=timeout_ms), 100.0)
    assert liveness.is_alive(NAME, 1, 100.0 + silence_s - 0.01)
    assert not liveness.is_alive(NAME, 1, 100.0 + silence_s)


def test_a_replica_that_was_lost_or_said_goodbye_is_dead_until_it_is_heard() -> None:
    liveness = Liveness()
    liveness.note(heartbeat(1), 100.0)
    liveness.lose(NAME, 1)
    liveness.note(heartbeat(2, is_goodbye=True), 100.0)
    liveness.lose(NAME, 3)
    assert not any(liveness.is_alive(NAME, number, 100.0) for number in (1, 2, 3))
    liveness.restart(101.0)
    assert not any(liveness.is_alive(NAME, number, 101.0) for number in (1, 2, 3))
    for number in (1, 2, 3):
        liveness.note(heartbeat(number), 102.0)
    assert all(liveness.is_heard(NAME, number, 102.0) for number in (1, 2, 3))


def test_a_controller_that_leads_again_counts_with_leases_that_another_one_gave_meanwhile() -> None:
    liveness = Liveness()
    liveness.grant_lease(NAME, 1, 100.0)
    assert liveness.lease_left_s(NAME, 1, 3.0, 102.0) == 1.0
    liveness.restart(150.0)
    assert liveness.lease_left_s(NAME, 1, 3.0, 152.0) == 1.0
    assert liveness.lease_left_s(NAME, 2, 3.0, 152.0) == 1.0
    liveness.end_lease(NAME, 1)
    liveness.end_lease(NAME, 2)
    liveness.grant_lease(NAME, 2, 151.0)
    assert liveness.lease_left_s(NAME, 2, 3.0, 152.0) == 2.0
    assert liveness.lease_left_s(NAME, 1, 3.0, 152.0) == 0.0
    liveness.restart(200.0)
    assert liveness.lease_left_s(NAME, 1, 3.0, 200.0) == 3.0
