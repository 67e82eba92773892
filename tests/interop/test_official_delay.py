"""The official Python client's delayed messages: at their time, over a kill, and taken back."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from composition import Running
from official import drain, message, producer, simple_consumer

pytestmark = pytest.mark.official

Names = Callable[[str], str]


def test_a_delayed_message_comes_at_its_time_and_a_recalled_one_never(anywhere: Running, new_name: Names) -> None:
    topic = new_name("later")
    anywhere.create_topic(topic, "DELAY")
    with producer(anywhere.port, topic) as sender, simple_consumer(anywhere.port, new_name("group"), topic) as consumer:
        due_s = int(time.time()) + 3
        receipts = []
        for body in (b"comes", b"taken back"):
            delayed = message(topic, body)
            delayed.delivery_timestamp = due_s
            receipts.append(sender.send(delayed))
        recalled = sender.recall_message(topic, receipts[1].recall_handle)
        assert recalled == receipts[1].message_id
        (found,) = drain(consumer, 1)
        assert time.time() >= due_s
        assert (found.body, found.message_id) == (b"comes", receipts[0].message_id)
        assert found.delivery_timestamp == due_s * 1000
        assert consumer.receive(32, 10) == []
        with pytest.raises(Exception, match="waits for its time"):
            sender.recall_message(topic, receipts[0].recall_handle)
