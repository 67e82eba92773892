"""Ranges of positions as tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.spark.source.position import Position, divide

_QUEUES = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 5000), st.integers(0, 200_000)))


@given(_QUEUES, st.integers(1, 8))
def test_the_tasks_cover_each_row_once_and_are_the_same_at_a_replay(
    queues: dict[str, tuple[int, int]], parallelism: int
) -> None:
    start = Position({name: begin for name, (begin, _) in queues.items()}, 0)
    end = Position({name: begin + rows for name, (begin, rows) in queues.items()}, 0)
    tasks = divide(start, end, parallelism)
    assert tasks == divide(start, end, parallelism)
    parts = sorted((part.queue, part.start, part.end) for task in tasks for part in task)
    for name, (begin, rows) in queues.items():
        mine = [(low, high) for queue, low, high in parts if queue == name]
        assert [low for low, _ in mine] == [begin, *(high for _, high in mine)][: len(mine)]
        assert (mine[-1][1] if mine else begin) == begin + rows
    assert all(task for task in tasks)
