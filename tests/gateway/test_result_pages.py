"""Pages of a result: tokens, backpressure, ends."""

from __future__ import annotations

import threading

import pytest

from millstream.gateway import result_pages
from millstream.gateway.result_pages import MAX_KEPT_ROWS, ResultPages
from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.sql.shell.result_table import ResultShape, SortColumn

LIMIT_S = 60
LOOK_S = 0.2
"""How long a test looks whether a thread ends that is not to; on a slow machine it sees less, and never fails."""


def test_a_page_is_given_again_until_the_next_one_is_asked_for() -> None:
    pages = ResultPages(lambda: False)
    pages.add([(1,)], None)
    first = pages.page(0)
    pages.add([(2,)], [RowKind.DELETE])
    assert pages.page(0) is first
    assert (list(first.rows), first.next_token) == ([(RowKind.INSERT, (1,))], 1)
    assert pages.page(1).rows == [(RowKind.DELETE, (2,))]
    with pytest.raises(MillstreamError, match="1 or 2") as refused:
        pages.page(0)
    assert refused.value.name == "GATEWAY_TOKEN"


def test_a_page_that_is_not_yet_there_is_asked_for_by_the_same_token() -> None:
    pages = ResultPages(lambda: False)
    nothing = pages.page(0)
    assert (nothing.rows, nothing.next_token) == ((), 0)
    pages.add([(1,)], None)
    assert len(pages.page(0).rows) == 1


def test_rows_that_came_before_the_end_are_given_before_it() -> None:
    pages = ResultPages.of_rows([("a",), ("b",)])
    assert [row for _, row in pages.page(0).rows] == [("a",), ("b",)]
    assert pages.page(1).next_token is None
    assert pages.page(1).next_token is None


def test_rows_that_come_while_the_end_is_looked_for_are_not_lost() -> None:
    def end() -> bool:
        pages.add([(1,)], None)
        return True

    pages = ResultPages(end)
    assert len(pages.page(0).rows) == 1


def test_a_job_waits_while_its_rows_are_not_fetched_and_no_row_is_lost() -> None:
    pages = ResultPages(lambda: not job.is_alive())
    job = threading.Thread(target=pages.add, args=([(n,) for n in range(MAX_KEPT_ROWS * 2 + 5)], None))
    job.start()
    job.join(LOOK_S)
    assert job.is_alive()
    found: list[object] = []
    token = 0
    while (page := pages.page(token)).next_token is not None:
        assert len(page.rows) <= MAX_KEPT_ROWS
        found += [row[0] for _, row in page.rows]
        token = page.next_token
    assert found == list(range(MAX_KEPT_ROWS * 2 + 5))


def test_long_rows_make_short_pages_and_no_row_is_too_long_for_one() -> None:
    text = "x" * (result_pages.MAX_KEPT_BYTES // 2)
    pages = ResultPages(lambda: not job.is_alive())
    job = threading.Thread(target=pages.add, args=([([{"a": text}],)] * 5 + [(text * 3,)], None))
    job.start()
    job.join(LOOK_S)
    assert job.is_alive()
    counts, token = list[int](), 0
    while (page := pages.page(token)).next_token is not None:
        counts.append(len(page.rows))
        token = page.next_token
    assert sum(counts) == 6
    assert max(counts) <= 2


def test_a_job_that_waits_for_room_goes_on_when_the_result_is_closed() -> None:
    pages = ResultPages(lambda: False)
    pages.add([(0,)] * MAX_KEPT_ROWS, None)
    job = threading.Thread(target=pages.add, args=([(1,)], None))
    job.start()
    job.join(LOOK_S)
    assert job.is_alive()
    pages.close()
    job.join(LIMIT_S)
    assert not job.is_alive()


def test_a_failed_job_fails_its_page_once_its_rows_are_fetched() -> None:
    def fail() -> bool:
        raise JobError("JOB_FAILED", "it broke")

    pages = ResultPages(fail)
    pages.add([(1,)], None)
    assert len(pages.page(0).rows) == 1
    with pytest.raises(JobError, match="it broke"):
        pages.page(1)


def test_the_changes_of_a_query_that_ends_are_summed_up_in_its_order() -> None:
    shape = ResultShape(("k", "n"), changes=True, key=(0,), order=(SortColumn(1, ascending=False),))
    ended = False
    pages = ResultPages(lambda: ended, summed=shape)
    pages.add([("a", 1), ("b", 5)], None)
    assert pages.page(0).rows == ()
    pages.add([("a", 1), ("a", 9)], [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER])
    ended = True
    assert pages.page(0).rows == [(RowKind.INSERT, ("a", 9)), (RowKind.INSERT, ("b", 5))]
    assert pages.page(1).next_token is None


def test_a_sum_of_too_many_rows_is_refused_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_pages, "MAX_SUMMED_ROWS", 2)
    pages = ResultPages(lambda: True, summed=ResultShape(("n",), changes=True))
    pages.add([(1,), (2,), (3,)], None)
    for _ in range(2):
        with pytest.raises(MillstreamError) as refused:
            pages.page(0)
        assert refused.value.name == "GATEWAY_RESULT_TOO_LARGE"
