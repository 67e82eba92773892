"""The life of one message as its traces tell it, with what they do not tell left open."""

from __future__ import annotations

from dataclasses import replace

from millstream.client.message_timeline import TimelineEvent, message_timeline
from millstream.protocol.trace import ConsumedTrace, DeliveredTrace, EndTransactionTrace, RecallTrace, SentTrace

SENT = SentTrace(100, "R", "orders", "orders", "ID", "", "", "1.2.3.4:5", 10, 3, 0, "OFF", True)
DELIVERED = DeliveredTrace(200, "R", "g", "R1", "ID", 0, "")
CONSUMED = ConsumedTrace("R1", "ID", 50, True, "", 250, "g")


def test_a_delivery_and_its_outcome_are_one_step_and_steps_stand_in_time() -> None:
    assert message_timeline([CONSUMED, DELIVERED, SENT], "ID") == [
        TimelineEvent(100, "sent", "orders", "orders", "stored", 3, None, "10 bytes at 1.2.3.4:5"),
        TimelineEvent(200, "delivered", None, "g", "consumed", 50, 1),
    ]


def test_a_delivery_without_an_outcome_has_none() -> None:
    (step,) = message_timeline([DELIVERED], "ID")
    assert (step.outcome, step.took_ms) == (None, None)


def test_each_delivery_has_its_own_outcome() -> None:
    again = replace(DELIVERED, timestamp_ms=300, request_id="R2", retries=1)
    failed = replace(CONSUMED, succeeded=False)
    steps = message_timeline([DELIVERED, failed, again, replace(CONSUMED, request_id="R2")], "ID")
    assert [(step.attempt, step.outcome) for step in steps] == [(1, "failed"), (2, "consumed")]


def test_an_outcome_of_a_delivery_that_was_not_traced_is_told_alone() -> None:
    assert message_timeline([CONSUMED], "ID") == [TimelineEvent(250, "consumed", None, "g", "consumed")]


def test_records_of_other_messages_and_repeated_ones_do_not_count() -> None:
    assert len(message_timeline([SENT, SENT, replace(SENT, message_id="OTHER")], "ID")) == 1


def test_a_refused_send_a_recall_and_a_transaction_are_told_with_their_outcome() -> None:
    records = [
        replace(SENT, succeeded=False, store_host=""),
        RecallTrace(150, "R", "g", "orders", "ID", False),
        EndTransactionTrace(160, "R", "g", "orders", "ID", "", "", "", "TX", "ROLLBACK_MESSAGE", True),
    ]
    told = [(step.what, step.outcome, step.detail) for step in message_timeline(records, "ID")]
    assert told == [
        ("sent", "failed", "10 bytes"),
        ("recalled", "failed", None),
        ("transaction", "rollback", "answered when asked"),
    ]
