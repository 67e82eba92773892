"""Names of topics and groups, and the types that a topic accepts."""

import pytest

from millstream.model.errors import NameRefused
from millstream.model.group import check_group_name
from millstream.model.topic import MessageType, check_topic_name, is_system_topic


@pytest.mark.parametrize("name", ["a", "orders-2_x", "%RETRY%g", "a|b", "x" * 127])
def test_legal_topic_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "../x", "x" * 128, "a\n"])
def test_other_topic_names_are_refused(name: str) -> None:
    with pytest.raises(NameRefused):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "g\x00"])
def test_other_group_names_are_refused(name: str) -> None:
    with pytest.raises(NameRefused):
        check_group_name(name)


def test_the_systems_topics_are_known() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("orders")


def test_a_mixed_topic_accepts_the_four_plain_types_only() -> None:
    accepted = {kind for kind in MessageType if MessageType.MIXED.accepts(kind)}
    assert accepted >= {MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION}
    assert MessageType.LITE not in accepted
    assert not MessageType.NORMAL.accepts(MessageType.FIFO)
