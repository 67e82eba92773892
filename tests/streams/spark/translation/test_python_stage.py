"""Users' Python functions over record batches, as a worker calls them."""

from __future__ import annotations

import dataclasses
import datetime
import pickle
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from millstream.streams.functions.user_functions.failed_calls import UserFunctionFailed
from millstream.streams.plan.types import BIGINT, STRING, DataType, Field, Schema, TypeKind
from millstream.streams.plan.user_calls import OnError, PythonKind
from millstream.streams.spark.functions.user_calls import call_spool
from millstream.streams.spark.translation.python_rows import PythonStage, PythonStep

MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)
WORD = (Field("word", STRING),)
NUMBER = (Field("n", BIGINT),)
NOON = datetime.datetime(2026, 5, 1, 12)

ARROW = {STRING: pa.string(), BIGINT: pa.int64(), MOMENT: pa.timestamp("us", "UTC")}


def batch(*rows: tuple[str | None, bool]) -> pa.RecordBatch:
    """Lines with their time, and whether they are rows at all."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([line for line, _ in rows], pa.string()),
            pa.array([NOON] * len(rows), pa.timestamp("us", "UTC")),
            pa.array([keep for _, keep in rows], pa.bool_()),
            pa.array(range(len(rows)), pa.int64()),
        ],
        ["line", "ts", "__keep", "__time_us"],
    )


def step(
    kind: PythonKind,
    function: Callable[..., Any],
    made: tuple[Field, ...] = (),
    *,
    on_error: OnError = OnError.FAIL,
    row_type: type | None = None,
    spool: str = "",
    timeout_ms: int | None = None,
) -> PythonStep:
    kept = [
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("__keep", pa.bool_()),
        pa.field("__time_us", pa.int64()),
    ]
    return PythonStep(
        name="made",
        stage="python-0",
        kind=kind,
        on_error=on_error,
        code=cloudpickle.dumps((function, row_type)),  # type: ignore[no-untyped-call]
        roots=(),
        reads=Schema((Field("line", STRING), Field("ts", MOMENT))),
        kept=(1, 2, 3),
        keep=2,
        made=made,
        output=pa.schema([*kept, *(pa.field(f"__made_{of.name}", ARROW[of.type]) for of in made)]),
        spool=call_spool(spool or tempfile.mkdtemp()),
        letters=on_error is OnError.DEAD_LETTER,
        timeout_ms=timeout_ms,
    )


def run(of: PythonStep, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """What the stage gives, after the step has travelled to a worker."""
    stage = PythonStage(pickle.loads(pickle.dumps(of)))
    return [row for found in stage(iter(batches)) for row in found.to_pylist()]


def shown(rows: list[dict[str, Any]], name: str) -> list[Any]:
    """The values of the rows that are rows."""
    return [row[f"__made_{name}"] for row in rows if row["__keep"]]


class Word(NamedTuple):
    word: str


@dataclass
class Line:
    line: str


def test_a_row_is_read_by_name_in_both_ways() -> None:
    found = run(step(PythonKind.MAP, lambda row: row.line + row["line"], WORD), batch(("a", True), ("b", True)))
    assert shown(found, "word") == ["aa", "bb"]


@pytest.mark.parametrize(
    "answer", [{"word": "x"}, Word("x"), ("x",), ["x"], "x"], ids=["dict", "named tuple", "tuple", "list", "value"]
)
def test_a_result_may_be_given_in_many_forms(answer: object) -> None:
    assert shown(run(step(PythonKind.MAP, lambda row: answer, WORD), batch(("a", True))), "word") == ["x"]


def test_a_class_of_rows_is_made_of_the_columns() -> None:
    of = step(PythonKind.MAP, lambda row: type(row).__name__ + row.line, WORD, row_type=None)
    assert shown(run(of, batch(("a", True))), "word") == ["Rowa"]


def test_a_time_without_a_zone_has_none_for_the_function() -> None:
    found = run(step(PythonKind.MAP, lambda row: str(row.ts), WORD), batch(("a", True)))
    assert shown(found, "word") == ["2026-05-01 12:00:00"]


def test_what_is_no_row_is_never_given_to_a_function() -> None:
    stage = PythonStage(step(PythonKind.MAP, lambda row: row.line, WORD))
    found = [row for one in stage(iter([batch(("tick", False), ("a", True))])) for row in one.to_pylist()]
    assert shown(found, "word") == ["a"]
    assert sorted(row["__time_us"] for row in found) == [0, 1]


def test_a_row_of_which_nothing_is_made_still_moves_event_time() -> None:
    found = run(step(PythonKind.FLAT_MAP, lambda row: row.line.split(), WORD), batch(("a b", True), ("", True)))
    assert shown(found, "word") == ["a", "b"]
    assert {row["__time_us"] for row in found} == {0, 1}
    assert [row["__keep"] for row in found if row["__time_us"] == 1] == [False]


def test_a_function_may_yield_its_rows() -> None:
    def words(row: Any) -> Iterator[Word]:
        for word in row.line.split():
            yield Word(word)

    assert shown(run(step(PythonKind.FLAT_MAP, words, WORD), batch(("a b", True))), "word") == ["a", "b"]


def test_a_filter_keeps_the_rows_that_it_says_yes_to() -> None:
    found = run(step(PythonKind.FILTER, lambda row: row.line != "b"), batch(("a", True), ("b", True), (None, True)))
    assert sorted(row["__time_us"] for row in found if row["__keep"]) == [0, 2]


def test_foreach_leaves_the_rows_as_they_are() -> None:
    found = run(step(PythonKind.FOREACH, lambda row: None), batch(("a", True), ("b", False)))
    assert {row["__time_us"]: row["__keep"] for row in found} == {0: True, 1: False}


def test_a_function_of_batches_sees_the_rows_that_are_rows() -> None:
    of = step(PythonKind.MAP_BATCHES, lambda rows: {"n": [rows.num_rows] * rows.num_rows}, NUMBER)
    assert shown(run(of, batch(("a", True), ("b", False), ("c", True))), "n") == [2, 2]


def test_a_function_of_batches_must_give_as_many_rows() -> None:
    of = step(PythonKind.MAP_BATCHES, lambda rows: {"n": [1, 2, 3]}, NUMBER)
    with pytest.raises(UserFunctionFailed, match="has 3 rows, but the batch has 1"):
        run(of, batch(("a", True)))


class TestErrors:
    def test_a_function_whose_module_is_not_there_is_named(self) -> None:
        of = dataclasses.replace(step(PythonKind.MAP, len, WORD), code=b"cno_such_module\nmade\n.")
        with pytest.raises(UserFunctionFailed, match=r"made.*a worker cannot load it: ModuleNotFoundError"):
            run(of, batch(("a", True)))

    def test_an_error_names_the_function_the_line_and_the_row(self) -> None:
        def broken(row: Any) -> str:
            return str(1 / len(row.line))

        with pytest.raises(UserFunctionFailed) as caught:
            run(step(PythonKind.MAP, broken, WORD), batch(("", True)))
        call = caught.value.call
        assert (call.function, call.reason) == ("made", "ZeroDivisionError: division by zero")
        assert "'line': ''" in call.arguments
        assert "in broken" in call.trace
        assert "return str(1 / len(row.line))" in call.trace
        assert "python_stage.py" not in call.trace.replace("test_python_stage.py", "")

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ("x", r"n should be BIGINT, but it is 'x' \(str\)"),
            (1.5, r"n should be BIGINT, but it is 1.5 \(float\)"),
            ({"m": 1}, "the result has 'm', but its columns are n"),
            ((1, 2), "the result has 2 values, but the columns are n"),
            (2**70, "n should be BIGINT"),
        ],
    )
    def test_a_result_of_another_type_is_told(self, answer: object, words: str) -> None:
        with pytest.raises(UserFunctionFailed, match=words):
            run(step(PythonKind.MAP, lambda row: answer, NUMBER), batch(("a", True)))

    def test_rows_of_dead_letters_are_left_with_their_reason(self, tmp_path: Path) -> None:
        of = step(PythonKind.MAP, lambda row: int(row.line), NUMBER, on_error=OnError.DEAD_LETTER, spool=str(tmp_path))
        assert shown(run(of, batch(("1", True), ("x", True), ("3", True))), "n") == [1, 3]
        (letter,) = call_spool(str(tmp_path)).take()
        assert letter.call.reason.startswith("ValueError: invalid literal")
        assert letter.row == b'{"line":"x","ts":"2026-05-01 12:00:00"}'
        assert not letter.ends

    def test_a_second_look_at_the_same_rows_leaves_no_second_letter(self, tmp_path: Path) -> None:
        of = step(PythonKind.MAP, lambda row: int(row.line), NUMBER, on_error=OnError.DEAD_LETTER, spool=str(tmp_path))
        rows = batch(("x", True))
        run(of, rows)
        run(of, rows)
        assert len(list(call_spool(str(tmp_path)).take())) == 1

    def test_skipped_rows_are_only_counted(self, tmp_path: Path) -> None:
        of = step(PythonKind.MAP, lambda row: int(row.line), NUMBER, on_error=OnError.SKIP, spool=str(tmp_path))
        assert shown(run(of, batch(("x", True))), "n") == []
        assert [one.row for one in call_spool(str(tmp_path)).take()] == [b""]

    def test_a_call_that_ends_the_job_says_so(self, tmp_path: Path) -> None:
        of = step(PythonKind.MAP, lambda row: int(row.line), NUMBER, spool=str(tmp_path))
        with pytest.raises(UserFunctionFailed):
            run(of, batch(("x", True)))
        assert [one.ends for one in call_spool(str(tmp_path)).take()] == [True]

    def test_a_batch_that_fails_is_refused_whole(self, tmp_path: Path) -> None:
        def broken(rows: pa.RecordBatch) -> pa.RecordBatch:
            raise RuntimeError("no")

        of = step(PythonKind.MAP_BATCHES, broken, NUMBER, on_error=OnError.DEAD_LETTER, spool=str(tmp_path))
        found = run(of, batch(("a", True), ("b", False), ("c", True)))
        assert [row["__keep"] for row in found] == [False] * 3
        assert len(list(call_spool(str(tmp_path)).take())) == 2

    def test_a_call_that_never_ends_is_stopped(self, tmp_path: Path) -> None:
        def endless(row: Any) -> int:
            while row.line == "x":
                pass
            return 1

        skip = OnError.SKIP
        of = step(PythonKind.MAP, endless, NUMBER, on_error=skip, spool=str(tmp_path), timeout_ms=200)
        assert shown(run(of, batch(("x", True), ("a", True))), "n") == [1]
        (told,) = call_spool(str(tmp_path)).take()
        assert "did not end within 0.2 s" in told.call.reason


@given(st.lists(st.lists(st.tuples(st.text("ab ", max_size=6), st.booleans()), max_size=6), max_size=4))
def test_no_row_and_no_moment_is_lost(batches: list[list[tuple[str, bool]]]) -> None:
    of = step(PythonKind.FLAT_MAP, lambda row: row.line.split(), WORD)
    for rows in batches:
        found = run(of, batch(*rows))
        assert shown(found, "word") == [word for line, keep in rows if keep for word in line.split()]
        assert {row["__time_us"] for row in found} == set(range(len(rows)))
