"""Finding messages by whatever names them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.client import blocking as message_search
from millstream.client.blocking import BlockingClient
from millstream.model.errors import NameRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from servers import Servers


@pytest.fixture
def client(servers_in_thread: Servers) -> Iterator[BlockingClient]:
    with BlockingClient(servers_in_thread.nameserver) as opened:
        for name in ("one", "two"):
            opened.create_topic(TopicConfig(name))
        yield opened


def test_a_message_is_found_by_id_offset_id_and_key_in_any_topic(client: BlockingClient) -> None:
    sent = client.send(Message("one", b"wanted", keys=("k",)))
    client.send(Message("two", b"other"))
    for name in (sent.message_id, sent.offset_message_id, sent.offset_message_id.lower(), "k"):
        for topic in (None, "one"):
            assert [found.body for found in client.find_messages(name, topic)] == [b"wanted"]
        assert client.find_messages(name, "two") == []


def test_several_messages_of_a_key_come_newest_first(client: BlockingClient) -> None:
    for topic, body in (("one", b"1"), ("two", b"2"), ("one", b"3")):
        client.send(Message(topic, body, keys=("k",)))
    found = client.find_messages("k")
    assert [message.store_timestamp_ms for message in found] == sorted(
        (message.store_timestamp_ms for message in found), reverse=True
    )
    assert {message.body for message in found} == {b"1", b"2", b"3"}
    assert len(client.find_messages("k", max_results=2)) == 2


@pytest.mark.parametrize(
    "name", ["7F00000100000001" + "0" * 16, "7F00000100000001" + "F" * 16, "0" * 32, "x", "0" * 56]
)
def test_an_id_of_no_message_finds_nothing(client: BlockingClient, name: str) -> None:
    client.send(Message("one", b"body"))
    assert client.find_messages(name) == []


def test_an_offset_id_of_another_broker_is_not_answered_with_what_lies_there(client: BlockingClient) -> None:
    own = client.send(Message("one", b"body")).offset_message_id
    assert client.find_messages("0A000001" + own[8:]) == []


def test_a_topic_that_is_missing_is_refused(client: BlockingClient) -> None:
    with pytest.raises(NameRefused) as refused:
        client.find_messages("k", "missing")
    assert refused.value.name == "TOPIC_NOT_FOUND"


def test_too_many_topics_have_to_be_narrowed(client: BlockingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_search, "MAX_SEARCHED_TOPICS", 1)
    with pytest.raises(NameRefused) as refused:
        client.find_messages("k")
    assert refused.value.name == "SEARCH_TOO_WIDE"
    assert client.find_messages("k", "one") == []
