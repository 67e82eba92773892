"""How much a client may send and receive in a second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import AccessRefused, StartRefused
from millstream.proxy import throttle
from millstream.proxy.throttle import Caller, Throttle, ThrottleRule, parse_throttle_rule

ONE = Caller("mobile-1")


def is_admitted(counted: Throttle, caller: Caller, now_s: float, size_bytes: int = 1) -> bool:
    try:
        counted.admit(caller, size_bytes, now_s)
    except AccessRefused as refusal:
        return refusal.name != "CLIENT_THROTTLED"
    return True


def test_a_second_holds_so_many_calls_and_no_more() -> None:
    counted = Throttle([ThrottleRule(calls=3)])
    assert [is_admitted(counted, ONE, 0.0) for _ in range(4)] == [True, True, True, False]
    assert not is_admitted(counted, ONE, 0.3)
    assert is_admitted(counted, ONE, 0.34)
    assert not is_admitted(counted, ONE, 0.35)
    assert [is_admitted(counted, ONE, 100.0) for _ in range(4)] == [True, True, True, False]


def test_bytes_beyond_what_is_left_are_paid_for_by_waiting() -> None:
    counted = Throttle([ThrottleRule(bytes=100)])
    assert is_admitted(counted, ONE, 0.0, 500)
    assert not is_admitted(counted, ONE, 4.0)
    assert is_admitted(counted, ONE, 4.01)


def test_bytes_that_were_received_count_as_well() -> None:
    counted = Throttle([ThrottleRule(bytes=100)])
    assert is_admitted(counted, ONE, 0.0, 0)
    counted.charge(ONE, 200, 0.0)
    assert not is_admitted(counted, ONE, 0.5, 0)
    assert is_admitted(counted, ONE, 1.01, 0)


def test_a_rule_counts_each_client_that_fits_on_its_own_and_no_other() -> None:
    counted = Throttle([ThrottleRule(client="mobile-*", calls=1)])
    assert is_admitted(counted, ONE, 0.0)
    assert not is_admitted(counted, ONE, 0.0)
    assert is_admitted(counted, Caller("mobile-2"), 0.0)
    assert all(is_admitted(counted, Caller("server-1"), 0.0) for _ in range(5))


def test_every_rule_that_fits_must_let_a_call_through_and_one_that_does_not_costs_nothing() -> None:
    counted = Throttle([ThrottleRule(group="g", calls=5), ThrottleRule(user="u*", calls=1)])
    caller = Caller("c", "g", "user-1")
    assert [is_admitted(counted, caller, 0.0) for _ in range(3)] == [True, False, False]
    assert [is_admitted(counted, caller, 1.0), is_admitted(counted, caller, 2.0)] == [True, True]


def test_who_was_silent_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_BUCKETS", 2)
    counted = Throttle([ThrottleRule(calls=1)])
    assert [is_admitted(counted, Caller(name), 0.0) for name in "abc"] == [True, True, True]
    assert not is_admitted(counted, Caller("c"), 0.0)
    assert is_admitted(counted, Caller("a"), 0.0)


@given(st.lists(st.floats(0, 2), max_size=60), st.integers(1, 20))
def test_in_no_span_of_time_are_more_calls_than_its_seconds_and_one_more_hold(gaps: list[float], rate: int) -> None:
    counted, now_s, admitted = Throttle([ThrottleRule(calls=rate)]), 0.0, []
    for gap in gaps:
        now_s += gap
        if is_admitted(counted, ONE, now_s):
            admitted.append(now_s)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            span_s = admitted[last] - admitted[first]
            assert last - first + 1 <= rate * (span_s + 1) + 1e-6


def test_a_rule_is_read_from_its_words() -> None:
    told = parse_throttle_rule("client=mobile-* user=a?c calls=100 bytes=5000")
    assert told == ThrottleRule("mobile-*", "*", "a?c", 100, 5000)


@pytest.mark.parametrize(
    "text", ["", "client=a", "calls=0", "calls=x", "calls=1 calls=2", "rate=5", "calls", "bytes=-1"]
)
def test_words_that_are_no_rule_are_refused(text: str) -> None:
    with pytest.raises(StartRefused) as refusal:
        parse_throttle_rule(text)
    assert refusal.value.name == "ILLEGAL_SETTING"
