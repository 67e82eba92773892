"""The timeline of one message, built from its traces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.protocol.trace import (
    ConsumedTrace,
    DeliveredTrace,
    EndTransactionTrace,
    RecallTrace,
    SentTrace,
    TraceRecord,
)

__all__ = ["TimelineEvent", "message_timeline"]


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened to the message. What the traces do not tell is None.

    `took_ms` is the time of the call for a message sent, and the time from its delivery for one consumed.
    """

    at_ms: int
    what: str
    topic: str | None = None
    group: str | None = None
    outcome: str | None = None
    took_ms: int | None = None
    attempt: int | None = None
    detail: str | None = None


def message_timeline(records: Iterable[TraceRecord], message_id: str) -> list[TimelineEvent]:
    """The steps of the message with that id; the same record found twice counts once.

    A delivery of which no outcome was traced has none: its consumer is at work, is gone, or used another proxy.
    """
    unique = dict.fromkeys(record for record in records if record.message_id == message_id)
    outcomes = {record.request_id: record for record in unique if isinstance(record, ConsumedTrace)}
    delivered = {record.request_id for record in unique if isinstance(record, DeliveredTrace)}
    steps = []
    for record in unique:
        if isinstance(record, ConsumedTrace):
            if record.request_id not in delivered:
                steps.append(
                    TimelineEvent(record.timestamp_ms, "consumed", None, record.group or None, _outcome_of(record))
                )
        elif isinstance(record, DeliveredTrace):
            steps.append(_delivery(record, outcomes.get(record.request_id)))
        else:
            steps.append(_step(record))
    return sorted(steps, key=lambda step: step.at_ms)


def _delivery(record: DeliveredTrace, outcome: ConsumedTrace | None) -> TimelineEvent:
    return TimelineEvent(
        record.timestamp_ms,
        "delivered",
        None,
        record.group or None,
        _outcome_of(outcome) if outcome is not None else None,
        outcome.took_ms if outcome is not None else None,
        record.retries + 1,
    )


def _outcome_of(record: ConsumedTrace) -> str:
    return "consumed" if record.succeeded else "failed"


def _step(record: SentTrace | EndTransactionTrace | RecallTrace) -> TimelineEvent:
    at_ms, topic, group = record.timestamp_ms, record.topic or None, record.group or None
    if isinstance(record, SentTrace):
        outcome = "stored" if record.succeeded else "failed"
        detail = f"{record.body_bytes} bytes" + (f" at {record.store_host}" if record.store_host else "")
        return TimelineEvent(at_ms, "sent", topic, group, outcome, record.took_ms, detail=detail)
    if isinstance(record, RecallTrace):
        return TimelineEvent(at_ms, "recalled", topic, group, "done" if record.succeeded else "failed")
    origin = "answered when asked" if record.from_check else None
    return TimelineEvent(at_ms, "transaction", topic, group, _state(record.state), detail=origin)


def _state(state: str) -> str | None:
    """RocketMQ's words, as in COMMIT_MESSAGE, without their ending."""
    return state.removesuffix("_MESSAGE").lower() or None
