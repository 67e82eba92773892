"""Why a rule fits an event or not."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Op, Predicate, Truth
from millstream.streams.rules.explain import (
    MAX_SHOWN_PARTS,
    ConditionPart,
    deciding_parts,
    draw,
    explain,
    find_nearest,
    outline,
)
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import Rule
from millstream.streams.rules.watch import Watch

A, B, C = (Predicate(name, Op.IN, (1,)) for name in "abc")


def why(formula: Condition, event: dict[str, Any]) -> ConditionPart:
    return explain(formula, field_reader(event, {}))


def decided(formula: Condition, event: dict[str, Any]) -> list[str | None]:
    return [one.field for one in deciding_parts(why(formula, event))]


def test_of_a_failed_and_the_parts_that_failed_decide() -> None:
    assert decided(All((A, B, C)), {"a": 1, "b": 2, "c": 1}) == ["b"]
    assert decided(All((A, B, C)), {"a": 1, "b": 2, "c": 3}) == ["b", "c"]


def test_of_a_failed_or_all_parts_decide_and_of_one_that_held_those_that_held() -> None:
    assert decided(AnyOf((A, B)), {"a": 2, "b": 2}) == ["a", "b"]
    assert decided(AnyOf((A, B)), {"a": 2, "b": 1}) == ["b"]


def test_behind_a_not_the_parts_that_made_it_so_decide() -> None:
    assert decided(All((A, Not(AnyOf((B, C))))), {"a": 1, "b": 1, "c": 2}) == ["b"]
    assert decided(Not(All((A, B))), {"a": 2, "b": 1}) == ["a"]


def test_what_is_not_known_decides_where_the_whole_is_not_known() -> None:
    assert decided(All((A, B)), {"a": 1}) == ["b"]
    assert why(All((A, B)), {"a": 1}).held is None


def test_a_function_that_raises_is_told_as_what_went_wrong() -> None:
    found = why(Predicate("a", Op.CALL, ("operator:add",)), {"a": 1})
    assert found.held is None
    assert found.wrong.startswith("TypeError")


def test_the_tree_is_drawn_with_values_and_stars() -> None:
    image = Predicate("Image", Op.ENDS, ("\\cmd.exe",), caseless=True, absent=False)
    formula = All((A, Not(B), AnyOf((image, Predicate("c", Op.IS_NULL)))))
    assert draw(why(formula, {"a": 1, "b": 2, "Image": "C:\\x\ny", "c": 5})) == [
        "* no      all of",
        "├─   yes     a is 1   (it is '1')",
        "├─   yes     not",
        "│  └─   no      b is 1   (it is '2')",
        "└─ * no      any of",
        "   ├─ * no      Image ends '\\cmd.exe', whatever the case   (it is 'C:\\x\\ny')",
        "   └─ * no      c is null   (it is '5')",
    ]
    assert outline(formula) == [
        "all of",
        "├─ a is 1",
        "├─ not",
        "│  └─ b is 1",
        "└─ any of",
        "   ├─ Image ends '\\cmd.exe', whatever the case",
        "   └─ c is null",
    ]


def test_of_very_many_parts_those_that_decided_are_drawn_and_the_others_counted() -> None:
    atoms = [Predicate(f"f{n}", Op.IN, (1,)) for n in range(100)]
    lines = draw(why(All(tuple(atoms)), {f"f{n}": 2 if n == 77 else 1 for n in range(100)}))
    assert len(lines) == MAX_SHOWN_PARTS + 2
    assert any(line.startswith("├─ * no      f77") for line in lines)
    assert lines[-1] == f"└─ {100 - MAX_SHOWN_PARTS} more, of which each is yes"


def test_long_values_and_lists_are_cut() -> None:
    [line] = draw(why(Predicate("a", Op.IN, tuple(map(str, range(1000)))), {"a": "y" * 1000}))
    assert "and 980 more" in line
    assert len(line) < 400


def test_rules_that_fit_come_first_and_then_those_that_lack_one_part_of_the_most() -> None:
    conditions = {
        "fits": A,
        "far": All((A, B, C)),
        "near": All((A, AnyOf((B, C)))),
        "nearer": All((A, Truth(True), Not(A))),
        "alone": B,
        "other kind": All((A, Not(B), Not(C), B)),
    }
    rules = [Rule(name, name, condition) for name, condition in conditions.items()]
    assert [
        (one.rule.id, one.held, one.lacks) for one in find_nearest(rules, field_reader({"a": 1, "b": 2, "c": 3}, {}))
    ] == [
        ("fits", 1, None),
        ("nearer", 2, "not a is 1"),
        ("near", 1, "any of 2 about b, c"),
        ("other kind", 3, "b is 1"),
    ]


FORMULAS = st.recursive(
    st.sampled_from([A, B, C, Truth(True), Truth(False), Truth(None), Predicate("a", Op.IS_NULL)]),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: All(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: AnyOf(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=10,
)


@settings(max_examples=scaled(300), deadline=None)
@given(FORMULAS, st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, 2, None])))
def test_the_explanation_says_what_the_judge_says_and_always_names_what_decided(
    formula: Condition, event: dict[str, Any]
) -> None:
    found = why(formula, event)
    assert found.held is evaluate(formula, field_reader(event, {}))
    assert list(deciding_parts(found))
    assert len(draw(found)) == len(outline(formula))


SLOW = Predicate("CommandLine", Op.MATCHES, (r"^(a+)+\1$",), absent=False)
HARD = {"CommandLine": "a" * 57 + "!", "a": 1}


def test_an_expression_that_does_not_end_is_stopped_and_the_other_parts_are_told() -> None:
    watch = Watch(allowance_ms=100)
    found = explain(All((A, SLOW)), field_reader(HARD, {}), watch)
    assert [(part.held, part.wrong) for part in found.parts] == [(True, ""), (None, "takes longer than 100 ms")]
    assert found.held is None
    assert [(failure.too_slow, failure.value) for failure in watch.failures.values()] == [(True, HARD["CommandLine"])]


def test_the_nearest_rules_are_found_beside_one_that_does_not_end() -> None:
    watch = Watch(allowance_ms=100)
    rules = [Rule("slow", "slow", SLOW), Rule("slower", "slower", All((A, Not(SLOW)))), Rule("fits", "fits", A)]
    assert [one.rule.id for one in find_nearest(rules, field_reader(HARD, {}), watch)] == ["fits", "slower"]
    assert list(watch.failures) == [SLOW]
