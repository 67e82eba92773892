"""What is a difference between two answers, and what is none."""

from __future__ import annotations

from dataclasses import replace

from differential.cases import Arrival, Case, Source, Step
from differential.comparison import differences, table_of
from differential.flink import Answer

TABLE = Source("a", (("id", "INT"), ("ts", "TIMESTAMP(3)")), 4)
ROWS = tuple(Arrival("a", (number, f"2026-01-01 00:00:0{number}.000")) for number in range(4))
LINEAR = Case(1, (TABLE,), ROWS, (2,), Step("group", "SELECT COUNT(*) AS n FROM {0}", ("n",), ("a",)))
TWO = replace(LINEAR, query=Step("union all", "SELECT id FROM {0} UNION ALL SELECT id FROM {1}", ("id",), ("a", "a")))
FLINK = Answer(
    (("+", ("1",)), ("-", ("1",)), ("+", ("2",)), ("-", ("2",)), ("+", ("3",)), ("-", ("3",)), ("+", ("4",)))
)
OURS = Answer((("+", ("2",)), ("-", ("2",)), ("+", ("4",))), batches=(1, 3, 3))


def aspects(case: Case, flink: Answer, ours: Answer) -> list[str]:
    return [one.aspect for one in differences(case, flink, ours)]


def test_micro_batches_that_leave_out_what_lies_between_are_equal() -> None:
    assert aspects(LINEAR, FLINK, OURS) == []


def test_other_rows_at_the_end_are_a_difference() -> None:
    (found,) = differences(LINEAR, FLINK, Answer((("+", ("5",)),), batches=(1, 1, 1)))
    assert (found.aspect, found.only_flink, found.only_ours) == ("table", ((("4",), 1),), ((("5",), 1),))


def test_a_table_that_flink_never_shows_is_a_difference_of_one_chain() -> None:
    ours = Answer((("+", ("7",)), ("-", ("7",)), ("+", ("4",))), batches=(1, 3, 3))
    assert aspects(LINEAR, FLINK, ours) == ["moments"]
    assert aspects(TWO, FLINK, ours) == []


def test_tables_in_another_order_are_a_difference_of_one_chain() -> None:
    ours = Answer((("+", ("3",)), ("-", ("3",)), ("+", ("2",)), ("-", ("2",)), ("+", ("4",))), batches=(1, 3, 5))
    assert aspects(LINEAR, FLINK, ours) == ["moments"]


def test_rows_that_may_change_where_those_of_flink_may_not_are_a_difference() -> None:
    flink, ours = Answer((("+", ("4",)),), appends=True), Answer((("+", ("4",)),), batches=(0, 0, 1))
    assert aspects(LINEAR, flink, ours) == ["appends"]
    assert aspects(LINEAR, flink, replace(ours, appends=True)) == []


def test_a_query_that_one_alone_refuses_is_a_difference() -> None:
    assert aspects(LINEAR, Answer(refused="no"), OURS) == ["refused"]
    assert aspects(LINEAR, FLINK, Answer(refused="no")) == ["refused"]
    assert aspects(LINEAR, Answer(refused="no"), Answer(refused="never")) == []
    assert aspects(LINEAR, Answer(failed="no"), OURS) == ["failed"]


def test_a_row_that_goes_and_was_not_there_is_kept_in_mind() -> None:
    assert table_of([("-", ("1",)), ("+", ("2",))]) == {("1",): -1, ("2",): 1}


def test_an_answer_comes_back_from_json() -> None:
    for answer in (FLINK, Answer(refused="no"), Answer(failed="no"), replace(FLINK, appends=True)):
        assert Answer.from_json(answer.to_json()) == answer
