"""Our YAML form: what each word means for an event, and where the faults of bad rules are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.rule_formats.yaml.form import read_yaml_rules
from millstream.streams.rule_formats.yaml_document import MAX_YAML_DEPTH
from millstream.streams.rules.conditions import Op, Predicate, Truth, all_of
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import Measure, MeasureKind, RuleStatistics

CMD = {"EventID": 1, "Image": "C:\\Windows\\cmd.exe", "User": "SYSTEM", "Ip": "10.2.3.4", "Size": "30"}


def holds(when: str, event: dict[str, Any]) -> bool | None:
    read = read_yaml_rules(f"rule: one\nwhen: {when}\n", "rules.yml")
    assert not read.refused
    return evaluate(read.rules[0].condition, field_reader(event, read.paths))


def fault(content: str) -> tuple[int | None, int | None, str]:
    [refused] = read_yaml_rules(content, "rules.yml").refused
    return refused.line, refused.column, refused.reason


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("{EventID: 1}", True),
        ("{EventID: '1'}", True),
        ("{EventID: [2, 3]}", False),
        ("{EventID: [2, 1]}", True),
        ("{Size: 30}", True),
        ("{Size: 0x1e}", True),
        ("{Size: 30.0}", True),
        ("{Size: .inf}", False),
        ("{Size: [x, 30]}", True),
        ("{Image: {ends: '\\cmd.exe'}}", True),
        ("{Image: {ends: '\\CMD.exe'}}", False),
        ("{Image: {ends: '\\CMD.exe', caseless: true}}", True),
        ("{Image: {starts: 'C:\\', ends: [.com, .exe]}}", True),
        ("{Image: {starts: 'D:\\', ends: .exe}}", False),
        ("{Image: {contains: [Linux, Windows]}}", True),
        ("{Image: {contains all: [Linux, Windows]}}", False),
        ("{Image: {contains all: [cmd, Windows]}}", True),
        ("{Image: {matches: 'c[a-z]d\\.'}}", True),
        ("{User: {is: system, steps: lower}}", True),
        ("{Ip: {network: [192.168.0.0/16, 10.0.0.0/8]}}", True),
        ("{Ip: {network: 10.3.0.0/16}}", False),
        ("{Size: {above: 29, at most: 30}}", True),
        ("{Size: {below: 30}}", False),
        ("{Size: {at least: 31}}", False),
        ("{Image: {same as: Image}}", True),
        ("{Image: {same as: User}}", False),
        ("{Image: {call: ['operator:contains', cmd]}}", True),
        ("{Gone: {exists: false}, User: {exists: true}}", True),
        ("{Gone: ~}", True),
        ("{User: [~, SYSTEM]}", True),
        ("{User: ~}", False),
        ("{Gone: x}", False),
        ("{not: {Gone: x}}", True),
        ("{not: {EventID: 1, User: other}}", True),
        ("{any: {EventID: 5, User: SYSTEM}}", True),
        ("{any: [{EventID: 5}, {User: other}]}", False),
        ("{all: [{EventID: 1}, {not: {User: other}}]}", True),
        ("{'not': x}", False),
    ],
)
def test_a_condition_means_what_it_says(when: str, expected: bool) -> None:
    assert holds(when, CMD) is expected


def test_words_of_the_form_in_quotes_are_fields() -> None:
    assert holds("{'any': 1, \"not\": 2}", {"any": 1, "not": 2})


@pytest.mark.parametrize("written", ["22:30", "yes", "off", "2020-01-01", "010", "1_000", "0o17", "1e5"])
def test_what_yaml_takes_for_more_than_it_is_stays_a_text(written: str) -> None:
    assert holds(f"{{Field: {written}}}", {"Field": written})


def test_a_name_with_dots_is_looked_for_as_a_key_and_then_deeper() -> None:
    assert holds("{process.name: x}", {"process.name": "x"})
    assert holds("{process.name: x}", {"process": {"name": "x"}})


def test_a_file_says_where_events_hold_fields() -> None:
    read = read_yaml_rules(
        "fields: {Image: [Image, process.executable]}\nrules: [{rule: a, when: {Image: x}}]", "r.yml"
    )
    assert read.paths == {"Image": (("Image",), ("process", "executable"))}


def test_a_rule_has_all_that_its_author_says_of_it_and_its_own_text() -> None:
    content = (
        "- rule: shell\n  title: A shell\n  level: HIGH\n  tags: [a, b, a]\n  author: Ada\n  license: MIT\n"
        "  enabled: false\n  caseless: true\n  shows: [User, Image]\n  alerts: false\n  when:\n    Image: {ends: cmd.exe}\n"
        "\n# the next\n- {rule: next, when: {a: 1}}\n"
    )
    shell, following = read_yaml_rules(content, "r.yml").rules
    assert shell.text == content[: content.index("\n# the next")].rstrip() + "\n\n# the next\n"
    assert (shell.title, shell.level, shell.tags, shell.author, shell.license) == (
        "A shell",
        "high",
        ("a", "b"),
        "Ada",
        "MIT",
    )
    assert (shell.enabled, shell.alerts, shell.shows, shell.kind) == (False, False, ("User", "Image"), "yaml")
    assert shell.condition == Predicate("Image", Op.ENDS, ("cmd.exe",), caseless=True, absent=False)
    assert following.text == "- {rule: next, when: {a: 1}}\n"
    assert (following.title, following.level, following.enabled, following.alerts) == ("next", "medium", True, True)


def test_the_letters_of_numbers_are_not_looked_at_so_that_atoms_are_shared() -> None:
    one, two = (
        read_yaml_rules(f"{{rule: r, caseless: {word}, when: {{EventID: 1}}}}", "r.yml").rules[0].condition
        for word in ("true", "false")
    )
    assert one == two


def test_rules_count_events_values_and_sequences() -> None:
    content = """
- {rule: failed, when: {EventID: 4625}, alerts: false}
- {rule: burst, when: {EventID: 4625}, count: {by: [Ip, Host], within: 10 min, at least: 20, at most: 30}}
- {rule: spread, when: {EventID: 4625}, distinct: {of: User, by: Ip, within: 1 h, at least: 5}}
- {rule: others, count: {rules: [failed], within: 30s, at least: 2}}
- {rule: order, sequence: {of: [failed, burst, failed], by: Host, within: 2 d}}
"""
    read = read_yaml_rules(content, "r.yml")
    assert not read.refused
    events, values, sequence = (
        Measure(kind) for kind in (MeasureKind.EVENTS, MeasureKind.VALUES, MeasureKind.SEQUENCE)
    )
    assert [rule.statistics for rule in read.rules[1:]] == [
        RuleStatistics(events, 600_000, ("Ip", "Host"), 20, at_most=30),
        RuleStatistics(Measure(values.kind, "User"), 3_600_000, ("Ip",), 5),
        RuleStatistics(events, 30_000, (), 2, ("failed",)),
        RuleStatistics(sequence, 172_800_000, ("Host",), 3, ("failed", "burst", "failed")),
    ]
    assert [rule.condition for rule in read.rules[3:]] == [Truth(False), Truth(False)]


def test_windows_slide_where_a_rule_says_so() -> None:
    content = """
- {rule: burst, when: {x: 1}, count: {within: 1 h, windows: sliding, at least: 2}}
- {rule: beside, when: {x: 1}, count: {within: 1 h, windows: tumbling, at least: 2}}
- {rule: mean, when: {x: 1}, average: {of: y, within: 1 h, windows: sliding, below: 2}}
"""
    read = read_yaml_rules(content, "r.yml")
    assert not read.refused
    names = [rule.statistics.measure.name for rule in read.rules if rule.statistics]
    assert names == ["sliding events", "events", "sliding average"]


def test_rules_measure_numbers_of_a_field() -> None:
    content = """
- {rule: sent, when: {x: 1}, sum: {of: Bytes, by: [Host], within: 10 min, above: 1.5}}
- {rule: mean, when: {x: 1}, average: {of: Ms, within: 1 h, at least: -1, below: 2}}
- {rule: least, when: {x: 1}, minimum: {of: Ms, within: 1 h, at most: 0}}
- {rule: most, when: {x: 1}, maximum: {of: a.b, within: 1 h, at least: 5, at most: 5}}
- {rule: slow, percentile: {of: Ms, percent: 0, rules: [sent], by: Host, within: 1 h, above: 1, below: 2}}
"""
    read = read_yaml_rules(content, "r.yml")
    assert not read.refused
    assert [rule.statistics for rule in read.rules] == [
        RuleStatistics(Measure(MeasureKind.SUM, "Bytes"), 600_000, ("Host",), None, above=1.5),
        RuleStatistics(Measure(MeasureKind.AVERAGE, "Ms"), 3_600_000, (), -1, below=2),
        RuleStatistics(Measure(MeasureKind.MINIMUM, "Ms"), 3_600_000, (), None, at_most=0),
        RuleStatistics(Measure(MeasureKind.MAXIMUM, "a.b"), 3_600_000, (), 5, at_most=5),
        RuleStatistics(
            Measure(MeasureKind.PERCENTILE, "Ms", percent=0), 3_600_000, ("Host",), None, ("sent",), above=1, below=2
        ),
    ]
    assert read.paths["a.b"] == (("a.b",), ("a", "b"))


@pytest.mark.parametrize(
    ("content", "line", "column", "words"),
    [
        ("rule: a\nwhen: {Image: {end: x}}", 2, 16, "Did you mean 'ends'?"),
        ("rule: a\nwehn: {x: 1}\nwhen: {x: 1}", 2, 1, "Did you mean 'when'?"),
        ("rule: a", 1, 1, "'when' is missing"),
        ("title: a\nwhen: {x: 1}", 1, 1, "'rule' is missing"),
        ("rule: a*\nwhen: {x: 1}", 1, 7, "is no id"),
        ("rule: a\nlevel: hihg\nwhen: {x: 1}", 2, 8, "Did you mean 'high'?"),
        ("rule: a\nwhen: {x: {matches: '(y'}}", 2, 21, "regular expression"),
        ("rule: a\nwhen: {x: {network: 10.0.0.0/40}}", 2, 21, "10.0.0.0/8"),
        ("rule: a\nwhen: {x: {above: true}}", 2, 19, "a number or a text"),
        ("rule: a\nwhen: {x: {exists: maybe}}", 2, 20, "true or false"),
        ("rule: a\nwhen: {x: {call: 'os.system'}}", 2, 18, "module:name"),
        ("rule: a\nwhen: {x: {contains: ''}}", 2, 22, "Expected a text"),
        ("rule: a\nwhen: {x: {}}", 2, 11, "Expected what 'x' must be"),
        ("rule: a\nwhen: {x: []}", 2, 11, "found 0"),
        ("rule: a\nwhen: {x: {steps: loud}}", 2, 19, "lower, upper, trim, squeeze"),
        ("rule: a\nwhen: {}", 2, 7, "empty map"),
        ("rule: a\nwhen: [{x: 1}]", 2, 7, "found a list"),
        ("rule: a\nwhen: {any: 3}", 2, 13, "a list or map of conditions"),
        ("rule: a\nwhen: {x: 1, x: 2}", 2, 14, "said twice"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 1 h}", 3, 8, "'at least' is missing"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 1 fortnight, at least: 1}", 3, 17, "10 min"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 32 d, at least: 1}", 3, 17, "up to 31 d"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 0 s, at least: 1}", 3, 17, "up to 31 d"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 1 h, at least: 0}", 3, 32, "whole number"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 1 h, at least: 1}\ndistinct: {}", 4, 1, "not both"),
        ("rule: a\nwhen: {x: 1}\ndistinct: {within: 1 h, at least: 1}", 3, 11, "'of' is missing"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 1 h, at least: 1, windows: hop}", 3, 44, "tumbling or sliding"),
        ("rule: a\nwhen: {x: 1}\ncount: {within: 1 h, at least: 1, at most: 2, windows: sliding}", 3, 56, "at most 2"),
        ("rule: a\nsequence: {of: [b, c], within: 1 h, windows: sliding}", 2, 46, "wherever it begins"),
        ("rule: a\nwhen: {x: 1}\nsum: {of: y, within: 1 h}", 3, 1, "at least, above, at most, below"),
        ("rule: a\nwhen: {x: 1}\nsum: {within: 1 h, above: 1}", 3, 6, "'of' is missing"),
        ("rule: a\nwhen: {x: 1}\nsum: {of: y, within: 1 h, above: x}", 3, 34, "a number of 64 bits, found 'x'"),
        ("rule: a\nwhen: {x: 1}\nsum: {of: y, within: 1 h, above: true}", 3, 34, "a number of 64 bits"),
        (f"rule: a\nwhen: {{x: 1}}\nsum: {{of: y, within: 1 h, above: {'9' * 400}}}", 3, 34, "a number of 64 bits"),
        ("rule: a\nwhen: {x: 1}\nsum: {of: y, percent: 5, within: 1 h, above: 1}", 3, 14, "'percent'"),
        ("rule: a\nwhen: {x: 1}\nmaximum: {of: y, within: 1 h, above: 2, below: 2}", 3, 1, "above 2 and below 2"),
        ("rule: a\nwhen: {x: 1}\npercentile: {of: y, within: 1 h, above: 2}", 3, 13, "'percent' is missing"),
        ("rule: a\nwhen: {x: 1}\npercentile: {of: y, percent: 101, within: 1 h, above: 2}", 3, 30, "from 0 to 100"),
        ("rule: a\nwhen: {x: 1}\nsum: {of: y, within: 1 h, above: 2}\nminimum: {}", 4, 1, "not both"),
        ("rule: a\nsequence: {of: [b], within: 1 h}", 2, 16, "two rules or more"),
        ("rule: a\nwhen: {x: 1}\nsequence: {of: [b, c], within: 1 h}", 2, 7, "no condition of its own"),
        ("rule: a\nwhen: {x: {above: 1.5e+999}}", 2, 19, "too large"),
        ("- 3", 1, 3, "found '3'"),
        ("rules: 3", 1, 8, "a list of rules"),
        ("rules: []\nfield: {}", 2, 1, "Did you mean 'fields'?"),
        ("rule: a\nwhen: {x: [1}", 2, 13, "no YAML"),
        ("rule: \x00", 1, 1, "no YAML"),
        ("[" * 100_000, 1, 61, "nested deeper"),
        ("- " * 100_000, 1, 121, "nested deeper"),
        ("? " * 100_000, 1, 121, "nested deeper"),
        (f"rule: a\nwhen: {'{not: ' * (MAX_YAML_DEPTH + 1)}{{x: 1}}{'}' * (MAX_YAML_DEPTH + 1)}", 2, 361, "nested deeper"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place_and_what_was_expected(content: str, line: int, column: int, words: str) -> None:
    found = fault(content)
    assert found[:2] == (line, column)
    assert words in found[2]


def test_anchors_that_multiply_are_bounded() -> None:
    laughs = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]" for n in range(9))
    assert "values" in fault(laughs)[2]


def test_the_rules_of_the_documentation_are_taken() -> None:
    page = (Path(__file__).parents[4] / "docs" / "rules.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"(?s)```yaml\n(.*?)```", page) if "rule:" in block]
    assert len(blocks) >= 4
    for block in blocks:
        read = read_yaml_rules(block, "rules.md")
        assert read.rules
        assert not read.refused


def test_one_bad_rule_stops_no_other_one() -> None:
    content = "- {rule: a, when: {x: 1}}\n- {rule: b, when: {x: {}}}\n- 7\n- {rule: c, when: {x: 1}}\n---\nrule: d\nwhen: {x: 2}\n"
    read = read_yaml_rules(content, "r.yml")
    assert [rule.id for rule in read.rules] == ["a", "c", "d"]
    assert [(one.line, one.column) for one in read.refused] == [(2, 23), (3, 3)]


def test_a_rule_that_is_no_yaml_stops_no_other_one() -> None:
    content = "# mine\n- rule: a\n  when: {x: 1}\n- rule: b\n  when: {x: [1}\n- rule: c\n  when: {x: {}}\n---\nrule: d\nwhen: {x: 2}\n"
    read = read_yaml_rules(content, "r.yml")
    assert [rule.id for rule in read.rules] == ["a", "d"]
    assert [one.line for one in read.refused] == [5, 7]


def test_the_second_of_two_rules_of_one_id_is_refused() -> None:
    read = read_yaml_rules("- {rule: a, when: {x: 1}}\n- {rule: a, when: {x: 2}}", "r.yml")
    assert (len(read.rules), str(read.refused[0])) == (
        1,
        "r.yml:2:3: The file has two rules with the id 'a'; the first one is taken.",
    )


def test_several_tests_of_one_field_all_have_to_hold() -> None:
    rule = read_yaml_rules("rule: a\nwhen: {x: {starts: a, ends: b}, y: 1}", "r.yml").rules[0]
    assert rule.condition == all_of(
        Predicate("x", Op.STARTS, ("a",), absent=False),
        Predicate("x", Op.ENDS, ("b",), absent=False),
        Predicate("y", Op.IN, (1,), absent=False),
    )


@settings(max_examples=scaled(300), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "rule: a",
                "when:",
                "{x: 1}",
                "- ",
                "\n",
                "  ",
                "all:",
                "any: [",
                "]",
                "}",
                "'",
                "count: {within: 1 h}",
                "---",
                "é\u2028",
                "&a",
                "*a",
                "!!int",
                "? ",
                "|",
                "1e400",
                "0x",
                "-",
            ]
        ),
        max_size=25,
    )
)
def test_no_text_ends_in_anything_but_rules_and_faults(pieces: list[str]) -> None:
    read = read_yaml_rules(" ".join(pieces), "r.yml")
    assert all(one.reason and one.line for one in read.refused)
