"""Every modifier of the Sigma specification 2.1.0, alone and with others, beside what its text says."""

from __future__ import annotations

from base64 import b64encode

import pytest
from sigma.modifiers import modifier_mapping
from written_rules import fault_of, fits

ABSENT = object()
DASHES = ("-", "/", "–", "—", "―")

SPECIFIED = {
    "all", "startswith", "endswith", "contains", "exists", "cased", "neq", "windash", "re", "i", "m", "s", "base64",
    "base64offset", "utf16le", "utf16be", "utf16", "wide", "lt", "lte", "gt", "gte", "minute", "hour", "day", "week",
    "month", "year", "cidr", "expand", "fieldref",
}  # fmt: skip
"""The words of the specification's appendix on modifiers."""


def asked(key: str, value: str, held: object) -> bool:
    """Whether `key: value` fits an event whose field F holds that."""
    event = {} if held is ABSENT else {"F": held}
    return fits(f"    s:\n        {key}: {value}\n    condition: s\n", event)


def refused(key: str, value: str) -> str:
    """Why a rule that asks that is refused."""
    return fault_of(f"    s:\n        {key}: {value}\n    condition: s\n")[1]


def encoded(before: bytes, text: bytes) -> str:
    return b64encode(before + text + b"more").decode()


def test_every_modifier_of_the_specification_is_known() -> None:
    assert SPECIFIED - {"utf16le"} <= set(modifier_mapping)
    assert "no modifier 'contian' is known; 'contains' is" in refused("F|contian", "x")


@pytest.mark.parametrize(
    ("key", "value", "fitting", "others"),
    [
        ("F|neq", "[a, b]", ["c", "", ABSENT], ["a", "B"]),
        ("F|neq", "null", ["a", ""], [None, ABSENT]),
        ("F|neq", "''", ["a", ABSENT], [""]),
        ("F|neq", "[5, '6']", [7, "8"], [5, "5", 6, "6"]),
        ("F|contains|neq", "x", ["ab", ABSENT], ["aXb"]),
        ("F|neq|contains", "x", ["ab", ABSENT], ["aXb"]),
        ("F|startswith|neq", "x", ["ax"], ["xa"]),
        ("F|endswith|neq", "x", ["xa"], ["ax"]),
        ("F|re|neq", "'^x'", ["ax", "X"], ["xa"]),
        ("F|cidr|neq", "'10.0.0.0/8'", ["11.0.0.1", "no address", ABSENT], ["10.1.1.1"]),
        ("F|gt|neq", "5", [5, 4, "many", ABSENT], [6]),
        ("F|hour|neq", "3", ["2026-11-21T04:00:00", ABSENT], ["2026-11-21T03:10:00"]),
        ("F|cased|neq", "Ab", ["AB", "ab"], ["Ab"]),
    ],
)
def test_neq_is_what_is_not_so_also_of_a_field_that_is_not_there(
    key: str, value: str, fitting: list[object], others: list[object]
) -> None:
    assert [asked(key, value, held) for held in fitting] == [True] * len(fitting)
    assert [asked(key, value, held) for held in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("key", "value", "fitting", "others"),
    [
        ("F|startswith|cased", "Ab", "Abc", "abc"),
        ("F|cased|endswith", "Ab", "xAb", "xab"),
        ("F|contains|all|cased", "[A, b]", "xbA", "xba"),
        ("F|cased", "'A?c*'", "Abcd", "abcd"),
        ("F|cased", "[X, Ab]", "Ab", "aB"),
        ("F|windash|startswith|cased", "'-A'", "/A", "/a"),
        ("F|base64|cased", "'foobar'", "Zm9vYmFy", "zm9vymfy"),
    ],
)
def test_cased_minds_upper_and_lower_case(key: str, value: str, fitting: str, others: str) -> None:
    assert asked(key, value, fitting)
    assert not asked(key, value, others)


@pytest.mark.parametrize("written", DASHES)
@pytest.mark.parametrize("found", DASHES)
def test_windash_takes_each_of_five_dashes_for_each_other(written: str, found: str) -> None:
    assert asked("F|contains|windash", f"' {written}enc '", f"powershell {found}enc x")
    assert asked("F|windash|endswith", f"'{written}a {written}b'", f"x {found}a -b")
    assert not asked("F|contains|windash", f"' {written}enc '", "powershell +enc x")
    assert asked("F|windash|contains", f"'a{written}b'", f"xa{written}bx")


@pytest.mark.parametrize(
    ("key", "codec"),
    [
        ("F|wide|base64offset|contains", "utf-16-le"),
        ("F|utf16le|base64offset|contains", "utf-16-le"),
        ("F|utf16be|base64offset|contains", "utf-16-be"),
        ("F|base64offset|contains", "utf-8"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"1", b"12", b"123"])
def test_base64offset_finds_encoded_texts_at_every_offset(key: str, codec: str, before: bytes) -> None:
    assert asked(key, "'IEX cmd'", f"-enc {encoded(before, 'IEX cmd'.encode(codec))}")
    assert not asked(key, "'IEX cmd'", f"-enc {encoded(before, 'IEY cmd'.encode(codec))}")


def test_utf16_has_a_byte_order_mark_in_front() -> None:
    marked = b"\xff\xfe" + "cmd".encode("utf-16-le")
    assert asked("F|utf16|base64offset|contains", "'cmd'", encoded(b"1", marked))
    assert not asked("F|utf16|base64offset|contains", "'cmd'", encoded(b"1", marked[2:]))
    assert asked("F|utf16|contains", "'cmd'", "x" + marked.decode("latin-1").replace("\xff\xfe", "\ufeff"))


def test_wide_letters_are_sought_with_their_zero_bytes() -> None:
    assert asked("F|wide|contains", "'cmd'", "xc\0m\0d\0")
    assert not asked("F|wide|contains", "'cmd'", "xcmd")


def test_values_of_a_list_are_encoded_each_for_itself() -> None:
    assert asked("F|base64|contains", "[one, two]", b64encode(b"two").decode())
    assert asked("F|base64|contains|all", "[aaa, bbb]", b64encode(b"aaabbb").decode())
    assert not asked("F|base64|contains|all", "[aaa, bbb]", b64encode(b"aaa").decode())


@pytest.mark.parametrize(
    ("value", "inside", "outside"),
    [
        ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0", "10.1.1.1/32", "10.1.1", ""]),
        ("192.168.1.7", ["192.168.1.7"], ["192.168.1.8"]),
        ("'2001:db8::/33'", ["2001:db8:7fff::1", "2001:0DB8:0::1"], ["2001:db8:8000::1", "10.0.0.1"]),
        ("['10.0.0.0/8', '::1/128']", ["10.1.1.1", "::1"], ["::2", "11.1.1.1"]),
        ("0.0.0.0/0", ["255.255.255.255"], ["::1", ABSENT]),
    ],
)
def test_cidr_holds_from_the_first_to_the_last_address(value: str, inside: list[str], outside: list[object]) -> None:
    assert [asked("F|cidr", value, held) for held in inside] == [True] * len(inside)
    assert [asked("F|cidr", value, held) for held in outside] == [False] * len(outside)


def test_all_networks_of_a_list_can_be_asked_for() -> None:
    assert asked("F|cidr|all", "['10.0.0.0/8', '10.1.0.0/16']", "10.1.2.3")
    assert not asked("F|cidr|all", "['10.0.0.0/8', '10.1.0.0/16']", "10.2.2.3")


@pytest.mark.parametrize(
    ("key", "value", "event", "held"),
    [
        ("F|fieldref|neq", "G", {"F": "a", "G": "b"}, True),
        ("F|fieldref|neq", "G", {"F": "a", "G": "A"}, False),
        ("F|fieldref|neq", "G", {"F": "a"}, True),
        ("F|fieldref", "[G, H]", {"F": "a", "G": "b", "H": "a"}, True),
        ("F|fieldref", "[G, H]", {"F": "a", "G": "b"}, False),
        ("F|fieldref|all", "[G, H]", {"F": "a", "G": "a", "H": "a"}, True),
        ("F|fieldref|all", "[G, H]", {"F": "a", "G": "a"}, False),
        ("F|fieldref|cased", "G", {"F": "a", "G": "A"}, False),
        ("F|fieldref|cased", "G", {"F": "a", "G": "a"}, True),
        ("F|cased|fieldref", "G", {"F": "a", "G": "A"}, False),
        ("F|fieldref|endswith|cased", "G", {"F": "xA", "G": "A"}, True),
        ("F|fieldref|endswith|cased", "G", {"F": "xa", "G": "A"}, False),
    ],
)
def test_fieldref_with_other_modifiers(key: str, value: str, event: dict[str, str], held: bool) -> None:
    assert fits(f"    s:\n        {key}: {value}\n    condition: s\n", event) is held


@pytest.mark.parametrize(
    ("modifier", "least", "most"),
    [("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("week", 1, 53), ("month", 1, 12), ("year", 1, 9999)],
)
def test_a_part_of_a_time_has_its_range(modifier: str, least: int, most: int) -> None:
    for number in (least, most):
        assert not asked(f"F|{modifier}", str(number), "no time")
    for number in (str(least - 1), str(most + 1)):
        assert f"{modifier} is a whole number from {least} to {most}, not {number}" in refused(f"F|{modifier}", number)
        assert "is a whole number from" in refused(f"F|{modifier}|gte", number)


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        ("F|hour", "[2, 3]", True),
        ("F|hour|lt", "4", True),
        ("F|hour|lte", "2", False),
        ("F|hour|gte", "3", True),
        ("F|hour|gt", "3", False),
        ("F|month|gte", "11", True),
        ("F|week", "47", True),
    ],
)
def test_parts_of_times_are_compared(key: str, value: str, held: bool) -> None:
    assert asked(key, value, "2026-11-21T03:59:00Z") is held


@pytest.mark.parametrize(
    ("key", "value", "held", "expected"),
    [
        ("F|lt", "-1.5", "-2", True),
        ("F|gt", "[1, 10]", 5, True),
        ("F|gte", "1.0e+3", 1000, True),
        ("F|lte", "18446744073709551615", 18446744073709551615, True),
        ("F|lt", "5", "", False),
        ("F|lt", "5", True, False),
        ("F|exists|neq", "true", ABSENT, True),
        ("F|exists|neq", "true", None, False),
        ("F|re|all", "[a, b]", "ba", True),
        ("F|re|all", "[a, b]", "a", False),
        ("F|re|i|all", "[A, b]", "Ba", True),
        ("F|re|m|i", "'^B$'", "a\nb\nc", True),
        ("F|all", "['*a*', '*b*']", "xbxa", True),
        ("F|all", "['*a*', '*b*']", "xaxa", False),
        ("F|startswith|all", "[ab, a]", "abc", True),
        ("F|contains", "''", "", True),
        ("F|contains", "''", ABSENT, False),
    ],
)
def test_numbers_presence_expressions_and_all(key: str, value: str, held: object, expected: bool) -> None:
    assert asked(key, value, held) is expected


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("F|lt", "'5'", "the modifier 'lt' does not take '5' here"),
        ("F|gt", "true", "the modifier 'gt' does not take True here"),
        ("F|fieldref|gt", "G", "the modifier 'gt' does not take 'G' here"),
        ("F|contains|lt", "5", "the modifier 'lt' does not take 5 here"),
        ("F|hour", "'3'", "the modifier 'hour' does not take '3' here"),
        ("F|gte|hour", "3", "the modifier 'hour' does not take 3 here"),
        ("F|i", "x", "the modifier 'i' does not take 'x' here"),
        ("F|base64", "[1, 2, 3, 4]", "does not take 1, 2, 3, ... here"),
        ("F|windash", "5", "the modifier 'windash' does not take 5 here"),
        ("F|cased", "null", "the modifier 'cased' does not take None here"),
        ("F|cidr", "'10.0.0.0/33'", "Invalid CIDR expression"),
        ("F|cased|re", "a", "only applicable to unmodified values"),
        ("F|re", "'[[:alpha:]]+'", "[:alpha:] is no class of letters here"),
        ("F|re", r"'\p{L}'", r"bad escape \p"),
        ("'|startswith'", "abc", "the modifier 'startswith' needs a field"),
        ("'|endswith'", "[abc]", "the modifier 'endswith' needs a field"),
        ("'|exists'", "true", "the modifier 'exists' needs a field"),
        ("'|cidr'", "'10.0.0.0/8'", "the modifier 'cidr' needs a field"),
        ("'|fieldref'", "G", "the modifier 'fieldref' needs a field"),
        ("'|lt'", "5", "the modifier 'lt' needs a field"),
    ],
)
def test_what_has_no_meaning_is_refused_in_the_words_of_the_rule(key: str, value: str, reason: str) -> None:
    assert reason in refused(key, value)


@pytest.mark.parametrize(
    ("key", "value", "fitting", "other"),
    [
        ("'|contains'", "abc", "xABCx", "ab"),
        ("'|cased'", "Abc", "xAbc", "xabc"),
        ("'|re|i'", "'a.c'", "xABC", "ac"),
        ("'|windash'", "' -abc'", "x /abc", "x +abc"),
        ("'|base64offset|contains'", "abcdef", encoded(b"1", b"abcdef"), "abcdef"),
        ("'|neq'", "abc", "x", "xabcx"),
        ("'|wide'", "ab", "xa\0b\0", "ab"),
    ],
)
def test_keywords_take_the_modifiers_of_texts(key: str, value: str, fitting: str, other: str) -> None:
    assert asked(key, value, fitting)
    assert not asked(key, value, other)
