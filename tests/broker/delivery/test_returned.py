"""How long a message waits that a consumer gave back, and when it is given to nobody any more."""

from __future__ import annotations

import pytest

from millstream.broker.delivery.retries import is_used_up, wait_ms
from millstream.broker.queues.retry_lines import retry_line, stored_topic
from millstream.model.group import ExponentialBackoff, GroupConfig

GROUP = GroupConfig("g", max_attempts=3)


@pytest.mark.parametrize(("times", "seconds"), [(0, 10), (1, 30), (2, 60), (14, 3600), (15, 7200), (99, 7200)])
def test_a_group_without_a_backoff_of_its_own_waits_as_rocketmqs_consumers_do(times: int, seconds: int) -> None:
    assert wait_ms(GROUP, times, 0) == seconds * 1000


@pytest.mark.parametrize(("level", "seconds"), [(1, 1), (2, 5), (18, 7200), (19, 7200), (1 << 40, 7200)])
def test_the_level_that_a_consumer_names_counts(level: int, seconds: int) -> None:
    for group in (GROUP, GroupConfig("g", backoff_s=(77,))):
        assert wait_ms(group, 5, level) == seconds * 1000


def test_a_groups_own_backoff_counts_where_the_consumer_names_no_level() -> None:
    steps = GroupConfig("g", backoff_s=(0, 4))
    assert [wait_ms(steps, times, 0) for times in range(3)] == [0, 4000, 4000]
    curve = GroupConfig("g", exponential=ExponentialBackoff(100, 1000, 3))
    assert [wait_ms(curve, times, 0) for times in range(4)] == [100, 300, 900, 1000]


def test_the_consumers_limit_counts_before_the_groups() -> None:
    assert [is_used_up(GROUP, times, None) for times in (0, 1, 2, 3)] == [False, False, True, True]
    assert [is_used_up(GROUP, times, -1) for times in (1, 2)] == [False, True]
    assert [is_used_up(GROUP, times, 5) for times in (2, 4, 5)] == [False, False, True]
    assert is_used_up(GROUP, 0, 0)


def test_a_line_of_the_retry_topic_names_where_its_messages_lie() -> None:
    assert stored_topic(retry_line("g", "t")) == "%RETRY%g"
    assert stored_topic("t") == "t"
