"""A proxy's remoting port before two brokers, and clients that speak to it in raw frames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from contract_ground import Site, outgoing

from millstream.model.clock import Clock, ManualClock
from millstream.model.message import Address, StoredMessage
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.bodies import (
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import LockBody, LockedBody, QueueName
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remoting import RemotingFront
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer

ANNOUNCED = Address("proxy.example", 8080)


@dataclass
class Peer:
    """A client: its connection, and what the server asked of it."""

    connection: RemotingConnection
    client_id: str
    heard: list[RemotingCommand] = field(default_factory=list)

    version: int = 473

    async def ask(self, code: int, body: bytes = b"", **ext: object) -> RemotingCommand:
        fields = {name: str(value) for name, value in ext.items() if value is not None}
        command = RemotingCommand(code, fields, body, version=self.version)
        return await self.connection.request(command, 20.0)

    async def join(
        self, group: str, *topics: str, kind: str = "CONSUME_PASSIVELY", model: str = "CLUSTERING"
    ) -> RemotingCommand:
        subscriptions = [SubscriptionData(topic, "*", 1, "TAG") for topic in topics]
        consumer = ConsumerData(group, kind, model, "CONSUME_FROM_FIRST_OFFSET", subscriptions)
        data = HeartbeatData(self.client_id, [ProducerData("makers")], [consumer])
        return await self.ask(RequestCode.HEART_BEAT, encode_body(data))

    async def pull(
        self, offset: int, *, group: str = "g", topic: str = "orders", broker: str | None = "broker-a", queue: int = 0,
        wait_ms: int = 0, flags: int = 0, commit: int = 0,
    ) -> tuple[list[StoredMessage], int]:  # fmt: skip
        """Messages, and the offset to go on at."""
        flags |= 2 if wait_ms else 0
        answer = await self.ask(
            RequestCode.PULL_MESSAGE, consumerGroup=group, topic=topic, queueId=queue, queueOffset=offset,
            maxMsgNums=32, sysFlag=flags, commitOffset=commit, suspendTimeoutMillis=wait_ms, subVersion=0, bname=broker,
        )  # fmt: skip
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer.remark
        found = [decode_record(record) for record in iterate_records(answer.body)]
        return found, int(answer.ext["nextBeginOffset"])

    async def commit(self, offset: int, *, topic: str = "orders", group: str = "g") -> None:
        answer = await self.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0, commitOffset=offset,
            bname="broker-a",
        )  # fmt: skip
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def members(self, group: str) -> list[str]:
        answer = await self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
        return decode_body(ConsumerList, answer.body).consumer_id_list if answer.code == 0 else []

    async def lock(self, group: str, topic: str = "orders") -> int:
        queues = [QueueName(topic, name, 0) for name in ("broker-a", "broker-b")]
        body = encode_body(LockBody(group, self.client_id, queues))
        return len(decode_body(LockedBody, (await self.ask(RequestCode.LOCK_BATCH_MQ, body)).body).locked)


@dataclass
class Front:
    """A proxy's remoting port."""

    site: Site
    backend: RemoteBackend
    processor: Processor
    server: RemotingServer
    port: int
    clock: ManualClock
    remoting: RemotingFront
    peers: list[Peer] = field(default_factory=list)

    async def connect(self, client_id: str) -> Peer:
        peer = Peer(await RemotingConnection.open(Address("127.0.0.1", self.port)), client_id)

        def listen(command: RemotingCommand) -> None:
            peer.heard.append(command)

        peer.connection.listener = listen
        self.peers.append(peer)
        return peer

    async def send(self, *bodies: bytes, topic: str = "orders") -> None:
        """Into queue 0 of the first broker."""
        for body in bodies:
            message = outgoing(topic, body)
            message.queue_id = 0
            await self.site.brokers[0].delivery.send([message])


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


@asynccontextmanager
async def running_front(site: Site, clock: Clock) -> AsyncIterator[Front]:
    """A proxy, until the block ends."""
    backend = RemoteBackend(site.nameserver_address, clock=clock)
    processor = Processor(backend, clock=clock)
    remoting = RemotingFront(processor, backend, clock)
    server = RemotingServer(remoting.handlers(ANNOUNCED), clock=clock)
    opened = Front(site, backend, processor, server, await server.start(), clock, remoting)
    try:
        yield opened
    finally:
        for peer in opened.peers:
            await peer.connection.close()
        await server.close()
        await remoting.close()
        await processor.close()
        await backend.close()
