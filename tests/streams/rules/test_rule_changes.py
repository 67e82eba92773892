"""Changes of a rule set: what comes in, what is refused, what is switched and what goes."""

from __future__ import annotations

import math

import pytest
from rule_samples import rule_named

from millstream.streams.errors import RuleError
from millstream.streams.rule_formats.yaml.form import read_yaml_rules
from millstream.streams.rules.changes import choose_rules, find_rule, merge_rules, remove_rules, switch_rules
from millstream.streams.rules.conditions import Op, Predicate, any_of
from millstream.streams.rules.imported_rules import ImportedRules, Refusal
from millstream.streams.rules.rule import Rule, RuleSet


def read(content: str) -> ImportedRules:
    return read_yaml_rules(content, "r.yml")


def test_known_rules_keep_their_numbers_and_new_ones_come_behind() -> None:
    before = RuleSet(3, (rule_named("a"), rule_named("b"), rule_named("c")))
    done = merge_rules(before, ImportedRules((rule_named("d"), rule_named("b", "other"), rule_named("a"))))
    assert [rule.id for rule in done.rule_set.rules] == ["a", "b", "c", "d"]
    assert (done.added, done.changed, done.same) == (("d",), ("b",), ("a",))
    assert done.rule_set.rules[1] == rule_named("b", "other")


def test_a_rule_that_was_switched_off_stays_so_when_it_comes_again() -> None:
    before = RuleSet(1, (rule_named("a", enabled=False),))
    done = merge_rules(before, ImportedRules((rule_named("a", "other"),)))
    assert done.rule_set.rules == (rule_named("a", "other", enabled=False),)
    assert merge_rules(before, ImportedRules((rule_named("a"),))).same == ("a",)


def test_a_rule_that_counts_a_rule_that_there_is_not_is_refused_with_its_place() -> None:
    content = """
- {rule: failed, when: {EventID: 4625}}
- {rule: burst, count: {rules: [faild], within: 1 h, at least: 2}}
"""
    done = merge_rules(RuleSet(1), read(content))
    assert done.added == ("failed",)
    assert done.refused == (Refusal("r.yml", "There is no rule 'faild' to count. Did you mean 'failed'?", 3),)


def test_what_a_counting_rule_finds_cannot_be_counted() -> None:
    content = """
- {rule: more, count: {rules: [burst], within: 1 h, at least: 2}}
- {rule: self, sequence: {of: [self, self], within: 1 h}}
- {rule: burst, when: {EventID: 4625}, count: {within: 1 h, at least: 2}}
"""
    done = merge_rules(RuleSet(1), read(content))
    assert done.added == ("burst",)
    assert [one.line for one in done.refused] == [2, 3]
    assert "counts events itself" in done.refused[0].reason


@pytest.mark.parametrize("operand", [math.inf, math.nan, "half \ud800"])
def test_a_rule_that_a_store_could_not_give_back_is_refused_and_the_others_come_in(operand: str | float) -> None:
    bad = Rule("bad", "", Predicate("x", Op.IN, (operand,)))
    done = merge_rules(RuleSet(1), ImportedRules((bad, rule_named("good")), places={"bad": ("r.yml", 7)}))
    assert done.added == ("good",)
    assert [(one.path, one.line) for one in done.refused] == [("r.yml", 7)]


def test_a_rule_that_counts_others_fits_what_one_of_them_fits_also_after_they_change() -> None:
    counting = "- {rule: both, count: {rules: [a, b], within: 1 h, at least: 2}}"
    before = RuleSet(1, (rule_named("a"), rule_named("b", "x")))
    done = merge_rules(before, read(counting))
    assert done.rule_set.rules[2].condition == any_of(rule_named("a").condition, rule_named("b", "x").condition)
    again = merge_rules(done.rule_set, ImportedRules((rule_named("a", "new"),)))
    assert again.rule_set.rules[2].condition == any_of(rule_named("a", "new").condition, rule_named("b", "x").condition)
    assert merge_rules(done.rule_set, read(counting)).same == ("both",)


def test_places_of_fields_add_up_and_dots_in_a_name_take_none_back() -> None:
    before = RuleSet(1, (), {"Image": (("a",),), "x.y": (("b",),)})
    done = merge_rules(before, read("fields: {Image: c}\nrules: [{rule: r, when: {x.y: 1, p.q: 1}}]"))
    assert done.rule_set.paths == {"Image": (("c",),), "x.y": (("b",),), "p.q": (("p.q",), ("p", "q"))}


def test_rules_are_chosen_by_patterns_in_the_order_of_the_set() -> None:
    rules = RuleSet(1, tuple(map(rule_named, ("win_b", "win_a", "lin_a"))))
    assert [rule.id for rule in choose_rules(rules, ["*_a", "win_*"])] == ["win_b", "win_a", "lin_a"]
    assert [rule.id for rule in choose_rules(rules, ["win_?"])] == ["win_b", "win_a"]
    with pytest.raises(RuleError, match="Did you mean 'win_a'"):
        choose_rules(rules, ["win_b", "win_aa"])


def test_a_rule_is_found_by_the_beginning_of_its_id_where_no_other_begins_so() -> None:
    rules = RuleSet(1, tuple(map(rule_named, ("abc", "abd", "ab"))))
    assert find_rule(rules, "abc").id == "abc"
    assert find_rule(rules, "ab").id == "ab"
    assert find_rule(RuleSet(1, (rule_named("abc"),)), "a").id == "abc"
    with pytest.raises(RuleError, match="3 rules begin with 'a'"):
        find_rule(rules, "a")
    with pytest.raises(RuleError, match="'zzz'"):
        find_rule(rules, "zzz")
    with pytest.raises(RuleError):
        find_rule(rules, "")


def test_rules_are_switched_and_the_others_stay() -> None:
    rules = RuleSet(1, (rule_named("a"), rule_named("b")))
    assert [rule.enabled for rule in switch_rules(rules, {"a"}, enabled=False).rules] == [False, True]


def test_a_rule_whose_events_are_counted_goes_only_with_the_one_that_counts() -> None:
    rules = merge_rules(
        RuleSet(1, (rule_named("a"),)), read("{rule: n, count: {rules: [a], within: 1 h, at least: 2}}")
    )
    with pytest.raises(RuleError, match="'n' counts its events"):
        remove_rules(rules.rule_set, {"a"})
    assert remove_rules(rules.rule_set, {"a", "n"}).rules == ()
    assert remove_rules(rules.rule_set, {"n"}).rules == (rule_named("a"),)
