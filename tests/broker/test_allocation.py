"""Queues shared among the members of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.remoting.queue_sharing import ALL_QUEUES_OF_BROKER, STRATEGIES, QueuePlace, allocate_pops

_QUEUES = st.lists(st.builds(QueuePlace, st.sampled_from("ab"), st.integers(0, 30)), unique=True, max_size=20).map(
    sorted
)


def shares(name: str, members: int, queues: int) -> list[list[int]]:
    places = [QueuePlace("b", number) for number in range(queues)]
    return [[place.queue_id for place in STRATEGIES[name](member, members, places)] for member in range(members)]


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 12), _QUEUES)
def test_each_queue_has_exactly_one_member_and_no_member_has_two_more_than_another(
    name: str, members: int, queues: list[QueuePlace]
) -> None:
    found = [STRATEGIES[name](member, members, queues) for member in range(members)]
    assert sorted(place for share in found for place in share) == queues
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_the_shares_are_those_of_rocketmq() -> None:
    assert shares("AVG", 3, 8) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert shares("AVG_BY_CIRCLE", 3, 8) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert shares("AVG", 3, 2) == [[0], [1], []]


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 12), _QUEUES, st.integers(-1, 12))
def test_pops_together_reach_every_queue(name: str, members: int, queues: list[QueuePlace], share_count: int) -> None:
    found = [allocate_pops(STRATEGIES[name], member, members, queues, share_count) for member in range(members)]
    reached = {place for share in found for place in share}
    named = {queue.broker_name for queue in queues}
    assert reached in (set(queues), {QueuePlace(name, ALL_QUEUES_OF_BROKER) for name in named})
    assert all(len(set(share)) == len(share) for share in found)
    if queues:
        assert all(found), "a member has nothing to pop from"


@pytest.mark.parametrize(("share_count", "queues"), [(1, [0, 1, 2]), (2, [0, 1, 2, 3]), (0, [-1]), (4, [-1])])
def test_a_member_shares_the_queues_of_those_behind_it(share_count: int, queues: list[int]) -> None:
    places = [QueuePlace("b", number) for number in range(6)]
    found = allocate_pops(STRATEGIES["AVG"], 0, 5, places, share_count)
    assert [place.queue_id for place in found] == queues
