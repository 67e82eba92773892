"""Conditions of Sigma over detections that hold or not."""

from __future__ import annotations

import pytest
from written_rules import HEAD, fault_of, fits, read_text, rule_of

DETECTIONS = """
    sel_a:
        A: x
    sel_b:
        B: x
    filter:
        F: x
    _hidden:
        H: x
"""


def holds(condition: str, fields: str) -> bool:
    """Whether the condition holds where the fields named by these letters are x."""
    return fits(f"{DETECTIONS}    condition: {condition}\n", dict.fromkeys(fields, "x"))


@pytest.mark.parametrize(
    ("condition", "fitting", "other"),
    [
        ("sel_a", ("A", "AB"), ("", "B")),
        ("sel_a and sel_b", ("AB",), ("A", "B", "")),
        ("sel_a or sel_b", ("A", "B", "AB"), ("", "F")),
        ("not sel_a", ("", "B"), ("A",)),
        ("sel_a and not filter", ("A",), ("AF", "F", "")),
        ("not not sel_a", ("A",), ("",)),
        ("not (sel_a or sel_b)", ("", "F"), ("A", "B")),
        ("sel_a or sel_b and filter", ("A", "BF"), ("B", "F")),
        ("(sel_a or sel_b) and filter", ("AF", "BF"), ("A", "F")),
        ("not sel_a and sel_b", ("B",), ("AB", "A")),
        ("1 of sel_*", ("A", "B"), ("F", "")),
        ("any of sel_*", ("A", "B"), ("F", "")),
        ("all of sel_*", ("AB",), ("A", "B")),
        ("1 of them", ("A", "B", "F"), ("", "H")),
        ("all of them", ("ABF",), ("AB", "ABH")),
        ("not 1 of sel_*", ("", "F"), ("A", "AB")),
        ("not all of sel_*", ("", "A"), ("AB",)),
        ("1 of s*_b", ("B",), ("A",)),
        ("_hidden", ("H",), ("",)),
        ("[sel_a, sel_b and filter]", ("A", "BF"), ("B", "F")),
    ],
)
def test_a_condition_joins_detections(condition: str, fitting: tuple[str, ...], other: tuple[str, ...]) -> None:
    for fields in fitting:
        assert holds(condition, fields), fields
    for fields in other:
        assert not holds(condition, fields), fields


def test_the_keys_of_a_map_are_all_needed_and_the_maps_of_a_list_are_not() -> None:
    assert fits("    s: {A: x, B: y}\n    condition: s\n", {"A": "x", "B": "y"})
    assert not fits("    s: {A: x, B: y}\n    condition: s\n", {"A": "x"})
    listed = "    s:\n        - {A: x, B: y}\n        - C: z\n    condition: s\n"
    assert fits(listed, {"C": "z"})
    assert fits(listed, {"A": "x", "B": "y"})
    assert not fits(listed, {"A": "x"})


def test_lists_may_hold_keywords_and_maps_together() -> None:
    listed = "    s:\n        - mimikatz\n        - A: x\n    condition: s\n"
    assert fits(listed, {"Any": "has Mimikatz inside"})
    assert fits(listed, {"A": "x"})
    assert not fits(listed, {"A": "y"})


def test_other_channels_never_fit() -> None:
    rule = "    s:\n        A: x\n    condition: not s\n"
    assert fits(rule, {"A": "y"})
    assert not fits(rule, {"A": "y", "Channel": "System"})


def test_a_timeframe_is_no_detection() -> None:
    assert holds("1 of them\n    timeframe: 5m", "A")
    assert not fits(f"{DETECTIONS}    timeframe: 5m\n    condition: 1 of them\n", {"Any": "5m"})


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("sel_a and", "condition: "),
        ("sel_c", "Detection 'sel_c' not defined"),
        ("1 of filters_*", "doesn't match any detection"),
        ("2 of sel_*", "condition: "),
        ("sel_a nor sel_b", "condition: "),
        ("''", "condition: "),
        ("5", "must be a text"),
        ("[]", "must be a text"),
        ("sel_a | near sel_b", "the aggregation 'near sel_b' is not taken"),
        ("sel_a | sum(A) > 5", "is not taken"),
        ("sel_a | count() > 5", "needs a timeframe"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_at_its_line(condition: str, reason: str) -> None:
    line, told = fault_of(f"    sel_a: {{A: x}}\n    sel_b: {{B: x}}\n    condition: {condition}\n")
    assert reason in told
    assert line == (7 if "timeframe" in reason else 10)


def test_conditions_without_bound_are_refused_in_words() -> None:
    for depth, taken in ((50, True), (51, False), (4_000, False)):
        deep = "(" * depth + "s" + ")" * depth
        read = read_text(f"{HEAD}    s: {{A: x}}\n    condition: {deep}\n")
        assert bool(read.rules) is taken
        assert taken or "more than 50 brackets" in read.refused[0].reason
    negated = "not " * 2_000 + "s"
    assert fault_of(f"    s: {{A: x}}\n    condition: {negated}\n") == (9, "the condition is nested too deeply")
    long = " or ".join(["s"] * 5_000)
    assert "longer than 10,000 characters" in fault_of(f"    s: {{A: x}}\n    condition: {long}\n")[1]


def test_a_rule_that_asks_nothing_of_the_event_is_refused() -> None:
    assert "nothing to detect" in fault_of("    condition: s\n")[1]


def test_the_tree_of_a_rule_reads_as_it_was_written() -> None:
    rule = rule_of("    s: {A: x}\n    f: {B: 5}\n    condition: s and not f\n")
    assert str(rule.condition) == "(Channel in ('security') caseless AND A in ('x') caseless AND NOT B in (5))"
