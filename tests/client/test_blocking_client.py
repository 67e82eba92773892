"""The blocking client end to end, with the servers in a thread."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.errors import ConnectionFailed, ConsumeRefused, NameRefused, TimedOut, Unreachable
from millstream.model.group import GroupConfig
from millstream.model.message import Message
from millstream.model.operations import PullStatus
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import encode_batch_item
from servers import Servers


@pytest.fixture
def client(servers_in_thread: Servers) -> Iterator[BlockingClient]:
    with BlockingClient(servers_in_thread.nameserver) as opened:
        opened.create_topic(TopicConfig("t"))
        yield opened


def bodies(client: BlockingClient, topic: str = "t") -> list[bytes]:
    return [
        message.body
        for item in client.queue_ranges(topic)
        for batch in client.read(item.queue, item.range.min_offset, item.range.max_offset)
        for message in batch.messages(verify=True)
    ]


def test_messages_are_sent_and_read_whole(client: BlockingClient) -> None:
    sent = client.send_many([Message("t", b"%04d" % n) for n in range(2500)])
    assert len({receipt.message_id for receipt in sent}) == 2500
    assert sorted(bodies(client)) == [b"%04d" % n for n in range(2500)]


def test_ordered_sends_follow_the_order_of_the_messages(client: BlockingClient) -> None:
    sent = client.send_many([Message("t", b"%04d" % n) for n in range(2500)], ordered=True)
    positions = [int(receipt.offset_message_id[16:], 16) for receipt in sent]
    assert positions == sorted(positions)
    assert len({receipt.queue.queue_id for receipt in sent}) == 3


def test_messages_for_one_queue_go_there_in_their_order_and_nowhere_else(client: BlockingClient) -> None:
    wanted = client.queues("t")[2]
    sent = client.send_many([Message("t", b"%04d" % n) for n in range(2500)], queue=wanted)
    assert {receipt.queue for receipt in sent} == {wanted}
    assert bodies(client) == [b"%04d" % n for n in range(2500)]


def test_a_pull_gives_raw_records_and_says_where_to_go_on(client: BlockingClient) -> None:
    client.send_many([Message("t", b"x")] * 8)
    [queue, *_] = client.queues("t")
    batch = client.pull(queue, 0)
    assert (batch.status, batch.next_offset, batch.max_offset) == (PullStatus.FOUND, 2, 2)
    assert b"".join(batch.records()) == batch.buffer
    assert client.pull(queue, 2).status is PullStatus.NOTHING_NEW
    assert client.pull(queue, 2, wait_ms=10).status is PullStatus.NOTHING_NEW


def test_a_range_that_is_not_there_is_refused(client: BlockingClient) -> None:
    [queue, *_] = client.queues("t")
    with pytest.raises(ConsumeRefused):
        list(client.read(queue, 0, 1))


def test_topics_groups_and_offsets_are_administered(client: BlockingClient) -> None:
    config = TopicConfig("orders", MessageType.FIFO, 2, 2)
    client.create_topic(config)
    assert client.describe_topic("orders") == config
    assert [topic.name for topic in client.topics()] == ["orders", "t"]
    client.create_group(GroupConfig("workers"))
    assert "workers" in [group.name for group in client.groups()]
    [queue, *_] = client.queues("t")
    assert client.offset_by_time(queue, 0) == 0
    assert client.query_offset("workers", queue) is None
    client.commit_offset("workers", queue, 0)
    assert client.query_offset("workers", queue) == 0
    client.delete_group("workers")
    client.delete_topic("orders")
    with pytest.raises(NameRefused) as refused:
        client.route("orders")
    assert refused.value.name == "TOPIC_NOT_FOUND"


def test_a_forked_child_uses_connections_of_its_own(client: BlockingClient) -> None:
    client.send_many([Message("t", b"parent")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            client.send_many([Message("t", b"child")] * 3)
            status = 0
        finally:
            os._exit(status)
    sent = [client.send_many([Message("t", b"parent")])[0].message_id for _ in range(20)]
    assert os.waitpid(child, 0)[1] == 0
    assert len(set(sent)) == 20
    assert sorted(bodies(client)) == [b"child"] * 3 + [b"parent"] * 21


def test_a_connection_that_the_server_closed_is_opened_again(
    servers_in_thread: Servers, client: BlockingClient
) -> None:
    client.topics()
    for connection in client._connections.values():
        connection._socket.shutdown(socket.SHUT_RDWR)
    assert [topic.name for topic in client.topics()] == ["t"]


def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Unreachable, match=address) as failed, BlockingClient(address) as client:
            client.topics()
    assert failed.value.exit_code == 3


@pytest.fixture
def mute_or_garbled() -> Iterator[tuple[str, threading.Event]]:
    """A listener that says nothing, or (event set) something that is no remoting."""
    garble = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                if garble.is_set():
                    connection.sendall(b"220 mail.example ESMTP\r\n")
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", garble
        thread.join(5)


def test_silence_is_timed_out(mute_or_garbled: tuple[str, threading.Event]) -> None:
    address, _ = mute_or_garbled
    with pytest.raises(TimedOut, match=address) as failed, BlockingClient(address, timeout_s=0.05) as client:
        client.topics()
    assert failed.value.exit_code == 4


def test_another_protocol_is_named(mute_or_garbled: tuple[str, threading.Event]) -> None:
    address, garble = mute_or_garbled
    garble.set()
    with pytest.raises(ConnectionFailed, match=address) as failed, BlockingClient(address) as client:
        client.topics()
    assert failed.value.name == "PROTOCOL_VIOLATION"


@pytest.mark.process
def test_importing_it_brings_in_no_event_loop_and_no_heavy_package() -> None:
    program = "import sys, millstream.client.blocking; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "grpc", "google.protobuf", "pyspark", "pyarrow", "numpy"} & set(modules)


def test_batches_in_one_record_are_read_as_the_messages_they_hold(client: BlockingClient) -> None:
    client.create_topic(TopicConfig("b", read_queues=1, write_queues=1, attributes={"queue.type": "BatchCQ"}))
    [queue] = client.queues("b")
    items = [encode_batch_item(b"m%d" % number, {"TAGS": "t"}) for number in range(5)]
    fields = {"a": "g", "b": "b", "e": "0", "f": "0", "g": "0", "h": "0", "m": "true", "i": "UNIQ_KEY\x01B1\x02"}
    command = RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, fields, b"".join(items))
    client.run(client.conversations.send(queue, command, ["B1"]))
    client.send_many([Message("b", b"m5")])
    batch = client.pull(queue, 2)
    assert [(message.queue_offset, message.body) for message in batch.messages(verify=True)] == [
        (number, b"m%d" % number) for number in range(2, 6)
    ]
    assert (batch.messages()[0].tag, batch.next_offset) == ("t", 6)
