"""Which broker stores which queue: evenly, and with as few moves as that takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.logic_queue import moves, shares, spread

BROKERS = ["a", "b", "c", "d"]
some_brokers = st.lists(st.sampled_from(BROKERS), min_size=1, unique=True)


@settings(deadline=None)
@given(leaders=st.dictionaries(st.integers(0, 40), st.sampled_from(BROKERS)), brokers=some_brokers)
def test_after_the_moves_the_brokers_share_evenly(leaders: dict[int, str], brokers: list[str]) -> None:
    moving = moves(leaders, brokers)
    after = Counter({**leaders, **moving}.values())
    assert set(after) <= set(brokers)
    assert not leaders or max(after.values()) - min(after[name] for name in brokers) <= 1


@settings(deadline=None)
@given(leaders=st.dictionaries(st.integers(0, 40), st.sampled_from(BROKERS)), brokers=some_brokers)
def test_no_queue_moves_that_could_stay(leaders: dict[int, str], brokers: list[str]) -> None:
    moving = moves(leaders, brokers)
    present = Counter(leaders.values())
    least = sum(max(present[name] - share, 0) for name, share in shares(len(leaders), brokers, present).items())
    assert len(moving) == least + sum(count for name, count in present.items() if name not in brokers)
    assert all(leaders[number] != name for number, name in moving.items())


@settings(deadline=None)
@given(leaders=st.dictionaries(st.integers(0, 40), st.sampled_from(BROKERS)), brokers=some_brokers)
def test_a_second_look_moves_nothing(leaders: dict[int, str], brokers: list[str]) -> None:
    assert moves({**leaders, **moves(leaders, brokers)}, brokers) == {}


def test_new_queues_go_where_the_fewest_are() -> None:
    assert spread(range(4, 8), ["a", "b"], {"a": 3, "b": 1}) == {4: "b", 5: "b", 6: "a", 7: "b"}
