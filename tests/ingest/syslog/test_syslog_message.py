"""Syslog messages as the RFCs and their senders write them, and any text at all."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.syslog.message import FACILITIES, SEVERITIES, parse

NOW = datetime(2026, 11, 22, 12, 0, 0)


def test_the_first_example_of_rfc_5424() -> None:
    header = "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 -"
    assert parse(header + " \ufeff'su root' failed for lonvick on /dev/pts/8", NOW) == {
        "facility": "auth",
        "severity": "crit",
        "severity_code": 2,
        "format": "rfc5424",
        "timestamp": "2003-10-11T22:14:15.003Z",
        "host": "mymachine.example.com",
        "app": "su",
        "message_id": "ID47",
        "message": "'su root' failed for lonvick on /dev/pts/8",
    }


def test_structured_data_of_rfc_5424_without_a_message_and_with_escapes() -> None:
    example = '[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"][examplePriority@32473 class="high"]'
    fields = parse(f"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 {example}", NOW)
    assert fields["structured_data"] == {
        "exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"},
        "examplePriority@32473": {"class": "high"},
    }
    assert (fields["facility"], fields["severity"], fields["message"]) == ("local4", "notice", "")
    escaped = parse(r'<0>1 - - - - - [a b="say \"x\" \\ [\] \n"] m', NOW)
    assert escaped["structured_data"] == {"a": {"b": r'say "x" \ [] \n'}}
    assert escaped["message"] == "m"


def test_the_examples_of_rfc_3164() -> None:
    assert parse("<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8", NOW) == {
        "facility": "auth",
        "severity": "crit",
        "severity_code": 2,
        "format": "rfc3164",
        "timestamp": "2026-10-11T22:14:15",
        "host": "mymachine",
        "app": "su",
        "message": "'su root' failed for lonvick on /dev/pts/8",
    }
    without = parse("Use the BFG!", NOW)
    assert (without["facility"], without["severity"], without["format"], without["message"]) == (
        "user",
        "notice",
        "unknown",
        "Use the BFG!",
    )
    fields = parse("<165>Aug 24 05:34:00 10.0.0.1 CST[17]: %% It's time", NOW)
    assert (fields["app"], fields["process_id"], fields["message"]) == ("CST", "17", "%% It's time")


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("Nov 23 11:00:00", "2026-11-23T11:00:00"),
        ("Nov 24 11:00:00", "2025-11-24T11:00:00"),
        ("Jan  1 00:00:00", "2026-01-01T00:00:00"),
        ("Feb 29 00:00:00", "2024-02-29T00:00:00"),
        ("Dec 31 23:59:59.123", "2025-12-31T23:59:59.123"),
        ("2026-11-22T11:00:00.5+01:00", "2026-11-22T11:00:00.5+01:00"),
    ],
)
def test_a_time_without_a_year_gets_the_one_that_brings_it_close(text: str, timestamp: str) -> None:
    fields = parse(f"<13>{text} host app: m", NOW)
    assert (fields["timestamp"], fields["host"], fields["message"]) == (timestamp, "host", "m")


@pytest.mark.parametrize(
    "text",
    [
        "<192>1 - - - - - - m",
        "<01>Oct 11 22:14:15 host app: m",
        "<13>Feb 30 22:14:15 host app: m",
        "<13>Oct 11 25:14:15 host app: m",
        "<13>1 - - - - - [broken m",
        '<13>1 - - - - - [a b="c"]m',
        "<189>123: *Mar  1 18:46:11: %SYS-5-CONFIG_I: configured",
        "",
    ],
)
def test_what_is_of_neither_form_keeps_its_words(text: str) -> None:
    fields = parse(text, NOW)
    assert fields["format"] == "unknown"
    assert text.endswith(str(fields["message"]))


word = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='="]'), min_size=1, max_size=20)
elements = st.dictionaries(word, st.dictionaries(word, st.text(max_size=20), max_size=3), max_size=3)


@given(st.integers(0, 191), st.lists(word, min_size=5, max_size=5), elements, st.text(max_size=40))
def test_whatever_is_written_by_rfc_5424_is_read_again(
    priority: int, header: list[str], elements: dict[str, dict[str, str]], message: str
) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")

    data = "".join(
        f"[{name}{''.join(f' {key}={chr(34)}{escaped(value)}{chr(34)}' for key, value in values.items())}]"
        for name, values in elements.items()
    )
    fields = parse(f"<{priority}>1 {' '.join(header)} {data or '-'} {message}", NOW)
    assert (fields["facility"], fields["severity"]) == (FACILITIES[priority // 8], SEVERITIES[priority % 8])
    assert fields["format"] == "rfc5424"
    assert fields.get("structured_data", {}) == elements
    assert fields["message"] == message.removeprefix("\ufeff")
    names = ("timestamp", "host", "app", "process_id", "message_id")
    assert [fields.get(name, "-") for name in names] == header


@given(
    st.one_of(
        st.text(max_size=200),
        st.from_regex(
            r"<[0-9]{1,3}>1 [^ ]{1,5} [^ ]{1,5} [^ ]{1,5} [^ ]{1,5} [^ ]{1,5} \[[a-z =\"\\\]\[]{0,40}", fullmatch=True
        ),
        st.from_regex(r"<[0-9]{1,3}>[A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [a-z:\[\]0-9 ]{0,40}", fullmatch=True),
    )
)
def test_any_text_gives_fields_with_a_format_and_a_message(text: str) -> None:
    fields = parse(text, NOW)
    assert fields["format"] in ("rfc5424", "rfc3164", "unknown")
    assert str(fields["message"]) in text
