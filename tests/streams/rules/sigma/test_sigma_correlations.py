"""Correlations of Sigma, and the older aggregations, as statistics of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_rules import HEAD, fault_of, read_text, rule_of

from millstream.streams.rules.formulas import any_of
from millstream.streams.rules.imported import FromFiles
from millstream.streams.rules.rule import Measure, MeasureKind, Statistics
from millstream.streams.rules.sigma import read_rules

BASE = """title: %(name)s
name: %(name)s
id: id-%(name)s
logsource: {product: windows, service: security}
detection:
    s: {EventID: %(number)s}
    condition: s
"""
BASES = "\n---\n".join(BASE % {"name": name, "number": number} for name, number in (("failed", 4625), ("logon", 4624)))


def correlated(section: str) -> FromFiles:
    """What is read from the two base rules and a correlation of them."""
    body = "".join(f"    {line}\n" for line in section.strip().splitlines())
    return read_text(f"{BASES}\n---\ntitle: Together\nid: id-together\ncorrelation:\n{body}")


def statistics_of(section: str) -> Statistics:
    """The statistics of that correlation."""
    read = correlated(section)
    assert read.refused == ()
    statistics = read.rules[-1].statistics
    assert statistics is not None
    return statistics


def test_an_event_count_counts_the_events_of_its_rules() -> None:
    read = correlated(
        """
type: event_count
rules: [failed, id-logon]
group-by: [TargetUserName, ComputerName]
timespan: 5m
condition: {gte: 10}
"""
    )
    failed, logon, together = read.rules
    assert read.refused == ()
    assert together.condition == any_of(failed.condition, logon.condition)
    assert together.statistics == Statistics(
        Measure(MeasureKind.EVENTS), 300_000, ("TargetUserName", "ComputerName"), at_least=10
    )
    assert {"TargetUserName", "ComputerName", "Channel", "EventID"} == set(read.paths)


def test_a_value_count_counts_the_values_of_a_field() -> None:
    statistics = statistics_of(
        "type: value_count\nrules: failed\ngroup-by: ComputerName\ntimespan: 1d\ncondition: {field: User, gt: 100}"
    )
    assert statistics == Statistics(Measure(MeasureKind.VALUES, "User"), 86_400_000, ("ComputerName",), at_least=101)


def test_rules_near_each_other_are_counted_by_part() -> None:
    statistics = statistics_of("type: temporal\nrules: [failed, logon]\ngroup-by: [User]\ntimespan: 30s")
    assert statistics == Statistics(
        Measure(MeasureKind.PARTS), 30_000, ("User",), at_least=2, parts=("id-failed", "id-logon")
    )


def test_rules_in_order_are_a_sequence() -> None:
    statistics = statistics_of("type: temporal_ordered\nrules: [logon, failed]\ngroup-by: [User]\ntimespan: 2h")
    assert statistics == Statistics(
        Measure(MeasureKind.SEQUENCE), 7_200_000, ("User",), at_least=2, parts=("id-logon", "id-failed")
    )


@pytest.mark.parametrize(
    ("condition", "at_least", "at_most"),
    [
        ("{gte: 5}", 5, None),
        ("{gt: 5}", 6, None),
        ("{eq: 5}", 5, 5),
        ("{lt: 5}", 1, 4),
        ("{lte: 5}", 1, 5),
        ("{gt: 100, lte: 200}", 101, 200),
        ("{gte: 0}", 1, None),
    ],
)
def test_the_bounds_of_a_count(condition: str, at_least: int, at_most: int | None) -> None:
    told = statistics_of(f"type: event_count\nrules: failed\ntimespan: 1m\ncondition: {condition}")
    assert (told.at_least, told.at_most) == (at_least, at_most)


@pytest.mark.parametrize(
    ("condition", "at_least"), [("failed and logon", 2), ("failed or logon", 1), ("(failed) or (logon)", 1)]
)
def test_a_temporal_condition_in_words(condition: str, at_least: int) -> None:
    told = statistics_of(f"type: temporal\ntimespan: 1m\ncondition: {condition}")
    assert (told.at_least, told.parts) == (at_least, ("id-failed", "id-logon"))


def test_an_alias_names_a_field_in_each_part() -> None:
    read = correlated(
        """
type: temporal
rules: [failed, logon]
group-by: [who]
timespan: 1m
aliases:
    who:
        failed: TargetUserName
        logon: SubjectUserName
"""
    )
    statistics = read.rules[-1].statistics
    assert statistics is not None
    assert statistics.aliases == {"who": {"id-failed": "TargetUserName", "id-logon": "SubjectUserName"}}
    assert {"TargetUserName", "SubjectUserName"} < set(read.paths)
    assert "who" not in read.paths


def test_the_parts_of_a_correlation_give_no_alerts_of_their_own_unless_it_says_so() -> None:
    section = "type: temporal\nrules: [failed, logon]\ntimespan: 1m"
    assert [rule.alerts for rule in correlated(section).rules] == [False, False, True]
    assert [rule.alerts for rule in correlated(f"{section}\ngenerate: true").rules] == [True, True, True]


def test_a_correlation_finds_its_rules_in_later_files(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(
        "title: c\nid: c\ncorrelation: {type: event_count, rules: [failed], timespan: 1m, condition: {gte: 2}}\n"
    )
    (tmp_path / "b.yml").write_text(BASE % {"name": "failed", "number": 4625})
    read = read_rules(tmp_path)
    assert [rule.id for rule in read.rules] == ["c", "id-failed"]


@pytest.mark.parametrize(
    ("section", "line", "reason"),
    [
        ("type: value_sum\nrules: failed\ntimespan: 1m", 22, "the correlation type 'value_sum' is not taken"),
        ("type: event_count\nrules: nobody\ntimespan: 1m", 23, "no rule 'nobody' was read"),
        ("type: temporal\nrules: [failed, id-failed]\ntimespan: 1m", 23, "a second time"),
        ("type: temporal_ordered\nrules: [failed, failed]\ntimespan: 1m", 23, "a second time"),
        ("type: event_count\ntimespan: 1m", 21, "needs a list of rules"),
        ("type: event_count\nrules: failed\ntimespan: 1m", 21, "needs a condition"),
        ("type: event_count\nrules: failed\ntimespan: soon\ncondition: {gte: 2}", 24, "'soon' is no time span"),
        ("type: event_count\nrules: failed\ntimespan: 32d\ncondition: {gte: 2}", 24, "longer than 31 days"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {gte: 1000000001}", 25, "more than 1,000,000,000"),
        ("type: event_count\nrules: failed\ncondition: {gte: 2}", 21, "None is no time span"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {neq: 2}", 25, "'neq' is no comparison"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {gte: x}", 25, "no whole number"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {gt: 5, lt: 6}", 25, "no window"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {lt: 1}", 25, "no window"),
        ("type: value_count\nrules: failed\ntimespan: 1m\ncondition: {gte: 5}", 25, "name of one field"),
        ("type: temporal\nrules: [failed, logon]\ntimespan: 1m\ncondition: {gte: 3}", 25, "over 2 rules"),
        ("type: temporal\ntimespan: 1m\ncondition: failed and not logon", 24, "`and` alone"),
        ("type: temporal_ordered\ntimespan: 1m\ncondition: failed or logon", 24, "over 2 rules"),
        ("type: temporal\nrules: failed\ntimespan: 1m\ngroup-by: {a: b}", 25, "list of fields"),
        ("type: temporal\nrules: failed\ntimespan: 1m\naliases: {a: {logon: x}}", 25, "does not fit"),
    ],
)
def test_a_correlation_that_cannot_be_taken_is_refused_at_its_line(section: str, line: int, reason: str) -> None:
    read = correlated(section)
    assert [rule.id for rule in read.rules] == ["id-failed", "id-logon"]
    (refused,) = read.refused
    assert reason in refused.reason
    assert refused.line == line


def test_a_correlation_of_a_correlation_is_refused() -> None:
    section = "type: temporal\nrules: [failed, logon]\ntimespan: 1m"
    first = f"{BASES}\n---\ntitle: Together\nid: first\ncorrelation:\n    " + section.replace("\n", "\n    ")
    read = read_text(
        f"{first}\n---\ntitle: t\nid: second\ncorrelation: {{type: temporal, rules: [first], timespan: 1m}}"
    )
    assert "correlations of correlations" in read.refused[0].reason


def test_an_old_aggregation_counts_its_own_events() -> None:
    rule = rule_of("    s: {A: x}\n    timeframe: 10m\n    condition: s | count(User) by Host, Kind >= 3\n")
    assert rule.statistics == Statistics(Measure(MeasureKind.VALUES, "User"), 600_000, ("Host", "Kind"), at_least=3)
    assert rule.condition == rule_of("    s: {A: x}\n    condition: s\n").condition
    rule = rule_of("    s: {A: x}\n    timeframe: 1h\n    condition: s | count() < 3\n")
    assert rule.statistics == Statistics(Measure(MeasureKind.EVENTS), 3_600_000, at_most=2)


def test_an_aggregation_in_a_list_of_conditions_is_refused() -> None:
    assert "cannot have aggregations" in fault_of("    s: {A: x}\n    condition: [s, s | count() > 3]\n")[1]
    assert HEAD.count("\n") == 7
