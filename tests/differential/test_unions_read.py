"""Inputs of a union beside one that waits for event time."""

from __future__ import annotations

from differential.generator import draw_case
from differential.ours import script_of

from millstream.streams.plan.nodes import QueryPlan, scans_of
from millstream.streams.sql.session.compiler import SqlSession


def test_a_plain_input_beside_one_with_an_operator_reads_its_event_time() -> None:
    case = draw_case(2)
    assert case.kinds == ("group", "union all")
    plan = SqlSession().compile(script_of(case))[-1]
    assert isinstance(plan, QueryPlan)
    assert all("ts" in scan.columns for scan in scans_of(plan.query))
