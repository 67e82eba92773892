from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.amqp.confirms import Confirm, Confirms


def test_what_is_stored_in_one_turn_is_told_in_one_frame() -> None:
    confirms = Confirms()
    for _ in range(3):
        confirms.settle(confirms.next_tag(), True)
    assert confirms.take() == [Confirm(3, True, True)]
    assert confirms.take() == []


def test_one_that_is_stored_alone_is_told_alone() -> None:
    confirms = Confirms()
    confirms.settle(confirms.next_tag(), True)
    assert confirms.take() == [Confirm(1, False, True)]


def test_a_refused_one_is_told_before_the_stored_ones_around_it() -> None:
    confirms = Confirms()
    for is_stored in (True, False, True):
        confirms.settle(confirms.next_tag(), is_stored)
    assert confirms.take() == [Confirm(2, False, False), Confirm(3, True, True)]


def test_later_ones_do_not_wait_for_an_earlier_one() -> None:
    confirms = Confirms()
    first, second = confirms.next_tag(), confirms.next_tag()
    confirms.settle(second, True)
    assert confirms.take() == [Confirm(2, False, True)]
    assert confirms.outstanding == 1
    confirms.settle(first, True)
    assert confirms.take() == [Confirm(1, False, True)]
    assert confirms.outstanding == 0


@given(st.lists(st.booleans(), max_size=30), st.data())
def test_a_client_learns_the_end_of_each_publication_once(outcomes: list[bool], data: st.DataObject) -> None:
    confirms = Confirms()
    expected = {confirms.next_tag(): outcome for outcome in outcomes}
    waiting, found = dict.fromkeys(expected), {}
    for tag in data.draw(st.permutations(list(expected))):
        confirms.settle(tag, expected[tag])
        if data.draw(st.booleans()):
            continue
        for one in confirms.take():
            tags = [each for each in waiting if each <= one.tag] if one.is_multiple else [one.tag]
            for each in tags:
                del waiting[each]
                found[each] = one.is_stored
    for one in confirms.take():
        for each in [each for each in waiting if each <= one.tag] if one.is_multiple else [one.tag]:
            del waiting[each]
            found[each] = one.is_stored
    assert found == expected
    assert confirms.outstanding == 0
