"""Sets of offsets against Python's own sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.delivery.redrive import OffsetSet

offsets = st.integers(0, 40)


def of(held: set[int]) -> OffsetSet:
    found = OffsetSet()
    for offset in held:
        found.add(offset)
    return found


@given(st.lists(offsets))
def test_it_holds_what_was_added_in_stretches_apart_from_each_other(added: list[int]) -> None:
    found = OffsetSet()
    for offset in added:
        found.add(offset)
    assert {offset for offset in range(-1, 42) if offset in found} == set(added)
    assert {offset for begin, end in found.stretches for offset in range(begin, end)} == set(added)
    assert all(end < begin for (_, end), (begin, _) in zip(found.stretches, found.stretches[1:], strict=False))
    assert OffsetSet(found.stretches).stretches == found.stretches


@given(st.sets(offsets), offsets)
def test_what_lies_below_or_above_is_forgotten(held: set[int], at: int) -> None:
    upper, lower = of(held), of(held)
    upper.drop_below(at)
    lower.drop_from(at)
    assert {offset for offset in range(42) if offset in upper} == {offset for offset in held if offset >= at}
    assert {offset for offset in range(42) if offset in lower} == {offset for offset in held if offset < at}
