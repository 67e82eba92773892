"""A team that moves from RocketMQ's remoting consumers to gRPC ones: what waited to come again is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from official import drain, message, producer, simple_consumer

from millstream.client.blocking import BlockingConnection
from millstream.model.group import GroupConfig
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.administration.settings import encode_group, topic_fields
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.official


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as running:
        yield running


def test_messages_that_were_given_back_over_remoting_come_to_the_grpc_consumers_of_the_group(
    server: ServerProcess,
) -> None:
    connection = BlockingConnection(server.addresses.broker, timeout_s=5)

    def ask(code: int, body: bytes = b"", **ext: str) -> bytes:
        answer = connection.request(RemotingCommand(code, ext, body), 5)
        assert answer.code == 0, answer.remark
        return answer.body

    ask(17, **topic_fields(TopicConfig("orders", read_queues=1, write_queues=1)))
    ask(200, encode_group(GroupConfig("team", backoff_s=(0,))))
    for number in range(3):
        ask(
            310,
            b"%d" % number,
            a="p",
            b="orders",
            e="0",
            g="1",
            i=f"TAGS\x01new\x02UNIQ_KEY\x01ID{number}\x02own\x01x\x02",
        )
    where = {"consumerGroup": "team", "topic": "orders", "queueId": "0"}
    pulled = ask(11, **where, queueOffset="0", maxMsgNums="32", sysFlag="4", subscription="*")
    records = [decode_record(record) for record in iterate_records(pulled)]
    ask(36, group="team", offset=str(records[1].log_offset), delayLevel="0", originTopic="orders", originMsgId="ID1")
    ask(15, **where, commitOffset="3")
    connection.close()

    grpc_port = int(server.addresses.grpc.rpartition(":")[2])
    with producer(grpc_port, "orders") as sender, simple_consumer(grpc_port, "team", "orders", await_s=1) as consumer:
        [again] = drain(consumer, 1)
        assert (again.body, again.topic, again.delivery_attempt) == (b"1", "orders", 2)
        assert (again.message_id, again.tag, again.properties) == ("ID1", "new", {"own": "x"})
        sender.send(message("orders", b"later"))
        [later] = drain(consumer, 1)
        assert (later.body, later.delivery_attempt) == (b"later", 1)
        assert consumer.receive(32, 10) == []
