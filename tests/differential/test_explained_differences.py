"""Reasons fit the differences that they are made for, and no others."""

from __future__ import annotations

from dataclasses import replace

from differential.cases import Arrival, Case, Source, Step
from differential.comparison import Difference
from differential.explained import EXPLAINED, reason_of
from differential.flink import Answer

TABLE = Source("a", (("id", "INT"), ("ts", "TIMESTAMP(3)")), 4)
CASE = Case(1, (TABLE,), (Arrival("a", (1, "2026-01-01 00:00:00.000")),), (), Step("top", "{0}", ("id",), ("a",)))
PLAN = (
    "Sink(table=[sink], changelogMode=[NONE])\n+- Calc(select=[id], changelogMode=[I])\n   +- Rank(strategy=["
    "AppendFastStrategy], rankRange=[rankStart=1, rankEnd=1], partitionBy=[k], orderBy=[{order}],"
    " changelogMode=[{mode}])"
)


def reason(case: Case, aspect: str, plan: str = "") -> str:
    return reason_of(case, Answer(plan=plan), Difference(aspect, "")) or ""


def plan(order: str, mode: str) -> str:
    return PLAN.replace("{order}", order).replace("{mode}", mode)


def test_a_first_place_that_flink_takes_for_final_is_its_fault() -> None:
    assert "Flink 2.1" in reason(CASE, "table", plan("v DESC, id ASC", "I"))
    assert "Flink 2.1" in reason(CASE, "appends", plan("v ASC", "I"))
    assert reason(CASE, "table", plan("v DESC, id ASC", "I,UB,UA,D")) == ""
    assert reason(CASE, "table", plan("ROWTIME ts ASC", "I")) == ""
    assert reason(CASE, "refused", plan("v ASC", "I")) == ""


def test_a_place_behind_the_first_is_flinks_fault_only_where_its_changes_are_broken() -> None:
    later = replace(CASE, query=Step("top", "SELECT id FROM {0} WHERE `place` = 2", ("id",), ("a",)))
    assert "offset" in reason(later, "broken") or "behind the first" in reason(later, "broken")
    assert reason(later, "table") == reason(CASE, "broken") == ""


def test_no_reason_explains_a_refusal() -> None:
    kinds = ("top", "over", "dedup asc")
    for kind in kinds:
        case = replace(CASE, query=Step(kind, "{0}", ("id",), ("a",)), has_late=True)
        assert reason(case, "refused", plan("v ASC", "I")) == ""


def test_each_reason_is_its_own() -> None:
    assert len({one.reason for one in EXPLAINED}) == len(EXPLAINED)
