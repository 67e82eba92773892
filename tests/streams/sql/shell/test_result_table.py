"""A result as a table that follows its changes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.plan.changelog import RowKind
from millstream.streams.sql.shell.result_table import ResultTable, SortColumn

ADD, BEFORE, AFTER, DELETE = RowKind
MANY = 1_000


def keyed(max_rows: int = MANY) -> ResultTable:
    return ResultTable(key=(0,), max_rows=max_rows)


def test_an_update_changes_the_row_in_its_place() -> None:
    table = keyed()
    table.apply([("a", 1), ("b", 1)])
    table.apply([("a", 1), ("a", 2)], [BEFORE, AFTER])
    assert table.rows() == [("a", 2), ("b", 1)]


def test_an_update_in_two_parts_keeps_its_place() -> None:
    table = keyed()
    table.apply([("a", 1), ("b", 1)])
    table.apply([("a", 1)], [BEFORE])
    assert table.rows() == [("b", 1)]
    table.apply([("a", 2)], [AFTER])
    assert table.rows() == [("a", 2), ("b", 1)]


def test_the_place_of_a_row_that_left_goes_to_nobody() -> None:
    table = keyed()
    table.apply([("a", 1), ("b", 1)])
    table.apply([("a", 1)], [BEFORE])
    table.apply([("c", 1)])
    table.apply([("a", 3)])
    assert table.rows() == [("b", 1), ("c", 1), ("a", 3)]


def test_a_deleted_row_is_gone() -> None:
    table = keyed()
    table.apply([("a", 1), ("b", 1), ("a", 1)], [ADD, ADD, DELETE])
    assert (table.rows(), len(table)) == ([("b", 1)], 1)


def test_without_a_key_equal_rows_are_taken_back_one_by_one() -> None:
    table = ResultTable(key=None, max_rows=MANY)
    table.apply([("a",), ("a",), ("b",), ("a",)], [ADD, ADD, ADD, DELETE])
    assert table.rows() == [("a",), ("b",)]


def test_rows_with_lists_maps_and_nan_are_taken_back() -> None:
    table = ResultTable(key=None, max_rows=MANY)
    row = ([1, [2]], {"k": [3]}, math.nan)
    table.apply([row, ([1, [2]], {"k": [3]}, float("nan"))], [ADD, BEFORE])
    assert table.rows() == []


def test_one_row_without_a_key_column_is_replaced_by_each_update() -> None:
    table = ResultTable(key=(), max_rows=MANY)
    table.apply([(1,), (1,), (2,)], [ADD, BEFORE, AFTER])
    assert table.rows() == [(2,)]


def test_the_oldest_rows_go_where_there_are_too_many_and_are_counted() -> None:
    table = ResultTable(key=None, max_rows=2)
    table.apply([(1,), (2,), (3,)])
    assert (table.rows(), len(table), table.dropped) == ([(2,), (3,)], 2, 1)


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        (SortColumn(0, ascending=True, nulls_first=True), [None, 1, 2]),
        (SortColumn(0, ascending=True, nulls_first=False), [1, 2, None]),
        (SortColumn(0, ascending=False, nulls_first=False), [2, 1, None]),
        (SortColumn(0, ascending=False, nulls_first=True), [None, 2, 1]),
    ],
)
def test_a_sorted_result_is_shown_in_its_order(order: SortColumn, wanted: list[int | None]) -> None:
    table = ResultTable(key=None, max_rows=MANY, order=(order,))
    table.apply([(1,), (None,), (2,)])
    assert [value for (value,) in table.rows()] == wanted
    assert table.last(2) == table.rows()[:2]


def test_a_second_column_orders_rows_that_are_equal_in_the_first() -> None:
    table = ResultTable(key=None, max_rows=MANY, order=(SortColumn(0), SortColumn(1, ascending=False)))
    table.apply([("a", 1), ("b", 5), ("a", 2)])
    assert table.rows() == [("a", 2), ("a", 1), ("b", 5)]


def test_a_small_screen_shows_the_newest_rows() -> None:
    table = keyed()
    table.apply([(number, "x") for number in range(10)])
    assert table.last(3) == [(7, "x"), (8, "x"), (9, "x")]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=40), st.data())
def test_any_cut_of_a_changelog_ends_in_the_last_row_of_each_key(
    writes: list[tuple[int, int]], data: st.DataObject
) -> None:
    held: dict[int, int] = {}
    changes: list[tuple[RowKind, tuple[int, int]]] = []
    for key, value in writes:
        if key in held:
            changes += [(BEFORE, (key, held[key])), (AFTER, (key, value))]
        else:
            changes.append((ADD, (key, value)))
        held[key] = value
    cuts = sorted(data.draw(st.lists(st.integers(0, len(changes)), max_size=5)))
    table = keyed()
    for begin, end in zip([0, *cuts], [*cuts, len(changes)], strict=True):
        table.apply([row for _, row in changes[begin:end]], [kind for kind, _ in changes[begin:end]])
    assert table.rows() == list(held.items())
