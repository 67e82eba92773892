from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.amqp.deliveries import MAX_UNACKNOWLEDGED, Credit, DeliveryTags
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode


def fill(count: int) -> DeliveryTags[str]:
    tags: DeliveryTags[str] = DeliveryTags()
    assert [tags.add(f"m{number}") for number in range(1, count + 1)] == list(range(1, count + 1))
    return tags


def test_one_tag_takes_one_delivery() -> None:
    tags = fill(3)
    assert tags.take(2, multiple=False) == ["m2"]
    assert tags.items() == ["m1", "m3"]


def test_multiple_takes_all_up_to_the_tag() -> None:
    tags = fill(4)
    tags.take(2, multiple=False)
    assert tags.take(3, multiple=True) == ["m1", "m3"]
    assert tags.items() == ["m4"]


def test_multiple_with_tag_0_takes_all_and_none_is_no_error() -> None:
    tags = fill(2)
    assert tags.take(0, multiple=True) == ["m1", "m2"]
    assert tags.take(0, multiple=True) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (3, False), (3, True), (1, False), (1, True)])
def test_a_tag_that_does_not_wait_is_refused(tag: int, multiple: bool) -> None:
    tags = fill(2)
    tags.take(1, multiple=False)
    with pytest.raises(ChannelFailure, match=f"unknown delivery tag {tag}") as error:
        tags.take(tag, multiple=multiple)
    assert error.value.code is ReplyCode.PRECONDITION_FAILED


def test_a_delivery_without_acknowledgement_has_a_tag_and_does_not_wait() -> None:
    tags = fill(1)
    assert tags.skip() == 2
    assert tags.add("m3") == 3
    assert tags.take_all() == ["m1", "m3"]


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=20))
def test_each_delivery_is_taken_once_whatever_a_client_says(says: list[tuple[int, bool]]) -> None:
    tags = fill(10)
    taken: list[str] = []
    for tag, multiple in says:
        try:
            taken += tags.take(tag, multiple=multiple)
        except ChannelFailure:
            continue
    assert sorted(taken + tags.take_all()) == sorted(f"m{number}" for number in range(1, 11))


def test_credit_ends_at_its_limit_and_a_lowered_limit_leaves_none() -> None:
    credit = Credit(2)
    credit.used = 1
    assert credit.left == 1
    credit.limit, credit.used = 1, 2
    assert credit.left == 0
    assert Credit().left == MAX_UNACKNOWLEDGED
