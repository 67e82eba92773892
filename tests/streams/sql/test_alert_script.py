"""The script that makes alerts of hits: one query for all rules that count alike."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import msgspec
import numpy as np
from compiling import refused
from plan_answers import answer

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.hits import HIT_COLUMNS
from millstream.streams.plan.nodes import JobPlan, Node, Scan, inputs_of
from millstream.streams.plan.patterns import Match
from millstream.streams.rule_formats.alert_script import AlertScript, Uncounted
from millstream.streams.rules.conditions import Truth
from millstream.streams.rules.packed.packer import TOLD
from millstream.streams.rules.rule import Combination, Measure, MeasureKind, Rule, RuleSet, RuleStatistics
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.rules.hit_columns import RuleColumns
from millstream.streams.sql.session.compiler import SqlSession

SOURCE = {"topic": "events", "store": "/a 'quoted' place", "event-time.field": "@timestamp;UtcTime"}


def counting(name: str, kind: MeasureKind, window_ms: int, parts: tuple[str, ...] = (), at_least: int = 2) -> Rule:
    statistics = RuleStatistics(Measure(kind, "x"), window_ms, parts=parts, at_least=at_least)
    return Rule(name, name, Truth(True), statistics=statistics)


def compiled(*rules: Rule) -> tuple[JobPlan, list[Uncounted]]:
    text, uncounted = AlertScript(SOURCE, {"connector": "print"}).text(rules)
    plan = SqlSession(nameserver="here:1").compile(text)[-1]
    assert isinstance(plan, JobPlan)
    return plan, uncounted


def stateful(plan: JobPlan) -> list[WindowAggregate | Match]:
    found: list[WindowAggregate | Match] = []

    def look(node: Node) -> None:
        if isinstance(node, WindowAggregate | Match):
            found.append(node)
        for below in inputs_of(node):
            look(below)

    for sink in plan.sinks:
        look(sink.input)
    return found


def test_rules_of_one_event_need_one_query() -> None:
    plan, uncounted = compiled(Rule("a", "a", Truth(True)), Rule("b", "b", Truth(True)))
    assert [sink.table.name for sink in plan.sinks] == ["alerts"]
    assert uncounted == []


def test_rules_that_count_alike_in_windows_of_one_size_share_a_query() -> None:
    kind = MeasureKind.EVENTS
    rules = [counting(str(number), kind, 600_000, at_least=number + 1) for number in range(50)]
    plan, _ = compiled(*rules, counting("other", kind, 1_500), counting("values", MeasureKind.VALUES, 600_000))
    assert len(plan.sinks) == 4
    assert len(stateful(plan)) == 3


def test_rules_of_numbers_share_a_query_by_what_they_measure_and_have_a_table_of_their_own() -> None:
    kinds = [(MeasureKind.SUM, None), (MeasureKind.PERCENTILE, 95), (MeasureKind.PERCENTILE, 50)]
    rules = [
        Rule(
            f"{kind}-{percent}-{field}",
            "",
            Truth(True),
            statistics=RuleStatistics(Measure(kind, field, (), percent), 1_000),
        )
        for kind, percent in kinds
        for field in ("x", "y")
    ]
    plan, _ = compiled(*rules)
    assert [sink.table.name for sink in plan.sinks] == ["alerts", *["measured_alerts"] * 3]
    both, _ = compiled(*rules, counting("c", MeasureKind.EVENTS, 1_000))
    assert sorted({sink.table.name for sink in both.sinks}) == ["alerts", "counted_alerts", "measured_alerts"]


def hit(rule: Rule, second: int, measured: object, *, group: str = "[]") -> dict[str, Any]:
    """A row of the table of hits, as the source makes it."""
    columns = RuleColumns(RuleSet(1, (rule,)))
    told = {
        name: columns.column(name, arrow_type(kind), np.zeros(1, np.int32))[0].as_py()
        for name, kind in HIT_COLUMNS.items()
        if name in ("rule", "title", "level", "kind", "author", "license", *TOLD) and name not in ("tags", "version")
    }
    return {**dict.fromkeys(HIT_COLUMNS), **told, "event_time": second * 1000, "group_key": group, "measured": measured}


def alerts(rule: Rule, *hits: tuple[int, object]) -> list[tuple[Any, ...]]:
    """Seconds at which windows begin, what was measured and the bound that is told."""
    plan, _ = compiled(rule)
    rows = [hit(rule, second, measured) for second, measured in hits]
    (sink,) = (sink for sink in plan.sinks if sink.table.name != "alerts")
    return [(row[4] // 1000, *row[7:]) for row in answer(sink.input, {"hits": rows})]


def measuring(kind: MeasureKind, *, percent: int | None = None, **bounds: Any) -> Rule:
    bounds = {"at_least": 1 if not kind.is_number else None, **bounds}
    return Rule("r", "R", Truth(True), statistics=RuleStatistics(Measure(kind, "x", percent=percent), 10_000, **bounds))


@pytest.mark.parametrize(
    ("rule", "hits", "expected"),
    [
        (measuring(MeasureKind.EVENTS, at_least=2), [(1, None), (9, None), (11, None)], [(0, 2, 2)]),
        (measuring(MeasureKind.EVENTS, other_than=2), [(1, None), (9, None), (11, None)], [(10, 1, 1)]),
        (measuring(MeasureKind.EVENTS, at_least=1, at_most=1), [(1, None), (9, None), (11, None)], [(10, 1, 1)]),
        (measuring(MeasureKind.VALUES, at_least=2), [(1, "a"), (2, "a"), (11, "a"), (12, "b")], [(10, 2, 2)]),
        (
            measuring(MeasureKind.SUM, above=4),
            [(1, "1.5"), (2, "2.5"), (11, "1.5"), (12, "3.0")],
            [(10, 4.5, "above 4")],
        ),
        (measuring(MeasureKind.SUM, at_most=-1), [(1, "-1.0"), (11, "0.0"), (21, None)], [(0, -1.0, "at most -1")]),
        (measuring(MeasureKind.AVERAGE, below=2), [(1, "1.0"), (2, "2.0"), (11, "2.0")], [(0, 1.5, "below 2")]),
        (measuring(MeasureKind.MINIMUM, below=2), [(1, "1.0"), (2, "2.0"), (11, "2.0")], [(0, 1.0, "below 2")]),
        (measuring(MeasureKind.MAXIMUM, above=2), [(1, "1.0"), (2, "2.5"), (11, "2.0")], [(0, 2.5, "above 2")]),
        (measuring(MeasureKind.SUM, other_than=3), [(1, "3.0"), (11, "4.0")], [(10, 4.0, "other than 3")]),
        (
            measuring(MeasureKind.PERCENTILE, percent=25, at_least=2, at_most=4),
            [(1, "5.0"), (2, "1.0"), (11, "1.0"), (12, "9.0"), (13, None), (21, "4.5")],
            [(0, 2.0, "at least 2 and at most 4"), (10, 3.0, "at least 2 and at most 4")],
        ),
        (
            measuring(MeasureKind.COMBINATION, parts=("a", "b"), combination=Combination("a and not b", "0100")),
            [(1, "1"), (2, "1"), (11, "1"), (12, "2"), (21, "2")],
            [(0, 1, 1)],
        ),
    ],
    ids=str,
)
def test_a_window_is_told_where_its_measure_is_within_the_bounds(
    rule: Rule, hits: list[tuple[int, object]], expected: list[tuple[Any, ...]]
) -> None:
    assert alerts(rule, *hits) == expected


def test_a_sequence_is_a_pattern_of_its_steps() -> None:
    plan, uncounted = compiled(counting("s", MeasureKind.SEQUENCE, 90_000, ("a", "b", "c"), at_least=3))
    (match,) = stateful(plan)
    assert isinstance(match, Match)
    assert [name for name, _ in match.defines] == ["S1", "S2", "S3"]
    assert match.within_ms == 90_000
    assert uncounted == []


def test_a_sequence_that_a_pattern_cannot_say_is_told_and_the_others_are_counted() -> None:
    partly = counting("partly", MeasureKind.SEQUENCE, 90_000, ("a", "b", "c"), at_least=2)
    plan, uncounted = compiled(partly, counting("events", MeasureKind.EVENTS, 90_000))
    assert [one.rule for one in uncounted] == ["partly"]
    assert len(stateful(plan)) == 1


def test_a_rule_that_is_switched_off_needs_no_query() -> None:
    off = Rule("off", "", Truth(True), statistics=RuleStatistics(Measure(MeasureKind.EVENTS), 1_000), enabled=False)
    plan, _ = compiled(off)
    assert stateful(plan) == []


def test_the_table_reads_the_topic_and_the_rules_that_were_named() -> None:
    plan, _ = compiled()
    below = plan.sinks[0].input
    while not isinstance(below, Scan):
        (below,) = inputs_of(below)
    assert below.table.options == {"connector": "rules", **SOURCE}


RULES_TABLE = "WITH ('connector' = 'rules', 'topic' = 't', 'store' = '/rules')"


@pytest.mark.parametrize(
    ("columns", "name", "said"),
    [
        ("rule STRING, titel STRING", "SQL_UNKNOWN_COLUMN", 'Did you mean "title"?'),
        ("rule INT", "SQL_TYPE", 'The column "rule" is STRING, not INT.'),
        ("tags ARRAY<INT>", "SQL_TYPE", 'The column "tags" is ARRAY<STRING>, not ARRAY<INT>.'),
    ],
)
def test_a_table_of_hits_has_the_columns_of_hits(columns: str, name: str, said: str) -> None:
    error = refused(f"CREATE TABLE h ({columns}) {RULES_TABLE}")
    assert error.name == name
    assert said in str(error)


def test_a_table_of_hits_may_say_its_types_more_closely() -> None:
    SqlSession().compile(
        f"CREATE TABLE h (rule STRING NOT NULL, tags ARRAY<STRING NOT NULL>, event_time TIMESTAMP(3), at_least INT,"
        f" place BIGINT METADATA FROM 'queue-offset') {RULES_TABLE}"
    )


def test_a_table_of_hits_needs_its_rules() -> None:
    error = refused("CREATE TABLE h (rule STRING) WITH ('connector' = 'rules', 'topic' = 't')")
    assert "'store'" in str(error)


def test_where_hits_go_through_a_topic_a_row_may_stand_for_several() -> None:
    rules = [counting("c", MeasureKind.EVENTS, 60_000), counting("v", MeasureKind.VALUES, 60_000)]
    plain, _ = AlertScript(SOURCE, {"connector": "print"}).text(rules)
    packed, _ = AlertScript({**SOURCE, "hits.topic": "between"}, {"connector": "print"}).text(rules)
    assert "hits BIGINT" not in plain
    assert plain.count("COUNT(*)") == packed.count("SUM(hits)") == 4
    assert "COUNT(*)" not in packed
    assert isinstance(SqlSession(nameserver="here:1").compile(packed)[-1], JobPlan)


def by_user(
    name: str, measure: Measure, parts: tuple[str, ...] = (), *, least: int = 2, window_s: int = 10, **more: Any
) -> Rule:
    statistics = RuleStatistics(measure, window_s * 1000, ("user",), least, parts, **more)
    return Rule(name, name, Truth(True), statistics=statistics)


FAILED = msgspec.structs.replace(by_user("failed", Measure(MeasureKind.EVENTS)), alerts=False)
SPRAYED = by_user("sprayed", Measure(MeasureKind.VALUES, "host"), window_s=5)
LOGON = Rule("logon", "", Truth(True), alerts=False)
"""One that counts and gives no alerts of its own, one that gives some, and one of single events."""

HELD = [
    ("failed", 1, None, "a"), ("failed", 2, None, "a"), ("failed", 3, None, "b"), ("failed", 11, None, "b"),
    ("failed", 21, None, "a"), ("failed", 22, None, "a"), ("sprayed", 1, "x", "a"), ("sprayed", 2, "y", "a"),
    ("sprayed", 3, "z", "b"), ("sprayed", 4, "z", "b"),
]  # fmt: skip


def told(rules: list[Rule], held: list[tuple[str, int, object, str]], **more: str) -> list[tuple[Any, ...]]:
    """Rule, window and group of each alert, and what was measured."""
    text, uncounted = AlertScript({**SOURCE, **more}, {"connector": "print"}).text(rules)
    assert uncounted == []
    plan = SqlSession(nameserver="here:1").compile(text)[-1]
    assert isinstance(plan, JobPlan)
    by_id = {rule.id: rule for rule in rules}
    rows = [
        {**hit(by_id[name], second, measured, group=f'["{user}"]'), "hits": 1} for name, second, measured, user in held
    ]
    sinks = [sink for sink in plan.sinks if sink.table.name != "alerts"]
    found = [row for sink in sinks for row in answer(sink.input, {"hits": rows})]
    return sorted((row[0], row[4] // 1000, row[6], row[7]) for row in found)


@pytest.mark.parametrize("more", [{}, {"hits.topic": "between"}])
def test_windows_that_rules_tell_are_counted_again(more: dict[str, str]) -> None:
    again = by_user("again", Measure(MeasureKind.EVENTS), ("failed",), window_s=60)
    both = by_user("both", Measure(MeasureKind.PARTS), ("failed", "sprayed", "logon"), least=3, window_s=60)
    anyone = by_user("anyone", Measure(MeasureKind.EVENTS), ("failed", "sprayed"), least=3, window_s=60)
    anyone = msgspec.structs.replace(anyone, statistics=msgspec.structs.replace(anyone.statistics, by=()))
    held = [*HELD, ("both", 40, "logon", "a"), ("both", 41, "logon", "b")]
    assert told([FAILED, SPRAYED, LOGON, again, both, anyone], held, **more) == [
        ("again", 0, '["a"]', 2),
        ("anyone", 0, "[]", 3),
        ("both", 0, '["a"]', 3),
        ("sprayed", 0, '["a"]', 2),
    ]


def test_a_window_that_a_rule_tells_is_a_bit_of_a_combination() -> None:
    combination = Combination("failed and not logon", "0100")
    quiet = by_user(
        "quiet", Measure(MeasureKind.COMBINATION), ("failed", "logon"), least=1, window_s=20, combination=combination
    )
    held = [*HELD, ("quiet", 5, "2", "a")]
    assert told([FAILED, LOGON, quiet], [one for one in held if one[0] != "sprayed"]) == [("quiet", 20, '["a"]', 1)]


def test_windows_that_rules_tell_are_steps_of_a_sequence() -> None:
    then = by_user("then", Measure(MeasureKind.SEQUENCE), ("failed", "logon"), window_s=60)
    text, uncounted = AlertScript(SOURCE, {"connector": "print"}).text([FAILED, LOGON, then])
    assert uncounted == []
    plan = SqlSession(nameserver="here:1").compile(text)[-1]
    assert isinstance(plan, JobPlan)
    (match,) = (node for node in stateful(plan) if isinstance(node, Match))
    assert match.within_ms == 60_000


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (by_user("r", Measure(MeasureKind.VALUES, "x"), ("failed",)), "which of them there were"),
        (by_user("r", Measure(MeasureKind.SUM, "x"), ("failed",)), "which of them there were"),
        (by_user("r", Measure(MeasureKind.EVENTS), ("outer",)), "'outer' is a correlation of correlations itself"),
        (by_user("r", Measure(MeasureKind.EVENTS), ("order",)), "'order' is about rules in order"),
        (by_user("r", Measure(MeasureKind.EVENTS), ("wide",)), "'wide' is grouped by nothing"),
    ],
)
def test_what_cannot_be_counted_again_is_told_with_the_reason(rule: Rule, reason: str) -> None:
    outer = by_user("outer", Measure(MeasureKind.EVENTS), ("failed",))
    order = by_user("order", Measure(MeasureKind.SEQUENCE), ("logon", "logon"))
    wide = counting("wide", MeasureKind.EVENTS, 1_000)
    _, uncounted = compiled(FAILED, LOGON, outer, order, wide, rule)
    (one,) = uncounted
    assert one.rule == "r"
    assert reason in one.reason


def test_rules_in_sliding_windows_share_a_query_apart_from_those_in_windows_side_by_side() -> None:
    def slides(name: str, least: int) -> Rule:
        measure = Measure(MeasureKind.EVENTS, sliding=True)
        return Rule(name, name, Truth(True), statistics=RuleStatistics(measure, 1_000, at_least=least))

    plan, uncounted = compiled(slides("a", 2), slides("b", 3), counting("c", MeasureKind.EVENTS, 1_000))
    assert [sink.table.name for sink in plan.sinks] == ["alerts", "counted_alerts", "counted_alerts"]
    assert uncounted == []
    assert len(stateful(plan)) == 1


def test_alerts_of_sliding_windows_are_counted_by_no_other_rule() -> None:
    inner = RuleStatistics(Measure(MeasureKind.EVENTS, sliding=True), 1_000, at_least=2)
    outer = RuleStatistics(Measure(MeasureKind.EVENTS), 1_000, at_least=2, parts=("inner",))
    for one, other in ((inner, outer), (msgspec.structs.replace(inner, measure=Measure(MeasureKind.EVENTS)),
                                        msgspec.structs.replace(outer, measure=inner.measure))):  # fmt: skip
        rules = Rule("inner", "", Truth(True), statistics=one), Rule("outer", "", Truth(True), statistics=other)
        _, uncounted = compiled(*rules)
        (told,) = uncounted
        assert told.rule == "outer"
        assert "sliding" in told.reason or "side by side" in told.reason
