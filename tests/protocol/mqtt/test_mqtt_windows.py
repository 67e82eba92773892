"""Packets under way: windows of both directions and topic aliases."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topic_aliases import IncomingAliases, OutgoingAliases
from millstream.protocol.mqtt.windows import MAX_PACKET_ID, IncomingWindow, OutgoingWindow

LIMIT = 4


class OutgoingMachine(RuleBasedStateMachine):
    """A window beside a list of what was sent: (identifier, QoS, number, whether it was released)."""

    def __init__(self) -> None:
        super().__init__()
        self.window: OutgoingWindow[int] = OutgoingWindow(LIMIT)
        self.sent: list[tuple[int, int, int, bool]] = []
        self.numbers = 0

    @precondition(lambda self: self.window.room)
    @rule(qos=st.sampled_from([1, 2]))
    def send(self, qos: int) -> None:
        packet_id = self.window.add(self.numbers, qos)
        assert 1 <= packet_id <= MAX_PACKET_ID
        assert packet_id not in [one[0] for one in self.sent]
        self.sent.append((packet_id, qos, self.numbers, False))
        self.numbers += 1

    @rule(packet_id=st.integers(1, 9), qos=st.sampled_from([1, 2]))
    def complete(self, packet_id: int, qos: int) -> None:
        fitting = [one for one in self.sent if one[:2] == (packet_id, qos) and (qos == 1 or one[3])]
        ended = self.window.complete(packet_id, qos)
        assert [one[2] for one in fitting] == ([] if ended is None else [ended.item])
        self.sent = [one for one in self.sent if one not in fitting]

    @rule(packet_id=st.integers(1, 9))
    def receive(self, packet_id: int) -> None:
        known = any(one[:2] == (packet_id, 2) for one in self.sent)
        assert (self.window.receive(packet_id) is not None) is known
        self.sent = [(*one[:3], one[3] or (known and one[0] == packet_id)) for one in self.sent]

    @invariant()
    def what_is_not_acknowledged_keeps_its_order(self) -> None:
        held = [(one.packet_id, one.qos, one.item, one.is_released) for one in self.window.messages()]
        assert held == self.sent
        assert self.window.room == LIMIT - len(self.sent)


TestOutgoingMachine = OutgoingMachine.TestCase


def test_packet_identifiers_go_round_and_pass_over_those_in_use() -> None:
    window: OutgoingWindow[str] = OutgoingWindow(2)
    assert window.add("stays", 1) == 1
    for number in range(2, MAX_PACKET_ID + 1):
        assert window.add("goes", 1) == number
        window.complete(number, 1)
    assert window.add("next", 1) == 2


def test_a_released_message_of_an_earlier_connection_ends_with_pubcomp() -> None:
    window: OutgoingWindow[str] = OutgoingWindow(2)
    window.restore_released(9)
    assert not window.is_free(9)
    assert window.complete(9, 1) is None
    ended = window.complete(9, 2)
    assert ended is not None
    assert ended.item is None


def test_a_message_of_qos_2_is_new_until_it_was_released() -> None:
    window = IncomingWindow(10)
    assert window.admit(5, 2)
    assert not window.admit(5, 2)
    assert window.release(5)
    assert not window.release(5)
    assert window.admit(5, 2)


def test_what_an_earlier_connection_left_is_not_new() -> None:
    window = IncomingWindow(10, {5})
    assert not window.admit(5, 2)
    assert window.received == {5}


def test_more_messages_than_the_receive_maximum_are_refused() -> None:
    window = IncomingWindow(2)
    window.admit(1, 1)
    window.admit(2, 2)
    with pytest.raises(PacketRefused) as refusal:
        window.admit(3, 1)
    assert refusal.value.reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    window.acknowledge()
    assert window.admit(3, 1)


def test_an_alias_stands_for_the_topic_that_it_came_with_last() -> None:
    aliases = IncomingAliases(2)
    assert aliases.resolve("a", 1) == "a"
    assert aliases.resolve("", 1) == "a"
    assert aliases.resolve("b", 1) == "b"
    assert aliases.resolve("", 1) == "b"
    assert aliases.resolve("c", None) == "c"


@pytest.mark.parametrize(
    ("topic", "alias", "reason"),
    [
        ("a", 0, ReasonCode.TOPIC_ALIAS_INVALID),
        ("a", 3, ReasonCode.TOPIC_ALIAS_INVALID),
        ("", 2, ReasonCode.PROTOCOL_ERROR),
        ("", None, ReasonCode.TOPIC_NAME_INVALID),
    ],
)
def test_an_alias_that_may_not_be_or_says_nothing_is_refused(topic: str, alias: int | None, reason: ReasonCode) -> None:
    with pytest.raises(PacketRefused) as refusal:
        IncomingAliases(2).resolve(topic, alias)
    assert refusal.value.reason is reason


def test_the_first_topics_get_aliases_and_others_none() -> None:
    aliases = OutgoingAliases(1)
    assert aliases.assign("a") == ("a", 1)
    assert aliases.assign("a") == ("", 1)
    assert aliases.assign("b") == ("b", None)
