"""The audit: readable lines, and a bound that no stranger can exceed."""

from __future__ import annotations

import json
import logging

import pytest

from millstream.model.clock import ManualClock
from millstream.security.guard import BURST_LINES, MAX_LINE_CHARACTERS, AuditLog


def refuse(audit: AuditLog, **changed: str) -> None:
    values = {"peer": "192.0.2.7", "user": "ann", "action": "SendMessage", "resource": "Pub on Topic:a", "reason": "no"}
    audit.note_refusal(**{**values, **changed})


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "millstream.audit"]


def test_a_refusal_is_one_line_of_json_with_time_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "millstream.audit"):
        refuse(AuditLog(ManualClock(1_700_000_000_123)))
    assert lines(caplog) == [
        {
            "time": "2023-11-14T22:13:20.123+00:00",
            "event": "refused",
            "peer": "192.0.2.7",
            "user": "ann",
            "action": "SendMessage",
            "resource": "Pub on Topic:a",
            "reason": "no",
        }
    ]


def test_a_flood_is_bounded_and_what_is_left_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    audit = AuditLog(clock)
    with caplog.at_level(logging.WARNING, "millstream.audit"):
        for _ in range(BURST_LINES + 5000):
            refuse(audit)
        assert len(lines(caplog)) == BURST_LINES
        clock.advance_ms(1000)
        refuse(audit)
        refuse(audit)
    found = lines(caplog)
    assert len(found) == BURST_LINES + 1
    assert found[-1]["left_out"] == "5000"
    assert audit.refusals == BURST_LINES + 5002


def test_a_line_stays_one_short_line_whatever_strangers_send(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "millstream.audit"):
        refuse(AuditLog(ManualClock()), user='x"}\n{"event": "changed' + "\u2028\0" * 5000, resource="\0" * 9000)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) <= MAX_LINE_CHARACTERS
    assert lines(caplog)[0]["event"] == "refused"


def test_changes_are_always_written(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(ManualClock())
    with caplog.at_level(logging.WARNING, "millstream.audit"):
        for _ in range(BURST_LINES + 10):
            refuse(audit)
        audit.note_change(peer="192.0.2.1", user="root", action="AUTH_CREATE_USER", subject="bob")
    assert lines(caplog)[-1]["event"] == "changed"
