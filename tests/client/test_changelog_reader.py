"""State stores over a real broker: all there is, then what follows, over compactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.client.blocking import BlockingClient
from millstream.client.changelog_reader import ChangelogReader
from millstream.client.values import QueueAddress
from millstream.model.errors import NameRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from servers import Servers


@pytest.fixture
def client(servers_in_thread: Servers) -> Iterator[BlockingClient]:
    with BlockingClient(servers_in_thread.nameserver) as opened:
        opened.create_topic(
            TopicConfig("c", read_queues=1, write_queues=1, attributes={"cleanup.policy": "COMPACTION"})
        )
        yield opened


def put(client: BlockingClient, **values: str) -> None:
    client.send_many([Message("c", value.encode(), keys=(key,)) for key, value in values.items()])


def queue_of(client: BlockingClient) -> QueueAddress:
    return client.queues("c")[0]


def test_the_snapshot_is_the_last_value_of_each_key_and_the_tail_follows(
    client: BlockingClient, servers_in_thread: Servers
) -> None:
    for number in range(600):
        put(client, a=str(number), b=f"b{number}")
    put(client, b="")
    reader = ChangelogReader(client, queue_of(client))
    assert reader.read_snapshot() == {b"a": b"599"}
    assert servers_in_thread.broker.maintenance.store.compact({"c"}) == 1
    again = ChangelogReader(client, queue_of(client))
    assert again.read_snapshot() == {b"a": b"599"}
    assert again.next_offset == reader.next_offset == 1201
    put(client, b="back", c="new")
    tail = [(bytes(change.key), bytes(change.value or b"")) for change in reader.read(wait_ms=1000)]
    assert tail == [(b"b", b"back"), (b"c", b"new")]
    assert reader.read(wait_ms=0) == []
    late = ChangelogReader(client, queue_of(client), next_offset=reader.next_offset)
    put(client, a="")
    assert [(change.key, change.value) for change in late.read(wait_ms=1000)] == [(b"a", None)]


def test_a_queue_that_is_not_there_is_named(client: BlockingClient) -> None:
    wrong = QueueAddress("c", "broker-a", 7, queue_of(client).broker_address)
    with pytest.raises(NameRefused, match="no queue 7"):
        ChangelogReader(client, wrong).read_snapshot()
