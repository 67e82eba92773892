"""The end of a micro-batch is one store time for all queues."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.spark.source.position import Position, QueueSpan, next_cut

Queues = dict[str, list[int]]


def cut(queues: Queues, start: Position, max_rows: int) -> Position:
    """The next cut over queues whose rows were stored at the given (sorted) milliseconds."""
    spans = {name: QueueSpan(0, len(times), times[-1] if times else 0) for name, times in queues.items()}

    def offset_at(queue: str, time_ms: int) -> int:
        return bisect_left(queues[queue], time_ms)

    def first_store_ms() -> int:
        left = (times[start.offset(name)] for name, times in queues.items() if start.offset(name) < len(times))
        return min(left, default=0)

    return next_cut(start, spans, max_rows, offset_at, first_store_ms)


_QUEUES = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(1000, 1200), max_size=60).map(sorted), min_size=1
)


@given(_QUEUES, st.integers(1, 50))
def test_cuts_read_every_row_once_and_never_let_a_queue_run_ahead(queues: Queues, max_rows: int) -> None:
    position, rows_read = Position({}, 0), 0
    total = sum(map(len, queues.values()))
    for _ in range(total + 2):
        end = cut(queues, position, max_rows)
        rows_read += sum(end.offset(name) - position.offset(name) for name in queues)
        read = [times[end.offset(name) - 1] for name, times in queues.items() if end.offset(name)]
        unread = [times[end.offset(name)] for name, times in queues.items() if end.offset(name) < len(times)]
        assert not read or not unread or max(read) < min(unread)
        position = end
        if rows_read == total:
            break
    assert rows_read == total


def test_no_limit_takes_all_there_is() -> None:
    assert cut({"a": [1, 2, 3], "b": [9]}, Position({}, 0), 0).queues == {"a": 3, "b": 1}


def test_a_whole_millisecond_is_never_split() -> None:
    assert cut({"a": [5] * 40 + [6]}, Position({}, 0), 10).queues == {"a": 40}


def test_a_queue_that_is_not_seen_for_a_while_stays_where_it_is() -> None:
    queues = {"a": [1000, 1001, 1002], "b": [1000]}
    start = Position({"a": 1, "b": 1}, 0)
    for max_rows in (0, 1):
        end = cut({"a": queues["a"]}, start, max_rows)
        assert end.queues["b"] == 1
        assert cut(queues, end, 0).rows_since(end) == 3 - end.queues["a"]
