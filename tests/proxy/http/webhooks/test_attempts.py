"""What becomes of a delivery by the answer of its sink."""

from __future__ import annotations

import pytest

from millstream.proxy.http.webhooks.attempt import (
    MAX_ATTEMPTS,
    MAX_RETRY_AFTER_S,
    AttemptOutcome,
    decide_outcome,
    parse_retry_after,
)


@pytest.mark.parametrize(
    ("status", "retry_after", "attempt", "outcome"),
    [
        (200, None, 1, AttemptOutcome.TAKEN),
        (204, None, 1, AttemptOutcome.TAKEN),
        (410, None, 1, AttemptOutcome.ENDED),
        (429, "5", 1, AttemptOutcome.LATER),
        (503, "5", MAX_ATTEMPTS, AttemptOutcome.LATER),
        (503, None, 1, AttemptOutcome.AGAIN),
        (302, None, 1, AttemptOutcome.AGAIN),
        (None, None, 1, AttemptOutcome.AGAIN),
        (500, None, MAX_ATTEMPTS, AttemptOutcome.DEAD),
    ],
)
def test_each_answer_has_its_outcome(
    status: int | None, retry_after: str | None, attempt: int, outcome: AttemptOutcome
) -> None:
    assert decide_outcome(status, retry_after, attempt, 0).outcome is outcome


def test_retries_wait_from_a_second_up_to_an_hour() -> None:
    waits = [decide_outcome(500, None, attempt, 0).wait_ms for attempt in range(1, MAX_ATTEMPTS)]
    assert 500 <= waits[0] <= 1_000
    assert waits[-1] <= 3_600_000
    assert waits[-1] > 2_000_000


def test_a_time_to_wait_is_a_number_or_a_date_and_bounded() -> None:
    assert parse_retry_after("7", 0) == 7
    assert parse_retry_after("99999999999999", 0) == MAX_RETRY_AFTER_S
    assert parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0) == 60
    assert parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 90_000) == 0
    assert parse_retry_after("soon", 0) == 10
