"""Pops over remoting from a queue that moved: what its former broker still holds is delivered and acknowledged too."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from pop_client import delivery_fields, pop_fields, taken_of

from broker_cluster import running_cluster
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.static_topics import StaticTopicOperations
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection


async def test_each_delivery_is_acknowledged_at_the_broker_that_its_handle_names(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, ["a", "b"]) as cluster, Client(cluster.nameserver) as client:
        static = StaticTopicOperations(client.conversations)
        await client.run(static.create(TopicConfig("t"), 1, ["a"]))
        producer = Producer(client)
        for body in ("old", "older"):
            await producer.send(Message("t", body.encode()))
        await client.run(static.remap("t", ["b"]))
        await producer.send(Message("t", b"new"))
        async with AsyncExitStack() as opened:
            connections = {}
            for name, broker in cluster.brokers.items():
                connections[name] = await RemotingConnection.open(broker.advertised)
                opened.push_async_callback(connections[name].close)

            async def ask(name: str, code: int, fields: dict[str, str]) -> RemotingCommand:
                return await connections[name].request(RemotingCommand(code, fields), 20)

            looked = await ask("b", RequestCode.PEEK_MESSAGE, pop_fields())
            assert [decode_record(record).body for record in iterate_records(looked.body)] == [b"old", b"older", b"new"]
            taken = []
            for _ in range(2):
                taken += taken_of(await ask("b", RequestCode.POP_MESSAGE, pop_fields()), "b")
            assert [(each.body, each.queue_id, each.offset) for each in taken] == [
                ("old", 0, 0),
                ("older", 0, 1),
                ("new", 0, 2),
            ]
            named = [each.extra_info.split(" ")[5] for each in taken]
            assert named == ["a", "a", "b"]
            for each, name in zip(taken, named, strict=True):
                assert (await ask(name, RequestCode.ACK_MESSAGE, delivery_fields(each))).code == ResponseCode.SUCCESS
            wrong = await ask("b", RequestCode.ACK_MESSAGE, delivery_fields(taken[0]))
            assert wrong.code == ResponseCode.NO_MESSAGE
            nothing = await ask("b", RequestCode.PEEK_MESSAGE, pop_fields())
            assert nothing.code == ResponseCode.PULL_NOT_FOUND
