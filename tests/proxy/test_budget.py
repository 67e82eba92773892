"""Bytes that lie in memory for clients: never more than the limits, and room for those that go on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConsumeRefused
from millstream.proxy.budget import Budget, Share


def budget(total: int = 100, owner: int = 60, patience_s: float = 5.0) -> Budget:
    return Budget("requests", total_bytes=total, owner_bytes=owner, patience_s=patience_s)


def test_an_owner_cannot_take_the_share_of_the_others() -> None:
    held = budget()
    held.take("greedy", 60, 0.0)
    with pytest.raises(
        ConsumeRefused, match="60 bytes of one client's requests are under way; the limit is 60"
    ) as refusal:
        held.take("greedy", 1, 0.0)
    assert refusal.value.name == "TOO_MANY_REQUESTS"
    held.take("modest", 40, 0.0)


def test_the_total_holds_for_all_owners_together() -> None:
    held = budget()
    shares = [held.take(name, 50, 0.0) for name in "ab"]
    with pytest.raises(ConsumeRefused, match="100 bytes of requests"):
        held.take("c", 1, 100.0)
    held.free(shares[0])
    held.take("c", 50, 100.0)


def test_a_share_is_freed_once() -> None:
    held = budget()
    first = held.take("a", 50, 0.0)
    held.take("a", 10, 0.0)
    held.free(first)
    held.free(first)
    assert held.used_bytes == 10


def test_one_share_over_the_limits_is_granted_to_who_is_alone() -> None:
    held = budget()
    held.free(held.take("a", 1000, 0.0))
    held.take("a", 1000, 0.0)
    with pytest.raises(ConsumeRefused):
        held.check("b", 0.0)


def test_at_the_limit_who_lingers_gives_way_and_who_is_new_does_not() -> None:
    ended: list[str] = []
    held = budget()
    held.take("old", 40, 0.0, lambda: ended.append("old"))
    held.take("older", 40, 0.0, lambda: ended.append("older"))
    held.take("new", 20, 5.0, lambda: ended.append("new"))
    held.take("next", 30, 6.0)
    assert ended == ["old"]
    assert held.used_bytes == 90
    held.take("next", 30, 6.0)
    assert ended == ["old", "older"]
    with pytest.raises(ConsumeRefused):
        held.take("last", 30, 6.0)


def test_check_tells_before_anything_is_taken() -> None:
    held = budget()
    held.check("a", 0.0)
    held.take("a", 60, 0.0)
    with pytest.raises(ConsumeRefused):
        held.check("a", 0.0)
    held.check("b", 0.0)
    held.take("b", 40, 0.0)
    with pytest.raises(ConsumeRefused):
        held.check("c", 0.0)
    assert held.used_bytes == 100


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans(), st.integers(0, 3))))
def test_the_sums_are_those_of_the_shares_and_within_the_limits(steps: list[tuple[str, int, bool, int]]) -> None:
    held, live, now_s = budget(), list[Share](), 0.0
    for owner, size_bytes, frees, later_s in steps:
        now_s += later_s
        if frees and live:
            held.free(live.pop(size_bytes % len(live)))
            continue
        try:
            share = held.take(owner, size_bytes, now_s)
        except ConsumeRefused:
            mine = sum(one.size_bytes for one in live if one.owner == owner)
            assert mine + size_bytes > 60 or held.used_bytes + size_bytes > 100
        else:
            live.append(share)
        assert held.used_bytes == sum(one.size_bytes for one in live) <= 100
        assert all(sum(one.size_bytes for one in live if one.owner == name) <= 60 for name in "abc")


def test_a_share_grows_within_the_limits_and_stays_as_it_was_beyond_them() -> None:
    held = budget()
    share, other = held.take("a", 10, 0.0), held.take("b", 30, 0.0)
    held.grow(share, 50)
    with pytest.raises(ConsumeRefused, match="90 bytes of requests"):
        held.grow(share, 11)
    assert held.used_bytes == 90
    held.free(other)
    held.grow(share, 100)
    held.free(share)
    held.grow(share, 5)
    assert held.used_bytes == 0


def test_a_share_does_not_grow_beyond_what_its_owner_may_have_where_it_has_others() -> None:
    held = budget()
    share, _ = held.take("a", 10, 0.0), held.take("a", 10, 0.0)
    held.grow(share, 40)
    with pytest.raises(ConsumeRefused, match="60 bytes of one client's"):
        held.grow(share, 1)


def test_a_share_that_is_freed_lets_go_of_what_it_could_have_ended() -> None:
    held, ended = budget(), list[str]()
    share = held.take("a", 100, 0.0, lambda: ended.append("a"))
    held.take("b", 100, 10.0)
    assert ended == ["a"]
    assert share.give_way is None
