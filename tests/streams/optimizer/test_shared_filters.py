"""Rewritten plans: the same rows, asked in the source and merge_queries into fewer outputs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from branch_answers import answer, job
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.optimizer.merge_queries import merge_queries
from millstream.streams.optimizer.predicate_pushdown import push_predicates, stage_is_cheaper
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.nodes import JobPlan, Node, Scan, inputs_of, scans_of
from millstream.streams.rules.conditions import Not, Op, Predicate

CONDITIONS = (
    "image LIKE '%cmd%'", "low = 'cmd'", "port > 2", "port BETWEEN 1 AND 3 OR ok", "NOT ok", "host IS NULL",
    "host IN ('a', 'b') AND CHAR_LENGTH(image) > 3", "CHAR_LENGTH(host) = 1", "TRUE", "score >= 0.5 AND port + 1 > 2",
)  # fmt: skip
PROJECTIONS = (
    "'r{number}' AS rule, host, port FROM events WHERE {condition}",
    "'r{number}' AS rule, UPPER(host), {number} FROM events WHERE {condition}",
    "'same', host, port FROM (SELECT LOWER(host) AS host, port, image, ok, score, low FROM events WHERE port >= 0) WHERE {condition}",
)
inserts = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(PROJECTIONS), st.sampled_from(CONDITIONS)).map(
            lambda pair: ("alerts", f"SELECT {pair[0]}", pair[1])
        ),
        st.sampled_from(CONDITIONS).map(lambda one: ("others", "SELECT host FROM events WHERE {condition}", one)),
    ),
    min_size=1,
    max_size=6,
)
events = st.lists(
    st.fixed_dictionaries(
        {
            "host": st.sampled_from([None, "a", "b", "ccc"]),
            "image": st.sampled_from([None, "cmd", "CMD", "xcmdy", ""]),
            "port": st.sampled_from([None, -1, 0, 1, 2, 3, 4]),
            "score": st.sampled_from([None, 0.25, 0.5, 1.0]),
            "ok": st.sampled_from([None, True, False]),
            "ts": st.none(),
        }
    ),
    max_size=12,
)


def outputs(plan: JobPlan) -> list[tuple[Node, str]]:
    return [(sink.input, sink.table.name) for sink in plan.sinks]


def insert(number: int, condition: str) -> str:
    return f"INSERT INTO alerts SELECT 'r{number}', host, port FROM events WHERE {condition}"


@settings(max_examples=scaled(150), deadline=None)
@given(inserts, events, st.booleans())
def test_merging_and_judging_change_no_row(
    given_inserts: list[tuple[str, str, str]], rows: list[dict[str, Any]], in_source: bool
) -> None:
    texts = [
        f"INSERT INTO {sink} {select.format(number=number, condition=condition)}"
        for number, (sink, select, condition) in enumerate(given_inserts)
    ]
    planned = outputs(job(*texts))
    wanted: dict[str, Counter[Any]] = {}
    for node, sink in planned:
        wanted.setdefault(sink, Counter()).update(answer(node, rows))
    together = merge_queries(planned)
    found = push_predicates([one.node for one in together], "always" if in_source else "never")
    stage = found.stages.get("events")
    got: dict[str, Counter[Any]] = {}
    for one, node in zip(together, found.nodes, strict=True):
        assert node.schema == planned[one.numbers[0]][0].schema
        got.setdefault(planned[one.numbers[0]][1], Counter()).update(answer(node, rows, stage))
    assert got == wanted
    assert sorted(number for one in together for number in one.numbers) == list(range(len(planned)))


def test_outputs_that_differ_in_constants_and_conditions_become_one() -> None:
    plan = job(*(insert(number, f"port = {number}") for number in range(100)))
    (one,) = merge_queries(outputs(plan))
    assert one.numbers == tuple(range(100))
    (fan_out,) = inputs_of(one.node)
    assert isinstance(fan_out, FanOut)
    assert [constants.values for constants in fan_out.constants] == [tuple(f"r{number}" for number in range(100))]


def test_outputs_of_other_shapes_or_sinks_stay_apart() -> None:
    plan = job(
        insert(1, "port = 1"),
        "INSERT INTO alerts SELECT 'r2', UPPER(host), port FROM events",
        "INSERT INTO others SELECT host FROM events",
        "INSERT INTO alerts SELECT 'r4', host, 7 FROM events",
        insert(5, "port = 2"),
    )
    assert [one.numbers for one in merge_queries(outputs(plan))] == [(0, 4), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("select", "column"),
    [
        ("'r{number}', host, port", "rule"),
        ("'same', 'r{number}', port", "host"),
        ("'same', host, {number}", None),
        ("'r1', host, port", None),
    ],
)
def test_outputs_that_became_one_are_told_apart_by_a_column_of_different_texts(select: str, column: str | None) -> None:
    texts = (select.format(number=number) for number in range(3))
    (one,) = merge_queries(
        outputs(job(*(f"INSERT INTO alerts SELECT {text} FROM events WHERE port > 1" for text in texts)))
    )
    assert one.numbers == (0, 1, 2)
    assert one.name_column == column


def test_an_output_by_itself_is_told_by_nothing() -> None:
    (one,) = merge_queries(outputs(job(insert(1, "port = 1"))))
    assert one.name_column is None


def test_conditions_that_cannot_be_said_keep_others_from_nothing() -> None:
    plan = job(insert(1, "port = 1"), insert(2, "port = 2"), insert(3, "port + 1 = 2"), insert(4, "port * 2 = 2"))
    assert [one.numbers for one in merge_queries(outputs(plan))] == [(0, 1), (2, 3)]


def test_columns_that_only_conditions_read_stay_in_the_source() -> None:
    plan = job(
        "INSERT INTO others SELECT host FROM events WHERE image LIKE '%x%' AND CHAR_LENGTH(host) > 1 AND port = 1"
    )
    found = push_predicates([plan.sinks[0].input], "always")
    assert [scan.columns for scan in scans_of(found.nodes[0])] == [("host",)]
    assert found.stages["events"].drops
    assert "CHAR_LENGTH" in found.decisions[0].residual[0]


def test_rows_are_only_left_out_where_nobody_else_reads_them() -> None:
    window = "SELECT host, COUNT(*) FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE) WHERE port = 1 GROUP BY host, window_start, window_end"
    alone = job(insert(1, "port = 1"))
    beside = job(insert(1, "port = 1"), "INSERT INTO others SELECT host FROM events")
    windowed = job(insert(1, "port = 1"), f"INSERT INTO counts {window}")
    drops = [
        push_predicates([sink.input for sink in plan.sinks], "always").stages["events"].drops
        for plan in (alone, beside, windowed)
    ]
    assert drops == [True, False, False], "a window's event time is moved by all rows"


def test_a_bad_cast_that_ends_the_job_is_found_before_any_row_is_left_out() -> None:
    from millstream.streams.optimizer.strict_casts import fail_on_bad_casts

    plan = job("INSERT INTO others SELECT host FROM events WHERE CAST(image AS INT) > 3 AND host = 'a'")
    found = push_predicates([fail_on_bad_casts(plan.sinks[0].input)], "always")
    assert not found.stages


def test_few_cheap_conditions_stay_with_spark_and_many_patterns_do_not() -> None:
    cheap = [Predicate("port", Op.IN, (number,)) for number in range(20)]
    assert not stage_is_cheaper(cheap)
    assert not stage_is_cheaper([Predicate("image", Op.MATCHES, ("a+b",))])
    assert stage_is_cheaper([Predicate("image", Op.MATCHES, (f"a{number}+b",)) for number in range(3)])
    assert stage_is_cheaper([Predicate("image", Op.CONTAINS, (f"a{number}",)) for number in range(30)])
    assert stage_is_cheaper([Predicate("port", Op.IN, (number,)) for number in range(1000)])
    assert not stage_is_cheaper([Not(Predicate("image", Op.CONTAINS, (f"a{number}",))) for number in range(30)])


def test_why_a_table_is_not_judged_is_told() -> None:
    plan = job(insert(1, "port = 1"), "INSERT INTO others SELECT host FROM made WHERE host = 'x'")
    nodes = [sink.input for sink in plan.sinks]
    auto, never = push_predicates(nodes, "auto"), push_predicates(nodes, "never")
    assert [decision.is_used for decision in (*auto.decisions, *never.decisions)] == [False] * 4
    assert "us a row" in auto.decisions[0].why
    assert "datagen" in auto.decisions[1].why
    assert "never" in never.decisions[0].why
    assert "hyperscan" in push_predicates(nodes, "auto", has_engine=False).decisions[0].why
    assert list(auto.nodes) == nodes


def test_conditions_above_other_nodes_move_down_to_their_own_table() -> None:
    union = "SELECT host FROM events WHERE port = 1 UNION ALL SELECT host FROM events WHERE image = 'x'"
    plan = job(f"INSERT INTO others {union}")
    found = push_predicates([plan.sinks[0].input], "always")
    stage = found.stages["events"]
    wanted = (("port", 1), ("image", "x"))
    assert stage.conditions == tuple(Predicate(name, Op.IN, (value,), whole_lists=True) for name, value in wanted)
    assert stage.drops
    assert all(isinstance(scan, Scan) and scan.columns == ("host",) for scan in scans_of(found.nodes[0]))
