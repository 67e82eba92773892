"""Log lines, headers and addresses: any text is read in bounded time, and none raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.functions.calendar import in_other_zone
from millstream.streams.functions.text.grok import GROK_PATTERNS, grok
from millstream.streams.functions.text.log_lines import LOG_FORMATS, key_values, parse_kv, parse_log, value_of_key
from millstream.streams.functions.text.networks import in_networks, in_range, is_private, network_of
from millstream.streams.functions.text.patterns import all_groups, match_count, match_position, replace_matches
from millstream.streams.functions.text.strings import decode_bytes, encode_text, entropy, nth_position
from millstream.streams.functions.text.user_agents import USER_AGENT_PARTS, user_agent_part

LINES = st.text() | st.text("CEFL:0|= \\\"'[]<>-aé1.", max_size=60)


@pytest.mark.parametrize("name", GROK_PATTERNS)
def test_each_named_pattern_can_be_referred_to(name: str) -> None:
    assert grok("", f"%{{{name}:x}}|") is not None


def test_a_pattern_that_grows_without_end_is_wrong() -> None:
    assert grok("a", "%{COMBINEDAPACHELOG}" * 200) is None


def test_a_name_that_stands_twice_keeps_its_first_value() -> None:
    assert grok("1 2", "%{INT:n} %{INT:n}") == {"n": "1"}


@given(LINES, st.text("%{}:INTx()?<>\\", max_size=20))
def test_no_text_and_no_pattern_raises(text: str, pattern: str) -> None:
    grok(text, pattern)
    match_count(text, pattern)
    match_position(text, pattern)
    replace_matches(text, pattern, "\\1")
    all_groups(text, pattern, 1)


@given(LINES, st.sampled_from(sorted(LOG_FORMATS)))
def test_no_line_raises(line: str, log_format: str) -> None:
    parse_log(line, log_format)
    parse_log(f"CEF:0|a|b|c|d|e|f|{line}", "CEF")
    parse_log(f"LEEF:2.0|a|b|c|d|{line}", "LEEF")
    parse_log(f"<1>1 t h p - m [{line}]", "SYSLOG")
    key_values(line)
    parse_kv(line, ";", ":")
    value_of_key(line, "|]", "^-", "a")
    entropy(line)
    for part in USER_AGENT_PARTS:
        user_agent_part(line, part)


@given(st.text("0123456789abcdef.:/", max_size=24), st.text("0123456789abcdef.:/", max_size=24), st.integers())
def test_no_address_raises(ip: str, other: str, bits: int) -> None:
    in_networks(ip, other)
    in_range(ip, other, ip)
    is_private(ip)
    network_of(ip, bits)


@given(st.text(), st.sampled_from(["US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16", "x"]))
def test_no_text_and_no_bytes_are_too_wrong_for_a_charset(text: str, charset: str) -> None:
    data = encode_text(text, charset)
    assert (data is None) == (charset == "x")
    if charset.startswith("UTF") and data is not None:
        assert decode_bytes(data, charset) == text
    decode_bytes(text.encode("utf-8") + b"\xff", charset)


@given(st.text("ab", max_size=8), st.text("ab", min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 4))
def test_the_place_of_an_occurrence_is_where_the_part_stands(text: str, part: str, start: int, occurrence: int) -> None:
    places = [place + 1 for place in range(start - 1, len(text)) if text.startswith(part, place)]
    wanted = places[occurrence - 1] if len(places) >= occurrence else 0
    assert nth_position(text, part, start, occurrence) == wanted


@given(st.text(max_size=25), st.text(max_size=12))
def test_no_time_and_no_zone_raises(time: str, zone: str) -> None:
    in_other_zone(time, "UTC", zone)
    in_other_zone("0001-01-01 00:00:00", "GMT+14:00", zone)


def test_a_long_line_without_keys_is_read_once() -> None:
    assert key_values("a" * 300_000) == {}
    assert key_values(" " * 300_000) == {}
    assert parse_log("CEF:0|a|b|c|d|e|f|" + " " * 300_000, "CEF") is not None
