"""Lines about strangers: bounded in number and length, and no kind hides another."""

from __future__ import annotations

import logging

import pytest

from millstream.model.clock import ManualClock
from millstream.transport.strangers import MAX_WORDS_CHARACTERS, StrangerAct, StrangerLog

_log = logging.getLogger("millstream.test")


def test_a_flood_of_one_kind_is_a_line_a_second_with_its_count_and_hides_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    strangers = StrangerLog(clock)
    for second in range(3):
        for number in range(10_000):
            strangers.say(_log, StrangerAct.BAD_FRAME, f"frame {second} {number}")
        clock.advance_ms(1000)
    strangers.say(_log, StrangerAct.NOT_ACCEPTED, "none can be accepted")
    assert [record.getMessage() for record in caplog.records] == [
        "frame 0 0",
        "frame 1 0 (9,999 more of the kind: bad frame)",
        "frame 2 0 (9,999 more of the kind: bad frame)",
        "none can be accepted",
    ]


def test_a_line_is_cut_where_a_stranger_makes_it_long(caplog: pytest.LogCaptureFixture) -> None:
    StrangerLog(ManualClock()).say(_log, StrangerAct.BAD_FRAME, "x" * 100_000)
    assert len(caplog.records[0].getMessage()) == MAX_WORDS_CHARACTERS


def test_a_level_that_is_not_written_uses_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    strangers = StrangerLog(ManualClock())
    with caplog.at_level(logging.WARNING):
        strangers.say(_log, StrangerAct.NOT_ENTERED, "not shown", level=logging.INFO)
        strangers.say(_log, StrangerAct.NOT_ENTERED, "shown")
    assert [record.getMessage() for record in caplog.records] == ["shown"]
