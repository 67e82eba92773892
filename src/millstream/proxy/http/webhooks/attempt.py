"""Decides what follows a webhook attempt, by the sink's response. Pure.

Source: HTTP 1.1 Web Hooks for Event Delivery: 2xx takes the event, 410 ends the subscription, 429 and 503 name a time
to wait. Redirects are not followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from typing import Final

from millstream.model.backoff import Backoff

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_RETRY_AFTER_S",
    "RETRY",
    "AttemptOutcome",
    "Verdict",
    "decide_outcome",
    "parse_retry_after",
]

MAX_ATTEMPTS: Final = 16
"""Deliveries of one event at most; then it is a dead letter of the subscription's group."""

MAX_RETRY_AFTER_S: Final = 3_600
"""Seconds that a sink may ask to wait at most; longer wishes are cut."""

RETRY: Final = Backoff(1.0, 3_600.0)
"""Between two deliveries of an event that its sink did not take: 1 s, twice as long each time, up to an hour."""

_DEFAULT_RETRY_AFTER_S: Final = 10
_MS: Final = 1000


class AttemptOutcome(Enum):
    """What to do with the delivery."""

    TAKEN = "taken"
    AGAIN = "again"
    """After a time; the attempt counts."""
    LATER = "later"
    """The sink asked to wait; the attempt does not count, and nothing else is sent until then."""
    DEAD = "dead"
    ENDED = "ended"
    """The sink wants no more events at all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, and after how many milliseconds."""

    outcome: AttemptOutcome
    wait_ms: int = 0


def decide_outcome(status: int | None, retry_after: str | None, attempt: int, now_ms: int) -> Verdict:
    """What becomes of the delivery number `attempt` (1 is the first); `status` None: no answer came."""
    if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Verdict(AttemptOutcome.TAKEN)
    if status == HTTPStatus.GONE:
        return Verdict(AttemptOutcome.ENDED)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE) and retry_after is not None:
        return Verdict(AttemptOutcome.LATER, parse_retry_after(retry_after, now_ms) * _MS)
    if attempt >= MAX_ATTEMPTS:
        return Verdict(AttemptOutcome.DEAD)
    return Verdict(AttemptOutcome.AGAIN, round(RETRY.wait_s(attempt - 1) * _MS))


def parse_retry_after(text: str, now_ms: int) -> int:
    """Seconds of a Retry-After header, which is a number or a date; 10 where it is neither."""
    stripped = text.strip()
    if stripped.isascii() and stripped.isdecimal():
        return min(int(stripped[:10]), MAX_RETRY_AFTER_S)
    try:
        due = parsedate_to_datetime(stripped)
    except ValueError:
        return _DEFAULT_RETRY_AFTER_S
    due = due if due.tzinfo is not None else due.replace(tzinfo=UTC)
    left_s = (due - datetime.fromtimestamp(now_ms / _MS, UTC)).total_seconds()
    return min(max(int(left_s), 0), MAX_RETRY_AFTER_S)
