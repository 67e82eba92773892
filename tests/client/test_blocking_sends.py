"""Messages that the blocking client sends one by one: delayed ones, and those with a priority."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MessageRefused
from millstream.model.handles import RecallHandle
from millstream.model.message import Message
from millstream.model.topic import MessageType, TopicConfig
from servers import Servers


@pytest.fixture
def client(servers_in_thread: Servers) -> Iterator[BlockingClient]:
    with BlockingClient(servers_in_thread.nameserver) as opened:
        opened.create_topic(TopicConfig("later", MessageType.DELAY))
        opened.create_topic(TopicConfig("ranked", MessageType.PRIORITY))
        opened.create_topic(TopicConfig("plain"))
        yield opened


def in_an_hour() -> Message:
    return Message("later", b"body", delivery_timestamp_ms=time.time_ns() // 1_000_000 + 3_600_000)


def test_a_delayed_message_has_a_recall_handle_with_its_time(client: BlockingClient) -> None:
    message = in_an_hour()
    sent = client.send(message)
    handle = RecallHandle.decode(sent.recall_handle)
    assert (handle.topic, handle.message_id) == ("later", sent.message_id)
    assert handle.due_ms == message.delivery_timestamp_ms


def test_what_is_there_at_once_has_no_recall_handle(client: BlockingClient) -> None:
    assert client.send(Message("plain", b"body")).recall_handle == ""
    assert client.send(Message("later", b"body", delivery_timestamp_ms=1)).recall_handle == ""


def test_a_recalled_message_is_gone_and_cannot_be_recalled_again(client: BlockingClient) -> None:
    handle = RecallHandle.decode(client.send(in_an_hour()).recall_handle)
    client.recall(handle)
    with pytest.raises(MessageRefused) as refused:
        client.recall(handle)
    assert refused.value.name == "MESSAGE_NOT_FOUND"


def test_a_handle_of_another_broker_is_refused(client: BlockingClient) -> None:
    with pytest.raises(MessageRefused) as refused:
        client.recall(RecallHandle("later", "broker-z", 1, "id"))
    assert refused.value.name == "ILLEGAL_RECALL_HANDLE"
    assert "broker-z" in refused.value.message


def test_a_priority_chooses_the_queue(client: BlockingClient) -> None:
    assert [client.send(Message("ranked", b"b", priority=number)).queue.queue_id for number in (0, 2)] == [0, 2]
