from __future__ import annotations

import os
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client import requests
from millstream.client.outgoing import MessageIds, QueueSelector
from millstream.client.values import QueueAddress
from millstream.model.errors import NameRefused
from millstream.model.message import Message
from millstream.protocol.remoting.messages.batch import decode_batch

QUEUES = [QueueAddress("t", "b", number, "h:1") for number in range(3)]

messages = st.lists(
    st.builds(
        Message,
        topic=st.just("t"),
        body=st.integers(1, 400_000).map(bytes),
        message_group=st.none() | st.sampled_from(["g", "h", "i"]),
    ),
    max_size=12,
)


@given(messages)
def test_batches_hold_each_message_once_in_its_order_within_the_limits(sent: list[Message]) -> None:
    placement = QueueSelector()
    lists = placement.batches(sent, lambda topic: QUEUES)
    positions = [[position for batch in batches for position in batch.positions] for batches in lists]
    assert sorted(chain.from_iterable(positions)) == list(range(len(sent)))
    assert all(found == sorted(found) for found in positions)
    for batch in (batch for batches in lists for batch in batches):
        assert len(batch.items) == 1 or batch.size_bytes <= requests.MAX_BATCH_BYTES
        assert [len(body) for body, _, _ in decode_batch(batch.request("g").body)] == [
            len(sent[position].body) for position in batch.positions
        ]


@given(messages)
def test_ordered_batches_one_after_another_are_the_messages_in_order(sent: list[Message]) -> None:
    batches = list(QueueSelector().ordered_batches(sent, lambda topic: QUEUES))
    assert [position for batch in batches for position in batch.positions] == list(range(len(sent)))


@given(messages)
def test_a_message_group_has_one_queue_in_either_way_of_sending(sent: list[Message]) -> None:
    queues: dict[str, set[QueueAddress]] = {}
    one, other = QueueSelector(), QueueSelector()
    batches = [batch for found in one.batches(sent, lambda topic: QUEUES) for batch in found]
    for batch in [*batches, *other.ordered_batches(sent, lambda topic: QUEUES)]:
        for position in batch.positions:
            group = sent[position].message_group
            if group is not None:
                queues.setdefault(group, set()).add(batch.queue)
    assert all(len(found) == 1 for found in queues.values())


def test_a_batch_has_only_so_many_messages() -> None:
    sent = [Message("t", b"x")] * (requests.MAX_BATCH_MESSAGES + 1)
    assert [len(batch.items) for batch in QueueSelector().ordered_batches(sent, lambda topic: QUEUES)] == [
        requests.MAX_BATCH_MESSAGES,
        1,
    ]


def test_a_topic_without_a_writable_queue_is_refused() -> None:
    with pytest.raises(NameRefused) as refused:
        QueueSelector().queue(Message("t", b"x"), [])
    assert refused.value.name == "FORBIDDEN"


def test_ids_are_32_upper_hex_digits_and_differ() -> None:
    ids = MessageIds()
    made = [ids.next() for _ in range(10_000)]
    assert len(set(made)) == 10_000
    assert all(len(made_id) == 32 and made_id == f"{int(made_id, 16):032X}" for made_id in made)
    assert int(made[0][8:12], 16) == os.getpid() & 0xFFFF


def test_two_producers_make_different_ids() -> None:
    one, other = MessageIds(), MessageIds()
    assert one.next()[:20] != other.next()[:20]


def test_a_forked_process_makes_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = MessageIds()
    before = ids.next()
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert ids.next()[8:20] != before[8:20]
