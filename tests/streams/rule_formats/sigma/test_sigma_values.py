"""Values and modifiers of Sigma, each as its specification describes it."""

from __future__ import annotations

from base64 import b64encode

import pytest
from written_rules import fault_of, fits, rule_of

ABSENT = object()


def asked(key: str, value: str, held: object) -> bool:
    """Whether `key: value` fits an event whose field F holds that."""
    event = {} if held is ABSENT else {"F": held}
    return fits(f"    s:\n        {key}: {value}\n    condition: s\n", event)


@pytest.mark.parametrize(
    ("value", "held", "expected"),
    [
        ("'cmd.exe'", "CMD.exe", True),
        ("'cmd.exe'", "xcmd.exe", False),
        ("'CMD.EXE'", "cmd.exe", True),
        ("'cmd.exe'", ABSENT, False),
        ("'4688'", 4688, True),
        ("4688", "4688", True),
        ("4688", 4688, True),
        ("4688", "46880", False),
        ("4688", "0x1250", False),
        ("1.5", "1.50", True),
        ("12345678901234567", 12345678901234567, True),
        ("12345678901234567", "12345678901234568", False),
        ("[12345678901234567, 12345678901234568]", 12345678901234568, True),
        ("[12345678901234567, 12345678901234569]", 12345678901234568, False),
        ("18446744073709551615", 18446744073709551615, True),
        ("-9223372036854775808", "-9223372036854775808", True),
        ("503", 503.0, True),
        ("0", "-0", True),
        ("'503'", 503, True),
        ("'503'", 503.0, False),
        ("'true'", True, True),
        ("true", 1, False),
        ("1", True, False),
        ("true", "True", True),
        ("true", True, True),
        ("true", "yes", False),
        ("''", "", True),
        ("''", "x", False),
        ("''", ABSENT, False),
        ("null", ABSENT, True),
        ("null", None, True),
        ("null", "", False),
        ("null", "x", False),
    ],
)
def test_a_plain_value_is_the_whole_value_of_the_field(value: str, held: object, expected: bool) -> None:
    assert asked("F", value, held) is expected


@pytest.mark.parametrize(
    ("value", "held", "expected"),
    [
        (r"'prog?.exe'", "progA.exe", True),
        (r"'prog?.exe'", "prog.exe", False),
        (r"'prog?.exe'", "progAB.exe", False),
        (r"'a*b*c'", "aXXbYYc", True),
        (r"'a*b*c'", "abc", True),
        (r"'a*b*c'", "abcd", False),
        (r"'a*b*c'", "zabc", False),
        (r"'a*b'", "a\nb", True),
        (r"'A*B'", "axxb", True),
        (r"'a*b'", "aXb\n", False),
        (r"'*x?z'", "wxyz", True),
        (r"'*x?z'", "wxyzz", False),
        (r"'x?z*'", "xyzzy", True),
        (r"'*'", "anything", True),
        (r"'*'", "", True),
        (r"'*'", ABSENT, False),
        (r"'**x**'", "axb", True),
        (r"'*.exe'", "a.EXE", True),
        (r"'*.exe'", "a.exe.txt", False),
        (r"'C:\*'", r"C:\temp", False),
        (r"'C:\*'", "C:*", True),
        (r"'C:\\*'", "C:\\temp", True),
        (r"'C:\\*'", "C:temp", False),
        (r"'C:\\\*'", r"C:\*", True),
        (r"'C:\\\*'", r"C:\x", False),
        (r"'C:\temp'", "C:\\temp", True),
        (r"'C:\\temp'", "C:\\temp", True),
        (r"'\\\\server'", r"\\server", True),
        (r"'what\?'", "what?", True),
        (r"'what\?'", "whatX", False),
        (r"'a.b'", "axb", False),
        (r"'(a)*[b]'", "(a)x[B]", True),
    ],
)
def test_wildcards_stand_for_any_text_and_one_character(value: str, held: object, expected: bool) -> None:
    assert asked("F", value, held) is expected


@pytest.mark.parametrize(
    ("key", "value", "held", "expected"),
    [
        ("F|contains", "'Temp'", r"C:\TEMP\x", True),
        ("F|contains", "'Temp'", "tmp", False),
        ("F|contains", "'a?c'", "xxabcxx", True),
        ("F|contains", "['no', 'yes']", "oh yes", True),
        ("F|contains|all", "['no', 'yes']", "oh yes", False),
        ("F|contains|all", "['no', 'yes']", "yes and no", True),
        ("F|startswith", "'C:'", "c:\\x", True),
        ("F|startswith", "'C:'", "xc:", False),
        ("F|endswith", r"'\cmd.exe'", r"C:\CMD.exe", True),
        ("F|endswith", r"'\cmd.exe'", r"C:\cmd.exe ", False),
        ("F|endswith", r"['\a.exe', '\b.exe']", r"x\b.exe", True),
        ("F|contains", "[500, x]", 15001, True),
        ("F|startswith", "500", "500 ok", True),
        ("F|endswith", "500", 5001, False),
        ("F", "2024-01-31", "2024-01-31", True),
        ("F|startswith", "2024-01-31", "2024-01-31T08:00", True),
        ("F|cased", "'Cmd'", "cmd", False),
        ("F|cased", "'Cmd'", "Cmd", True),
        ("F|contains|cased", "'Cmd'", "a cmd", False),
        ("F|cased|contains", "'Cmd'", "a Cmd", True),
        ("F|cased", "'C*d'", "cmd", False),
        ("F|cased", "'C*d'", "Cmd", True),
        ("F|exists", "true", "x", True),
        ("F|exists", "true", "", True),
        ("F|exists", "true", None, True),
        ("F|exists", "false", None, False),
        ("F|exists", "true", ABSENT, False),
        ("F|exists", "false", ABSENT, True),
        ("F|exists", "false", "x", False),
        ("F|neq", "'x'", "y", True),
        ("F|neq", "'x'", "X", False),
        ("F|neq", "5", 5, False),
        ("F|neq", "5", 6, True),
        ("F|lt", "5", 4, True),
        ("F|lt", "5", 5, False),
        ("F|lte", "5", "5", True),
        ("F|gt", "5", "5.5", True),
        ("F|gt", "5", 5, False),
        ("F|gte", "5", 5, True),
        ("F|gte", "5", "many", False),
        ("F|gte", "5", ABSENT, False),
        ("F|cidr", "'10.0.0.0/8'", "10.200.3.4", True),
        ("F|cidr", "'10.0.0.0/8'", "11.0.0.1", False),
        ("F|cidr", "['10.0.0.0/8', 'fe80::/10']", "fe80::1", True),
        ("F|cidr", "'10.0.0.0/8'", "no address", False),
        ("F|cidr", "'10.0.0.0/8'", "::ffff:10.1.2.3", True),
        ("F|cidr", "'10.0.0.0/8'", "::FFFF:0b01:0203", False),
        ("F|cidr", "'::ffff:10.0.0.0/104'", "10.1.2.3", True),
        ("F|cidr", "'::/0'", "10.1.2.3", False),
        ("F|cidr", "'2001:db8::/32'", "2001:DB8::1", True),
    ],
)
def test_a_modifier_changes_how_values_are_compared(key: str, value: str, held: object, expected: bool) -> None:
    assert asked(key, value, held) is expected


@pytest.mark.parametrize(
    ("key", "value", "held", "expected"),
    [
        ("F|re", "'a+b'", "xaab", True),
        ("F|re", "'a+b'", "xAAb", False),
        ("F|re", "'^a+b$'", "xaab", False),
        ("F|re|i", "'a+b'", "xAAb", True),
        ("F|re", "'(?i)a+b'", "xAAb", True),
        ("F|re", "'^b'", "a\nb", False),
        ("F|re|m", "'^b'", "a\nb", True),
        ("F|re", "'a.b'", "a\nb", False),
        ("F|re|s", "'a.b'", "a\nb", True),
        ("F|re|i|s", "'a.b'", "A\nB", True),
        ("F|re|i|m|s", "'^a.b'", "x\nA\nB", True),
        ("F|re", r"'\\a\*'", r"x\a*", True),
        ("F|re", "['no', 'y.s']", "yes", True),
        ("F|re", "'a'", ABSENT, False),
        ("F|re", "46", 4688, True),
        ("F|re", "'(?<!x)a(?=b)'", "ab", True),
        ("F|re", "'(?<!x)a(?=b)'", "xab", False),
    ],
)
def test_a_regular_expression_is_found_anywhere_and_minds_case(
    key: str, value: str, held: object, expected: bool
) -> None:
    assert asked(key, value, held) is expected


@pytest.mark.filterwarnings("error")
def test_an_expression_that_python_warns_of_is_taken_in_silence() -> None:
    assert asked("F|re", "'[[a]--b]'", "[--b]")


def test_windash_takes_every_dash_of_a_flag() -> None:
    for dash in ("-", "/", "–", "—", "―"):
        assert asked("F|windash|contains", "' -Encoded '", f"powershell {dash}encoded x")
    assert not asked("F|windash|contains", "' -Encoded '", "powershell +encoded x")
    assert asked("F|contains|windash", "'a-b'", "xa-bx")
    assert not asked("F|contains|windash", "'a-b'", "xa/bx")


def test_windash_values_of_an_all_list_are_needed_each_in_one_spelling() -> None:
    listed = "[' -a ', ' -b ']"
    assert asked("F|contains|all|windash", listed, "x /a -b ")
    assert not asked("F|contains|all|windash", listed, "x /a -a ")


def test_base64_is_the_encoded_value() -> None:
    assert asked("F|base64", "'foobar'", "Zm9vYmFy")
    assert asked("F|base64|contains", "'foobar'", "-enc Zm9vYmFy x")
    assert not asked("F|base64", "'foobar'", "foobar")


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc"])
def test_base64offset_finds_the_value_wherever_it_stands_in_the_encoded_text(before: bytes) -> None:
    encoded = b64encode(before + b"IEX (New-Object" + b" behind").decode()
    assert asked("F|base64offset|contains", "'IEX (New-Object'", f"-e {encoded}")


@pytest.mark.parametrize(
    ("modifier", "encoded"),
    [
        ("wide", "cmd".encode("utf-16-le")),
        ("utf16le", "cmd".encode("utf-16-le")),
        ("utf16be", "cmd".encode("utf-16-be")),
        ("utf16", b"\xff\xfe" + "cmd".encode("utf-16-le")),
    ],
)
def test_wide_texts_are_encoded_before_base64(modifier: str, encoded: bytes) -> None:
    assert asked(f"F|{modifier}|base64", "'cmd'", b64encode(encoded).decode())
    assert not asked(f"F|{modifier}|base64", "'cmd'", b64encode(b"cmd").decode())


@pytest.mark.parametrize(
    ("key", "value", "held", "expected"),
    [
        ("F|hour", "3", "2026-11-21T03:59:00Z", True),
        ("F|hour", "3", "2026-11-21 04:00:00.000", False),
        ("F|hour|gte", "22", "2026-11-21T23:00:00+05:00", True),
        ("F|minute", "59", "2026-11-21T03:59:00Z", True),
        ("F|day", "21", "2026-11-21", True),
        ("F|month|lt", "11", "2026-11-21", False),
        ("F|year", "2026", "2026-11-21", True),
        ("F|week", "1", "2026-12-31", False),
        ("F|week", "53", "2026-12-31", True),
        ("F|hour", "3", "three", False),
        ("F|day", "31", "2026-02-31", False),
        ("F|hour", "3", ABSENT, False),
    ],
)
def test_a_part_of_a_time_is_a_number(key: str, value: str, held: object, expected: bool) -> None:
    assert asked(key, value, held) is expected


def test_fieldref_compares_two_fields_of_the_event() -> None:
    detection = "    s:\n        F|fieldref: G\n    condition: s\n"
    assert fits(detection, {"F": "Same", "G": "same"})
    assert not fits(detection, {"F": "one", "G": "two"})
    assert not fits(detection, {"F": "one"})
    assert not fits(detection, {"G": "two"})


@pytest.mark.parametrize(
    ("modifier", "held", "other", "expected"),
    [
        ("startswith", "Users/eve", "USERS", True),
        ("startswith", "Users", "users/eve", False),
        ("endswith", "eve@Host", "host", True),
        ("endswith", "eve", "host", False),
        ("contains", "a Host b", "hOST", True),
        ("contains", "a b", "host", False),
        ("contains", "port 22", 22, True),
    ],
)
def test_fieldref_may_ask_for_a_part_of_the_field(modifier: str, held: str, other: object, expected: bool) -> None:
    detection = f"    s:\n        F|fieldref|{modifier}: G\n    condition: s\n"
    assert fits(detection, {"F": held, "G": other}) is expected
    assert not fits(detection, {"F": held})
    assert not fits(detection, {"G": other})


def test_a_negated_field_that_is_not_there_fits() -> None:
    for line in ("F: x", "F|contains: x", "F|re: x", "F|lt: 3", "F|cidr: '10.0.0.0/8'", "F|fieldref: G", "F|hour: 3"):
        assert fits(f"    s:\n        {line}\n    condition: not s\n", {"Other": "x"}), line


def test_keywords_are_found_in_any_value_of_the_event_and_not_in_its_keys() -> None:
    detection = '    k:\n        - \'event::clear\'\n        - "it\'s \\"here\\""\n    condition: k\n'
    assert fits(detection, {"Deep": {"List": ["x", "an EVENT::clear y"]}})
    assert fits(detection, {"Message": 'it\'s "HERE"'})
    assert not fits(detection, {"event::clear": "x"})


def test_all_keywords_are_needed_with_the_modifier_all() -> None:
    detection = "    k:\n        '|all':\n            - 'Oab'\n            - '-External'\n    condition: k\n"
    assert fits(detection, {"A": "an oab", "B": "x -external"})
    assert not fits(detection, {"A": "an oab"})


def test_keywords_may_be_numbers_wildcards_and_regular_expressions() -> None:
    assert fits("    k: [4711]\n    condition: k\n", {"A": "port 4711"})
    assert fits("    k: ['a*z']\n    condition: k\n", {"A": "xx a to z xx"})
    assert not fits("    k: ['a*z']\n    condition: k\n", {"A": "z to a"})
    assert fits("    k:\n        '|re': 'a[0-9]+z'\n    condition: k\n", {"A": "xx a15z xx"})


def test_hashes_are_found_in_sysmons_list() -> None:
    detection = "    s:\n        Imphash: 'ABCDEF'\n    condition: s\n"
    assert fits(detection, {"Hashes": "MD5=11,IMPHASH=abcdef"})
    assert fits(detection, {"Imphash": "abcdef"})
    assert not fits(detection, {"Hashes": "MD5=ABCDEF,IMPHASH=11"})


def test_equal_questions_become_equal_atoms() -> None:
    first = rule_of("    s:\n        F|contains: 'ABC'\n        G: ['b', 'a', 'B']\n    condition: s\n")
    second = rule_of("    s:\n        F: '*abc*'\n        G: ['a', 'b']\n    condition: s\n")
    assert first.condition == second.condition


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("F|contain: x", "no modifier 'contain' is known; 'contains' is"),
        ("F|re: '('", "invalid"),
        ("F|re: ~", "a regular expression is a text, not None"),
        ("F|cidr: '10.0.0.1/8'", "Invalid CIDR"),
        ("F|expand: '%Servers%'", "the field 'F' of 'A rule' asks for the placeholder %Servers%"),
        ("F|lt: 'five'", "the modifier 'lt' does not take 'five' here"),
        ("F|base64: 'a*'", "wildcards"),
        ("F|exists: 'maybe'", "the modifier 'exists' does not take 'maybe' here"),
        ("F: []", "a list without values"),
        ("F|re: 'a{99999999999999}'", "too large"),
        ("F|lt: .inf", "Invalid number"),
        ("F|windash: ' -a -b -c -d'", "at most three"),
        ("F|re|expand: '%Servers%'", "the field 'F' of 'A rule' asks for the placeholder %Servers%"),
        ("4688: x", "4688 is no name of a field"),
        ("F: {G: x}", "Unsupported type"),
    ],
)
def test_a_value_without_meaning_is_refused_at_its_line(line: str, reason: str) -> None:
    place, told = fault_of(
        f"    fine:\n        G: x\n    s:\n        H: x\n        {line}\n    condition: fine and s\n"
    )
    assert reason in told
    assert place == 12


def test_a_keyword_that_every_event_has_is_refused() -> None:
    for keyword in ("''", "'*'"):
        assert "in every event" in fault_of(f"    k: [{keyword}]\n    condition: k\n")[1]
