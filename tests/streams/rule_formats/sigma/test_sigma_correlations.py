"""Correlations of Sigma, and the older aggregations, as statistics of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_rules import HEAD, fault_of, read_text, rule_of

from millstream.streams.rule_formats.sigma import read_rules
from millstream.streams.rules.conditions import any_of
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.rule import Measure, MeasureKind, RuleStatistics

BASE = """title: %(name)s
name: %(name)s
id: id-%(name)s
logsource: {product: windows, service: security}
detection:
    s: {EventID: %(number)s}
    condition: s
"""
BASES = "\n---\n".join(BASE % {"name": name, "number": number} for name, number in (("failed", 4625), ("logon", 4624)))


def correlated(section: str) -> ImportedRules:
    """What is read from the two base rules and a correlation of them."""
    body = "".join(f"    {line}\n" for line in section.strip().splitlines())
    return read_text(f"{BASES}\n---\ntitle: Together\nid: id-together\ncorrelation:\n{body}")


def statistics_of(section: str) -> RuleStatistics:
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
    assert together.statistics == RuleStatistics(
        Measure(MeasureKind.EVENTS), 300_000, ("TargetUserName", "ComputerName"), at_least=10
    )
    assert {"TargetUserName", "ComputerName", "Channel", "EventID"} == set(read.paths)


def test_a_value_count_counts_the_values_of_a_field() -> None:
    statistics = statistics_of(
        "type: value_count\nrules: failed\ngroup-by: ComputerName\ntimespan: 1d\ncondition: {field: User, gt: 100}"
    )
    assert statistics == RuleStatistics(
        Measure(MeasureKind.VALUES, "User"), 86_400_000, ("ComputerName",), at_least=101
    )


def test_rules_near_each_other_are_counted_by_part() -> None:
    statistics = statistics_of("type: temporal\nrules: [failed, logon]\ngroup-by: [User]\ntimespan: 30s")
    assert statistics == RuleStatistics(
        Measure(MeasureKind.PARTS), 30_000, ("User",), at_least=2, parts=("id-failed", "id-logon")
    )


def test_rules_in_order_are_a_sequence() -> None:
    statistics = statistics_of("type: temporal_ordered\nrules: [logon, failed]\ngroup-by: [User]\ntimespan: 2h")
    assert statistics == RuleStatistics(
        Measure(MeasureKind.SEQUENCE), 7_200_000, ("User",), at_least=2, parts=("id-logon", "id-failed")
    )


def test_a_value_count_of_several_fields_counts_their_combinations() -> None:
    read = correlated("type: value_count\nrules: failed\ntimespan: 1d\ncondition: {field: [User, Ip], gte: 3}")
    statistics = read.rules[-1].statistics
    assert statistics == RuleStatistics(Measure(MeasureKind.VALUES, "User", ("Ip",)), 86_400_000, at_least=3)
    assert {"User", "Ip"} < set(read.paths)


@pytest.mark.parametrize(
    ("kind", "condition", "measure"),
    [
        ("value_sum", "gte: 1", Measure(MeasureKind.SUM, "Bytes")),
        ("value_avg", "gte: 1", Measure(MeasureKind.AVERAGE, "Bytes")),
        ("value_percentile", "gte: 1, percentile: 95", Measure(MeasureKind.PERCENTILE, "Bytes", percent=95)),
        ("value_median", "gte: 1", Measure(MeasureKind.PERCENTILE, "Bytes", percent=50)),
    ],
)
def test_a_metric_measures_the_numbers_of_a_field(kind: str, condition: str, measure: Measure) -> None:
    told = statistics_of(
        f"type: {kind}\nrules: failed\ngroup-by: User\ntimespan: 1h\ncondition: {{field: Bytes, {condition}}}"
    )
    assert told == RuleStatistics(measure, 3_600_000, ("User",), at_least=1)


@pytest.mark.parametrize(
    ("condition", "words", "inside", "outside"),
    [
        ("gt: 500", "above 500", [500.1, 1e300], [500, -501]),
        ("gte: -1.5", "at least -1.5", [-1.5, 0], [-1.6]),
        ("lt: 0.25", "below 0.25", [0.2499, -1e300], [0.25, 1]),
        ("lte: 7", "at most 7", [7, -7], [7.0001]),
        ("eq: 2.5", "at least 2.5 and at most 2.5", [2.5], [2.4999, 2.5001]),
        ("gt: 1, lte: 2", "above 1 and at most 2", [1.5, 2], [1, 2.1]),
        ("gte: 1, gt: 1, lt: 3, lte: 9", "at least 1 and above 1 and at most 9 and below 3", [2], [1, 3]),
    ],
)
def test_the_bounds_of_a_metric(condition: str, words: str, inside: list[float], outside: list[float]) -> None:
    told = statistics_of(f"type: value_sum\nrules: failed\ntimespan: 1h\ncondition: {{field: Bytes, {condition}}}")
    lower, upper = told.lower, told.upper
    assert told.bounds == words
    for number, fits in [*((number, True) for number in inside), *((number, False) for number in outside)]:
        assert ((lower is None or number >= lower) and (upper is None or number <= upper)) is fits


def test_a_measure_may_be_told_which_number_it_must_not_be() -> None:
    told = statistics_of("type: event_count\nrules: failed\ntimespan: 1h\ncondition: {neq: 5, gt: 2}")
    assert (told.at_least, told.other_than, told.bounds) == (3, 5, "at least 3 and other than 5")


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


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("failed and not logon", "0100"),
        ("logon and not failed", "0010"),
        ("not (failed and logon)", "1110"),
        ("failed and (logon or not logon)", "0101"),
        ("(failed or logon) and not (failed and logon)", "0110"),
    ],
)
def test_a_temporal_condition_may_ask_for_sets_of_rules(condition: str, holds: str) -> None:
    told = statistics_of(f"type: temporal\nrules: [failed, logon]\ntimespan: 1m\ncondition: {condition}")
    assert told.measure == Measure(MeasureKind.COMBINATION)
    assert told.combination is not None
    assert told.bounds == told.combination.words == condition
    assert told.combination.holds == holds


def test_rules_in_a_condition_may_be_named_by_ids_with_dashes() -> None:
    told = statistics_of("type: temporal\ntimespan: 1m\ncondition: id-failed and not id-logon")
    assert told.parts == ("id-failed", "id-logon")
    assert told.combination is not None


def test_more_rules_than_can_be_combined_are_refused_but_joined_by_one_word() -> None:
    names = [f"rule_{number}" for number in range(9)]
    bases = "\n---\n".join(BASE % {"name": name, "number": number} for number, name in enumerate(names))
    text = "{}\n---\ntitle: t\nid: t\ncorrelation: {{type: temporal, timespan: 1m, condition: {}}}"
    assert (
        "only 8 rules can be joined so, not 9"
        in read_text(text.format(bases, f"not {' and '.join(names)}")).refused[0].reason
    )
    taken = read_text(text.format(bases, " and ".join(names))).rules[-1].statistics
    assert taken is not None
    assert taken.at_least == 9


def test_a_sequence_of_exactly_its_rules_is_a_sequence() -> None:
    told = statistics_of("type: temporal_ordered\nrules: [failed, logon]\ntimespan: 1m\ncondition: {eq: 2}")
    assert (told.at_least, told.at_most) == (2, None)


def test_an_alias_may_name_rules_that_the_correlation_calls_by_their_ids() -> None:
    section = "type: temporal\nrules: [id-failed, id-logon]\ngroup-by: who\ntimespan: 1m\naliases:\n    who:\n"
    told = statistics_of(f"{section}        failed: A\n        logon: B")
    assert told.aliases == {"who": {"id-failed": "A", "id-logon": "B"}}


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
    text = f"{BASES}\n---\ntitle: t\ngenerate: true\ncorrelation: {{type: temporal, rules: [failed], timespan: 1m}}"
    assert [rule.alerts for rule in read_text(text).rules] == [True, True, True]


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
        ("type: value_max\nrules: failed\ntimespan: 1m", 22, "the correlation type 'value_max' is not taken"),
        ("type: event_count\nrules: nobody\ntimespan: 1m", 23, "no rule 'nobody' was read"),
        ("type: temporal\nrules: [failed, id-failed]\ntimespan: 1m", 23, "a second time"),
        ("type: temporal_ordered\nrules: [failed, failed]\ntimespan: 1m", 23, "a second time"),
        ("type: event_count\ntimespan: 1m", 21, "needs a list of rules"),
        ("type: event_count\nrules: failed\ntimespan: 1m", 21, "needs a condition"),
        ("type: event_count\nrules: failed\ntimespan: soon\ncondition: {gte: 2}", 24, "'soon' is no time span"),
        ("type: event_count\nrules: failed\ntimespan: 32d\ncondition: {gte: 2}", 24, "longer than 31 days"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {gte: 1000000001}", 25, "more than 1,000,000,000"),
        ("type: event_count\nrules: failed\ncondition: {gte: 2}", 21, "None is no time span"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {ge: 2}", 25, "'ge' is no comparison"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {eq: 2, neq: 2}", 25, "no window"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {eq: 5, lte: 3}", 25, "no window"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ngroupby: a\ncondition: {gte: 2}", 25, "'group-by' is"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ngenerate: maybe", 25, "generate is true or false"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {gte: x}", 25, "no whole number"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {gt: 5, lt: 6}", 25, "no window"),
        ("type: event_count\nrules: failed\ntimespan: 1m\ncondition: {lt: 1}", 25, "no window"),
        ("type: value_count\nrules: failed\ntimespan: 1m\ncondition: {gte: 5}", 25, "name of a field"),
        ("type: value_sum\nrules: failed\ntimespan: 1m\ncondition: {gte: 5}", 25, "name of a field"),
        ("type: value_sum\nrules: failed\ntimespan: 1m\ncondition: {gte: 5, field: [a, b]}", 25, "one field, not 2"),
        ("type: value_avg\nrules: failed\ntimespan: 1m\ncondition: {gte: x, field: a}", 25, "'x' is no number"),
        ("type: value_avg\nrules: failed\ntimespan: 1m\ncondition: {gte: .inf, field: a}", 25, "no number of 64 bits"),
        ("type: value_avg\nrules: failed\ntimespan: 1m\ncondition: {gt: 5, lt: 5, field: a}", 25, "no window"),
        ("type: value_avg\nrules: failed\ntimespan: 1m\ncondition: {gt: 5, field: a, percentile: 3}", 25, "alone"),
        ("type: value_percentile\nrules: failed\ntimespan: 1m\ncondition: {gt: 5, field: a}", 25, "not None"),
        (
            "type: value_percentile\nrules: failed\ntimespan: 1m\ncondition: {gt: 5, field: a, percentile: 101}",
            25,
            "from 0 to 100, not 101",
        ),
        ("type: temporal\nrules: [failed, logon]\ntimespan: 1m\ncondition: {gte: 3}", 25, "over 2 rules"),
        ("type: temporal\ntimespan: 1m\ncondition: failed xor logon", 24, "joins rules by"),
        ("type: temporal\ntimespan: 1m\ncondition: failed and not failed", 24, "no window"),
        ("type: temporal\ntimespan: 1m\ncondition: not failed", 24, "no window"),
        ("type: temporal\nrules: [failed, logon]\ntimespan: 1m\ncondition: failed", 25, "does not name 'logon'"),
        ("type: temporal\nrules: [failed]\ntimespan: 1m\ncondition: failed and logon", 25, "does not name 'logon'"),
        ("type: temporal_ordered\ntimespan: 1m\ncondition: failed or logon", 24, "joined by `and` alone"),
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


INNER = """title: Many
name: many
id: id-many
correlation: {type: event_count, rules: [failed], timespan: 1m, group-by: [User, Host], condition: {gte: 3}}
"""


def chained(section: str, *more: str) -> ImportedRules:
    """What is read where a correlation of that section comes before those that it is about."""
    outer = f"title: t\nid: outer\ncorrelation: {{{section}}}\n"
    return read_text("\n---\n".join([outer, INNER, BASES, *more]))


@pytest.mark.parametrize(
    ("section", "kind", "parts"),
    [
        (
            "type: temporal, rules: [many, logon], timespan: 5m, group-by: [User, Host]",
            "parts",
            ("id-many", "id-logon"),
        ),
        ("type: temporal_ordered, rules: [id-many, logon], timespan: 5m", "sequence", ("id-many", "id-logon")),
        ("type: event_count, rules: many, timespan: 1h, condition: {gte: 2}", "events", ("id-many",)),
        ("type: temporal, condition: many and not logon, timespan: 5m", "combination", ("id-many", "id-logon")),
        (
            "type: temporal, rules: [many, logon], timespan: 5m, group-by: [u, Host], "
            "aliases: {u: {many: User, logon: Account}}",
            "parts",
            ("id-many", "id-logon"),
        ),
    ],
)
def test_a_correlation_may_be_about_correlations_in_whatever_order_they_stand(
    section: str, kind: str, parts: tuple[str, ...]
) -> None:
    read = chained(section)
    assert read.refused == ()
    by_id = {rule.id: rule for rule in read.rules}
    told = by_id["outer"].statistics
    assert told is not None
    assert (told.measure.kind, told.parts) == (kind, parts)
    assert {name: rule.alerts for name, rule in by_id.items()} == {
        "outer": True,
        "id-many": False,
        "id-failed": False,
        "id-logon": "id-logon" not in parts,
    }


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("type: value_count, rules: many, timespan: 5m, condition: {field: User, gte: 2}", "only their number"),
        ("type: value_sum, rules: many, timespan: 5m, condition: {field: User, gte: 2}", "only their number"),
        ("type: temporal, rules: [many, logon], timespan: 5m, group-by: [User]", "'id-many' is grouped by User, Host"),
        ("type: temporal, rules: [many, gone], timespan: 5m", "no rule 'gone' was read"),
        ("type: event_count, rules: order, timespan: 5m, condition: {gte: 2}", "'id-order' is about rules in order"),
        (
            "type: event_count, rules: deep, timespan: 5m, condition: {gte: 2}",
            "correlation 'deep' was not taken, or is",
        ),
    ],
)
def test_a_correlation_that_cannot_be_about_correlations_is_refused_with_the_reason(section: str, reason: str) -> None:
    order = "title: o\nname: order\nid: id-order\ncorrelation: {type: temporal_ordered, rules: [failed, logon], timespan: 1m}"
    deep = "title: d\nname: deep\nid: id-deep\ncorrelation: {type: event_count, rules: [many], timespan: 1m, condition: {gte: 2}}"
    read = chained(section, order, deep)
    assert [reason in one.reason for one in read.refused] == [True]
    assert next(rule.alerts for rule in read.rules if rule.id == "id-order")


def test_an_old_aggregation_counts_its_own_events() -> None:
    rule = rule_of("    s: {A: x}\n    timeframe: 10m\n    condition: s | count(User) by Host, Kind >= 3\n")
    assert rule.statistics == RuleStatistics(Measure(MeasureKind.VALUES, "User"), 600_000, ("Host", "Kind"), at_least=3)
    assert rule.condition == rule_of("    s: {A: x}\n    condition: s\n").condition
    rule = rule_of("    s: {A: x}\n    timeframe: 1h\n    condition: s | count() < 3\n")
    assert rule.statistics == RuleStatistics(Measure(MeasureKind.EVENTS), 3_600_000, at_most=2)


def test_an_aggregation_in_a_list_of_conditions_is_refused() -> None:
    assert "cannot have aggregations" in fault_of("    s: {A: x}\n    condition: [s, s | count() > 3]\n")[1]
    assert HEAD.count("\n") == 7
