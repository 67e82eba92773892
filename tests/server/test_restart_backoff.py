from __future__ import annotations

from millstream.model.backoff import Backoff
from millstream.server.supervised import FIRST_DELAY_S, MAX_DELAY_S, STEADY_S, RestartBackoff

FULL_WAITS = Backoff(FIRST_DELAY_S, MAX_DELAY_S, random=lambda: 0.0)


def test_a_process_that_ends_soon_is_started_ever_later_but_never_too_late() -> None:
    backoff = RestartBackoff(FULL_WAITS)
    delays = [backoff.delay_s(1.0) for _ in range(12)]
    assert delays[:4] == [FIRST_DELAY_S * factor for factor in (1, 2, 4, 8)]
    assert max(delays) == delays[-1] == MAX_DELAY_S


def test_a_process_that_ran_well_is_started_again_as_if_it_had_never_ended() -> None:
    backoff = RestartBackoff(FULL_WAITS)
    for _ in range(5):
        backoff.delay_s(1.0)
    assert backoff.delay_s(STEADY_S) == FIRST_DELAY_S
