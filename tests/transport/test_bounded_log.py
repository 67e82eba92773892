from __future__ import annotations

import logging

import pytest

from millstream.transport.bounded_log import BoundedLog


def test_after_a_burst_one_line_a_second_is_written_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = BoundedLog(logging.getLogger("millstream.strangers"), burst_lines=2)
    for number in range(5):
        log.warning(100.0, f"line {number}")
    log.warning(100.5, "too early")
    log.warning(101.0, "later")
    assert caplog.messages == ["line 0", "line 1", "later (4 such lines before it were left out.)"]
