"""Aggregates of users: in groups, windows and frames as a plain look at all rows says, and what is refused."""

from __future__ import annotations

import datetime
import json
import pickle
from collections import defaultdict
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted, table_of

from millstream.streams.errors import JobError, SqlError
from millstream.streams.functions.user_functions import user_aggregates
from millstream.streams.functions.user_functions.failed_calls import UserFunctionFailed, collecting
from millstream.streams.functions.user_functions.user import UserFunctionProblem, load_user_function
from millstream.streams.functions.user_functions.user_aggregates import UserState
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, UserAggregateSpec, accumulator_of
from millstream.streams.operators.aggregates.group import GroupMachine
from millstream.streams.operators.grouping import Grouper
from millstream.streams.operators.operator import DELETE, INSERT, Row
from millstream.streams.operators.over.over_frames import sliding_of
from millstream.streams.operators.windows.sessions import SessionWindower
from millstream.streams.operators.windows.window_times import Cumulating, Hopping, Slicing
from millstream.streams.operators.windows.windowing import Windower
from millstream.streams.plan.aggregates import AggregateCall
from millstream.streams.plan.expressions import Column, Literal
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.plan.types import BIGINT, DOUBLE, STRING, DataType, TypeKind
from millstream.streams.spark.operators.aggregate_wirings import spec_of
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

S = 1_000_000
TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
NUMBERS = st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-9, 9)), st.integers(0, 40)))


def spec(name: str, *places: int, types: tuple[DataType, ...], result: DataType, **more: object) -> AggregateSpec:
    user = UserAggregateSpec(f"sample_aggregates.{name}", "", types)
    first = types[0] if types else None
    return AggregateSpec(f"python:{user.path}", places, first, result, user=user, **more)  # type: ignore[arg-type]


MEAN = spec("WeightedMean", 1, types=(DOUBLE,), result=DOUBLE)
SEEN = spec("Seen", 1, types=(BIGINT,), result=DataType(TypeKind.ARRAY, elements=(BIGINT,)))


def mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9))), st.integers(1, 5))
def test_a_group_follows_rows_that_come_and_go(rows: list[Row], size: int) -> None:
    player = Player(partial(Grouper, 1, (MEAN,), changing=True))
    gone = rows[::2]
    changes = [*((INSERT, row) for row in rows), *((DELETE, row) for row in gone)]
    for start in range(0, len(changes), size):
        player.turn(changes[start : start + size])
    groups: dict[str, list[int | None]] = defaultdict(list)
    for key, value in rows[1::2]:
        groups[key].append(value)
    assert table_of(player.played.said) == {(key, mean(values)): 1 for key, values in groups.items()}


@pytest.mark.parametrize(
    "slicing", [Hopping(10 * S, 10 * S, 0), Hopping(20 * S, 5 * S, 0), Cumulating(20 * S, 5 * S, 0)]
)
@given(rows=NUMBERS, size=st.integers(1, 7))
def test_a_window_of_any_kind_has_the_mean_of_its_rows(slicing: Slicing, rows: list[Row], size: int) -> None:
    moved = [(key, value, second * S) for key, value, second in rows]
    player = Player(partial(Windower, 1, (MEAN,), 2, slicing))
    for start in range(0, len(moved), size):
        player.turn(inserted(*moved[start : start + size]))
    windows: dict[tuple[str, int, int], list[int | None]] = defaultdict(list)
    for key, value, time_us in moved:
        for start_us, end_us in slicing.windows_of(*slicing.starts([time_us])):
            windows[key, start_us, end_us].append(value)
    found = {(key, start, end): result for _, (key, result, start, end, _) in player.end()}
    assert found == {window: mean(values) for window, values in windows.items()}


def test_rows_between_two_sessions_make_one_of_them() -> None:
    player = Player(partial(SessionWindower, 1, (SEEN,), 2, 5 * S))
    player.turn(inserted(("a", 1, 0), ("a", 2, 8 * S)))
    player.turn(inserted(("a", 3, 4 * S)))
    ((_, row),) = player.end()
    assert (row[0], sorted(row[1]), row[2:4]) == ("a", [1, 2, 3], (0, 13 * S))


def test_what_is_merged_into_another_state_stays_as_it_was() -> None:
    machine = accumulator_of(spec("Parts", 0, types=(BIGINT,), result=SEEN.type), changing=False)
    one, other = machine.add(machine.new(), [(1,)]), machine.add(machine.new(), [(2,)])
    whole = machine.merge(machine.merge(machine.new(), one), other)
    machine.add(whole, [(3,)])
    assert [machine.result(state) for state in (one, other, whole)] == [[1], [2], [1, 2, 3]]


@pytest.mark.parametrize(("name", "result"), [("Seen", [2, 3]), ("Product", 6)])
def test_a_frame_lets_rows_go_with_retract_and_without(name: str, result: object) -> None:
    of = DataType(TypeKind.ARRAY, elements=(BIGINT,)) if name == "Seen" else BIGINT
    sliding = sliding_of(spec(name, 0, types=(BIGINT,), result=of))
    for number in (5, 2, 3):
        sliding.enter((number,))
    sliding.leave((5,))
    assert sliding.result() == result


def test_distinct_and_filter_choose_the_rows() -> None:
    distinct = spec("Seen", 0, types=(BIGINT,), result=SEEN.type, distinct=True, filter=1)
    machine = GroupMachine((distinct,), changing=True)
    group = machine.new()
    machine.add(group, [(1, True), (1, True), (2, False), (3, True)])
    assert machine.results(group) == ([1, 3],)
    machine.retract(group, [(1, True), (3, True)])
    assert machine.results(group) == ([1],)


def test_nulls_are_given_and_rows_are_results_of_several_fields() -> None:
    row = load_user_function("f", "sample_aggregates:Span").result
    machine = accumulator_of(spec("Span", 0, types=(STRING,), result=row), changing=False)
    assert machine.result(machine.add(machine.new(), [("ab",), (None,), ("a",)])) == {"f0": "ab", "f1": 3}


def test_times_are_those_of_python() -> None:
    machine = accumulator_of(spec("LatestDay", 0, types=(TIMESTAMP,), result=DataType(TypeKind.DATE)), changing=False)
    noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    state = machine.add(machine.new(), [(int(noon.timestamp()) * S,), (0,)])
    assert machine.result(state) == (datetime.date(2026, 1, 2) - datetime.date(1970, 1, 1)).days


def test_a_call_that_raises_is_noted_and_other_rows_count() -> None:
    machine = accumulator_of(SEEN, changing=False)
    with collecting(fails=False) as calls:
        state = machine.add(machine.new(), [(1,), (13,), (2,)])
    assert machine.result(state) == [1, 2]
    (call,) = calls
    assert (call.function, call.arguments, call.reason) == ("sample_aggregates.Seen", "13", "ValueError: unlucky")
    assert 'raise ValueError("unlucky")' in call.trace
    assert "user_aggregates.py" not in call.trace


def test_a_call_keeps_the_row_that_it_was_made_for() -> None:
    machine = accumulator_of(SEEN, changing=False)
    with collecting(fails=False) as calls:
        machine.add(machine.new(), [(13,)])
    assert json.loads(calls[0].given) == {"arguments": [13]}


def test_a_call_that_blocks_is_stopped_and_the_next_ones_are_made() -> None:
    machine = accumulator_of(spec("Stuck", 0, types=(BIGINT,), result=BIGINT), changing=False)
    with collecting(fails=False, timeout_ms=40) as calls:
        assert machine.result(machine.add(machine.new(), [(1,), (13,), (2,)])) == 3
    assert [call.reason for call in calls] == ["CallTookTooLong: the call did not end within 0.04 s"]


def test_a_call_that_raises_goes_through_where_it_must_not() -> None:
    machine = accumulator_of(SEEN, changing=False)
    with pytest.raises(UserFunctionFailed, match="unlucky"), collecting(fails=True):
        machine.add(machine.new(), [(13,)])


def test_a_result_of_another_type_is_null_and_says_what_was_expected() -> None:
    machine = accumulator_of(spec("Liar", 0, types=(BIGINT,), result=BIGINT), changing=False)
    with collecting(fails=False) as calls:
        assert machine.result(machine.add(machine.new(), [(1,)])) is None
    assert calls[0].reason == "WrongResult: BIGINT expected, got str 'many'"


def test_an_accumulator_is_as_large_as_the_limit_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_aggregates, "MAX_STATE_BYTES", 10_000)
    machine = accumulator_of(spec("Shelf", 0, types=(BIGINT,), result=BIGINT), changing=False)
    pickle.dumps(machine.add(machine.new(), [(9_000,)]))
    with pytest.raises(JobError, match="of 10000 at most"):
        pickle.dumps(machine.add(machine.new(), [(9_000,), (2_000,)]))


def test_a_state_that_pickle_does_not_take_is_told() -> None:
    with pytest.raises(JobError, match="sample cannot be kept"):
        pickle.dumps(UserState("sample", lambda: 1))


def test_constants_are_arguments_as_columns_are() -> None:
    call = AggregateCall(
        "python:sample_aggregates.WeightedMean", Column("v", DOUBLE), DOUBLE, more=(Literal(2.0, DOUBLE),)
    )
    columns: list[object] = []
    found = spec_of(call, columns)  # type: ignore[arg-type]
    assert (found.arguments, found.literals, len(columns)) == ((0, 1), (), 2)
    assert found.user is not None
    assert found.user.arguments == (DOUBLE, DOUBLE)


@pytest.mark.parametrize(
    ("name", "arguments", "most", "retracts", "merges"),
    [
        ("WeightedMean", (DOUBLE, DOUBLE), 2, True, True),
        ("Span", (STRING,), 1, False, True),
        ("Product", (BIGINT,), 1, False, False),
        ("Seen", (BIGINT,), 1, True, True),
    ],
)
def test_the_methods_of_a_class_tell_its_types_and_what_it_can(
    name: str, arguments: tuple[DataType, ...], most: int, retracts: bool, merges: bool
) -> None:
    found = load_user_function("f", f"sample_aggregates:{name}")
    assert (found.arguments, found.max_args) == (arguments, most)
    assert (found.is_aggregate, found.retracts, found.merges) == (True, retracts, merges)


def test_a_class_that_is_declared_without_the_methods_is_refused() -> None:
    with pytest.raises(UserFunctionProblem, match="has not its methods"):
        load_user_function("f", "sample_aggregates:Hollow")


SCRIPT = """
CREATE FUNCTION wmean AS 'sample_aggregates:WeightedMean' LANGUAGE PYTHON;
CREATE FUNCTION product AS 'sample_aggregates:Product' LANGUAGE PYTHON;
CREATE TABLE t (host STRING, n BIGINT, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'rocketmq', 'topic' = 't');
"""


def lines(select: str) -> list[str]:
    plan = SqlSession().compile(SCRIPT + select)[-1]
    assert isinstance(plan, QueryPlan)
    return explain_node(plan.query)


@pytest.mark.parametrize(
    ("select", "shown"),
    [
        ("SELECT host, wmean(v, n) FILTER (WHERE n > 0) FROM t GROUP BY host", "FILTER (WHERE >(n, 0)) AS aggregate_0] [retract, own"),
        ("SELECT wmean(v) FROM t", "Aggregate keys=[]"),
        ("SELECT host FROM t GROUP BY host HAVING wmean(v) > 1", "python:sample_aggregates.WeightedMean(v)"),
        ("SELECT window_start, wmean(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end", "own operator in batch jobs too: an aggregate is the user's, in Python"),
        ("SELECT wmean(DISTINCT v) FROM t GROUP BY SESSION(ts, INTERVAL '1' MINUTE)", "WindowAggregate SESSION"),
        ("SELECT product(n) OVER (PARTITION BY host ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t", "Over partition=[host]"),
        ("SELECT wmean(s) FROM (SELECT host, SUM(v) AS s FROM t GROUP BY host)", "WeightedMean(s)"),
    ],
)  # fmt: skip
def test_an_aggregate_of_the_user_stands_where_others_do(select: str, shown: str) -> None:
    assert any(shown in line for line in lines(select)), lines(select)


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT product(s) FROM (SELECT host, COUNT(*) AS s FROM t GROUP BY host)", "cannot take rows back"),
        (
            "SELECT product(n) FROM t GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)",
            "put together of parts",
        ),
        ("SELECT host FROM t WHERE wmean(v) > 1", "not possible in WHERE"),
        ("SELECT wmean(host) FROM t", "DOUBLE as argument 1"),
        ("SELECT wmean() FROM t", "does not take 0 arguments"),
        ("SELECT wmean(v, n, n) FROM t", "does not take 3 arguments"),
    ],
)
def test_what_an_aggregate_cannot_do_is_refused_with_the_reason(select: str, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        lines(select)
