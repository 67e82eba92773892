"""Times as people type them."""

from __future__ import annotations

import pytest

from millstream.cli.messages.moment import duration_ms, durations_ms, moment_ms, time_text

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("250ms", 250), ("5", 5000), ("5s", 5000), ("1.5m", 90_000), ("2h", 7_200_000)]
)
def test_a_length_of_time_has_a_unit_or_is_in_seconds(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms
    assert durations_ms(f"{text},1d") == [expected_ms, 86_400_000]


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("10m", NOW_MS - 600_000),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_moment_is_a_time_or_so_long_ago(text: str, expected_ms: int) -> None:
    assert moment_ms(text, NOW_MS) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "5x", "-5s", "5", "2026", "1e3", "253402300800000"])
def test_what_is_no_time_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="no time"):
        moment_ms(text, NOW_MS)


def test_a_time_that_is_not_known_has_no_text() -> None:
    assert time_text(0) is None
    assert time_text(NOW_MS) == "2023-11-14T22:13:20Z"


def test_a_time_after_the_year_9999_is_shown_as_its_milliseconds() -> None:
    assert time_text(253_402_300_799_999) == "9999-12-31T23:59:59Z"
    assert time_text(253_402_300_800_000) == "253402300800000"
