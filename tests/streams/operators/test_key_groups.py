"""Key groups are dealt to tasks in ranges."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.operators.key_groups import KeyGroups


@given(st.integers(1, 500), st.integers(1, 600))
def test_each_group_has_one_task_and_each_task_has_the_groups_of_its_range(count: int, parallelism: int) -> None:
    dealt = KeyGroups.deal(count, parallelism)
    tasks = dealt.task_of(np.arange(count)).tolist()
    ranges = [dealt.range_of(task) for task in range(dealt.tasks)]
    assert [group for one in ranges for group in one] == list(range(count))
    assert all(tasks[group] == task for task, one in enumerate(ranges) for group in one)
    assert min(map(len, ranges)) >= 1
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
