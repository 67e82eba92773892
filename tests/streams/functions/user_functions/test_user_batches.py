"""Users' functions over Arrow batches: by row, by column, many at once; what failed calls leave."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import sample_calls

from millstream.streams.functions.user_functions import declarations
from millstream.streams.functions.user_functions.failed_calls import MAX_SHOWN_ARGUMENTS, UserFunctionFailed
from millstream.streams.functions.user_functions.user import load_user_function
from millstream.streams.plan.types import BIGINT, DOUBLE, STRING, DataType, Field, Schema
from millstream.streams.spark.functions.user_calls import BatchCall, PlacedCall, UserStage, call_spool


def batch_call(name: str) -> BatchCall:
    found = load_user_function(name, f"sample_calls:{name}")
    return BatchCall(found.path, "", found.result, found.arguments)


def computed(name: str, *values: object) -> tuple[list[object], dict[int, str]]:
    """The values of a call for one argument's values, and the reasons of those that failed by place."""
    call = batch_call(name)
    column, failed = call.compute([pa.array(values)], len(values))
    return column.to_pylist(), {place: told.reason for place, told in failed}


@pytest.mark.parametrize(
    ("name", "argument", "result"),
    [
        ("doubled_column", BIGINT, BIGINT),
        ("scaled_column", DOUBLE, DOUBLE),
        ("picky_column", BIGINT, BIGINT),
        ("answered", BIGINT, STRING),
    ],
)
def test_the_annotations_of_columns_and_async_functions_are_types_of_values(
    name: str, argument: DataType, result: DataType
) -> None:
    found = load_user_function("f", f"sample_calls:{name}")
    assert (found.arguments, found.result, found.is_table) == ((argument,), result, False)


def test_a_row_that_raises_is_null_and_told_and_the_others_have_values() -> None:
    values, failed = computed("halved", 4, 3, 8)
    assert values == [2.0, None, 4.0]
    assert failed == {1: "ValueError: 3 is odd"}


def test_what_is_told_of_a_call_has_the_users_lines_and_the_arguments_and_no_others() -> None:
    _, ((_, told),) = batch_call("halved").compute([pa.array([3])], 1)
    assert (told.function, told.arguments) == ("sample_calls.halved", "3")
    assert 'raise ValueError(f"{number} is odd")' in told.trace
    assert "calling.py" not in told.trace


def test_long_arguments_are_cut_where_they_are_told() -> None:
    _, ((_, told),) = batch_call("broken_words").compute([pa.array(["bad"])], 1)
    assert told.arguments == "'bad'"
    call = BatchCall("sample_functions.failing", "", BIGINT, (STRING,))
    _, ((_, told),) = call.compute([pa.array(["x" * 10_000])], 1)
    assert len(told.arguments) <= MAX_SHOWN_ARGUMENTS + len(" ...")


def test_a_value_of_another_type_says_what_was_expected_and_what_came() -> None:
    values, failed = computed("wrong_type", 2, 3)
    assert values == ["2", None]
    assert failed == {1: "WrongResult: STRING expected, got int 3"}


def test_columns_are_given_whole() -> None:
    assert computed("doubled_column", 1, None, 3) == ([2, None, 6], {})
    assert computed("scaled_column", 0.5, 2.0) == ([5.0, 20.0], {})


def test_a_column_that_raises_is_cut_until_the_rows_are_alone_that_do() -> None:
    values, failed = computed("picky_column", 1, 13, 3, 4, 13)
    assert values == [1, None, 3, 4, None]
    assert failed == {1: "ValueError: unlucky", 4: "ValueError: unlucky"}


def test_a_column_of_another_length_fails_for_all_rows() -> None:
    values, failed = computed("short_column", 1, 2, 3)
    assert values == [None, None, None]
    assert set(failed.values()) == {"WrongCount: 3 values expected, got 1"}


def test_async_calls_keep_the_order_of_the_rows_within_their_capacity() -> None:
    sample_calls.most_under_way = 0
    values, failed = computed("answered", *range(10))
    assert values == [f"answer {number}" for number in range(10)]
    assert not failed
    assert sample_calls.most_under_way == 3


def test_an_async_call_that_raises_is_made_again_as_often_as_declared() -> None:
    sample_calls.tried.clear()
    values, failed = computed("stubborn", 0, 2, 3)
    assert values == [0, 2, None]
    assert failed == {2: "ConnectionError: busy"}
    assert [sample_calls.tried.count(number) for number in (0, 2, 3)] == [1, 3, 3]


def test_an_async_call_without_an_answer_ends_at_its_time() -> None:
    assert computed("silent", 1) == ([None], {0: "TimeoutError: no answer within 0.01 s"})


def test_an_async_table_function_gives_rows() -> None:
    values, _ = computed("steps", 2, 0)
    assert values == [[{"f0": 0}, {"f0": 1}], []]


def test_a_call_that_blocks_is_stopped_and_the_next_ones_are_made() -> None:
    values, failed = computed("stuck", 1, 13, 2)
    assert values == [1, None, 2]
    assert failed == {1: "CallTookTooLong: the call did not end within 0.04 s"}


def test_a_column_that_blocks_is_stopped_once_and_fails_for_all_rows() -> None:
    values, failed = computed("stuck_column", 1, 2)
    assert values == [None, None]
    assert set(failed.values()) == {"CallTookTooLong: the call did not end within 0.04 s"}
    assert computed("stuck_column", 1) == ([1], {})


def test_a_call_that_wants_to_end_the_process_only_fails() -> None:
    assert computed("leaving", 1, 13, 2) == ([1, None, 2], {1: "SystemExit: 1"})


def test_a_generator_that_raises_gives_none_of_its_rows() -> None:
    values, failed = computed("broken_words", "good", "bad")
    assert values == [[{"f0": "good"}], None]
    assert failed == {1: "KeyError: 'bad'"}


@pytest.mark.parametrize("limits", [{"capacity": 0}, {"retries": 11}, {"timeout_s": 0}, {"retry_wait_s": -1}])
def test_limits_that_cannot_be_are_refused_where_they_are_declared(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        declarations.udf(**limits)  # type: ignore[arg-type]


def stage(spool: Path, on_error: str) -> UserStage:
    calls = (PlacedCall(batch_call("halved"), (0,), 2), PlacedCall(batch_call("doubled_column"), (1,), None))
    letter = Schema((Field("n", BIGINT),)) if on_error == "dead-letter" else None
    return UserStage("0-0", calls, call_spool(str(spool)), on_error, None, letter, 3)


ARRAYS = (pa.array([4, 3, 5]), pa.array([1, 2, 3]), pa.array([True, True, False]), pa.array([10, 20, 30]))


def test_a_stage_makes_all_calls_of_a_node_for_the_rows_that_ask(tmp_path: Path) -> None:
    found = stage(tmp_path, "null")(*ARRAYS)
    assert found.to_pylist() == [
        {"c0": 2.0, "c1": 2, "failed": False},
        {"c0": None, "c1": 4, "failed": True},
        {"c0": None, "c1": 6, "failed": False},
    ]


def test_a_stage_leaves_the_rows_of_failed_calls_once(tmp_path: Path) -> None:
    stage(tmp_path, "dead-letter")(*ARRAYS)
    (left,) = call_spool(str(tmp_path)).take()
    assert (left.call.reason, json.loads(left.row)) == ("ValueError: 3 is odd", {"n": 20})
    assert list(call_spool(str(tmp_path)).take()) == []


def test_a_stage_whose_calls_must_not_fail_raises_and_tells_why(tmp_path: Path) -> None:
    with pytest.raises(UserFunctionFailed, match="3 is odd"):
        stage(tmp_path, "fail")(*ARRAYS)
    assert [one.call.arguments for one in call_spool(str(tmp_path)).take()] == ["3"]


def test_a_stage_of_no_rows_is_empty(tmp_path: Path) -> None:
    assert stage(tmp_path, "null")(*(array[:0] for array in ARRAYS)).to_pylist() == []
